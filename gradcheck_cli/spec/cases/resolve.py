"""A merged op to its cases, every rule of the format applied.

Decisions that live here: the op's own inputs form the case `default`, and `cases` are further ones, each
merged over the op. Where some input of the op has no shape and no value, the op is only a template: the
listed cases run, and one of them may be called `default`. `dtypes` crosses with the cases: an entry becomes
the dtype of each input (and output in mapping form) that names none; a case all of whose inputs name theirs
can't vary, which is a fault rather than a table of equal rows under different labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gradcheck_cli.spec.case import Argument, Case, Power, Tolerance
from gradcheck_cli.spec.cases.bindings import binding_of, check_binding, function_ref
from gradcheck_cli.spec.cases.inputs import takes_variant
from gradcheck_cli.spec.cases.merge_trees import merge_op
from gradcheck_cli.spec.cases.structures import check_known, leaves_of
from gradcheck_cli.spec.cases.variants import expectation_of, main_dtype, read_variant, rules_of
from gradcheck_cli.spec.models.document_model import OpModel
from gradcheck_cli.spec.values.constraints import few_values
from gradcheck_cli.spec.words import GENERATORS
from gradcheck_cli.spec.yaml.yaml_nodes import Node

if TYPE_CHECKING:
    from gradcheck_cli.spec.faults import FaultLog
    from gradcheck_cli.spec.models.input_model import InputModel

DEFAULT_CASE = "default"


@dataclass(frozen=True)
class Origin:
    """Where an op is written: file as named by the user, absolute folder, line; and the op's name."""

    op: str
    path: str
    folder: str
    line: int
    seed: int | None


def resolve(log: FaultLog, node: Node, origin: Origin) -> list[Case]:
    """Return the cases of one op; faults are logged.

    Args:
        log: where faults go.
        node: the op, already merged over the file's defaults.
        origin: where it is written.

    Returns:
        The sound cases, in the order written, variants innermost.
    """
    model, broken = log.validate(OpModel, node)
    if model is None:
        return []
    check_binding(log, node, model, broken)
    if model.inputs is None:
        if not any(part.startswith("inputs") for part in broken):
            log.add(node, "is missing; name each input of forward, such as {x: {shape: [3]}}", "inputs")
        return []
    base = Node({key: child for key, child in node.children.items() if key != "cases"}, node.line, node.place)
    listed = node.get("cases")
    entries = [entry for entry in (listed.items if listed else []) if entry.children]
    is_template = bool(entries) and any(
        map(_lacks_shape, (child for tensor in model.inputs.values() for child in leaves_of(tensor)))
    )
    cases = [] if is_template else _cases(log, base, DEFAULT_CASE, origin)
    taken: dict[str, Node] = {}
    for entry in entries:
        name = entry.get("name")
        if name is not None and isinstance(name.value, str):
            _check_name(log, name, taken, is_template=is_template)
        inputs, known = entry.get("inputs"), base.get("inputs")
        if inputs is not None and known is not None:
            check_known(log, inputs, known)
        own = Node(
            {key: child for key, child in entry.children.items() if key != "name"}, entry.line, entry.place
        )
        cases += _cases(log, merge_op(base, own), str(name.value) if name else "", origin)
    full = {case.name for case in cases if case.has_elements}
    return [replace(case, is_alone=full <= {case.name}) for case in cases]


def _lacks_shape(model: InputModel) -> bool:
    has_own = any(GENERATORS[kind].is_fixed for kind in model.sources)
    return model.shape is None and model.ragged is None and not has_own


def _check_name(log: FaultLog, name: Node, taken: dict[str, Node], *, is_template: bool) -> None:
    text = str(name.value)
    if text == DEFAULT_CASE and not is_template:
        log.add(
            name, "must not be 'default', which is the case of the spec's own inputs. Choose another name"
        )
    elif text in taken:
        log.add(name, f"must be unique, but got {text!r}, which line {taken[text].line} has. Rename one")
    taken.setdefault(text, name)


def _cases(log: FaultLog, node: Node, name: str, origin: Origin) -> list[Case]:
    """Return one case in each of its variants."""
    model, broken = log.validate(OpModel, node)
    if model is None or model.inputs is None:
        return []
    if model.reference_forward and model.reference is None and "reference" not in broken:
        log.add(
            node,
            "must go with reference, but got none. Write reference: module:function",
            "reference_forward",
        )
    if model.dtypes is not None and not _varies(log, node, model, broken):
        return []
    for index, mode in enumerate(model.modes):
        if mode in model.modes[:index]:
            log.add(node, f"must be unique, but got {mode!r} twice. Remove one", "modes", index)
            return []
    expect, kind = expectation_of(model.expect)
    variants: list[str | None] = list(model.dtypes) if model.dtypes else [None]
    found = [read_variant(log, node, model, broken, origin.folder, variant) for variant in variants]
    return [
        Case(
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
            dtype=variant or main_dtype(arguments),
            attrs=dict(model.attrs or {}),
            build=model.build,
            outputs=outputs,
            reference=function_ref(model.reference),
            reference_forward=model.reference_forward,
            expect=expect,
            expect_kind=kind,
            reason=model.reason or "",
            pairs=rules_of(model),
            tolerance=Tolerance(model.tolerance.atol, model.tolerance.rtol)
            if model.tolerance
            else Tolerance(),
            samples=_samples(model, arguments),
            freeze=model.freeze,
            modes=tuple(model.modes),
            mode=model.modes[0],
            device=model.device,
            variables=model.variables,
            second_order=model.second_order,
            seed=model.seed if origin.seed is None else origin.seed,
            timeout=model.timeout,
            budget=Case.budget if model.budget is None else model.budget,
            power=Power() if model.power is None else Power(model.power.size, model.power.miss),
            tags=tuple(model.tags),
            method=str(model.method),
            checks_off=frozenset(name for name, is_on in model.checks or () if not is_on),
            unreached=tuple((model.unreached or {}).items()),
            nondeterminism=model.nondeterminism.atol if model.nondeterminism else 0.0,
            description=model.description or "",
            variant=variant,
            covers=tuple(dict.fromkeys(model.covers or ())),
            tensorflow=model.tensorflow or "",
        )
        for variant, (arguments, outputs) in zip(variants, found, strict=True)
        if arguments
    ]


def _samples(model: OpModel, arguments: tuple[Argument, ...]) -> int:
    """Return how many points are drawn: as written, else enough for what takes few values to take each."""
    tensors = [tensor for argument in arguments for tensor in argument.tensors]
    if "samples" in model.model_fields_set:
        return model.samples
    return max([model.samples, *(len(few_values(tensor)) for tensor in tensors)])


def _varies(log: FaultLog, node: Node, model: OpModel, broken: set[str]) -> bool:
    dtypes = list(model.dtypes or ())
    for index, dtype in enumerate(dtypes):
        if dtype in dtypes[:index]:
            log.add(node, f"must be unique, but got {dtype!r} twice. Remove one", "dtypes", index)
            return False
    tensors = [child for tensor in (model.inputs or {}).values() for child in leaves_of(tensor)]
    if any(map(takes_variant, tensors)) or any(part.startswith("inputs") for part in broken):
        return True
    log.add(
        node,
        "must have an input to set, but every input names its own dtype. Remove those, or dtypes",
        "dtypes",
    )
    return False
