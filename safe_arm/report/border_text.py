"""The border of a delegate in words."""

from __future__ import annotations

from safe_arm.core.device_cost import Border
from safe_arm.report.numbers import counted


def border_text(border: Border) -> str:
    """Return the cost of a border: bytes, quantisers and the kernels next to it.

    Args:
        border: of one delegate.
    """
    sizes = f"{border.bytes_in:,} bytes in, {border.bytes_out:,} out"
    quantisers = f"{border.quantise} quantise, {border.dequantise} dequantise"
    if not border.kernels:
        return f"{sizes}; {quantisers}"
    kernels = counted(len(border.kernels), "CPU kernel")
    return f"{sizes}; {quantisers}; {kernels}: {', '.join(border.kernels)}"
