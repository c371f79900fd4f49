"""The library for notebooks and tests: `check`, `check_function`, `assert_gradients`, `py_func`."""
