"""The parts of a case that depend on its dtype: arguments, outputs, and which pairs there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck_cli.spec.case import Argument, InputSpec, OutputSpec, PairRule
from gradcheck_cli.spec.cases.bindings import KEYS, binding_of
from gradcheck_cli.spec.cases.inputs import InputReader
from gradcheck_cli.spec.cases.pair_rules import could_match, unmatched_rules
from gradcheck_cli.spec.cases.structures import read_arguments
from gradcheck_cli.spec.faults import FaultLog, show, suggest
from gradcheck_cli.spec.words import BINDINGS

if TYPE_CHECKING:
    from gradcheck_cli.spec.models.document_model import MismatchModel, OpModel
    from gradcheck_cli.spec.yaml.yaml_nodes import Node


def read_variant(  # noqa: PLR0913, PLR0917 (one case's context, used by `resolve` alone)
    log: FaultLog, node: Node, model: OpModel, broken: set[str], folder: str, variant: str | None
) -> tuple[tuple[Argument, ...], tuple[OutputSpec, ...]]:
    """Read what depends on the dtype.

    Args:
        log: where faults go.
        node: the merged case.
        model: its sound keys.
        broken: keys with faults, from which others would only follow.
        folder: where the files of inputs are.
        variant: the entry of `dtypes`, if there are any.

    Returns:
        The arguments, none if one of them has faults, and the outputs.
    """
    is_sound = not any(part.startswith("inputs") for part in broken)
    arguments = read_arguments(InputReader(log, folder, variant), node, model)
    outputs = () if broken & (KEYS | {"outputs"}) else _outputs(log, node, model, variant)
    if arguments is None or not is_sound:
        return (), outputs
    _check_pairs(log, node, model, [tensor for argument in arguments for tensor in argument.tensors], outputs)
    return arguments, outputs


def main_dtype(arguments: tuple[Argument, ...]) -> str:
    """Return what a report shows as a case's dtype: the first differentiable input's, or the first's."""
    tensors = [tensor for argument in arguments for tensor in argument.tensors]
    return next((tensor.dtype for tensor in tensors if tensor.is_differentiable), tensors[0].dtype)


def rules_of(model: OpModel) -> tuple[PairRule, ...]:
    """Return the pair rules in the order written."""
    rules = []
    for glob, rule in (model.pairs or {}).items():
        expect, kind = expectation_of(rule.expect) if "expect" in rule.model_fields_set else ("", "")
        rules.append(PairRule(glob, expect, rule.atol, rule.rtol, rule.reason or "", kind))
    return tuple(rules)


def expectation_of(written: str | MismatchModel) -> tuple[str, str]:
    """Return what is expected, and of a mismatch its kind where that is given."""
    if isinstance(written, str):
        return written, ""
    return "mismatch", written.mismatch


def _outputs(log: FaultLog, node: Node, model: OpModel, variant: str | None) -> tuple[OutputSpec, ...]:
    binding, written = binding_of(model), model.outputs
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


def _check_pairs(
    log: FaultLog, node: Node, model: OpModel, tensors: list[InputSpec], outputs: tuple[OutputSpec, ...]
) -> None:
    """Log pair rules that can match nothing; some labels are known at run time only.

    So are those of an output's parts: that it is a structure, the forward alone tells.
    """
    labels = [
        f"d{out.name}/d{tensor.name}" for out in outputs for tensor in tensors if tensor.is_differentiable
    ]
    pairs = node.get("pairs")
    # Without the key `variables`, what `build` makes may be a layer, whose weights are inputs.
    may_have_variables = model.variables or (model.variables is None and model.build is not None)
    if not outputs or pairs is None or may_have_variables or model.second_order:
        return
    for rule in unmatched_rules(rules_of(model), labels):
        if any(could_match(rule.glob, label) for label in labels):
            continue
        remedy = suggest(rule.glob, labels) or (
            f"Pairs: {', '.join(labels[:8])}" if labels else "There are no pairs"
        )
        log.add_key(pairs, f"must match a pair, but got {rule.glob!r}. {remedy}", rule.glob)
