"""The other libraries' checkers, in a process of their own: reads a request a line, answers in a line.

`python rival_functions.py torch` or `jax`. A request is JSON: `{"load": "values.npz"}`, or
`{"function": "matmul", "mode": "slow"}`. The answer has the seconds that the check
took, and what it said.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from functools import partial
from importlib import import_module

import numpy as np

from gradcheck_cli.running.limits import default_memory


class Torch:
    """PyTorch's gradcheck: whole Jacobians (slow), or one random projection (fast)."""

    def __init__(self):
        import torch

        torch.set_num_threads(1)
        self.torch = torch
        # Where its fast mode finds an error, gradcheck computes the whole Jacobian for its message alone. The
        # finding stands before that; the message goes without.
        gradcheck = import_module("torch.autograd.gradcheck")
        if not hasattr(gradcheck, "_run_slow_mode_and_get_error"):
            raise RuntimeError("this PyTorch words its errors elsewhere: see to it that it needs no Jacobian")
        gradcheck._run_slow_mode_and_get_error = lambda *_: ""
        self.version = str(torch.__version__)
        self.functions = {
            "matmul": lambda a, b: a @ b,
            "softmax": lambda x: torch.softmax(x, -1),
            "conv2d": lambda x, w: torch.nn.functional.conv2d(
                x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), padding=1
            ),
            "cholesky": lambda x: torch.linalg.cholesky((x + x.T) / 2),
            "lstm": self._lstm,
        }

    def _lstm(self, x, h, c, w, u, b):  # noqa: PLR0913, PLR0917 (an op's inputs are its arguments)
        torch = self.torch
        i, f, g, o = (x @ w + h @ u + b).chunk(4, dim=1)
        new_c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(new_c), new_c

    def prepare(self, name, values):
        return self.functions[name], [self.torch.tensor(value, requires_grad=True) for value in values]

    def check(self, function, inputs, mode):
        return self.torch.autograd.gradcheck(
            function, inputs, fast_mode=mode == "fast", raise_exception=False
        )


class Jax:
    """JAX's check_grads, reverse mode, first order: one random direction."""

    def __init__(self):
        import jax

        jax.config.update("jax_enable_x64", True)  # noqa: FBT003 (JAX's signature)
        from jax import numpy as jnp
        from jax.test_util import check_grads

        self.jnp, self.check_grads = jnp, check_grads
        self.version = str(jax.__version__)

        def lstm(x, h, c, w, u, b):  # noqa: PLR0913, PLR0917 (an op's inputs are its arguments)
            i, f, g, o = jnp.split(x @ w + h @ u + b, 4, axis=1)
            new_c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return jax.nn.sigmoid(o) * jnp.tanh(new_c), new_c

        self.functions = {
            "matmul": jnp.matmul,
            "softmax": jax.nn.softmax,
            "conv2d": partial(
                jax.lax.conv_general_dilated,
                window_strides=(1, 1),
                padding="SAME",
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            ),
            "cholesky": lambda x: jnp.linalg.cholesky((x + x.T) / 2),
            "lstm": lstm,
        }

    def prepare(self, name, values):
        return self.functions[name], tuple(self.jnp.asarray(value) for value in values)

    def check(self, function, inputs, mode):
        del mode  # it has but one
        try:
            self.check_grads(function, inputs, order=1, modes=["rev"])
        except AssertionError:
            return False
        return True


def main():
    """Answer requests until they end."""
    limit = default_memory()
    if limit is not None:  # whatever a library makes up its mind to allocate, others share the machine
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    rival = {"torch": Torch, "jax": Jax}[sys.argv[1]]()
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever a library prints is no answer
    print(json.dumps({"version": rival.version}), file=answers, flush=True)
    values = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "load" in request:
            with np.load(request["load"]) as stored:
                values.update({key: stored[key] for key in stored})
            answer = {}
        else:
            name = request["function"]
            inputs = [values[key] for key in values if key.split("/")[0] == name]
            function, tensors = rival.prepare(name, inputs)
            began = time.process_time()
            passed = rival.check(function, tensors, request.get("mode"))
            answer = {"seconds": time.process_time() - began, "passed": bool(passed)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
