"""Run a bundled program on one of Arm's Fixed Virtual Platforms, where one is on PATH."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from safe_arm.core.processes import Ended, run

#: The platform's executable by a target's family, and the prefixes of the parameters of its board and its subsystem,
#: as in ExecuTorch's own tests (backends/arm/test/runner_utils.py).
_PLATFORMS = {
    "ethos-u55": ("FVP_Corstone_SSE-300_Ethos-U55", "mps3_board", ""),
    "ethos-u65": ("FVP_Corstone_SSE-300_Ethos-U65", "mps3_board", ""),
    "ethos-u85": ("FVP_Corstone_SSE-320", "mps4_board", "mps4_board.subsystem."),
}
#: The results that ExecuTorch's own runner for bare metal prints of a bundled program's comparison.
_PASSED = re.compile(r"TEST: BundleIO index\[\d+\] Test_result: PASS")
_FAILED = re.compile(r"Test_result: FAIL")


@dataclass(frozen=True)
class Platform:
    """A Fixed Virtual Platform.

    Attributes:
        name: its executable.
        macs: the multiply-accumulates that its accelerator does in a cycle.
        board, subsystem: the prefixes of its parameters' names.
    """

    name: str
    macs: int
    board: str
    subsystem: str

    @property
    def path(self) -> str | None:
        """The executable's place on PATH; None if it is not there."""
        return shutil.which(self.name)

    def command(
        self, runner: Path, folder: Path, bundle: str, seconds: int
    ) -> list[str]:
        """Return the command that runs a bundled program with ExecuTorch's runner for bare metal.

        Args:
            runner: ``arm_executor_runner``, built with semihosting and bundled programs for this target.
            folder: the folder of the bundled program.
            bundle: its name; the platform cuts command lines off at 256 characters.
            seconds: the time limit of the platform.
        """
        cpu, board = f"{self.subsystem}cpu0", self.board
        settings = [
            f"{self.subsystem}ethosu.num_macs={self.macs}",
            f"{board}.visualisation.disable-visualisation=1",
            f"{board}.telnetterminal0.start_telnet=0",
            f"{board}.uart0.out_file=-",
            f"{board}.uart0.shutdown_on_eot=1",
            f"{cpu}.semihosting-enable=1",
            f"{cpu}.semihosting-stack_base=0",
            f"{cpu}.semihosting-heap_limit=0",
            f"{cpu}.semihosting-cwd={folder}",
            f"{cpu}.semihosting-cmd_line=executor_runner -m {bundle} -o out",
        ]
        if self.subsystem:
            settings.append("vis_hdlcd.disable_visualisation=1")
        command = [self.path or self.name]
        for setting in settings:
            command += ["-C", setting]
        return [*command, "-a", str(runner), "--timelimit", str(seconds)]


def platform_for(target: str) -> Platform | None:
    """Return the platform of an Ethos-U target such as ``ethos-u55-128``; None for other targets."""
    family, _, macs = target.rpartition("-")
    if family not in _PLATFORMS or not macs.isdigit():
        return None
    name, board, subsystem = _PLATFORMS[family]
    return Platform(name, int(macs), board=board, subsystem=subsystem)


def run_on(platform: Platform, runner: Path, bundle: bytes, seconds: int = 600) -> str:
    """Run a bundled program on a platform.

    Returns:
        Why it did not pass; empty if it did.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "p.bpte").write_bytes(bundle)
        ended = run(
            platform.command(runner, folder, "p.bpte", seconds),
            seconds=seconds + 30,
            folder=folder,
        )
    return _verdict(ended)


def _verdict(ended: Ended) -> str:
    if _FAILED.search(ended.output):
        return "the runner's comparison with the expected outputs fails"
    if not ended.good:
        return ended.last_words
    if not _PASSED.search(ended.output):
        return "the runner does not say that its outputs are as expected"
    return ""
