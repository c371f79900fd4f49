"""Each gradient that this TensorFlow registers is covered by a spec, or excepted by name and reason."""

from __future__ import annotations

from audit_table import SPECS

from gradcheck_cli.running.session import start_tensorflow
from gradcheck_cli.spec.coverage import cases_by_type
from gradcheck_cli.spec.load import load

start_tensorflow()

from gradcheck_cli.tensorflow_backend.registry import op_types, read_gradients  # noqa: E402 (TensorFlow first)
from gradcheck_cli.tensorflow_backend.startup import version  # noqa: E402

# Of these no spec is written yet; whoever writes one may take its op types out. Empty, the audit is complete.
NOT_YET = frozenset(
    """
    AccumulateNV2 ApproxTopK AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad BiasAdd BiasAddGrad BiasAddV1
    BlockLSTM BlockLSTMV2 CSRSparseMatrixToDense CSRSparseMatrixToSparseTensor CTCLoss Case
    CompositeTensorVariantFromComponents CompositeTensorVariantToComponents Conv2D Conv2DBackpropFilter
    Conv2DBackpropInput Conv3D Conv3DBackpropFilterV2 Conv3DBackpropInputV2 DebugGradientIdentity
    DebugGradientRefIdentity DebugIdentityV2 DenseToCSRSparseMatrix DepthwiseConv2dNative
    DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput Dilation2D EagerPyFunc Eig
    Elu EluGrad Enter Exit FractionalAvgPool FractionalMaxPool FusedBatchNorm FusedBatchNormGrad
    FusedBatchNormGradV2 FusedBatchNormGradV3 FusedBatchNormV2 FusedBatchNormV3 IRFFT IRFFT2D If
    IsotonicRegression L2Loss LRN LeakyRelu LeakyReluGrad LogMatrixDeterminant LogSoftmax MaxPool
    MaxPool3D MaxPool3DGrad MaxPool3DGradGrad MaxPoolGrad MaxPoolGradGrad MaxPoolGradV2 MaxPoolV2
    MaxPoolWithArgmax Merge NextIteration NthElement OptionalFromValue OptionalGetValue Qr
    QuantizeAndDequantizeV4Grad RFFT RFFT2D RaggedFillEmptyRows RaggedGather RaggedTensorFromVariant
    RaggedTensorToSparse RaggedTensorToTensor RaggedTensorToVariant RandomGamma ReadVariableOp RefEnter
    RefExit RefIdentity RefMerge RefNextIteration RefSwitch Relayout RelayoutLike Relu Relu6 Relu6Grad
    ReluGrad ResourceGather ResourceGatherNd SelfAdjointEigV2 Selu SeluGrad Softmax
    SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad Softsign SparseMatrixMatMul
    SparseMatrixSparseMatMul SparseMatrixTranspose SparseSoftmaxCrossEntropyWithLogits
    SparseTensorToCSRSparseMatrix StatelessCase StatelessIf StatelessWhile Svd Switch
    TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayReadV3 TensorArrayScatterV3 TensorArraySplitV3
    TensorArrayWriteV3 TensorListConcat TensorListConcatV2 TensorListFromTensor TensorListGather
    TensorListGetItem TensorListPopBack TensorListPushBack TensorListResize TensorListScatter
    TensorListScatterIntoExistingList TensorListScatterV2 TensorListSetItem TensorListSplit
    TensorListStack TopKV2 While XlaEinsum XlaSharding XlaSpmdFullToShardShape XlaSpmdShardToFullShape
    """.split()  # noqa: SIM905 (as a list literal it would take a line for each)
)


def registered():
    return {entry.name for entry in read_gradients() if entry.status == "gradient"}


def covered():
    return set(cases_by_type(load([SPECS]).cases, version()))


def excepted():
    return {one.op_type for one in load([SPECS]).exceptions if one.holds(version())}


def test_nothing_is_silently_left_out():
    missing = registered() - covered() - excepted() - NOT_YET
    assert not missing, (
        f"TensorFlow {version()} registers gradients that no spec covers: {', '.join(sorted(missing))}. "
        "Write a spec in specs/tensorflow, or except them in exceptions.yaml, with the reason."
    )


def test_nothing_is_covered_and_excepted():
    both = covered() & excepted()
    assert not both, f"covered, so no longer to be excepted: {', '.join(sorted(both))}"


def test_nothing_is_named_that_is_gone():
    # A raw op type without a gradient may be specified: that there's none is a finding, too.
    explicit = {name for case in load([SPECS]).cases for name in case.covers}
    gone = ((explicit | excepted()) - registered()) | (covered() - registered() - op_types())
    assert not gone, (
        f"TensorFlow {version()} has no gradient of: {', '.join(sorted(gone))}. Say for which versions it is "
        'meant, such as tensorflow: ">=2.18".'
    )


def test_each_exception_says_why():
    for one in load([SPECS]).exceptions:
        assert len(one.reason.split()) >= 3, one
        assert one.kind != "other", f"{one.op_type}: say what it is, or add a kind"
