"""A pair under judgement, its Jacobians at a sample point, and what rounding and ties allow of them."""
