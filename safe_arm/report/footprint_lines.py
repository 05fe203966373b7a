"""What a program takes on the device, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from safe_arm.core.device_cost import Kernel, VelaSummary
from safe_arm.core.record import Report
from safe_arm.report.numbers import counted

#: What Vela calls a memory, by the name of its column.
_MEMORIES = {
    "sram": "SRAM",
    "dram": "DRAM",
    "on_chip_flash": "on-chip flash",
    "off_chip_flash": "off-chip flash",
}


def footprint_lines(report: Report) -> Iterator[tuple[str, str]]:
    """Yield names with what is said of each beside it; nothing for a report without a footprint.

    Args:
        report: the record of one export.
    """
    found = report.footprint
    if found is None:
        return
    yield "flash", f"{found.pte_bytes:,} bytes of .pte"
    for method, buffers in found.planned_bytes.items():
        own = f"{method}: " if len(found.planned_bytes) > 1 else ""
        parts = (
            f" ({' + '.join(f'{size:,}' for size in buffers)})"
            if len(buffers) > 1
            else ""
        )
        yield "planned", f"{own}{sum(buffers):,} bytes{parts}"
    for each in report.vela:
        yield "Vela", f"{each.delegate}: {_delegate(each)}"
    yield (
        "kernels",
        f"{counted(len(found.kernels), 'kernel')} on the CPU{_by_library(found.kernels)}",
    )
    for kernel in found.kernels:
        if not kernel.library:
            advice = "register one of your own, or keep the operator out of the program"
            yield (
                "no kernel",
                f"{kernel.name} is in none of ExecuTorch's libraries, the .pte will not load; {advice}",
            )


def _delegate(summary: VelaSummary) -> str:
    """Return what Vela says of a delegate."""
    parts = [f"{summary.cycles:,} cycles"]
    for memory, name in _MEMORIES.items():
        if used := summary.bytes_in(memory):
            bandwidth = summary.number(f"{memory}_total_bytes")
            parts.append(
                f"{used:,} bytes of {name}{f' ({bandwidth:,.0f} moved)' if bandwidth else ''}"
            )
    parts.append(f"arena {summary.arena_bytes:,}")
    if summary.npu_operators is not None and summary.cpu_operators is not None:
        total = summary.npu_operators + summary.cpu_operators
        parts.append(
            f"{summary.npu_operators} of {counted(total, 'operator')} on the NPU"
        )
    return ", ".join(parts)


def _by_library(kernels: tuple[Kernel, ...]) -> str:
    """Return the names of the kernels, by library."""
    named: dict[str, list[str]] = {}
    for kernel in kernels:
        named.setdefault(kernel.library or "none", []).append(kernel.name)
    return "".join(
        f"; {library}: {', '.join(names)}" for library, names in named.items()
    )
