"""The table of op types' inputs is what the installed TensorFlow defines."""

import re

from tests.audit.op_inputs_table import TABLE, lines

# A fixed dtype that a later version makes the default of an attr is the same to a spec.
_DEFAULT = re.compile(r":\w*=")


def by_op_type(text):
    return {line.split()[0]: _DEFAULT.sub(":=", line) for line in text}


def test_the_table_is_what_tensorflow_defines():
    # Another version may have other op types, and none that both have may differ.
    known, here = by_op_type(TABLE.read_text(encoding="utf-8").splitlines()), by_op_type(lines())
    both = known.keys() & here.keys()
    assert len(both) > 400
    assert {name: here[name] for name in both} == {name: known[name] for name in both}
