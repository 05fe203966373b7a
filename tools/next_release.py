"""Say how the installed ExecuTorch fits this checkout: what it requires, what moved, which tests fail.

python tools/next_release.py -m pytest tests/passes …      the arguments of the interpreter that runs the tests

``make test-next EXECUTORCH=1.6.0`` runs it in an environment with that release; CONTRIBUTING.md says what to do then.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from xml.etree import ElementTree

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
RESULTS = Path("out", "next-release.xml")
#: Most files of failing tests that are named.
NAMED = 20
SURFACE = """
import sys
import surface
changes = surface.changed(surface.surface())
print(surface.told(changes))
sys.exit(1 if changes else 0)
"""


def main(tests: Sequence[str]) -> int:
    """Print what was found and a summary of it; return 0 if nothing is in the way of the release."""
    summary = [("requirements", missing_requirements())]
    status, text = surface()
    print(text, flush=True)
    summary.append(("surface", "nothing moved" if status == 0 else text.splitlines()[-1 if status != 1 else 0]))
    if status not in (0, 1):
        summary.append(("core tests", "not run, because safe_arm cannot be imported"))
    else:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.unlink(missing_ok=True)
        subprocess.run([sys.executable, *tests, f"--junit-xml={RESULTS}"], cwd=ROOT, check=False)
        summary.append(("core tests", tested(RESULTS)))
    print(f"\nExecuTorch {version('executorch')}")
    for name, result in summary:
        print(f"  {name:14}{result}")
    good = status == 0 and summary[0][1] == "all there" and " failed" not in summary[-1][1]
    print("CONTRIBUTING.md, 'A new ExecuTorch is out', has the next steps")
    return 0 if good else 1


def missing_requirements(package: str = "executorch") -> str:
    """Return the requirements of a package that are missing here or in another version, in words."""
    wrong = []
    for line in requires(package) or ():
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            here = version(requirement.name)
        except PackageNotFoundError:
            wrong.append(f"{requirement.name}{requirement.specifier} is missing")
            continue
        if not requirement.specifier.contains(here, prereleases=True):
            wrong.append(f"{requirement.name}{requirement.specifier}, here is {here}")
    return "; ".join(wrong) or "all there"


def surface() -> tuple[int, str]:
    """Return what moved since the newest record as text, and 0 if nothing did, 1 if something did, else another number.

    Another number means that safe_arm cannot be imported; the text then ends with the error.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SURFACE],
        cwd=ROOT / "tools",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.stdout:
        return done.returncode, done.stdout.rstrip()
    return 2, done.stderr.rstrip()


def tested(results: Path) -> str:
    """Return the numbers of tests in words, and how many failed in each file, from pytest's XML."""
    if not results.exists():
        return "no result, 1 failed: pytest itself"
    found: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        outcome = "passed"
        if case.find("skipped") is not None:
            outcome = "skipped"
        if case.find("failure") is not None or case.find("error") is not None:
            outcome = "failed"
            files[case.get("classname", "")] += 1
        found[outcome] += 1
    text = ", ".join(f"{found[name]:,} {name}" for name in ("failed", "passed", "skipped") if found[name])
    for name, number in files.most_common(NAMED):
        text += f"\n{'':16}{number:4} failed in {name}"
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
