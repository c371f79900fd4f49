"""Modules that switch TensorFlow, Keras, NumPy or Python to another behaviour when they are imported."""

import json

import pytest

pytestmark = pytest.mark.once

SWITCHES = {
    "floatx": "keras.backend.set_floatx('float64')",
    "policy": "keras.mixed_precision.set_global_policy('mixed_float16')",
    "determinism": "keras.utils.set_random_seed(1); tf.config.experimental.enable_op_determinism()",
    "check_numerics": "tf.debugging.enable_check_numerics()",
    "resource": "tf.compat.v1.disable_resource_variables()",
    "control_flow": "tf.compat.v1.disable_control_flow_v2()",
    "shapes": "tf.compat.v1.disable_v2_tensorshape()",
    "equality": "tf.compat.v1.disable_tensor_equality()",
    "numpy": "tf.experimental.numpy.experimental_enable_numpy_behavior(prefer_float32=True, "
    "dtype_conversion_mode='all')",
    "eager": "tf.compat.v1.disable_eager_execution()",
    "functions": "tf.config.run_functions_eagerly(True)",
    "jit": "tf.config.optimizer.set_jit('autoclustering')",
    "placement": "tf.config.set_soft_device_placement(False)",
    "autograph": "tf.autograph.set_verbosity(10)",
    "warnings": "import warnings; warnings.simplefilter('error')",
    "errors": "import numpy as np; np.seterr(all='raise')",
    "seeds": "import numpy as np; tf.random.set_seed(1); np.random.seed(0)",
    "output": "import sys; sys.stdout = open('/dev/null', 'w')",
    "folder": "import os; os.chdir('/')",
    "alarm": "import signal; signal.signal(signal.SIGALRM, lambda *_: None); signal.alarm(1)",
    "tracing": "import sys; sys.settrace(lambda *_: None)",
    "garbage": "import gc; gc.disable(); gc.freeze()",
    "strategy": "STRATEGY = tf.distribute.MirroredStrategy(['CPU:0']); STRATEGY.scope().__enter__()",
    "graph": "tf.Graph().as_default().__enter__()",
    "tape": "tf.GradientTape(persistent=True).__enter__()",
}
MODULE = """
import keras
import tensorflow as tf
{switch}

class Layer(keras.layers.Layer):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def build(self, shape):
        self.w = self.add_weight(shape=(int(shape[-1]), 2), initializer="ones")

    def call(self, x):
        @tf.custom_gradient
        def dense(x, w):
            y = tf.tanh(tf.matmul(x, w))
            slope = lambda u: u * (1 - y * y)
            return y, lambda u: (
                tf.matmul(slope(u), w, transpose_b=True),
                self.factor * tf.matmul(x, slope(u), transpose_a=True),
            )

        return dense(x, tf.convert_to_tensor(self.w))
"""
CASES = """
defaults: {{forward: '{name}:Layer', variables: true, inputs: {{x: {{shape: [3, 3], dtype: float32}}}}}}
ops:
  - {{op: {name}_right, build: {{factor: 1.0}}}}
  - {{op: {name}_wrong, build: {{factor: 1.1}}}}
"""


def test_a_switch_changes_no_verdict(tmp_path, process):
    for name, switch in SWITCHES.items():
        (tmp_path / f"{name}_switch.py").write_text(MODULE.format(switch=switch))
        (tmp_path / f"{name}.yaml").write_text(CASES.format(name=f"{name}_switch"))
    done = process("run", ".", "-j", "2", "--format", "json", cwd=tmp_path)
    cases = json.loads(done.stdout)["cases"]
    statuses = {case["op"]: [pair["status"] for pair in case["pairs"]] for case in cases}
    expected = {"right": ["passed", "passed"], "wrong": ["passed", "mismatched"]}
    assert statuses == {
        f"{name}_switch_{truth}": pairs for name in SWITCHES for truth, pairs in expected.items()
    }, done.stderr
