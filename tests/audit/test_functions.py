"""Each public function that gives floating numbers is in `specs/functions`, or excepted with a reason."""

from __future__ import annotations

import inspect

import pytest
from audit_table import ROOT

from gradcheck_cli.running.session import start_tensorflow
from gradcheck_cli.spec.load import load

start_tensorflow()
tf = pytest.importorskip("tensorflow")

SPECS = ROOT / "specs" / "functions"
MODULES = {
    "tensorflow.math": tf.math,
    "tensorflow.math.special": tf.math.special,
    "tensorflow.nn": tf.nn,
    "tensorflow.linalg": tf.linalg,
    "tensorflow.signal": tf.signal,
    "tensorflow.image": tf.image,
    "tensorflow.sparse": tf.sparse,
    "tensorflow.ragged": tf.ragged,
    "tensorflow.strings": tf.strings,
    "tensorflow.experimental.numpy": tf.experimental.numpy,
    "keras.ops": tf.keras.ops,
}
# A reason -> the functions that it is for: MODULE:NAME, or NAME wherever it is.
EXCEPTED = {
    "gives whole numbers, booleans or text": """
        all allclose any argmax argmin argpartition argsort array_equal bincount bitwise_and
        bitwise_invert bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor
        confusion_matrix count_nonzero digitize equal gcd greater greater_equal histogram in_top_k
        invert_permutation is_finite is_inf is_nan is_non_decreasing is_strictly_increasing isclose
        iscomplex iscomplexobj isfinite isin isinf isnan isneginf isposinf isreal isrealobj isscalar
        lcm left_shift less less_equal logical_and logical_not logical_or logical_xor matrix_rank
        nanargmax nanargmin ndim nonzero not_equal reduce_all reduce_any right_shift searchsorted
        shape signbit size unique unravel_index result_type promote_types issubdtype is_tensor dtype
        finfo diag_indices ix_ is_jpeg extract_jpeg_shape encode_jpeg encode_png ctc_unique_labels
        ctc_decode ctc_beam_search_decoder ctc_greedy_decoder collapse_repeated
        compute_accidental_hits tensorflow.nn:all_candidate_sampler fixed_unigram_candidate_sampler
        learned_unigram_candidate_sampler non_max_suppression non_max_suppression_overlaps
        non_max_suppression_padded non_max_suppression_with_scores combined_non_max_suppression
        tensorflow.sparse:bincount tensorflow.sparse:cross tensorflow.ragged:cross cross_hashed
        to_indicator row_splits_to_segment_ids segment_ids_to_row_splits as_string bytes_split
        format join length lower ngrams reduce_join regex_full_match regex_replace
        tensorflow.strings:split strip substr to_hash_bucket to_hash_bucket_fast
        to_hash_bucket_strong unicode_decode unicode_decode_with_offsets unicode_encode
        unicode_script unicode_split unicode_split_with_offsets unicode_transcode
        unsorted_segment_join upper multi_hot one_hot
    """,
    "takes whole numbers or text, or nothing that could be differentiated": """
        arange array_split_indices bartlett blackman empty empty_like eye full full_like hamming
        hamming_window hann_window hanning identity kaiser kaiser_bessel_derived_window
        kaiser_window ones ones_like range sobol_sample to_number tri vorbis_window zeros zeros_like
        linear_to_mel_weight_matrix inverse_stft_window_fn decode_and_crop_jpeg decode_bmp
        decode_gif decode_image decode_jpeg decode_jxl decode_png decode_webp adjust_jpeg_quality
        random_jpeg_quality stateless_random_jpeg_quality generate_bounding_box_proposals
        sample_distorted_bounding_box stateless_sample_distorted_bounding_box convert_to_numpy
        constant
    """,
    "is constant but for its steps, where nothing has a derivative": """
        around ceil tensorflow.experimental.numpy:divmod fix floor floor_divide floordiv heaviside
        rint round sign trunc zero_fraction
    """,
    "draws anew each time it is called; FractionalAvgPool and FractionalMaxPool are in specs/tensorflow": """
        fractional_avg_pool fractional_max_pool
    """,
    "calls functions that it is given; control flow is in specs/structures and specs/tensorflow": """
        associative_scan cond custom_gradient fori_loop jvp map map_flat_values map_values scan
        switch vectorize vectorized_map while_loop with_space_to_batch
    """,
    "has no kernel on the CPU": "approx_max_k approx_min_k fftnd ifftnd rfftnd irfftnd",
    "has no gradient: TensorFlow registers none for its op": """
        tensorflow.linalg:logm tensorflow.linalg:lu lu_factor slice_update view
        tensorflow.sparse:reduce_max tensorflow.sparse:split rfft3d irfft3d adjust_contrast
        adjust_hue adjust_saturation extract_glimpse random_contrast random_hue random_saturation
        stateless_random_contrast stateless_random_hue stateless_random_saturation
    """,
    "checked by a function of specs/functions/called.py, as its docstring says": """
        einsum weighted_moments sufficient_statistics sobel_edges tensorflow.sparse:concat
    """,
    "changes how TensorFlow's arrays behave": "experimental_enable_numpy_behavior",
    "checked as its op type in specs/tensorflow, as no spec can hand it what it takes": """
        boolean_mask stack_dynamic_partitions tensorflow.ragged:stack eye draw_bounding_boxes
        sampled_addmm mask
    """,
}


def excepted_names():
    """Return the names that are excepted."""
    return {name for names in EXCEPTED.values() for name in names.split()}


def offered_functions():
    """Return the names of each public function, by the function: an alias is the same object."""
    offered = {}
    for module, members in MODULES.items():
        for name in dir(members):
            value = getattr(members, name)
            if name.startswith("_") or not callable(value) or inspect.isclass(value):
                continue
            offered.setdefault(id(inspect.unwrap(value)), []).append(f"{module}:{name}")
    return list(offered.values())


def checked_functions():
    """Return the functions that specs name as their forward."""
    named = {case.forward.target for case in load([SPECS]).cases}
    return {name for name in named if not name.startswith("called:")}


def test_functions_are_read():
    assert ["tensorflow.math:erfcinv"] in offered_functions()
    assert len(offered_functions()) > 800


def test_nothing_is_silently_left_out():
    checked, excepted = checked_functions(), excepted_names()
    missing = [
        names[0]
        for names in offered_functions()
        if not any(name in checked or {name, name.partition(":")[2]} & excepted for name in names)
    ]
    assert not missing, (
        f"TensorFlow {tf.__version__} has {' '.join(missing)}: write a spec in specs/functions, or an "
        "exception above, with the reason."
    )


def test_nothing_is_checked_andexcepted_names():
    excepted = excepted_names()
    assert not {name for name in checked_functions() if {name, name.partition(":")[2]} & excepted}
