"""Every ExecuTorch name safe_arm uses that is not public API, imported in one place.

The callers import from here, so a moved name is fixed in one line.
"""

# ruff: noqa: F401
from executorch.backends.arm._passes import (
    ArmPass,
    ArmPassManager,
    ConvertToClampPass,
    DecomposeAsinAndAcosPass,
    DecomposeCumsumPass,
    DecomposeLog1pPass,
    DecomposeRoundPass,
    FoldAndAnnotateQParamsPass,
    FuseConstantArgsPass,
    FuseDuplicateUsersPass,
    FuseEqualPlaceholdersPass,
    FuseQuantizedActivationPass,
    InsertTableOpsPass,
    RewriteConvPass,
)
from executorch.backends.arm._passes.arm_pass_utils import (
    get_constant_placeholder_kind,
    get_first_fake_tensor,
    get_param_tensor,
    is_param_node,
    is_persistent_buffer,
)
from executorch.backends.arm._passes.insert_rescales_pass import (
    InsertControlFlowRescalesPass,
)
from executorch.backends.arm._passes.quant_args import QuantArgs
from executorch.backends.arm.common.annotation_meta import ArmAnnotationInfo
from executorch.backends.arm.common.arm_compile_spec import ArmCompileSpec
from executorch.backends.arm.constants import DQ_OPS, Q_OPS
from executorch.backends.arm.ethosu import (
    EthosUBackend,
    EthosUCompileSpec,
    EthosUPartitioner,
)
from executorch.backends.arm.operator_support import tosa_supported_operators
from executorch.backends.arm.operator_support.tosa_profile_supported_op_lists import (
    TOSA_PRO_FP_SupportList,
)
from executorch.backends.arm.operator_support.tosa_supported_operators import (
    CheckProperQuantization,
)
from executorch.backends.arm.quantizer import (
    EthosUQuantizer,
    TOSAQuantizer,
    VgfQuantizer,
)
from executorch.backends.arm.tosa.backend import TOSABackend
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.backends.arm.tosa.mapping import TosaSpecialDtype
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.backends.arm.tosa.specification import (
    TosaSpecification,
    get_context_spec,
)
from executorch.backends.arm.vgf import VgfBackend, VgfCompileSpec, VgfPartitioner
from executorch.backends.transforms.utils import (
    create_constant_placeholder,
    delete_constant_placeholder,
)
from executorch.exir import EdgeCompileConfig, to_edge
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, PartitionResult
from executorch.exir.backend.utils import WhyNoPartitionReporter
from executorch.exir.dialects._ops import ops as exir_ops
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from executorch.exir.pass_base import ExportPass, NodeMetadata, PassResult, ProxyValue

try:
    from executorch.backends.arm._passes import (
        FuseConsecutiveRescalesPass,
        PropagateViewCopyPermuteDownPass,
        PropagateViewCopyPermuteUpPass,
    )
except ImportError:
    # Before 1.4, which has no such passes in its pipeline.
    FuseConsecutiveRescalesPass = ArmPass
    PropagateViewCopyPermuteDownPass = ArmPass
    PropagateViewCopyPermuteUpPass = ArmPass
try:
    from executorch.backends.arm._passes import RemovePermutesAroundElementwiseTosaOps
except ImportError:
    # Before 1.5, whose propagation passes cancel no regions.
    RemovePermutesAroundElementwiseTosaOps = ArmPass
