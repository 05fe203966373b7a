"""The handles of torchao's numeric debugger, which are not public."""

from torchao.quantization.pt2e._numeric_debugger import (
    _extract_node_source_debug_info as debug_handle,
)

__all__ = ["debug_handle"]
