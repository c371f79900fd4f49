"""Each public function that gives floating numbers is in `specs/functions`, or excepted with a reason."""

from __future__ import annotations

import inspect

import pytest

from gradcheck_cli.running.session import start_tensorflow
from gradcheck_cli.spec.load import load
from tests.audit.audit_table import ROOT

start_tensorflow()
tf = pytest.importorskip("tensorflow")

SPECS = ROOT / "specs" / "functions"
# A reason -> the modules of TensorFlow that aren't walked, with all that is below them.
NOT_WALKED = {
    "Keras: keras.ops is walked here, and the rest of it in test_keras.py": """
        keras initializers losses metrics optimizers
    """,
    "former names, and op types, which test_registry.py has": "compat raw_ops",
    "computes with no tensor: devices, files, datasets, machines, tools": """
        audio autograph config data debugging distribute dtensor errors experimental.dlpack
        experimental.dtensor experimental.extension_type experimental.tensorrt feature_column
        graph_util io lite lookup mlir nest profiler queue saved_model security sets summary
        sysconfig test tools tpu train types version xla
    """,
}
FIRST = (
    "math",
    "math.special",
    "nn",
    "linalg",
    "signal",
    "image",
    "sparse",
    "ragged",
    "strings",
    "experimental.numpy",
)


def walked_modules():
    """Return TensorFlow's public modules by name, the ones that most of it is in first; then keras.ops."""
    left_out = {name for names in NOT_WALKED.values() for name in names.split()}
    found = {"": tf}
    waiting = [""]
    while waiting:
        above = waiting.pop()
        for name in dir(found[above]):
            path = f"{above}.{name}".lstrip(".")
            if name.startswith("_") or path in left_out:
                continue
            if inspect.ismodule(member := getattr(found[above], name)):
                found[path] = member
                waiting.append(path)
    order = [*FIRST, *sorted(found.keys() - {"", *FIRST}), ""]
    return {f"tensorflow.{path}".rstrip("."): found[path] for path in order} | {"keras.ops": tf.keras.ops}


MODULES = walked_modules()
# A reason -> the functions that it is for: MODULE:NAME, or NAME wherever it is.
EXCEPTED = {
    "gives whole numbers, booleans or text": """
        all allclose any argmax argmin argpartition argsort array_equal bitwise_and
        bitwise_invert bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor
        confusion_matrix count_nonzero digitize equal gcd greater greater_equal histogram in_top_k
        invert_permutation is_finite is_inf is_nan is_non_decreasing is_strictly_increasing isclose
        iscomplex iscomplexobj isfinite isin isinf isnan isneginf isposinf isreal isrealobj isscalar
        lcm left_shift less less_equal logical_and logical_not logical_or logical_xor matrix_rank
        nanargmax nanargmin ndim nonzero not_equal reduce_all reduce_any right_shift searchsorted
        shape signbit size unravel_index result_type promote_types issubdtype is_tensor dtype
        finfo diag_indices ix_ is_jpeg extract_jpeg_shape encode_jpeg encode_png ctc_unique_labels
        collapse_repeated
        compute_accidental_hits tensorflow.nn:all_candidate_sampler fixed_unigram_candidate_sampler
        learned_unigram_candidate_sampler non_max_suppression non_max_suppression_overlaps
        non_max_suppression_padded         tensorflow.sparse:cross tensorflow.ragged:cross cross_hashed
        to_indicator row_splits_to_segment_ids segment_ids_to_row_splits as_string bytes_split
        format join length lower ngrams reduce_join regex_full_match regex_replace
        tensorflow.strings:split strip substr to_hash_bucket to_hash_bucket_fast
        to_hash_bucket_strong unicode_decode unicode_decode_with_offsets unicode_encode
        unicode_script unicode_split unicode_split_with_offsets unicode_transcode
        unsorted_segment_join upper multi_hot keras.ops:one_hot as_dtype edit_distance fingerprint
        histogram_fixed_width histogram_fixed_width_bins sequence_mask tensorflow.random:stateless_binomial
        invert shape_n rank broadcast_static_shape broadcast_dynamic_shape
        required_space_to_batch_paddings quantize quantized_concat
    """,
    "takes whole numbers, Python numbers or text, or nothing that could be differentiated": """
        tensorflow.ragged:range bartlett blackman empty empty_like eye hamming hamming_window
        hann_window hanning keras.ops:identity tensorflow.experimental.numpy:identity ones ones_like
        linear_to_mel_weight_matrix sobol_sample create_rng_state fold_in tensorflow.random:split
        random_index_shuffle index_shuffle log_uniform_candidate_sampler uniform_candidate_sampler
        make_tensor_proto categorical stateless_categorical to_number tri vorbis_window zeros
        zeros_like inverse_stft_window_fn decode_and_crop_jpeg decode_bmp decode_gif decode_image
        decode_jpeg decode_jxl decode_png decode_webp adjust_jpeg_quality random_jpeg_quality
        stateless_random_jpeg_quality sample_distorted_bounding_box
        stateless_sample_distorted_bounding_box convert_to_numpy constant
    """,
    "is constant but for its steps, where nothing has a derivative": """
        around ceil truncatediv tensorflow.random:stateless_poisson fix floor floor_divide floordiv
        heaviside rint round sign trunc zero_fraction
    """,
    "draws anew each time; stateless ones are checked, and FractionalAvgPool, FractionalMaxPool": """
        fractional_avg_pool fractional_max_pool tensorflow.random:gamma tensorflow.random:normal
        tensorflow.random:poisson tensorflow.random:shuffle truncated_normal
        tensorflow.random:uniform tensorflow.experimental.numpy.random:poisson rand randint randn
        tensorflow.experimental.numpy.random:random standard_normal
        tensorflow.experimental.numpy.random:uniform general_dropout
    """,
    "calls functions that it is given; control flow is in specs/structures and specs/tensorflow": """
        associative_scan case foldl foldr function grad_pass_through map_fn numpy_function
        py_function nondifferentiable_batch_function recompute_grad switch_case gradients hessians
        cond custom_gradient fori_loop jvp map map_flat_values map_values scan switch vectorize
        vectorized_map while_loop with_space_to_batch
    """,
    "has no kernel on the CPU": """
        generate_bounding_box_proposals approx_max_k approx_min_k fftnd ifftnd rfftnd irfftnd
    """,
    "has no gradient: TensorFlow registers none for its op": """
        tensorflow.linalg:logm tensorflow.linalg:lu lu_factor slice_update view
        tensorflow.sparse:reduce_max tensorflow.sparse:split rfft3d irfft3d adjust_contrast
        adjust_hue adjust_saturation extract_glimpse ragged_fill_empty_rows_grad guarantee_const
        bitcast tensorflow:conv tensorflow.quantization:dequantize conv2d_backprop_filter_v2
        conv2d_backprop_input_v2 random_contrast random_hue random_saturation
        stateless_random_contrast stateless_random_hue stateless_random_saturation
    """,
    "checked by a function of specs/functions/called.py, as its docstring says": """
        tensorflow:pad tensorflow:range arange ctc_decode ctc_beam_search_decoder ctc_greedy_decoder
        conjugate_gradient einsum weighted_moments sufficient_statistics sobel_edges
        tensorflow.sparse:concat
    """,
    "changes how TensorFlow behaves, or asks about that; builds graphs, asserts or prints": """
        experimental_enable_numpy_behavior tensorflow.experimental:async_clear_error async_scope
        dispatch_for_api dispatch_for_binary_elementwise_apis
        dispatch_for_binary_elementwise_assert_apis dispatch_for_unary_elementwise_apis
        enable_strict_mode function_executor_type register_filesystem_plugin unregister_dispatch_for
        seed quantize_saved_model get_global_generator set_global_generator set_seed Assert
        assert_equal assert_greater assert_less assert_rank check_pinned control_dependencies device
        executing_eagerly get_current_name_scope get_logger get_static_value group import_graph_def
        init_scope inside_function is_symbolic_tensor load_library load_op_library make_ndarray
        no_gradient no_op print register_tensor_conversion_function timestamp type_spec_from_value
        variable_creator_scope
    """,
    "is a constant of its argument by what it is for": "tensorflow:stop_gradient",
    "checked as its op type in specs/tensorflow, as no spec can hand it what it takes": """
        boolean_mask stack_dynamic_partitions tensorflow.ragged:stack eye mask approx_top_k
        tensorflow.random:stateless_gamma stateless_parameterized_truncated_normal
        fake_quant_with_min_max_args fake_quant_with_min_max_vars
        fake_quant_with_min_max_vars_per_channel quantize_and_dequantize quantize_and_dequantize_v2
        fake_quant_with_min_max_vars_gradient fake_quant_with_min_max_vars_per_channel_gradient
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
    named = {case.code.forward.target for case in load([SPECS]).cases}
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
