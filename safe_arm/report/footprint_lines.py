"""The footprint of a program on the device, and the border of a delegate, in words."""

from __future__ import annotations

from collections.abc import Iterator

from safe_arm.core.device_cost import Border, VelaSummary
from safe_arm.core.record import Report
from safe_arm.report.numbers import counted
from safe_arm.report.wrapped_text import Lines

#: The names of memories by their columns in Vela's summary.
_MEMORIES = {
    "sram": "SRAM",
    "dram": "DRAM",
    "on_chip_flash": "on-chip flash",
    "off_chip_flash": "off-chip flash",
}


def footprint_lines(report: Report) -> Lines:
    """Yield the lines about the footprint, each with its name; none for a report without one.

    Args:
        report: the record of one export.
    """
    footprint = report.footprint
    if footprint is None:
        return
    yield "flash", f"{footprint.pte_bytes:,} bytes of .pte"
    for line in _planned(footprint.planned_bytes):
        yield "planned", line
    for summary in report.vela:
        yield "Vela", f"{summary.delegate}: {_delegate(summary)}"
    named: dict[str, list[str]] = {}
    for kernel in footprint.kernels:
        named.setdefault(kernel.library or "none", []).append(kernel.name)
    line = f"{counted(len(footprint.kernels), 'kernel')} on the CPU"
    for library, names in named.items():
        line += f"; {library}: {', '.join(names)}"
    yield "kernels", line
    for kernel in footprint.kernels:
        if not kernel.library:
            advice = "register one of your own, or keep the operator out of the program"
            problem = f"{kernel.name} is in none of ExecuTorch's libraries, the .pte will not load"
            yield "no kernel", f"{problem}; {advice}"


def _planned(planned_bytes: dict[str, tuple[int, ...]]) -> Iterator[str]:
    """Yield the planned memory of each method that plans any; methods of constants, such as qparams, plan none."""
    methods = {name: sizes for name, sizes in planned_bytes.items() if sum(sizes)}
    if not methods:
        yield "0 bytes"
    for method, sizes in methods.items():
        line = f"{sum(sizes):,} bytes"
        if len(sizes) > 1:
            line += f" ({' + '.join(f'{size:,}' for size in sizes)})"
        yield f"{method}: {line}" if len(methods) > 1 else line


def _delegate(summary: VelaSummary) -> str:
    """Return Vela's figures of a delegate."""
    parts = [f"{summary.cycles:,} cycles"]
    for memory, name in _MEMORIES.items():
        used = summary.bytes_in(memory)
        if not used:
            continue
        part = f"{used:,} bytes of {name}"
        moved = summary.number(f"{memory}_total_bytes")
        if moved:
            part += f" ({moved:,.0f} moved)"
        parts.append(part)
    parts.append(f"arena {summary.arena_bytes:,}")
    if summary.npu_operators is not None and summary.cpu_operators is not None:
        total = summary.npu_operators + summary.cpu_operators
        operators = counted(total, "operator")
        parts.append(f"{summary.npu_operators} of {operators} on the NPU")
    return ", ".join(parts)


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
