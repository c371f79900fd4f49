"""What `gradcheck init` makes of functions and op types: what runs, tests something, or says what is open.

    python -m tests.acceptance.drafts functions            # 100 functions of TensorFlow's and of other kinds
    python -m tests.acceptance.drafts op_types --part 1/8  # an eighth of the op types with a gradient

Prints a line for each, and at the end the shares: drafts that run, that decide something (`tests`), that end
with 0 (`right`), and the silent ones, of which a run doesn't end with 0 and the draft doesn't say why.
"""

import argparse
import sys
from collections import Counter
from contextlib import closing

from gradcheck_cli.errors import CaseFailedError, GradcheckError
from gradcheck_cli.features.init.init_command import DraftingProcess
from gradcheck_cli.running.session import start_tensorflow

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
    "tests.acceptance.drafted_functions": "huber with_axis masked state factory Module Plain Dense Model "
    "summed variadic",
}


def op_types() -> list[str]:
    """Return the op types that have a gradient registered."""
    start_tensorflow()
    from gradcheck_cli.features.coverage.registry_entries import read_gradients

    return sorted({one.name for one in read_gradients() if one.status == "gradient"})


def targets() -> list[str]:
    """Return the functions, as `module:name`."""
    return [f"{module}:{name}" for module, names in FUNCTIONS.items() for name in names.split()]


LISTS = {"functions": targets, "op_types": op_types}


def drafted(process: DraftingProcess, name: str) -> tuple[str, str]:
    """Draft one: return what became of it in a word, and the first line of what `init` says of it."""
    try:
        found = process.draft(name)
    except CaseFailedError as error:
        return "refused", str(error).splitlines()[0]
    except GradcheckError as error:  # its process died, again and again
        return "crashed", str(error).splitlines()[0]
    if found.is_right:
        return "right", ""
    told = found.trouble.splitlines()
    # A wrong gradient is said on standard error alone: in the file it would stand there when it is mended.
    is_said = found.is_mismatched or (found.runs and found.told)
    if not told or not (is_said or told[0] in " ".join(found.draft.notes)):
        return "silent", ""
    decided = found.runs and any(str(one.status) in {"passed", "mismatched"} for one in found.result.pairs)
    return "tests" if decided else "runs" if found.runs else "fails", told[0]


def main() -> None:
    """Draft as `gradcheck init` does: in a process of its own, which a kernel may abort."""
    parser = argparse.ArgumentParser(description="see the module's own text")
    parser.add_argument("what", choices=[*LISTS])
    parser.add_argument("--part", default="1/1")
    options = parser.parse_args()
    index, count = (int(part) for part in options.part.split("/"))
    counts: Counter[str] = Counter()
    with closing(DraftingProcess()) as process:
        for name in LISTS[options.what]()[index - 1 :: count]:
            status, told = drafted(process, name)
            counts[status] += 1
            sys.stdout.write(f"{status:8} {name}  {told[:150]}\n")
            sys.stdout.flush()
    total = sum(counts.values())
    decided = counts["right"] + counts["tests"]
    runs = decided + counts["runs"]
    sys.stdout.write(
        f"{total} drafted: {runs} run ({100 * runs / max(total, 1):.0f} %), {decided} test something, "
        f"{counts['right']} end with 0\n"
        f"{counts['fails'] + counts['refused']} don't run and say why, {counts['silent']} are silent, "
        f"{counts['crashed']} crash\n"
    )


if __name__ == "__main__":
    main()
