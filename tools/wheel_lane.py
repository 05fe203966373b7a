"""Install the built wheel as its users do, and use it where the checkout is not.

python tools/wheel_lane.py [--python PYTHON] [--after-first-hour] [--every N]

The sdist is built, and from it the wheel. An environment is made by pip alone: no constraint file, so that pip takes
the newest that the wheel's metadata allows. In it pip has nothing to object to, ``doctor`` finds nothing wrong, a net
is exported for each kind of target, and the core tests, copied, run. What packages and imports cost is printed. With
``--after-first-hour`` docs/first-hour.md is followed first, and pip brings the environment of that up to date: one
environment for both.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import first_hour

ROOT = Path(__file__).resolve().parents[1]
TARGETS = ("tosa", "vgf", "ethos-u55-128", "ethos-u85-256")
#: What is tested of the wheel: what stands on ExecuTorch's internals, which differ between the versions that pip takes.
TESTS = ("passes", "partitioner", "quantizer", "test_safe_partitioner.py")
LEFT_OUT = "not slow and not full and not seeds and not corpus and not proof and not vulkan and not browser"
ROUNDS = 5
#: Prints the CPU seconds until ExecuTorch is imported, and until our classes are.
IMPORTS = """
import time
from executorch.backends.arm.vgf import VgfPartitioner
stock = time.process_time()
from safe_arm import SafeArmPartitioner, SafeVgfQuantizer
print(stock, time.process_time())
"""


class Lane:
    """An environment with the wheel, and a folder to use it in."""

    def __init__(self, folder: Path, environment: Path) -> None:
        self.folder, self.python = folder, environment / "bin" / "python"
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        path = os.pathsep.join((str(self.python.parent), kept["PATH"]))
        self._variables = {**kept, "PATH": path, "SAFE_ARM_PROOF_CACHE": "0", **first_hour.PIP}

    def run(self, *arguments: str) -> str:
        """Run the environment's Python in the folder; return what it prints to stdout.

        Raises:
            SystemExit: it failed; with what it printed.
        """
        command = [str(self.python), *arguments]
        ended = subprocess.run(
            command, cwd=self.folder, env=self._variables, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if ended.returncode:
            sys.exit(f"exit status {ended.returncode} of: {' '.join(command)}\n{ended.stdout}{ended.stderr}")
        return ended.stdout

    def pip(self, *arguments: str) -> str:
        """Run pip in the environment."""
        return self.run("-m", "pip", *arguments)

    def fastest(self, code: str, rounds: int) -> float:
        """Return the CPU seconds of the fastest of some processes that run a piece of code."""
        seconds = []
        for _ in range(rounds):
            start = _cpu_of_children()
            self.run("-c", code)
            seconds.append(_cpu_of_children() - start)
        return min(seconds)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def timed(step: str) -> Iterator[None]:
    """Print how long a step took."""
    start = time.monotonic()
    yield
    print(f"{time.monotonic() - start:6.1f} s  {step}", flush=True)


def build(folder: Path) -> Path:
    """Build the sdist, and the wheel from it, in environments of their own; return the wheel."""
    start = time.monotonic()
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - start
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    sizes = ", ".join(f"{each.name} {each.stat().st_size / 1e3:.0f} kB" for each in (wheel, sdist))
    print(f"{seconds:6.1f} s  build: {sizes}", flush=True)
    return wheel


def fresh(folder: Path, python: str, wheel: Path) -> Lane:
    """Make an environment that has the wheel and what pip takes for it."""
    with timed("pip install, into an empty environment"):
        subprocess.run([python, "-m", "venv", str(folder / "environment")], check=True)
        lane = Lane(folder, folder / "environment")
        lane.pip("install", f"{wheel}[vgf,ethos-u]")
    return lane


def after_first_hour(folder: Path, wheel: Path) -> Lane:
    """Follow docs/first-hour.md, and bring its environment to what pip takes without the constraint file.

    Raises:
        SystemExit: the page is wrong.
    """
    shutil.copy(wheel, folder)
    with timed("docs/first-hour.md"):
        if status := first_hour.followed(first_hour.PAGE, folder):
            sys.exit(status)
    with timed("pip install --upgrade, without constraints"):
        lane = Lane(folder, folder / ".venv")
        lane.pip("install", "--upgrade", "--upgrade-strategy", "eager", f"{wheel}[vgf,ethos-u]")
    return lane


def check(lane: Lane) -> None:
    """See that it is installed, sound and of use: pip, doctor, an export for each kind of target.

    Raises:
        SystemExit: it is not; with what was printed.
    """
    lane.pip("check")
    place = lane.run("-c", "import safe_arm; print(safe_arm.__file__)")
    if "site-packages" not in place:
        sys.exit(f"safe_arm is not the wheel's: {place}")
    with timed("safe-arm doctor"):
        printed = lane.run("-m", "safe_arm", "doctor")
    if not printed.startswith("ok for vgf, tosa, ethos-u\n"):
        sys.exit(f"doctor calls it not ok, or untested:\n{printed}")
    print(next(line for line in printed.splitlines() if line.startswith("versions")), flush=True)
    (script,) = (step for step in first_hour.steps_of(first_hour.PAGE.read_text()) if step.file)
    (lane.folder / script.file).write_text(script.text)
    with timed(f"safe-arm export for {', '.join(TARGETS)}"):
        lane.run(script.file)
        for_each = [word for target in TARGETS for word in ("--target", target)]
        lane.run("-m", "safe_arm", "export", "net.pt2", *for_each, "--calibrate", "samples.npz", "-o", "exported")
    programs = {file.name for file in (lane.folder / "exported").glob("*.pte")}
    if programs != {f"net-{target}.pte" for target in TARGETS}:
        sys.exit(f"of {', '.join(TARGETS)} there is {', '.join(sorted(programs)) or 'nothing'}")


def print_import_times(lane: Lane) -> None:
    """Print how long imports take, ExecuTorch's own beside them."""
    nothing, ours = lane.fastest("pass", ROUNDS), lane.fastest("import safe_arm", ROUNDS)
    stock, classes = map(float, lane.run("-c", IMPORTS).split()[-2:])
    milliseconds = f"{1e3 * ours:.0f} ms of CPU, Python alone {1e3 * nothing:.0f} ms"
    print(f"import safe_arm: {milliseconds}; ExecuTorch {stock:.1f} s, with our classes {classes:.1f} s", flush=True)


def test(lane: Lane, every: int) -> None:
    """Copy the tests out of the checkout and run a sample of the core ones.

    Raises:
        SystemExit: one fails.
    """
    for folder in ("tests", "demo", "benchmarks"):
        shutil.copytree(ROOT / folder, lane.folder / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", lane.folder)  # pytest's settings
    with timed("core tests"):
        lane.pip("install", "pytest>=8", "safetensors")
        paths = [f"tests/{each}" for each in TESTS]
        printed = lane.run(
            "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", LEFT_OUT, "--every", str(every), *paths
        )
    print(printed.strip().splitlines()[-1], flush=True)


def main() -> None:
    """Run the lane; exit with 1 and what was printed if something of it fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="the Python to make the environment with")
    parser.add_argument("--after-first-hour", action="store_true", help="share the environment of docs/first-hour.md")
    parser.add_argument("--every", type=int, default=1, help="of the core tests, about one in N")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wheel-lane-") as name:
        (packages := Path(name, "packages")).mkdir()
        (folder := Path(name, "outside")).mkdir()
        wheel = build(packages)
        lane = after_first_hour(folder, wheel) if arguments.after_first_hour else fresh(folder, arguments.python, wheel)
        check(lane)
        print_import_times(lane)
        test(lane, arguments.every)


if __name__ == "__main__":
    main()
