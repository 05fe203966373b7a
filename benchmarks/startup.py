"""How long ``import safe_arm`` and ``safe-arm --help`` take, beside a Python that does nothing.

python -m benchmarks.startup [--rounds 20]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping

from benchmarks.protocol import in_pairs

NOTHING = "python -c pass"
COMMANDS: Mapping[str, tuple[str, ...]] = {
    NOTHING: ("-c", "pass"),
    "import click": ("-c", "import click"),
    "import safe_arm": ("-c", "import safe_arm"),
    "safe-arm --help": ("-m", "safe_arm.cli", "--help"),
    "safe-arm export --help": ("-m", "safe_arm.cli", "export", "--help"),
    "safe-arm issues": ("-m", "safe_arm.cli", "issues"),
}


def _running(arguments: tuple[str, ...], cpu: list[float]) -> Callable[[], None]:
    def run() -> None:
        before = _cpu_of_children()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        cpu.append(_cpu_of_children() - before)

    return run


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print a table of milliseconds, medians of processes that ran in turn; on a busy machine look at the CPU time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="processes of each kind (default 20)")
    cpu: dict[str, list[float]] = {name: [] for name in COMMANDS}
    variants = {name: _running(each, cpu[name]) for name, each in COMMANDS.items()}
    wall = in_pairs(variants, parser.parse_args().rounds).wall
    print("| command | wall ms | fastest | more than Python alone | CPU ms |")
    print("| --- | --- | --- | --- | --- |")
    for name, seconds in wall.items():
        more = statistics.median(a - b for a, b in zip(seconds, wall[NOTHING], strict=True))
        shown = (statistics.median(seconds), min(seconds), more, statistics.median(cpu[name]))
        print(f"| `{name}` | {' | '.join(f'{1e3 * each:.0f}' for each in shown)} |")


if __name__ == "__main__":
    main()
