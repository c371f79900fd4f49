"""Makes the cases of a merged op, and applies every rule of the format.

The op's own inputs form the case `default`, and `cases` are further ones, each merged over the op. One of
them may be called `default` and replaces the op's own. If some input of the op has no shape and no value, the
op is only a template, and only the listed cases run. Each case runs once per entry of `dtypes`, which becomes
the dtype of each input (and output in mapping form) that names none. If all inputs of a case name their
dtypes, it can't vary: that is a fault, since it would give equal rows under different names.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from gradcheck_cli.errors import suggest
from gradcheck_cli.spec.case import (
    Case,
    InputSpec,
    OutputSpec,
    PairRule,
    Power,
    StatedTolerance,
    could_match,
    is_of_second_order,
    unmatched_rules,
)
from gradcheck_cli.spec.document_model import MismatchModel, OpModel
from gradcheck_cli.spec.faults import FaultLog, Unreadable, show
from gradcheck_cli.spec.input_model import InputModel
from gradcheck_cli.spec.merge_trees import merge_op, with_op_inputs
from gradcheck_cli.spec.read_arguments import (
    KEYS,
    InputReader,
    binding_of,
    check_binding,
    check_known,
    function_ref,
    leaves_of,
    read_arguments,
    takes_variant,
)
from gradcheck_cli.spec.values.constraints import few_values
from gradcheck_cli.spec.words import BINDINGS, GENERATORS, MODES
from gradcheck_cli.spec.yaml_tree import Node

DEFAULT_CASE = "default"
# The keys of a spec that a case has as they are written, under the same name.
_AS_WRITTEN = (
    *("attrs", "budget", "build", "description", "device", "freeze", "implicit", "method", "modes", "needs"),
    *("reason", "reference_forward", "tags", "tensorflow", "timeout", "variables"),
)


@dataclass(frozen=True)
class Origin:
    """Where an op is written: file as named by the user, absolute folder, line; and the op's name."""

    op: str
    path: str
    folder: str
    line: int
    seed: int | None


@dataclass(frozen=True)
class _Merged:
    """A merged op or case: its fault log, its node, its sound keys, and the names of broken ones."""

    log: FaultLog
    node: Node
    model: OpModel
    broken: set[str]

    @property
    def has_broken_inputs(self) -> bool:
        """Whether some input has a fault, from which others would only follow."""
        return any(name.startswith("inputs") for name in self.broken)


def read_cases(log: FaultLog, node: Node, origin: Origin) -> list[Case]:
    """Return the sound cases of an op merged over its defaults, in the order written; faults are logged."""
    op = _validate(log, node)
    if op is None:
        return []
    check_binding(log, node, op.model, op.broken)
    if op.model.inputs is None:
        if not op.has_broken_inputs:
            log.add(node, "is missing; name each input of forward, such as {x: {shape: [3]}}", "inputs")
        return []
    base = node.without("cases")
    listed = node.get("cases")
    entries = [entry for entry in (listed.items if listed else []) if entry.children]
    names = [entry.get("name") for entry in entries]
    has_default = any(name is not None and name.value == DEFAULT_CASE for name in names)
    is_template = has_default or (bool(entries) and any(map(_lacks_shape, _tensors(op.model))))
    cases = (
        []
        if is_template
        else _read_variants(replace(op, node=op.node.without("cases")), DEFAULT_CASE, origin)
    )
    names_so_far: dict[str, Node] = {}
    for entry in entries:
        name = entry.get("name")
        if name is not None and isinstance(name.value, str):
            first = names_so_far.setdefault(name.value, name)
            if first is not name:
                log.add(
                    name, f"must be unique, but got {name.value!r}, which line {first.line} has. Rename one"
                )
        case_inputs, op_inputs = entry.get("inputs"), op.node.get("inputs")
        if case_inputs is not None and op_inputs is not None:
            check_known(log, case_inputs, op_inputs)
        case = _validate(log, merge_op(base, entry.without("name")))
        if case is not None and case.model.inputs is not None:
            cases += _read_variants(case, str(name.value) if name else "", origin)
    non_empty = {case.name for case in cases if case.has_elements}
    return [replace(case, is_only_case=non_empty <= {case.name}) for case in cases]


def _validate(log: FaultLog, node: Node) -> _Merged | None:
    node = with_op_inputs(node)
    model, broken = log.validate(OpModel, node)
    return None if model is None else _Merged(log, node, model, broken)


def _tensors(model: OpModel) -> list[InputModel]:
    return [leaf for tensors in (model.inputs or {}).values() for leaf in leaves_of(tensors)]


def _lacks_shape(model: InputModel) -> bool:
    has_own = any(GENERATORS[kind].is_fixed for kind in model.sources)
    return model.shape is None and model.ragged is None and not has_own


def _read_variants(merged: _Merged, name: str, origin: Origin) -> list[Case]:
    """Return the sound cases among those in each of its dtypes; faults are logged."""
    log, node, model = merged.log, merged.node, merged.model
    for key in ("reference_forward", "implicit"):
        if getattr(model, key) and model.reference is None and "reference" not in merged.broken:
            log.add(node, "must go with reference, but got none. Write reference: module:function", key)
    if model.implicit and model.second_order:
        log.add(node, "must stand without second_order: a CDF gives the first derivative alone", "implicit")
    cases: list[Case] = []
    with suppress(Unreadable):
        _require_unique(merged, "dtypes", model.dtypes or ())
        takes_none = not merged.has_broken_inputs and not any(map(takes_variant, _tensors(model)))
        if model.dtypes and takes_none:
            log.refuse(
                node,
                "must have an input to set, but every input names its own dtype. Remove those, or dtypes",
                "dtypes",
            )
        _require_unique(merged, "modes", model.modes)
        for variant in model.dtypes or (None,):
            with suppress(Unreadable):
                cases.append(_read_variant(merged, name, origin, variant))
    return cases


def _require_unique(merged: _Merged, key: str, words: Sequence[str]) -> None:
    for index, word in enumerate(words):
        if word in words[:index]:
            merged.log.refuse(merged.node, f"must be unique, but got {word!r} twice. Remove one", key, index)


def _read_variant(merged: _Merged, name: str, origin: Origin, variant: str | None) -> Case:
    """Return a case in one of its dtypes.

    Raises:
        Unreadable: an input has faults, which are logged.
    """
    log, node, model = merged.log, merged.node, merged.model
    outputs = () if merged.broken & (KEYS | {"outputs"}) else _read_outputs(merged, variant)
    arguments = read_arguments(InputReader(log, origin.folder, variant), node, model)
    if merged.has_broken_inputs:
        raise Unreadable
    tensors = [tensor for argument in arguments for tensor in argument.tensors]
    differentiable = [tensor for tensor in tensors if tensor.is_differentiable]
    _check_pairs(merged, [f"d{out.name}/d{tensor.name}" for out in outputs for tensor in differentiable])
    expect, kind = _expectation_of(model.expect)
    tolerance = model.tolerance
    dtype = variant or (differentiable or tensors)[0].dtype
    second_order = _modes_of_second_order(model, dtype)
    return Case(
        op=origin.op,
        name=name,
        path=origin.path,
        folder=origin.folder,
        line=origin.line,
        forward=function_ref(model.forward),
        op_type=model.op_type,
        binding=binding_of(model),
        gradient=function_ref(model.gradient),
        arguments=arguments,
        dtype=dtype,
        outputs=outputs,
        reference=function_ref(model.reference),
        expect=expect,
        expect_kind=kind,
        pairs=_rules_of(model, is_second_order=bool(second_order)),
        tolerance=StatedTolerance() if tolerance is None else StatedTolerance(tolerance.atol, tolerance.rtol),
        samples=_count_samples(model, tensors),
        mode=model.modes[0],
        second_order=second_order,
        seed=model.seed if origin.seed is None else origin.seed,
        power=Power() if model.power is None else Power(model.power.size, model.power.miss),
        checks_off=frozenset(name for name, is_on in model.checks or () if not is_on),
        unreached=tuple((model.unreached or {}).items()),
        nondeterminism=model.nondeterminism.atol if model.nondeterminism else 0.0,
        variant=variant,
        covers=tuple(dict.fromkeys(model.covers or ())),
        **_as_written(model),
    )


def _modes_of_second_order(model: OpModel, dtype: str) -> tuple[str, ...]:
    """Return the modes in which the second order of a dtype is checked."""
    written = model.second_order
    if not isinstance(written, list):
        return MODES if written else ()
    modes = tuple(word for word in written if word in MODES)
    dtypes = [word for word in written if word not in MODES]
    return (modes or MODES) if dtype in (dtypes or [dtype]) else ()


def _as_written(model: OpModel) -> dict[str, Any]:
    """Return the keys that a case takes over; it has its own default for one that isn't written."""
    values = {key: getattr(model, key) for key in _AS_WRITTEN}
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in values.items()
        if value is not None
    }


def _count_samples(model: OpModel, tensors: Sequence[InputSpec]) -> int:
    """Return how many points are drawn: as written, else enough for an input with few values to take each."""
    if "samples" in model.model_fields_set:
        return model.samples
    return max([model.samples, *(len(few_values(tensor)) for tensor in tensors)])


def _rules_of(model: OpModel, *, is_second_order: bool = True) -> tuple[PairRule, ...]:
    """Return the pair rules in the order written; a dtype without second order has none of second order."""
    rules = []
    for glob, rule in (model.pairs or {}).items():
        if isinstance(model.second_order, list) and not is_second_order and is_of_second_order(glob):
            continue
        expect, kind = _expectation_of(rule.expect) if "expect" in rule.model_fields_set else ("", "")
        rules.append(PairRule(glob, expect, rule.atol, rule.rtol, rule.reason or "", kind))
    return tuple(rules)


def _expectation_of(written: str | MismatchModel) -> tuple[str, str]:
    """Return the expectation and, if it is given, the kind of a mismatch."""
    if isinstance(written, str):
        return written, ""
    return "mismatch", written.mismatch


def _read_outputs(merged: _Merged, variant: str | None) -> tuple[OutputSpec, ...]:
    log, node = merged.log, merged.node
    binding, written = binding_of(merged.model), merged.model.outputs
    tells_outputs = BINDINGS[binding].tells_outputs
    if written is None:
        if not tells_outputs:
            log.add(
                node, f"is missing; binding {binding} needs it, such as {{y: {{dtype: float32}}}}", "outputs"
            )
        return ()
    if isinstance(written, list):
        if not tells_outputs:
            log.add(
                node,
                f"must be a mapping of names to dtypes for binding {binding}, but got {show(written)}. "
                f"Write {{{written[0]}: {{dtype: float32}}}}",
                "outputs",
            )
        for index, name in enumerate(written):
            if name in written[:index]:
                log.add(node, f"must be unique, but got {name!r} twice. Rename one", "outputs", index)
        return tuple(OutputSpec(name) for name in written)
    outputs = []
    for name, output in written.items():
        dtype = (output.dtype if output else None) or variant
        shape = tuple(output.shape) if output and output.shape is not None else None
        if dtype is None and not tells_outputs:
            log.add(
                node,
                f"is missing; binding {binding} needs the dtype of each output",
                "outputs",
                name,
                "dtype",
            )
        outputs.append(OutputSpec(name, dtype, shape))
    return tuple(outputs)


def _check_pairs(merged: _Merged, labels: Sequence[str]) -> None:
    """Log pair rules that match none of the labels; some labels are known only at run time.

    Labels of an output's parts are among these: only the forward shows that an output is a structure.
    """
    log, model = merged.log, merged.model
    pairs = merged.node.get("pairs")
    # Without the key `variables`, what `build` makes may be a layer, whose weights are inputs.
    may_have_variables = model.variables or (model.variables is None and model.build is not None)
    if not model.outputs or pairs is None or may_have_variables or model.second_order:
        return
    for rule in unmatched_rules(_rules_of(model), labels):
        if any(could_match(rule.glob, label) for label in labels):
            continue
        remedy = suggest(rule.glob, labels) or (
            f"Pairs: {', '.join(labels[:8])}" if labels else "There are no pairs"
        )
        log.add_key(pairs, f"must match a pair, but got {rule.glob!r}. {remedy}", rule.glob)
