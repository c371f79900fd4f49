"""Copies a traced graph with loops that run on where their values have stopped them.

A solver's loop ends where its values move by less than a tolerance. In the copy, each such loop is followed
by another, with zero as its tolerance and a limit of rounds, so that it ends in any case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.tensorflow_backend.private.private_graphs import whole_graph
from gradcheck_cli.tensorflow_backend.traces.tracing import ForwardTrace, VjpTrace
from gradcheck_cli.tensorflow_backend.twin.rewriting import Body, Rewriting, Rewritten, make_node

_COMPARISONS = {"Less", "LessEqual", "Greater", "GreaterEqual"}
# What reads a comparison that decides; another makes a mask of it, which is part of what the body computes.
_DECISIONS = {"If", "StatelessIf", "Identity", "LogicalAnd", "LogicalNot", "LogicalOr", "Any", "All"}
# The double of few rounds isn't many: at zero, a solver is at its end after one.
_MORE = 8
_FLAG, _COUNTER = tf.bool.as_datatype_enum, tf.int32.as_datatype_enum


class RunningOn(Rewriting):
    """A copy of a graph whose loops run on.

    Args:
        graph: the graph, whose functions get such copies, too.
        times: how often a loop goes round in all, as a multiple of what its condition lets it.
        among: names of the nodes of the graph itself whose loops these are: a gradient's own stay as they
            are, since what they leave is its error.

    Attributes:
        count: how many loops run on.
    """

    def __init__(self, graph: Any, times: int, among: Collection[str]) -> None:
        super().__init__(graph, "on")
        self._times, self._among, self.count = times, among, 0
        self.rewrite_body(self.body, ())

    def rewrite_signature(self, function: Any) -> None:
        """Drop what names other functions."""
        function.attr.clear()

    def rewrite_body(self, body: Body, _: Sequence[str]) -> None:
        """Add a loop after each that its values stop; what reads the one reads the other."""
        own = [node for node in body.nodes if body.function or node.name in self._among]
        loops = [node for node in own if self._is_stopped_by_values(node)]
        for node in own:
            self.rename_calls(node)
        for loop in loops:
            both = [[body.name_of(name, *slot) for slot in _outputs(loop)] for name in self._names(loop)]
            body.names |= dict(zip(*both, strict=True))
        for node in body.nodes:
            for index, name in enumerate(node.input):
                node.input[index] = body.names.get(body.full_name(name), name)
        for loop in loops:
            body.nodes.extend(self._run_on(body, loop))

    def _names(self, loop: Any) -> tuple[str, str]:
        return loop.name, f"{loop.name}{self.suffix}"

    def _is_stopped_by_values(self, node: Any) -> bool:
        """Whether a node is a loop with TensorFlow's own counter, and a condition that depends on values."""
        if node.op not in {"While", "StatelessWhile"} or list(node.attr["T"].list.type[:2]) != [_COUNTER] * 2:
            return False
        condition = self.library[node.attr["cond"].func.name]
        has_flag = any(argument.type == _FLAG for argument in condition.signature.input_arg)
        return has_flag or any(map(_compares, self._nodes(condition)))

    def _nodes(self, function: Any) -> Iterator[Any]:
        for node in function.node_def:
            yield node
            for attr in node.attr.values():
                if attr.HasField("func"):
                    yield from self._nodes(self.library[attr.func.name])

    def _run_on(self, body: Body, loop: Any) -> Iterator[Any]:
        """Yield a loop that takes what another returned, with its limit; flags are as they were at first."""
        self.count += 1
        again = type(loop).FromString(loop.SerializeToString())
        again.name = on = self._names(loop)[1]
        for index, (dtype, slot) in enumerate(zip(loop.attr["T"].list.type, _outputs(loop), strict=True)):
            if dtype != _FLAG:
                again.input[index] = body.name_of(loop.name, *slot)
        constants = {f"{on}_more": _MORE, f"{on}_times": self._times}
        for name, value in constants.items():
            yield make_node(name, "Const", [], dtype=tf.int32, value=np.int32(value))
        more, times = (body.name_of(name, "output:0") for name in constants)
        yield make_node(f"{on}_sum", "AddV2", [again.input[0], more], T=tf.int32)
        yield make_node(f"{on}_limit", "Mul", [body.name_of(f"{on}_sum", "z:0"), times], T=tf.int32)
        again.input[1] = body.name_of(f"{on}_limit", "z:0")
        condition, steps = (self._copy(again.attr[name].func.name) for name in ("cond", "body"))
        again.attr["cond"].func.name, again.attr["body"].func.name = (
            function.signature.name for function in (condition, steps)
        )
        ends = [steps.ret[argument.name] for argument in steps.signature.output_arg]
        keeps = [name == end for name, end in zip(_arguments(steps), ends, strict=True)]
        for function in (condition, steps):
            names = zip(_arguments(function), keeps, strict=True)
            _compare_with_zero(function, {name for name, is_kept in names if is_kept})
        _limit(condition)
        yield again

    def _copy(self, name: str) -> Any:
        copy = type(self.copies[name]).FromString(self.copies[name].SerializeToString())
        copy.signature.name = f"{name}_{self.count}"
        self.copies[copy.signature.name] = copy
        return copy


def _limit(condition: Any) -> None:
    """Let a loop's condition compare the counter with its limit, too."""
    counter, limit, *_ = _arguments(condition)
    ((key, goes_on),) = condition.ret.items()
    condition.node_def.append(make_node("in_limit", "Less", [counter, limit], T=tf.int32))
    condition.node_def.append(make_node("goes_on", "LogicalAnd", [goes_on, "in_limit:z:0"]))
    condition.ret[key] = "goes_on:z:0"


def _compare_with_zero(function: Any, kept: Iterable[str]) -> None:
    """Let zero take the place of constants, and of what a loop keeps, where they decide."""
    fixed, grows = set(kept), True
    while grows:
        ends = {node.name for node in function.node_def if {*map(_origin, node.input)} <= fixed}
        grows, fixed = not ends <= fixed, fixed | ends
    for node in [node for node in function.node_def if _compares(node)]:
        if {each.op for each in function.node_def if f"{node.name}:z:0" in each.input} <= _DECISIONS:
            dtype = tf.as_dtype(node.attr["T"].type)
            zero = make_node(f"{node.name}_zero", "Const", [], dtype=dtype, value=tf.zeros([], dtype))
            function.node_def.append(zero)
            for index, name in enumerate(node.input):
                node.input[index] = f"{zero.name}:output:0" if _origin(name) in fixed else name


def _origin(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]


def _arguments(function: Any) -> list[str]:
    return [argument.name for argument in function.signature.input_arg]


def _outputs(loop: Any) -> list[tuple[str, int]]:
    return [(f"output:{index}", index) for index in range(len(loop.attr["T"].list.type))]


def _compares(node: Any) -> bool:
    return node.op in _COMPARISONS and tf.as_dtype(node.attr["T"].type).is_floating


def forward_running_on(trace: ForwardTrace, times: int) -> ForwardTrace | None:
    """Return a forward whose loops go round so many times as often; `None` where values stop none."""
    copy = _copy_of(trace.function, times, trace.function.graph.get_operations())
    return None if copy is None else copy.forward(trace)


def vjp_running_on(trace: VjpTrace, times: int) -> VjpTrace | None:
    """Return the same of a vjp."""
    copy = _copy_of(trace.whole.function, times, trace.whole.forward_ops)
    return None if copy is None else copy.vjp(trace)


def _copy_of(function: Any, times: int, among: Iterable[Any]) -> Rewritten | None:
    on = RunningOn(whole_graph(function), times, {op.name for op in among})
    return Rewritten(on, on.captured, on.body.names) if on.count else None
