from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.checking.ops.operation import TensorInfo, pack
from gradcheck_cli.errors import CaseFailedError


def test_a_tensor_whose_shape_changes_is_named():
    """TensorFlow's FusedBatchNormV3 allocates its reserve_space_3 in one shape or another."""
    with pytest.raises(CaseFailedError, match=r"y5 has the shape \[0\] at the first evaluation, and \[\] at"):
        pack(np.zeros(7), TensorInfo("y5", "float32", (0,)))
