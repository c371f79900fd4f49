"""What `gradcheck init` makes of functions and op types: what runs, tests something, or says what is open.

    python tests/acceptance/drafts.py functions            # 100 functions of TensorFlow's and of other kinds
    python tests/acceptance/drafts.py op_types --part 1/8  # an eighth of the op types with a gradient

Prints a line for each, and at the end the shares: drafts that run, that end with 0, and the silent ones, of
which a run doesn't end with 0 and `init` says nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

from gradcheck_cli.errors import GradcheckError
from gradcheck_cli.running.session import start_tensorflow
from gradcheck_cli.running.views.drafting import draft_function, draft_op_type

if TYPE_CHECKING:
    from collections.abc import Sequence

FUNCTIONS = {
    "tensorflow": "abs add concat exp gather identity maximum minimum multiply negative norm pow "
    "realdiv reduce_max reduce_mean reduce_prod reduce_sum reshape sigmoid sin sqrt square squeeze stack "
    "subtract tanh tile transpose where",
    "tensorflow.math": "acos acosh asin asinh atan atan2 atanh bessel_i0 betainc cumprod cumsum cosh digamma "
    "divide_no_nan erf erfinv erfc expm1 igamma l2_normalize lbeta lgamma log log1p log_sigmoid  "
    "ndtri polygamma reciprocal reduce_logsumexp reduce_std reduce_variance rsqrt segment_mean segment_sum "
    "sinh softplus squared_difference unsorted_segment_sum xdivy xlogy zeta",
    "tensorflow.nn": "bias_add conv2d crelu elu gelu leaky_relu l2_loss log_softmax moments relu relu6 selu "
    "silu softmax softmax_cross_entropy_with_logits sparse_softmax_cross_entropy_with_logits "
    "sigmoid_cross_entropy_with_logits softsign log_poisson_loss weighted_cross_entropy_with_logits avg_pool "
    "max_pool depthwise_conv2d local_response_normalization batch_normalization",
    "tensorflow.linalg": "cholesky det inv logdet matmul matrix_transpose slogdet trace cholesky_solve solve "
    "triangular_solve expm norm band_part diag diag_part eigvalsh svd qr",
    "tensorflow.signal": "dct fft rfft ifft stft frame hann_window overlap_and_add",
    "drafted_functions": "huber dense with_axis masked state pair factory Module Plain Dense activation",
}


def op_types() -> list[str]:
    """Return the op types that have a gradient registered."""
    from gradcheck_cli.tensorflow_backend.registry.gradient_registry import read_gradients

    return sorted({one.name for one in read_gradients() if one.status == "gradient"})


def targets() -> list[str]:
    """Return the functions, as `module:name`."""
    return [f"{module}:{name}" for module, names in FUNCTIONS.items() for name in names.split()]


def drafted(what: str, name: str) -> tuple[str, str]:
    """Draft one: return what became of it in a word, and the first line of what `init` says of it."""
    try:
        found = draft_function(name) if what == "functions" else draft_op_type(name)
    except GradcheckError as error:
        return "refused", str(error).splitlines()[0]
    status = "right" if found.is_right else "runs" if found.runs else "fails"
    told = "" if found.is_right else found.trouble
    if not (found.is_right or told):
        status = "silent"
    return status, (told.splitlines() or [""])[0]


def work(what: str, names: Sequence[str]) -> None:
    """Draft one after another, a line of JSON each."""
    start_tensorflow()
    for name in names:
        tell(json.dumps([name, *drafted(what, name)]))


def tell(line: str) -> None:
    """Print a line at once: the next takes a while."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Draft in a process of its own, and in another where a kernel aborts on what it is tried with."""
    parser = argparse.ArgumentParser(description="see the module's own text")
    parser.add_argument("what", choices=["functions", "op_types"])
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--only", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only is not None:
        work(options.what, options.only)
        return
    index, count = (int(part) for part in options.part.split("/"))
    left = (targets() if options.what == "functions" else op_types())[index - 1 :: count]
    counts: Counter[str] = Counter()
    while left:
        command = [sys.executable, __file__, options.what, "--only", *left]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as worker:
            for line in worker.stdout or ():
                if not line.startswith("["):
                    continue
                name, status, told = json.loads(line)
                left.remove(name)
                counts[status] += 1
                tell(f"{status:8} {name}  {told[:150]}")
        if left:  # it aborted at the first of these
            counts["crashed"] += 1
            tell(f"crashed  {left.pop(0)}")
    total, runs = sum(counts.values()), counts["right"] + counts["runs"]
    failing = counts["fails"] + counts["refused"]
    tell(f"{total} drafted: {runs} run ({100 * runs / max(total, 1):.0f} %), {counts['right']} end with 0")
    tell(f"{failing} don't run and say why, {counts['silent']} are silent, {counts['crashed']} crash")


if __name__ == "__main__":
    main()
