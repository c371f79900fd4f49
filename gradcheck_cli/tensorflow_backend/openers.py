"""How a case is opened, in graph mode or another: with its variables among the arguments, or in float64."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import GradientFormError, Opening, Operation
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.optional import describe_missing
from gradcheck_cli.results import VERSION_CHECK
from gradcheck_cli.spec.case import Case, InputSpec, Running, version_fits
from gradcheck_cli.spec.values.moves import WAYS, keep_structure, other_setting
from gradcheck_cli.tensorflow_backend import dtypes, users_code
from gradcheck_cli.tensorflow_backend.backward_walk import find_written_ops
from gradcheck_cli.tensorflow_backend.binding import flat_tensors
from gradcheck_cli.tensorflow_backend.binding.binder import Binder
from gradcheck_cli.tensorflow_backend.binding.flat_tensors import plain_name, with_variables
from gradcheck_cli.tensorflow_backend.dtypes import Array
from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.graph.second_order import case_of_vjp
from gradcheck_cli.tensorflow_backend.graph.traced_case import CaseState
from gradcheck_cli.tensorflow_backend.modes.eager_mode import EagerMode, works_eagerly
from gradcheck_cli.tensorflow_backend.modes.graph_modes import (
    DynamicMode,
    GraphMode,
    XlaMode,
    check_output_shapes,
)
from gradcheck_cli.tensorflow_backend.private import private_state
from gradcheck_cli.tensorflow_backend.registry import require_seen
from gradcheck_cli.tensorflow_backend.traces.state import Resource, captured_ids
from gradcheck_cli.tensorflow_backend.traces.trace_faults import run_error, trace_function


def trace_alone(case: Case) -> Callable[[Sequence[Array]], list[Any]]:
    """Trace the forward of a case by itself, and return it as a function of the inputs' values.

    Raises:
        Exception: whatever the forward raises. What the function raises is a `CaseFailedError`.
    """
    signature = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in case.tensors]
    forward = Binder(case).forward()  # what makes weights of tensors can't while a function is traced
    function = trace_function(forward.call, signature)

    def call(values: Sequence[Array]) -> list[Any]:
        kinds = [tensor.dtype for tensor in case.tensors]
        try:
            narrow = map(dtypes.narrow, values, kinds)
            return list(tf.nest.flatten(function(*map(tf.constant, narrow, kinds))))
        except Exception as error:
            raise run_error(error, "forward") from error

    return call


def require_version(running: Running) -> None:
    """Refuse a case that is for other versions of TensorFlow, or for modules that aren't installed.

    Raises:
        CaseSkippedError: of the check `VERSION_CHECK`, with the required and the installed version.
    """
    if running.tensorflow and not version_fits(tf.__version__, running.tensorflow):
        raise CaseSkippedError(
            VERSION_CHECK, f"it is for TensorFlow {running.tensorflow}; this is {tf.__version__}."
        )
    missing = [describe_missing("it", name) for name in running.needs if not _is_there(name)]
    if missing:
        raise CaseSkippedError(VERSION_CHECK, "; ".join(missing))


def _is_there(module: str) -> bool:
    with suppress(ModuleNotFoundError):  # the package around it isn't installed
        return find_spec(module) is not None
    return False


MODES = {"graph": GraphMode(), "dynamic": DynamicMode(), "eager": EagerMode(), "xla": XlaMode()}


def opener_of(case: Case, mode: str, like: CaseOpener | None = None) -> CaseOpener:
    """Return the opener of a case in a mode; its `case` has the variables among the arguments, if requested.

    Args:
        like: an opener of the same case in another mode; the layers that it built are used here too.

    Raises:
        CaseSkippedError: it is for other versions of TensorFlow, or the mode doesn't support its binding.
        CaseFailedError: the variables can't be found, since the forward raises.
    """
    require_version(case.running)
    opened_in = MODES[mode]
    reason = opened_in.refusal(case)
    if reason is not None:
        raise CaseSkippedError("mode", reason)
    state = CaseState(case)
    if like is not None:
        state.built, state.written = like.state.built, like.state.written
    opener = CaseOpener(opened_in, state)
    is_layer = case.code.variables is None and users_code.is_layer(state.target())
    if case.code.variables or is_layer:
        # Known shapes without a compiler are enough to look for them; a call finds them as well.
        plain = opened_in if mode == "eager" else MODES["graph"]
        op = replace(opener, mode=plain).open(Opening())
        if case.code.variables:
            return _with_variables(opener, _choose(case, op.trainable), op)
        # A layer's weights become inputs unless it overwrites them itself, as SpectralNormalization does.
        variables = [
            variable for variable in op.trainable if id(variable.handle) not in op.written_before_read
        ]
        if variables:
            return _with_variables(opener, variables, op)
    if case.code.variables is None:
        variables = _variables_of_custom_gradients(opener)
        return _with_variables(opener, variables, opener.open(Opening())) if variables else opener
    return opener


def _choose(case: Case, trainable: Sequence[Any]) -> Sequence[Any]:
    """Return the trainable variables that are inputs: all of them, or those that the caller chose.

    Raises:
        CaseFailedError: the forward doesn't use one of these.
    """
    if case.code.given is None or case.code.given.variables is None:
        return trainable
    used = {id(variable.handle) for variable in trainable}
    chosen: Sequence[Any] = case.code.given.variables
    missing = [plain_name(variable) for variable in chosen if id(variable.handle) not in used]
    if missing:
        raise CaseFailedError(
            "variables",
            f"the function doesn't use {', '.join(missing)}, or it isn't trainable; leave it out of "
            "variables.",
        )
    return chosen


def _variables_of_custom_gradients(opener: CaseOpener) -> list[Any]:
    """Return the variables that the user wrote gradients for; these are checked by default.

    If the spec has a reference, return only those that it uses as well: it shows nothing about the others.
    """
    try:
        op = opener.open(Opening())
        variables = private_state.in_order_of_creation(op.facts.opened.gradient_variables)
        if variables and opener.case.reference is not None:
            used = captured_ids(opener.open(Opening(of="reference")).traced.forward.function)
            variables = [variable for variable in variables if id(variable.handle) in used]
    except (CaseFailedError, CaseSkippedError, GradientFormError):
        return []  # it is raised again where the case is checked
    return variables


def _with_variables(opener: CaseOpener, variables: Sequence[Any], op: Any) -> CaseOpener:
    """Return the opener of the case with variables among its inputs.

    Raises:
        CaseFailedError: there are none, or the forward writes to one before it reads it. The gradient is then
            for the new value, and a difference in the old one shows nothing about it.
    """
    written = [
        plain_name(variable) for variable in variables if id(variable.handle) in op.written_before_read
    ]
    if written:
        raise CaseFailedError(
            "variables",
            f"the forward writes to {', '.join(written)}: if it reads that again, the gradient is for the "
            "written value, and differences in the old value show nothing about it. Say 'variables: false', "
            "or check the part after the write.",
        )
    state = opener.state
    case = with_variables(state.case, variables, state.target())
    plain = getattr(op, "traced", None)
    state = replace(state, case=case, draws={}, graphs={}, variables=tuple(variables), plain=plain)
    return replace(opener, state=state)


@dataclass(frozen=True)
class CaseOpener:
    """Opens one case in one mode; `checking.Opener`."""

    mode: GraphMode
    state: CaseState  # the state that all its ops share

    @property
    def case(self) -> Case:
        """The case, with its variables among the arguments; see `Opener`."""
        return self.state.case

    def open(self, opening: Opening) -> Any:
        """Open a form of the case in the dtypes that the spec names; see `Opener`.

        If a case can be called eagerly but can't be traced, the error says so.
        """
        try:
            return self.mode.open(self.state, opening)
        except CaseFailedError as error:
            if (
                type(self.mode) is not GraphMode
                or error.kind != "forward"
                or "use binding: py_func" in error.message
                or not works_eagerly(self.state, opening)
            ):
                raise
            raise CaseFailedError(
                error.kind,
                f"{error.message.rstrip('.')}. It works where it is called eagerly: say 'modes: [eager]' "
                "(or --mode eager) to check it there.",
                error.traceback,
            ) from error

    @property
    def points(self) -> range:
        """Indices of the sample points: a single one if no value changes. Weights do, except at the first."""
        moves = any(not tensor.keeps for _, tensor in self._weights())
        drawn = self.case.judging.samples if self.case.is_generated else 1
        return range(max(drawn, 2) if moves else drawn)

    def _weights(self) -> Sequence[tuple[Resource, InputSpec]]:
        """Find the weights, once."""
        weights = self.state.weights
        if weights.found is None:
            op = self.open(Opening())
            inputs = [*self.case.tensors[len(self.case.tensors) - len(self.state.variables) :]]
            own = {
                id(variable.handle): tensor
                for variable, tensor in zip(self.state.variables, inputs, strict=True)
            }
            limits = flat_tensors.constraints_in_target(self.state.target())
            trainable = {id(variable.handle) for variable in op.trainable}
            weights.found = []
            for index, resource in enumerate(op.weights):
                tensor = own.get(id(resource.handle))
                if tensor is None:
                    tensor = flat_tensors.as_input(self.case, f"weight {index}", resource, limits)
                    tensor = tensor if id(resource.handle) in trainable else keep_structure(tensor)
                weights.found.append((resource, tensor))
        return weights.found

    @contextlib.contextmanager
    def at(self, sample: int) -> Iterator[None]:
        """Give the weights their values at a sample point while the block runs; see `Opener`."""
        weights, chosen = self.state.weights, self.state.chosen.get(sample)
        if not self._weights() or (chosen is None and not sample):
            yield
            return
        if chosen is None and sample > 0 and sample not in weights.settled:
            weights.settled.add(sample)
            self._settle_weights(sample)
        with self._moved(sample):
            yield

    def _moved(self, sample: int) -> contextlib.AbstractContextManager[None]:
        chosen = self.state.chosen.get(sample)
        chosen_values = dict(zip((tensor.name for tensor in self.case.tensors), chosen or (), strict=False))
        own = sample if chosen is None else 1  # which weights that are no inputs have at chosen points
        values = [
            np.asarray(chosen_values.get(tensor.name, self.state.value_of(tensor, own)))
            for _, tensor in self._weights()
        ]
        return self.state.weights.at(values, self.state.wide_variables)

    def drawn(self, sample: int) -> dict[int, Array]:
        """Return the arguments that are drawn, at a sample point, by index: (1, *shape) each."""
        op = self.open(Opening())
        stack: dict[int, Array] = op.traced.at.stacked([sample])
        return stack

    @contextlib.contextmanager
    def moved_to(self, point: Mapping[int, Array], sample: int) -> Iterator[None]:
        """Let a sample point be the first one, with its draws, but for some inputs, while the block runs."""
        op = self.open(Opening())
        values = enumerate(op.point)
        self.state.chosen[sample] = [np.asarray(point.get(index, value)) for index, value in values]
        for key in [key for key in self.state.draws if key[0] == 0]:
            self.state.draws[sample, key[1]] = self.state.draws[key]
        try:
            yield
        finally:
            del self.state.chosen[sample]

    def _settle_weights(self, sample: int) -> None:
        """Let each weight move in the first way in which the forward can be evaluated, or else stay.

        No one said that the weights could move. One that can't must not hold the others: they are halved
        until it is alone, and only then moves in other ways than all do first.
        """
        is_finite, graphs = self.open(Opening()).is_finite, self.state.graphs

        def is_accepted() -> bool:
            try:
                with self._moved(sample), contextlib.suppress(CaseFailedError):
                    return not is_finite or bool(self.mode.open(self.state, Opening(sample)).is_finite)
                return False
            finally:  # one that was traced at this point keeps its values
                for key in [key for key, traced in graphs.items() if traced.sample == sample]:
                    del graphs[key]

        def try_way(names: Sequence[str], way: int) -> bool:
            self.state.weights.ways.update(dict.fromkeys(names, way))
            return is_accepted()

        def settle(names: Sequence[str], ways: Sequence[int]) -> None:
            if any(try_way(names, way) for way in ways):
                return
            self.state.weights.ways.update(dict.fromkeys(names, 0))
            middle = len(names) // 2
            for half in (names[:middle], names[middle:]) if middle else ():
                settle(half, WAYS[:1] if len(half) > 1 else WAYS)

        if is_accepted():
            return
        ways, before = self.state.weights.ways, dict(self.state.weights.ways)
        moving = [tensor.name for _, tensor in self._weights() if not tensor.keeps]
        if try_way(moving, 0):
            settle(moving, WAYS)
        else:  # it isn't the weights that are refused
            ways.clear()
            ways.update(before)

    @property
    def still_weights(self) -> list[str]:
        """Names of the weights that stay; see `Opener`."""
        return [name for name, way in self.state.weights.ways.items() if not way]

    def settings(self) -> list[tuple[str, str, object]]:
        """Return the numbers and flags of `attrs` and `build`, by name, and another value of each.

        A layer that is built anew has other weights, so what builds one stays.
        """
        taken, code = Binder(self.case).settings(), self.case.code
        stated = {"attrs": code.attrs, "build": {} if self.state.variables else code.build or {}}
        return [
            (key, name, other_setting(name, value))
            for key, settings in stated.items()
            for name, value in settings.items()
            if name in taken and isinstance(value, int | float)
        ]

    def in_float64(self, op: Any) -> Any:
        """Open an opened op in float64; see `Opener`."""
        return self.mode.in_float64(op)

    def retrace(self, op: Any) -> Any:
        """Trace or call an opened op's gradient again, for the same point."""
        retraced = op.retraced()
        check_output_shapes(retraced)
        return retraced

    def vjp(self, op: Any) -> CaseOpener:
        """Return an opener of an opened op's vjp as an op of its own; the same opener each time."""

        def make() -> CaseOpener:
            reference = None
            if self.case.reference is not None:
                reference = self.mode.open(self.state, replace(op.opening, of="reference"))
            case, vjp = case_of_vjp(self.case, op, reference)
            return replace(self, state=replace(self.state, case=case, draws={}, graphs={}, vjp=vjp))

        return self.state.made.of(make, op)

    def written_ops(self, op: Any, output: int, input_index: int) -> Sequence[Operation] | None:
        """Return the ops on a pair's path whose gradients the user wrote, each by itself; see `Opener`."""
        is_walked = (
            isinstance(op, GraphOperation) and self.case.code.gradient is None and self.state.vjp is None
        )
        if not is_walked:
            return None
        sources, count = [input_index], op.traced.at.count
        if input_index >= count:
            # Paths can't start at a variable: use the other inputs' paths, which must hold its gradients.
            sources = [index for index in range(count) if op.facts.is_connected(output, index)]
            sites: dict[int, set[object]] = {index: set() for index in range(len(op.inputs))}
            for site, of_output, of_input in op.traced.vjp_trace.sites:
                if of_output == output:
                    sites[of_input].add(site)
            if not sites[input_index] <= set().union(*(sites[index] for index in sources)):
                return None
        return find_written_ops(op, output, sources)

    def gradients_seen(self, op: Any) -> Mapping[str, int]:
        """Return how often each registered gradient function was called when an op's vjp was built.

        Raises:
            CaseFailedError: of kind "covers": one that the spec covers wasn't called.
        """
        is_vjp = self.state.vjp is not None
        return require_seen(self.case.code, op.gradients_seen, op.gradients_seen_anew, is_vjp=is_vjp)

    def unrun_gradients(self, op: Any) -> list[str]:
        """Say which custom gradients the forward called and no backward pass ran; see `Opener`."""
        has_integers = not all(output.is_differentiable for output in op.outputs)
        return [] if self.state.vjp is not None else self.state.gradients.unrun(has_integers=has_integers)
