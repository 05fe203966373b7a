"""torchao's numeric debugger, whose loggers and handles are not public."""

from torchao.quantization.pt2e import compare_results, extract_results_from_loggers
from torchao.quantization.pt2e._numeric_debugger import (
    NodeSourceDebugInfo,
    OutputLogger,
    QuantizationComparisonResult,
)
from torchao.quantization.pt2e._numeric_debugger import (
    _extract_node_source_debug_info as debug_handle,
)

__all__ = [
    "NodeSourceDebugInfo",
    "OutputLogger",
    "QuantizationComparisonResult",
    "compare_results",
    "debug_handle",
    "extract_results_from_loggers",
]
