"""An op as the checks see it, its analytic Jacobians, and the method and budget by which it is judged."""
