"""Modules that turn TensorFlow's switches, beside others in one process."""

from __future__ import annotations

import sys

import pytest
import tensorflow as tf

from gradcheck_cli.features.tensorflow1 import private_v1
from gradcheck_cli.features.tensorflow1.switches import BEHAVIOUR
from gradcheck_cli.tensorflow_backend import users_code

OFF = "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\n"
F = "def f(x): return x\n"
MODULES = {
    "rel_old": OFF + "assert not tf.executing_eagerly()\nx = tf.placeholder(tf.float32)\n" + F,
    "rel_new": "import tensorflow as tf\nassert int(tf.constant(3)) == 3\n" + F,
    "rel_above": "import tensorflow as tf\nfrom rel_old import x\ny = x + 1.0\n" + F,
    "rel_package/__init__": "",
    "rel_package/low": "import tensorflow.compat.v1 as tf\ntf.disable_tensor_equality()\n" + F,
    "rel_package/top": "from . import low\nfrom .low import f\n",
    "rel_raises": OFF + "raise RuntimeError('on import')\n",
}


@pytest.fixture
def folder(tmp_path):
    for name, text in MODULES.items():
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    yield str(tmp_path)
    for name in [name for name in sys.modules if name.startswith("rel_")]:
        del sys.modules[name]


def asked(folder, *targets):
    """Load targets as one case does; return the switches under which its functions are called."""
    with BEHAVIOUR.own(), users_code.importable(folder):
        for target in targets:
            users_code.load(target, "forward")
        off = BEHAVIOUR.turns_eager_off
        with BEHAVIOUR.calling():
            called = {name for name, value in private_v1.switches().items() if value != private_v1.OWN[name]}
    assert private_v1.switches() == private_v1.OWN
    assert tf.executing_eagerly()
    return off, called


OLD = (True, {"tensor_shape", "tensor_equality", "control_flow"})
NEW = (False, set())


def test_a_modules_switches_are_its_own_functions(folder):
    assert asked(folder, "rel_old:f") == OLD
    assert asked(folder, "rel_new:f") == NEW
    assert asked(folder, "rel_old:f") == OLD, "it isn't imported again"


def test_a_module_switches_again_what_an_import_switched_for_another_case(folder):
    assert asked(folder, "rel_old:f") == OLD
    assert asked(folder, "rel_above:f") == OLD
    assert asked(folder, "rel_new:f") == NEW


def test_a_module_that_raises_leaves_nothing_switched(folder):
    with pytest.raises(Exception, match="on import"):
        asked(folder, "rel_raises:f")
    assert private_v1.switches() == private_v1.OWN
    assert asked(folder, "rel_new:f") == NEW


def test_one_case_asks_for_what_all_its_modules_ask_for(folder):
    assert asked(folder, "rel_package.low:f", "rel_old:f") == OLD
    assert asked(folder, "rel_new:f", "rel_old:f") == OLD


def test_a_caller_of_tensorflow_1_has_its_own_functions_checked_so(folder):
    before = private_v1.switches(), private_v1.scene()
    tf.compat.v1.disable_v2_behavior()
    try:
        with BEHAVIOUR.own():
            assert tf.executing_eagerly()
            with users_code.importable(folder):
                assert BEHAVIOUR.turns_eager_off
        assert not tf.executing_eagerly()
    finally:
        private_v1.set_switches(before[0])
        private_v1.set_scene(before[1])
