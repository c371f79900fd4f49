"""An op as the checks see it, and Jacobians of packed tensors."""
