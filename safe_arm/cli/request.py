"""The request of a command that lowers a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from safe_arm.footprint.limits import Limits

if TYPE_CHECKING:
    from safe_arm.cli.targets import Profile


@dataclass(frozen=True)
class Quantisation:
    """The way in which a float model is quantised.

    Attributes:
        calibration: the ``.npz`` with the samples.
        random: calibrate on random samples.
        activations: how many bits an activation has, 8 or 16.
        per_tensor: one scale for each weight, not one for each of its channels.
        keep_float: modules by their path, and types of modules, that are not quantised.
        recipe: the file of ``safe-arm tune`` that says it all instead; None for none.
    """

    calibration: Path | None = None
    random: bool = False
    activations: int = 8
    per_tensor: bool = False
    keep_float: tuple[str, ...] = ()
    recipe: Path | None = None

    @property
    def given(self) -> bool:
        """Return whether there is something to calibrate on."""
        return self.random or self.calibration is not None


#: The parameters that say how to quantise, beside the samples.
HOW_TO_QUANTISE = ("activations", "per_tensor", "keep_float")
#: The parameters for Vela, of no use to a target that is no Ethos-U.
VELAS = ("system_config", "memory_mode", "config")


@dataclass(frozen=True)
class Vela:
    """The options of Vela besides the accelerator; None leaves one to ExecuTorch, which picks by the family.

    Attributes:
        system_config, memory_mode: names of sections of the configuration.
        config: the configuration, a file or one of Vela's own such as ``Arm/vela.ini``.
    """

    system_config: str | None = None
    memory_mode: str | None = None
    config: str | None = None

    @property
    def given(self) -> dict[str, str]:
        """Return by field the options that were given."""
        options = vars(self).items()
        return {name: value for name, value in options if value is not None}


@dataclass(frozen=True)
class Request:
    """One export, as the user asked for it: checked, but nothing loaded yet. Without an output it is a dry run.

    Attributes:
        model: the file to read.
        target, profile: what to compile for.
        policy: what to do with non-fuseable islands.
        quantisation: how the model is quantised.
        vela: what Vela is told.
        integer_io: let the program take and return integers where the model takes and returns quantised floats.
        output: the ``.pte`` to write; None for a dry run.
        reports: files to write the report to.
        strict, repro_dir, verify: as ``SafeArmPartitioner`` takes them.
        tolerance: codes, as its ``verify_tolerance``.
        min_macs: as ``SafeArmPartitioner`` takes it.
        footprint: measure what the program takes on the device.
        limits: what it may take there.
        operators: where to write the list of the kernels that it calls.
        compare: try the other policy too.
        stock: export with stock's classes too.
        bundle: write the proof beside the output.
        quiet: show warnings and errors only.
        accuracy: compare the quantised model with the float one.
        min_sqnr: the ratio in dB that each output shall have on each sample; None for none.
    """

    model: Path
    target: str
    profile: Profile
    policy: str
    quantisation: Quantisation = Quantisation()
    vela: Vela = Vela()
    integer_io: bool = False
    output: Path | None = None
    strict: bool = False
    repro_dir: Path | None = None
    verify: bool = True
    tolerance: int = 0
    min_macs: int = 0
    reports: tuple[Path, ...] = ()
    footprint: bool = False
    limits: Limits = field(default_factory=Limits)
    operators: Path | None = None
    compare: bool = False
    stock: bool = False
    bundle: bool = False
    quiet: bool = False
    accuracy: bool = False
    min_sqnr: float | None = None

    @property
    def policies(self) -> tuple[str, ...]:
        """Return the policies to lower under: the one asked for, and to compare, those that verify afterwards."""
        if not self.compare:
            return (self.policy,)
        return tuple(dict.fromkeys(("reject", "propagate", self.policy)))


@dataclass(frozen=True)
class Target:
    """The goal of ``tune`` besides those of its request, and the files that it writes.

    Attributes:
        metric, at_least: the function, as ``FILE.py:FUNCTION``, and the value it shall reach.
        output: the recipe.
        front: the page; None for none.
    """

    metric: str | None
    at_least: float | None
    output: Path
    front: Path | None

    @property
    def log(self) -> Path:
        """The file of what was tried."""
        return self.output.with_suffix(".trials.jsonl")
