"""The float64 twin of a traced graph: the same ops and names, with every narrower dtype widened.

The graph is rewritten, not traced again, so it doesn't depend on what Python code does with another dtype. A
float variable becomes a double one of the same value. A constant keeps the value to which its dtype rounded
it. An op without a double kernel, or with a fixed float argument, keeps its dtypes, with casts around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf

from gradcheck_cli.numerics.precision import precision_of
from gradcheck_cli.tensorflow_backend import graph_path
from gradcheck_cli.tensorflow_backend.private import private_state
from gradcheck_cli.tensorflow_backend.private.private_graphs import feeds_of, whole_graph
from gradcheck_cli.tensorflow_backend.traces.frozen import BodyHolds
from gradcheck_cli.tensorflow_backend.traces.state import Made, Resource
from gradcheck_cli.tensorflow_backend.traces.tracing import ForwardTrace, VjpTrace
from gradcheck_cli.tensorflow_backend.twin import widening
from gradcheck_cli.tensorflow_backend.twin.rewriting import Rewritten


@dataclass
class WideVariables:
    """The double variables that replace a case's narrower ones: one for each, in all of its twins."""

    # By id of the handle. The handle itself is here too, so that its id stays in use.
    _by_handle: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def handle(self, handle: Any, dtype: Any) -> Any:
        """Return the handle of a variable's wide form; a wide variable keeps its own."""
        wide = widening.wide_dtype(dtype)
        if wide == dtype:
            return handle
        if id(handle) not in self._by_handle:
            with tf.init_scope():
                narrow = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
                variable = tf.Variable(tf.cast(narrow, wide), trainable=False)
            self._by_handle[id(handle)] = (handle, variable)
        return self._by_handle[id(handle)][1].handle

    def follow(self) -> None:
        """Give each wide form the present value of its variable."""
        for handle, wide in self._by_handle.values():
            dtype = private_state.dtype_of_variable(handle)
            wide.assign(tf.cast(tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype), wide.dtype))

    def of(self, variable: Any) -> Any:
        """Return the wide form of a variable that a twin uses; a wide variable is returned itself."""
        self.handle(variable.handle, variable.dtype)
        entry = self._by_handle.get(id(variable.handle))
        return variable if entry is None else entry[1]


@dataclass(frozen=True)
class BackwardEnds:
    """The ends of a forward and its gradients in one graph."""

    inputs: Sequence[Any]
    outputs: Sequence[Any]
    gradients: Sequence[tuple[Any, Any]]  # each with the input, or the variable's handle, that it is for

    def find_own_rounding(self, graph: Any) -> dict[str, Any]:
        """Return what a gradient rounds by more than the forward does, as arguments of a `Widening`.

        A way from one input to the outputs may be wider than the others. What rounds on the way from the same
        input to its gradient alone counts there: the forward may round a number that comes from elsewhere.
        """
        before, own_casts, starts = set(graph_path.ops_before(self.outputs)), set(), [*self.inputs]
        ops = graph.get_operations()
        units = {op: widening.unit_of(op.outputs[0].dtype) for op in ops if op.type == "Cast"}
        for start, gradient in self.gradients:
            starts.append(start)
            # What reads the input is on its way. Walking all of that takes long in a model.
            least = _coarsest_unit([op for op in start.consumers() if op in before])
            if max(units.values(), default=0.0) > least:
                unit = _coarsest_unit(graph_path.ops_between([start], self.outputs))
                to_gradient = graph_path.ops_between([start], [gradient])
                own_casts |= {op.name for op in to_gradient if units.get(op, 0.0) > unit}
        largest_unit = _coarsest_unit(graph_path.ops_between(starts, self.outputs))
        return {"largest_unit": largest_unit, "own_casts": own_casts}


def _coarsest_unit(ops: Sequence[Any]) -> float:
    names = ("float64", *graph_path.dtypes_of(ops))
    return max(precision_of(name).unit_roundoff for name in names)


class Twin(Rewritten):
    """The float64 twin of a graph, and the tensors in it that replace the graph's own.

    Args:
        function: a traced function, or one made from a part of its graph.
        variables: the wide forms of the variables that it uses.
        body_holds: holds ops in the twin's bodies, instead of the traced graph's.
        has_sides: rewrite its kinked ops, so that the side that each element is on can be held.
        backward: the ends of a forward and its gradients, in a graph that has both. What a gradient rounds
            to fewer bits than the forward has stays rounded: that error is its own.

    Attributes:
        sides: for each kinked op, the side that a point takes, and the tensor to hold.
        units: the unit roundoff of what was narrower: of constants, and of what is read or captured; by
            function (empty for the graph itself) and node.
    """

    def __init__(
        self,
        function: Any,
        variables: WideVariables,
        body_holds: BodyHolds | None = None,
        *,
        has_sides: bool = False,
        backward: BackwardEnds | None = None,
    ) -> None:
        graph = whole_graph(function)
        replaced = (
            {held_op.token: held_op.record_or_replay for held_op in body_holds.ops} if body_holds else {}
        )
        own = {} if backward is None else backward.find_own_rounding(graph)
        rewriting = widening.Widening(graph, replaced, **own, has_sides=has_sides)
        self.units, self._narrow_ops = rewriting.units, rewriting.narrow_ops
        substitutes = {}
        for name, outer in rewriting.captured.items():
            variable_dtype = private_state.dtype_of_variable(outer)
            if variable_dtype is not None:
                substitutes[name] = variables.handle(outer, variable_dtype)
            elif widening.wide_dtype(outer.dtype) == outer.dtype:
                substitutes[name] = outer
            else:
                rewriting.note_unit("", name, outer.dtype.as_datatype_enum)
                substitutes[name] = tf.cast(outer, widening.wide_dtype(outer.dtype))
        self._between = Made()
        super().__init__(rewriting, substitutes, rewriting.body.names)
        self.sides = [tuple(map(self.graph.get_tensor_by_name, pair)) for pair in rewriting.sides]

    def narrow_ops_between(self, inputs: Iterable[Any], outputs: Iterable[Any]) -> list[widening.NarrowOp]:
        """Return the ops that keep their dtypes between some of the twin's own tensors.

        Ops in the body of a function count if an op between calls it.
        """
        narrow_ops = [op for op in self._narrow_ops if op.is_narrow]
        if not narrow_ops:
            return []
        starts, ends = list(inputs), list(outputs)

        def find() -> tuple[set[str], set[str]]:
            ops = graph_path.ops_between(starts, ends)
            called = {name for op in ops for name in graph_path.functions_called(op)}
            return {op.name for op in ops}, called

        names, called = self._between.of(find, *starts, None, *ends)
        return [op for op in narrow_ops if (op.function in called if op.function else op.name in names)]


@dataclass(frozen=True)
class WideForward:
    """The twin of a traced forward."""

    trace: ForwardTrace  # what a trace of the forward in float64 would be
    twin: Twin  # the graph's

    @property
    def narrow_ops(self) -> list[widening.NarrowOp]:
        """The ops between inputs and outputs that keep their dtypes."""
        return self.twin.narrow_ops_between(self.trace.moving, self.trace.outputs)

    def on_one_piece(self) -> WideForward | None:
        """Return the same forward with kinked ops whose sides are held, as `stop_gradient`s are.

        It has one more output: how many elements are on another side than the one that is held. It is `None`
        where there is no such op between the inputs and the outputs.
        """
        between = set(graph_path.ops_between(self.trace.moving, self.trace.outputs))
        sides = [(side, to_hold) for side, to_hold in self.twin.sides if to_hold.op in between]
        if not sides:
            return None
        with self.twin.graph.as_default():
            counts = [tf.math.count_nonzero(side != to_hold, dtype=tf.float64) for side, to_hold in sides]
            changed = tf.add_n(counts)
        trace = replace(
            self.trace,
            outputs=(*self.trace.outputs, changed),
            dtypes=(*self.trace.dtypes, changed.dtype),
            held=replace(self.trace.held, sides=tuple(to_hold for _, to_hold in sides)),
        )
        return replace(self, trace=trace)


@dataclass(frozen=True)
class WideVjp:
    """The twin of a traced vjp."""

    trace: VjpTrace  # what a trace of the vjp in float64 would be
    twin: Twin  # the twin of the graph that its functions are parts of

    @property
    def narrow_ops(self) -> list[widening.NarrowOp]:
        """The ops that keep their dtypes, on the way from inputs and upstreams to the gradients."""
        narrow_ops = []
        for function in (pullback.function for pullback in self.trace.pullbacks.values()):
            narrow_ops += self.twin.narrow_ops_between(feeds_of(function), function.outputs)
        return narrow_ops


def widen_forward(trace: ForwardTrace, variables: WideVariables, *, has_sides: bool = False) -> WideForward:
    """Make the twin of a forward; see `Twin`. With sides, it is on one piece if it has any."""
    held = trace.held.recording_anew()
    twin = Twin(trace.function, variables, held.body_holds, has_sides=has_sides)
    wide_dtypes = tuple(widening.wide_dtype(dtype) for dtype in trace.dtypes)
    narrow = replace(trace, dtypes=wide_dtypes, low_precision=(), held=held)
    wide = WideForward(twin.forward(narrow), twin)
    return (wide.on_one_piece() or wide) if has_sides else wide


def widen_vjp(trace: VjpTrace, variables: WideVariables) -> WideVjp:
    """Make the twin of a vjp; see `Twin`."""
    held = trace.held.recording_anew()
    ends = BackwardEnds(trace.inputs, trace.outputs, trace.whole.gradients)
    twin = Twin(trace.whole.function, variables, held.body_holds, backward=ends)
    wide = replace(
        twin.vjp(replace(trace, held=held)),
        unrestored=tuple(_widen_resource(resource, variables) for resource in trace.unrestored),
        whole=replace(
            trace.whole,
            function=twin,
            upstreams=twin.tensors(trace.whole.upstreams),
            results=twin.tensors(trace.whole.results),
        ),
        inputs=twin.tensors(trace.inputs),
        outputs=twin.tensors(trace.outputs),
    )
    return WideVjp(wide, twin)


def _widen_resource(resource: Resource, variables: WideVariables) -> Resource:
    if len(resource.dtypes) > 1:  # a table, which keeps its dtypes
        return resource
    (dtype,) = resource.dtypes
    return replace(
        resource, handle=variables.handle(resource.handle, dtype), dtypes=(widening.wide_dtype(dtype),)
    )
