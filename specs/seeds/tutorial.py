"""A gradient as found in a published tutorial, which isn't the gradient of its forward."""


def add(c, k, d):
    """Add `c` and `k` in NumPy; `d` plays no part."""
    del d
    return c + k


def add_grad(op, upstream):
    """Return the tutorial's gradients of `add`, one per input."""
    c, k, d = op.inputs
    return (c + k + d) * upstream, d * upstream, (c + k) * upstream
