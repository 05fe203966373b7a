"""What a program takes on the device, as the record keeps it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VelaSummary:
    """What Vela says of the delegate it compiled; for an Ethos-U only.

    Attributes:
        delegate: its tag.
        figures: every column of the summary that Vela writes beside its output, under its name and in its unit: memory
            used in KiB, bandwidths in GiB/s, what an inference moves in bytes, the clock in Hz, times in seconds.
        arena_bytes: the scratch memory that ExecuTorch's backend allocates to run it.
        commands_bytes, weights_bytes: the size of the command stream, and of the weights as Vela encodes them.
        npu_operators, cpu_operators: how many operators run where, as Vela counts them; None where it did not say.
    """

    delegate: str
    figures: dict[str, float | str]
    arena_bytes: int = 0
    commands_bytes: int = 0
    weights_bytes: int = 0
    npu_operators: int | None = None
    cpu_operators: int | None = None

    def number(self, column: str) -> float:
        """Return the figure of a column; 0 if Vela has none of that name."""
        value = self.figures.get(column, 0)
        return value if isinstance(value, (int, float)) else 0

    def bytes_in(self, memory: str) -> int:
        """Return how much of a memory it takes: ``sram``, ``dram``, ``on_chip_flash`` or ``off_chip_flash``."""
        return round(self.number(f"{memory}_memory_used") * 1024)

    @property
    def cycles(self) -> int:
        """How many cycles Vela estimates an inference to take; 0 if it does not say."""
        return round(self.number("cycles_total"))


@dataclass(frozen=True)
class Kernel:
    """A kernel of ExecuTorch's that the program calls, outside all delegates.

    Attributes:
        name: with the overload, such as ``aten::add.out``.
        keys: the dtypes and orders of dimensions it is called with, as ExecuTorch's kernel registry writes them.
        library: where ExecuTorch keeps it: ``portable``, ``quantized``, ``cortex_m`` or ``prim``; empty for nowhere.
    """

    name: str
    keys: tuple[str, ...]
    library: str


@dataclass(frozen=True)
class Footprint:
    """What the lowered program takes on the device, besides what Vela says of its delegates.

    Attributes:
        pte_bytes: the size of the ``.pte``, delegates and weights included.
        planned_bytes: by method, the size of each buffer that ExecuTorch's memory planning asks for, in its order.
        kernels: what the program calls on the CPU, in the order of their names.
    """

    pte_bytes: int
    planned_bytes: dict[str, tuple[int, ...]]
    kernels: tuple[Kernel, ...] = ()

    @property
    def planned(self) -> int:
        """The planned memory of the method that asks for most; methods run one after another."""
        return max(map(sum, self.planned_bytes.values()), default=0)
