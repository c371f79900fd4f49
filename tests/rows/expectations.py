"""What a spec expects of a gradient that is wrong: strict of every pair that it covers, and of the kind."""

import tensorflow as tf

from tests.support.row import Row, marked

X, PAIR = {"x": {"shape": [3]}}, {"a": {"shape": [3]}, "b": {"shape": [3]}}


def _square(x):
    return x * x


def _product(a, b):
    return a * b


def _raises(_op, _upstream):
    raise ValueError("there is no second derivative of this")


FAULTS = {
    "right": lambda op, u: 2 * op.inputs[0] * u,
    "value": lambda op, u: 3 * op.inputs[0] * u,
    "none": lambda *_: None,
    "nonfinite": lambda op, u: op.inputs[0] * u * float("nan"),
    "form": lambda op, u: tf.stack([op.inputs[0], u]),
    "raises": _raises,
    "upstream": lambda op, u: 2 * op.inputs[0] * tf.abs(u),
}
_KIND = {"upstream": "value"}


def _is_met(fault, expected):
    kind = _KIND.get(fault, fault)
    return kind == expected or (expected == "" and fault not in {"right", "raises"})


def _expectation(kind):
    return {"mismatch": kind} if kind else "mismatch"


def _of_kinds():
    for fault, gradient in FAULTS.items():
        for expected in ("", "value", "none", "nonfinite", "form", "raises"):
            truth = "stated" if _is_met(fault, expected) else "not green"
            name = f"{fault}_where_{expected or 'a_mismatch'}_is_expected"
            yield Row(name, _square, gradient, X, truth, keys={"expect": _expectation(expected)})


def _half_wrong(op, u):
    a, b = op.inputs
    return 2 * u * b, u * a


def _both_wrong(op, u):
    a, b = op.inputs
    return 2 * u * b, 3 * u * a


def _wrong_and_none(op, u):
    return 2 * u * op.inputs[1], None


def _ignored_and_right(op, u):
    return tf.ones_like(u) * op.inputs[1], u * op.inputs[0]


def _of(name, truth, gradient, **keys):
    return Row(name, _product, gradient, PAIR, truth, keys=keys)


ROWS = marked(
    (
        *_of_kinds(),
        _of("one_of_two_by_op", "not green", _half_wrong, expect="mismatch"),
        _of("one_of_two_by_glob", "not green", _half_wrong, pairs={"dy/d*": {"expect": "mismatch"}}),
        _of("one_of_two_by_pair", "stated", _half_wrong, pairs={"dy/da": {"expect": "mismatch"}}),
        _of(
            "one_of_two_by_the_other_pair", "not green", _half_wrong, pairs={"dy/db": {"expect": "mismatch"}}
        ),
        _of(
            "one_of_two_and_an_exception",
            "stated",
            _half_wrong,
            expect="mismatch",
            pairs={"dy/db": {"expect": "pass"}},
        ),
        _of(
            "one_of_two_and_a_tolerance",
            "not green",
            _half_wrong,
            expect="mismatch",
            pairs={"dy/db": {"rtol": 1e-4}},
        ),
        _of("both_by_op", "stated", _both_wrong, expect="mismatch"),
        _of("both_by_glob", "stated", _both_wrong, pairs={"*": {"expect": {"mismatch": "value"}}}),
        _of("both_and_a_check_off", "stated", _both_wrong, expect="mismatch", checks={"linearity": False}),
        _of("two_kinds_by_op", "not green", _wrong_and_none, expect={"mismatch": "value"}),
        _of(
            "two_kinds_each",
            "stated",
            _wrong_and_none,
            expect={"mismatch": "value"},
            pairs={"dy/db": {"expect": {"mismatch": "none"}}},
        ),
        _of("two_kinds_plainly", "stated", _wrong_and_none, expect="mismatch"),
        _of("ignored_upstream_by_op", "not green", _ignored_and_right, expect="mismatch"),
        _of(
            "ignored_upstream_by_pair",
            "stated",
            _ignored_and_right,
            pairs={"dy/da": {"expect": {"mismatch": "value"}}},
        ),
        _of("a_case_of_its_own", "not green", _half_wrong, cases=[{"name": "small", "expect": "mismatch"}]),
        _of("both_in_second_order", "not green", _both_wrong, expect="mismatch", second_order=True),
        _of(
            "both_of_first_order",
            "stated",
            _both_wrong,
            pairs={"dy/d*": {"expect": "mismatch"}},
            second_order=True,
        ),
    ),
    "both_in_second_order",
    "both_of_first_order",
    "form_where_form_is_expected",
    "form_where_value_is_expected",
    "nonfinite_where_a_mismatch_is_expected",
    "one_of_two_by_pair",
    "raises_where_a_mismatch_is_expected",
    "raises_where_raises_is_expected",
    "upstream_where_value_is_expected",
)
