"""The library for notebooks and tests: `check`, `check_function`, `assert_gradients`, `py_func`."""

from __future__ import annotations

HOOKS = {"keep_jacobians": "library:keep_jacobians"}
