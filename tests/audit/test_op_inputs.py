"""The table of op types' inputs is what the installed TensorFlow defines."""

from op_inputs_table import TABLE, lines


def test_the_table_is_what_tensorflow_defines():
    # Another version may have other op types, and none that both have may differ.
    known = {line.split()[0]: line for line in TABLE.read_text(encoding="utf-8").splitlines()}
    here = {line.split()[0]: line for line in lines()}
    both = known.keys() & here.keys()
    assert len(both) > 400
    assert {name: here[name] for name in both} == {name: known[name] for name in both}
