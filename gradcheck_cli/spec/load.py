"""Files and folders to cases, or to every fault of every file at once; never imports TensorFlow or numpy.

An op's own inputs form the case `default`, and `cases` are further ones, each merged over the op. One of
them may be called `default` and replaces the op's own. If some input of the op has no shape and no value, the
op is only a template, and only the listed cases run. Each case runs once per entry of `dtypes`, which becomes
the dtype of each input (and output in mapping form) that names none. If all inputs of a case name their
dtypes, it can't vary: that is a fault, since it would give equal rows under different names.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import yaml

from gradcheck_cli.errors import Fault, NoSpecsError, SpecError, suggest
from gradcheck_cli.gate import tell_apart
from gradcheck_cli.plain_files import read_plain
from gradcheck_cli.spec import yaml_tree
from gradcheck_cli.spec.case import (
    FOLDER_DEFAULTS,
    Case,
    CodeUnderTest,
    Excepted,
    Expectations,
    Judging,
    Origin,
    OutputSpec,
    PairRule,
    Power,
    Reference,
    Running,
    StatedTolerance,
    VariableRule,
    could_match,
    is_of_second_order,
    unmatched_rules,
)
from gradcheck_cli.spec.faults import show, suggest_file
from gradcheck_cli.spec.merge_trees import (
    collect_cases,
    merge_op,
    merge_over,
    split_op_types,
    with_constants,
)
from gradcheck_cli.spec.read_arguments import (
    FUNCTION_KEYS,
    FUNCTIONS,
    Context,
    binding_of,
    check_binding,
    check_known,
    fill,
    has_broken_inputs,
    leaves_of,
    read_arguments,
    read_function,
    read_moving,
    sources_of,
    takes_variant,
)
from gradcheck_cli.spec.spec_format import Keys, is_fit, model_of, read, type_of, write_out
from gradcheck_cli.spec.values.constraints import few_values
from gradcheck_cli.spec.words import BINDINGS, CHECKS, DTYPE_KINDS, GENERATORS, MODES, ON_REQUEST
from gradcheck_cli.spec.written import FaultLog, Place, Unreadable, Written
from gradcheck_cli.visible import clean

SUFFIXES = (".yaml", ".yml")
OP_TYPE = "{op_type}"  # stands for the op type in an op's name


class Loaded(NamedTuple):
    """The contents of files: cases, and op types that none of the specs can check."""

    cases: tuple[Case, ...]
    exceptions: tuple[Excepted, ...]


def load_cases(paths: Sequence[str | Path], *, seed: int | None = None) -> tuple[Case, ...]:
    """Read specs.

    Args:
        paths: files, and folders in which every `*.yaml` and `*.yml` is read, except in hidden folders.
        seed: overrides the specs' own seeds.

    Returns:
        Every case, in the order of the paths, of the file names, and of the documents in each file. Cases can
        be pickled.

    Raises:
        SpecError: there are faults; it lists all of them.
        NoSpecsError: a folder contains no spec, or there are only exceptions.
    """
    loaded = load(paths, seed=seed)
    if loaded.exceptions and not loaded.cases:
        names = ", ".join(map(str, paths))
        raise NoSpecsError(f"{clean(names)}: no specs: only exceptions, which say what has none")
    return loaded.cases


def load(paths: Sequence[str | Path], *, seed: int | None = None) -> Loaded:
    """Read specs, and the exceptions among them; see `load_cases`."""
    reading = _Reading(seed)
    files_of = {path: reading.list_files(path) for path in map(Path, paths)}
    files: dict[str, Path] = {}  # each once, by whatever names
    for file in (file for listed in files_of.values() for file in listed or ()):
        files.setdefault(os.path.realpath(file), file)
    for file in files.values():
        reading.read_file(file)
    reading.require_sound()
    empty = [display_path(path) for path, listed in files_of.items() if listed == []]
    if not (reading.cases or reading.exceptions):
        empty = empty or list(map(display_path, files_of))
    if empty:
        raise NoSpecsError(f"{', '.join(empty)}: no specs: looked for *.yaml and *.yml in it and below")
    names = tell_apart((case.op, case.file) for case in reading.cases)
    cases = tuple(replace(case, full_op=names[case.op, case.file]) for case in reading.cases)
    return Loaded(cases, tuple(reading.exceptions))


def load_mapping(spec: Mapping[str, object], *, seed: int | None = None) -> tuple[Case, ...]:
    """Read one spec that is given as a mapping with the content of a YAML file.

    Paths in it are relative to the working directory; faults call it `<spec>`, with lines of the equivalent
    YAML.

    Args:
        spec: one op, or `ops` beside `defaults`.
        seed: overrides the spec's own seed.

    Raises:
        SpecError: there are faults, or a value that YAML can't express.
    """
    try:
        content = yaml.safe_dump(dict(spec), sort_keys=False, allow_unicode=True).encode()
    except yaml.representer.RepresenterError as error:
        value = show(error.args[1]) if len(error.args) > 1 else "a value"
        message = f"must hold what YAML can (numbers, text, lists, mappings), but holds {value}"
        raise SpecError([Fault("<spec>", 0, "", message)]) from None
    reading = _Reading(seed)
    reading.read_content(Origin("<spec>", str(Path.cwd())), "spec", content)
    reading.require_sound()
    return tuple(reading.cases)


_FIRST = "Write a first spec with `gradcheck init MODULE:FUNCTION`, or name the folder of yours."


def display_path(path: Path) -> str:
    """Return a path as the user named it, or relative to the working directory if it is below it."""
    if path.is_absolute():
        with suppress(ValueError, OSError):
            path = path.relative_to(Path.cwd())
    return path.as_posix()


def _walk_specs(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent, name) for name in files if name.endswith(SUFFIXES))


def _describe_error(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


@dataclass
class _Reading:
    """What is read so far, of files one after another."""

    seed: int | None
    log: FaultLog = field(default_factory=FaultLog)
    cases: list[Case] = field(default_factory=list)
    exceptions: list[Excepted] = field(default_factory=list)
    excepted: dict[str, str] = field(default_factory=dict)  # the place of each exception
    # the defaults that each folder has for all of its files
    folders: dict[str, Written | None] = field(default_factory=dict)

    def require_sound(self) -> None:
        """Raise all faults, if there are any."""
        if self.log.faults:
            raise SpecError(list(self.log.faults))

    def list_files(self, path: Path) -> list[Path] | None:
        """Return the files that a path means; `None`, and a fault, if it means nothing."""
        try:
            if path.is_dir():
                return sorted(_walk_specs(path))
            if path.exists():
                return [path]
            near = suggest_file(path) or (_FIRST if str(path) == path.stem else "")
            what = "is a link that leads nowhere" if path.is_symlink() else "no such file or folder"
            message = f"{what}{near and '. ' + near}"
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
            message = f"can't be read: {_describe_error(error)}"
        self.log.add(message, Place(display_path(path)))
        return None

    def read_file(self, file: Path) -> None:
        """Read a file of specs or exceptions, with the defaults of its folder."""
        content = self._read_bytes(file)
        if content is None:
            return
        origin = Origin(display_path(file), str(Path.cwd() / file.parent))
        if origin.folder not in self.folders:
            self.folders[origin.folder] = self._read_folder_defaults(file.parent / FOLDER_DEFAULTS)
        if file.name == FOLDER_DEFAULTS and self.folders[origin.folder] is not None:
            return
        self.read_content(origin, file.stem, content)

    def _read_bytes(self, file: Path) -> bytes | None:
        try:
            return read_plain(file, yaml_tree.MAX_BYTES)
        except OSError as error:
            large = f"must be at most {yaml_tree.MAX_BYTES} bytes. Put large arrays in `file:`"
            message = large if error.errno == errno.EFBIG else f"can't be read: {_describe_error(error)}"
            self.log.add(message, Place(display_path(file)))
            return None

    def _read_folder_defaults(self, file: Path) -> Written | None:
        """Return what a folder's `defaults.yaml` merges under each of its specs; `None` where it has none.

        A file of that name with ops in it is a spec like any other.
        """
        content = self._read_bytes(file) if file.is_file() else None
        documents = yaml_tree.parse(FaultLog(), "", content) if content else []
        if len(documents) != 1 or list(documents[0].entries) != ["defaults"]:
            return None
        (document,) = _parse(self.log, display_path(file), content or b"")
        read("Defaults", document.at("defaults"))
        return document.at("defaults")

    def read_content(self, origin: Origin, stem: str, content: bytes) -> None:
        """Read the text of specs or exceptions; `stem` is the name of a single op without one."""
        faults = self.log.count
        documents = _parse(self.log, origin.path, content)
        if not documents and self.log.count == faults:
            message = "must hold a spec, but is empty. Write op, forward and inputs"
            self.log.add(message, Place(origin.path))
        shared = self.folders.get(origin.folder)
        ops: list[_Op] = []
        names: dict[str, str] = {}  # the place of each op's name
        for document in documents:
            if "exceptions" in document.entries:
                self.exceptions.extend(_read_exceptions(document, self.excepted))
            else:
                ops += _read_ops(document, shared)
        for op, cases in ops:
            name = _name_op(op, names, stem if len(ops) == 1 else None)
            own: dict[str, Any] = {"op": name} | ({} if self.seed is None else {"seed": self.seed})
            sound = _read_cases(op, cases, replace(origin, line=op.place.spot.line))
            self.cases += [replace(case, **own) for case in sound]


def _parse(log: FaultLog, path: str, content: bytes) -> list[Written]:
    """Read the documents of a file, with short forms written out."""
    return [write_out(_document(), document) for document in yaml_tree.parse(log, path, content)]


@cache
def _document() -> dict[str, Any]:
    """Return what any document may hold."""
    models = [model_of(name)["properties"] for name in ("OpModel", "OpsFile", "ExceptionsFile")]
    return {"type": "object", "properties": {key: part for model in models for key, part in model.items()}}


_Op: TypeAlias = tuple[Written, Sequence[Written]]  # an op, and its cases


def _read_exceptions(document: Written, places: dict[str, str]) -> list[Excepted]:
    """Read a document with `exceptions`, and add where each op type is excepted; faults are logged."""
    keys = read("ExceptionsFile", document)
    excepted = []
    for op_type, entry in (keys.exceptions or {}).items():
        written = document.at("exceptions", op_type).place
        place = f"{written.path}:{written.key.line}"
        if op_type in places:
            message = f"must be excepted once, but {places[op_type]} does so too. Remove one"
            document.at("exceptions").add_key(message, op_type)
            continue
        places[op_type] = place
        excepted.append(fill(Excepted, entry, op_type=op_type, place=place))
    return excepted


def _read_ops(document: Written, shared: Written | None) -> Iterator[_Op]:
    """Yield the ops of a document, merged over its defaults, which are merged over those of the folder.

    Of several op types, each has an op.
    """
    if not isinstance(document.data, dict):
        got = "nothing" if document.data is None else show(document.plain())
        document.add(f"must be a spec, but got {got}. Write op, forward and inputs")
        return
    ops, defaults = [document], shared
    keys = {"defaults", "op", "forward", "op_type"} & document.data.keys()
    if "ops" in document.data or keys == {"defaults"}:
        read("OpsFile", document)
        ops, own = document.at("ops").items, document.at("defaults")
        defaults = merge_over(own, shared) if own.entries else shared
    for op in ops:
        if isinstance(op.data, dict):
            merged = merge_over(op, defaults)
            cases = collect_cases(merged, defaults)
            yield from ((op_of_type, cases) for op_of_type in split_op_types(merged))


def _name_op(op: Written, names: dict[str, str], stem: str | None) -> str:
    """Return the op's name, or the file's stem if it has none; log a name that isn't unique."""
    own = op.at("op_type").data if "op_type" in op.data else ""
    name = _fill_op_type(op) if "op" in op.data else stem or own
    if name == "":
        op.add("is missing; only the op of a file with a single op is named after the file", "op")
    if "op" not in op.data and stem is not None and not is_fit(type_of("op_name"), stem):
        message = f"is missing; the file's name {stem!r} can't be one, as it has spaces or commas"
        op.add(message, "op")
    if not name or not isinstance(name, str):
        return ""  # the model reports what isn't a text
    if name in names:
        op.add(f"must be unique in a file, but got {name!r}, which {names[name]} has. Rename one", "op")
    names.setdefault(name, f"{op.place.path}:{op.place.spot.line}")
    return name


def _fill_op_type(op: Written) -> object:
    """Return an op's name with `{op_type}` replaced by its op type, or by the first that it covers."""
    name = op.at("op").plain()
    if OP_TYPE not in str(name):
        return name
    op_type = op.at("op_type").data or op.at("covers", 0).data
    if isinstance(op_type, str):
        return str(name).replace(OP_TYPE, op_type)
    op.add(f"is missing; {name} needs op_type or covers. Write one of them, or op", "op_type")
    return None


DEFAULT_CASE = "default"


def _read_cases(op: Written, cases: Sequence[Written], origin: Origin) -> list[Case]:
    """Return the sound cases of an op merged over its defaults, in the order written; faults are logged.

    They lack the op's name.
    """
    faults, base = op.log.count, _validate(op)
    check_binding(base)
    if not base.inputs:
        if not has_broken_inputs(base):
            op.add("is missing; name each input of forward, such as {x: {shape: [3]}}", "inputs")
        return []
    has_default = any(case.at("name").data == DEFAULT_CASE for case in cases)
    is_template = has_default or (
        bool(cases)
        and any(
            model.shape is None
            and model.ragged is None
            and not any(GENERATORS[kind].is_fixed for kind in sources_of(model))
            for tensors in base.inputs.values()
            for model in leaves_of(tensors)
        )
    )
    own_cases = [] if is_template else [(base, DEFAULT_CASE)]
    names: dict[str, Written] = {}
    for case in cases:
        name = case.at("name")
        if isinstance(name.data, str) and (first := names.setdefault(name.data, name)) is not name:
            name.add(
                f"must be unique, but got {name.data!r}, which line {first.place.spot.line} has. Rename one"
            )
        check_known(case.at("inputs"), base.node.at("inputs"))
        keys = _validate(merge_op(op.without("cases", "case_sets"), case.without("name")))
        if keys.inputs:
            own_cases.append((keys, str(name.data or "")))
    variants = [(keys, _read_variants(keys, name, origin)) for keys, name in own_cases]
    if op.log.count == faults:
        _require_second_order(variants)
    return [case for _, cases in variants for case in cases]


def _validate(node: Written) -> Keys:
    keys = read("OpModel", with_constants(node))
    for key in FUNCTIONS:  # their faults are told, whatever else is wrong
        read_function(keys, key)
    return keys


def _read_variants(keys: Keys, name: str, origin: Origin) -> list[Case]:
    """Return the sound cases among those in each of its dtypes; faults are logged."""
    node = keys.node
    for key in ("reference_forward", "implicit"):
        if getattr(keys, key) and keys.reference is None and "reference" not in keys.broken:
            node.add("must go with reference, but got none. Write reference: module:function", key)
    if keys.implicit and keys.second_order:
        node.add("must stand without second_order: a CDF gives the first derivative alone", "implicit")
    cases: list[Case] = []
    with suppress(Unreadable):
        dtypes = _unique(keys, "dtypes", DTYPE_KINDS)
        takes_none = not has_broken_inputs(keys) and not takes_variant(keys)
        if keys.dtypes and takes_none:
            node.refuse(
                "must have an input to set, but every input names its own dtype. Remove those, or dtypes",
                "dtypes",
            )
        _unique(keys, "modes", {})
        for variant in dtypes or (None,):
            with suppress(Unreadable):
                cases.append(_read_variant(keys, name, replace(origin, variant=variant)))
    return cases


def _require_second_order(variants: Sequence[tuple[Keys, Sequence[Case]]]) -> None:
    """Log the modes and dtypes of a list under `second_order` in which none of the op's cases runs.

    A list among defaults is for other ops, too.
    """
    lists: dict[tuple[str | int, ...], tuple[Written, set[str]]] = {}
    for keys, cases in variants:
        node = keys.node.at("second_order")
        place = node.place
        if node.items and place.path == keys.node.place.path and place.keys[0] != "defaults":
            _, runs = lists.setdefault(place.keys, (node, set()))
            runs.update(word for case in cases for word in (*case.running.modes, case.dtype))
    for node, runs in lists.values():
        for word in node.items:
            if word.data not in runs:
                must = f"must be a mode or a dtype of a case ({', '.join(sorted(runs))})"
                word.add(f"{must}, but got {word.data!r}. Add it to modes or dtypes, or remove it")


def _unique(keys: Keys, key: str, kinds: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the words of a list, and those that a word stands for; refuse one that stands twice."""
    words: list[str] = []
    for index, written in enumerate(keys.get(key, ())):
        for word in kinds.get(written, (written,)):
            if word in words:
                keys.node.refuse(f"must be unique, but got {word!r} twice. Remove one", key, index)
            words.append(word)
    return words


def _read_variant(keys: Keys, name: str, origin: Origin) -> Case:
    """Return a case in one of its dtypes.

    Raises:
        Unreadable: an input has faults, which are logged.
    """
    variant = origin.variant
    outputs = () if keys.broken & (FUNCTION_KEYS | {"outputs"}) else _read_outputs(keys, variant)
    arguments = read_arguments(Context(keys, origin.folder, variant))
    if has_broken_inputs(keys):
        raise Unreadable
    tensors = [tensor for argument in arguments for tensor in argument.tensors]
    differentiable = [tensor for tensor in tensors if tensor.is_differentiable]
    expect, kind = _expectation_of(keys.expect or "pass")
    reference = read_function(keys, "reference")
    dtype = variant or (differentiable or tensors)[0].dtype
    second_order = _modes_of_second_order(keys, dtype)
    rules = keys.variables if isinstance(keys.variables, dict) else {}
    running = fill(Running, keys)
    case = fill(
        Case,
        keys,
        op="",
        name=name,
        dtype=dtype,
        arguments=arguments,
        outputs=outputs,
        mode=running.modes[0],
        code=fill(
            CodeUnderTest,
            keys,
            forward=read_function(keys, "forward"),
            binding=binding_of(keys),
            gradient=read_function(keys, "gradient"),
            variables=True if isinstance(keys.variables, dict) else keys.variables,
            variable_rules=tuple(VariableRule(glob, **read_moving(rule)) for glob, rule in rules.items()),
            covers=tuple(dict.fromkeys(keys.covers or ())),
        ),
        reference=reference and Reference(reference, bool(keys.reference_forward), bool(keys.implicit)),
        expected=fill(
            Expectations,
            keys,
            expect=expect,
            kind=kind,
            pairs=_rules_of(keys, is_second_order=bool(second_order)),
        ),
        judging=fill(
            Judging,
            keys,
            # Few values of an input are all tested, unless a number of samples is stated.
            samples=keys.samples or max(Judging.samples, *(len(few_values(tensor)) for tensor in tensors)),
            tolerance=fill(StatedTolerance, keys.tolerance),
            power=fill(Power, keys.power),
            checks_off=_checks_off(keys.checks) if keys.checks else ON_REQUEST,
            nondeterminism=keys.nondeterminism.atol if keys.nondeterminism else 0.0,
            second_order=second_order,
            unreached=tuple((keys.unreached or {}).items()),
        ),
        running=running,
        origin=replace(origin, tags=tuple(keys.tags or ())),
    )
    _check_pairs(keys, case)
    return case


def _checks_off(written: Keys) -> frozenset[str]:
    return frozenset(name for name, check in CHECKS.items() if not written.get(name, check.is_on))


def _modes_of_second_order(keys: Keys, dtype: str) -> tuple[str, ...]:
    """Return the modes in which the second order of a dtype is checked."""
    written = keys.second_order
    if not isinstance(written, list):
        return MODES if written else ()
    modes = tuple(word for word in written if word in MODES)
    dtypes = [word for word in written if word not in MODES]
    return (modes or MODES) if dtype in (dtypes or [dtype]) else ()


def _rules_of(keys: Keys, *, is_second_order: bool) -> tuple[PairRule, ...]:
    """Return the pair rules in the order written; a dtype without second order has none of second order."""
    rules = []
    for glob, rule in (keys.pairs or {}).items():
        if isinstance(keys.second_order, list) and not is_second_order and is_of_second_order(glob):
            continue
        expect, kind = _expectation_of(rule.expect or "")
        rules.append(fill(PairRule, rule, glob=glob, expect=expect, kind=kind))
    return tuple(rules)


def _expectation_of(written: str | Keys) -> tuple[str, str]:
    """Return the expectation and, if it is given, the kind of a mismatch."""
    if isinstance(written, str):
        return written, ""
    return "mismatch", written.mismatch


def _read_outputs(keys: Keys, variant: str | None) -> tuple[OutputSpec, ...]:
    node, binding, written = keys.node, binding_of(keys), keys.outputs
    tells_outputs = BINDINGS[binding].tells_outputs
    if written is None:
        if not tells_outputs:
            node.add(f"is missing; binding {binding} needs it, such as {{y: {{dtype: float32}}}}", "outputs")
        return ()
    if isinstance(written, list):
        if not tells_outputs:
            node.add(
                f"must be a mapping of names to dtypes for binding {binding}, but got {show(written)}. "
                f"Write {{{written[0]}: {{dtype: float32}}}}",
                "outputs",
            )
        for index, name in enumerate(written):
            if name in written[:index]:
                node.add(f"must be unique, but got {name!r} twice. Rename one", "outputs", index)
        return tuple(OutputSpec(name) for name in written)
    outputs = []
    for name, output in written.items():
        dtype = (output.dtype if output else None) or variant
        if dtype is None and not tells_outputs:
            node.add(
                f"is missing; binding {binding} needs the dtype of each output",
                "outputs",
                name,
                "dtype",
            )
        outputs.append(fill(OutputSpec, output, name=name, dtype=dtype))
    return tuple(outputs)


def _check_pairs(keys: Keys, case: Case) -> None:
    """Log pair rules that match none of a case's labels; some labels are known only at run time.

    Labels of an output's parts are among these: only the forward shows that an output is a structure.
    """
    pairs, labels = keys.node.at("pairs"), case.labels
    if not case.outputs or case.code.may_have_variables or keys.second_order:
        return
    for rule in unmatched_rules(case.expected.pairs, labels):
        if any(could_match(rule.glob, label) for label in labels):
            continue
        remedy = suggest(rule.glob, labels) or (
            f"Pairs: {', '.join(labels[:8])}" if labels else "There are no pairs"
        )
        pairs.add_key(f"must match a pair, but got {rule.glob!r}. {remedy}", rule.glob)
