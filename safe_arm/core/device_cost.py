"""The resources that a program needs on the device, as the record keeps them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VelaSummary:
    """Vela's summary of a delegate that it compiled; for an Ethos-U only.

    Attributes:
        delegate: its tag.
        figures: every column of the summary that Vela writes beside its output, under its name and in its unit: memory
            used in KiB, bandwidths in GiB/s, transfers of an inference in bytes, the clock in Hz, times in seconds.
        arena_bytes: the scratch memory that ExecuTorch's backend allocates to run it.
        commands_bytes: the size of the command stream.
        weights_bytes: the size of the weights as Vela encodes them.
        npu_operators: number of operators that run on the NPU, as Vela counts them; None if it printed none.
        cpu_operators: number of operators that run on the CPU, likewise.
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
        """Return its use of a memory: ``sram``, ``dram``, ``on_chip_flash`` or ``off_chip_flash``."""
        return round(self.number(f"{memory}_memory_used") * 1024)

    @property
    def board(self) -> str:
        """The system config and the memory mode that the figures are for; empty if Vela names none."""
        names = self.figures.get("system_config"), self.figures.get("memory_mode")
        return ", ".join(str(name) for name in names if name)

    @property
    def cycles(self) -> int:
        """Vela's estimate of the cycles of an inference; 0 if there is none."""
        return round(self.number("cycles_total"))


@dataclass(frozen=True)
class Border:
    """The border of a delegate with the operators outside of it; the program's own inputs and outputs are not counted.

    Attributes:
        bytes_in, bytes_out: the size of the values that go in and come out, each counted once.
        quantise, dequantise: number of quantisers before it and of dequantisers behind it, on the CPU.
        kernels: names of the operators on the CPU that are next to it, a quantiser between them or not.
    """

    bytes_in: int
    bytes_out: int
    quantise: int
    dequantise: int
    kernels: tuple[str, ...]


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
    """The memory and the kernels that the lowered program takes on the device, besides Vela's summaries.

    Attributes:
        pte_bytes: the size of the ``.pte``, delegates and weights included.
        planned_bytes: by method, the size of each buffer that ExecuTorch's memory planning asks for, in its order.
        kernels: the kernels that the program calls on the CPU, in the order of their names.
    """

    pte_bytes: int
    planned_bytes: dict[str, tuple[int, ...]]
    kernels: tuple[Kernel, ...] = ()

    @property
    def planned(self) -> int:
        """The planned memory of the method that asks for most; methods run one after another."""
        return max(map(sum, self.planned_bytes.values()), default=0)
