"""Try the pages of docs/upstream on the installed wheels: the bug is there, the patch fixes it and breaks nothing.

    python tools/upstream_pages.py                the repro of every page, as installed and patched, many at once
    python tools/upstream_pages.py --whole        each page by itself, with its test and upstream's own tests
    python tools/upstream_pages.py --whole 01 09  of these pages alone

A patch is tried in an overlay: a folder of links to the installed package in which only the patched files are copies.
It comes before site-packages on ``sys.path``; the environment itself is not touched. Whatever is tried runs in a fork
of this process, which has imported what no page patches, torch first, so that it need not be imported each time.

A page whose repro passes as installed is done: the message says which correction of ours falls with it.
"""

import argparse
import importlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "upstream"
SECTIONS = ("What happens", "Repro", "Cause", "Patch", "Test")
#: What is tried whole without --whole, too: its tests take seconds.
QUICK = frozenset(("04",))
#: Upstream's tests that cannot pass here: they run what they lower on a simulator, which is not installed.
ELSEWHERE = "not u55 and not u65 and not u85 and not vgf"
#: The folder of upstream's conftest, which some of its tests import by name.
CONFTEST = "executorch/backends/arm/test"
#: What the forks find imported, in this order: nothing that the page at hand patches.
SHARED = (
    ("torch", ("torch", "torch.export", "torch._dynamo", "torch._inductor", "pytest")),
    ("torchao", ("torchao.quantization.pt2e.quantize_pt2e",)),
    ("executorch", ("executorch.backends.arm.quantizer", "executorch.backends.arm.tosa.partitioner")),
)
#: Seconds that one try may take.
LIMIT = 1800
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


class PageError(Exception):
    """A page is not as it has to be; the message says how."""


@dataclass(frozen=True)
class Page:
    """A page that is ready to be sent upstream.

    Attributes:
        number: the digits its file name begins with.
        issue: the ids of the known issues it fixes, separated by commas.
        versions: the releases of ExecuTorch that the patch is made for.
        files: what the patch changes, relative to site-packages.
        tests: upstream's test files, or tests in them, to be run with the patch; relative to site-packages.
        correction: what of this repository falls when upstream is fixed; empty where only a proof finds the bug.
        repro: a script of stock alone, which fails while the bug is there.
        patch: a unified diff against the wheel.
        test: a test file to be added upstream.
    """

    number: str
    issue: str
    versions: tuple[str, ...]
    files: tuple[str, ...]
    tests: tuple[str, ...]
    correction: str
    repro: str
    patch: str
    test: str


def page_of(path: Path) -> Page:
    """Read a page.

    Raises:
        PageError: a field, a section or a fence is missing, or there is one too many.
    """
    head, _, body = path.read_text().removeprefix("---\n").partition("\n---\n")
    fields = yaml.safe_load(head)
    wanted = {"issue": str, "versions": list, "files": list, "tests": list, "correction": str}
    if not isinstance(fields, dict) or {name: type(value) for name, value in fields.items()} != wanted:
        kinds = ", ".join(f"{name} ({kind.__name__})" for name, kind in wanted.items())
        raise PageError(f"{path.name}: its front matter has {fields}; wanted: {kinds}, all quoted where YAML guesses")
    sections = dict(re.findall(r"^## (.+)\n((?:(?!^## ).*\n?)*)", body, re.MULTILINE))
    if tuple(sections) != SECTIONS:
        raise PageError(f"{path.name}: its sections are {', '.join(sections)}; wanted: {', '.join(SECTIONS)}")
    patch = _fence(path, "diff", sections["Patch"])
    changed = tuple(re.findall(r"^\+\+\+ b/(\S+)", patch, re.MULTILINE))
    if changed != tuple(fields["files"]):
        raise PageError(f"{path.name}: its diff changes {changed}, files has {fields['files']}")
    lists = {name: tuple(map(str, fields.pop(name))) for name in ("versions", "files", "tests")}
    repro, test = (_fence(path, "python", sections[name]) for name in ("Repro", "Test"))
    return Page(path.name.partition("-")[0], **fields, **lists, repro=repro, patch=patch, test=test)


def _fence(path: Path, language: str, section: str) -> str:
    fences = re.findall(r"^```(\w+)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    if [kind for kind, _ in fences] != [language]:
        raise PageError(
            f"{path.name}: it has the fences {[kind for kind, _ in fences]} where one of {language} belongs"
        )
    return str(fences[0][1])


def overlay(page: Page, installed: Path, folder: Path) -> None:
    """Fill a folder with links to what is installed, the page's files as patched copies.

    Raises:
        PageError: a file is not installed, or the patch does not apply to it.
    """
    for file in page.files:
        if not (installed / file).is_file():
            raise PageError(f"{file} is not installed")
        place = folder
        for part in Path(file).parts[:-1]:
            _open(place / part, installed / (place / part).relative_to(folder))
            place /= part
        copy = folder / file
        copy.unlink(missing_ok=True)
        copy.write_bytes((installed / file).read_bytes())
    command = ["patch", "--strip=1", "--fuzz=0", "--no-backup-if-mismatch", "--reject-file=-"]
    done = subprocess.run(command, cwd=folder, input=page.patch, capture_output=True, text=True)
    if done.returncode or "offset" in done.stdout:
        raise PageError(f"the patch does not apply cleanly: {done.stdout.strip()}")


def _open(place: Path, source: Path) -> None:
    """Make a folder of links of what was a link to a folder."""
    if place.is_dir() and not place.is_symlink():
        return
    place.unlink(missing_ok=True)
    place.mkdir()
    for each in source.iterdir():
        if each.name != "__pycache__":
            (place / each.name).symlink_to(each)


@dataclass(frozen=True)
class Outcome:
    """The result of a try: its exit status, its output, and its tests by name."""

    status: int
    output: str
    tests: dict[str, str]

    @property
    def end(self) -> str:
        """The last line that it printed."""
        return next((line for line in reversed(self.output.splitlines()) if line.strip()), "")


def forked(action: Callable[[], object], place: Path | None, log: Path) -> Outcome:
    """Run an action in a fork of this process.

    Args:
        action: what to run; exit status 1 is an exception.
        place: an overlay, which comes first on ``sys.path``; None for what is installed.
        log: where its output goes; tests write their results beside it.
    """
    sys.stdout.flush()
    child = os.fork()
    if not child:
        _run(action, place, log)
    _, status = os.waitpid(child, 0)
    results = log.with_suffix(".xml")
    return Outcome(os.waitstatus_to_exitcode(status), log.read_text(errors="replace"), _results(results))


def _run(action: Callable[[], object], place: Path | None, log: Path) -> None:
    """Run an action with its output in a file, and end the process."""
    import signal
    import traceback

    status = 1
    try:
        file = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(file, 1), os.dup2(file, 2)
        sys.stdout = sys.stderr = os.fdopen(file, "w", buffering=1)
        signal.alarm(LIMIT)
        os.environ.update(ENVIRONMENT)
        os.chdir(log.parent)
        if place:
            sys.path.insert(0, str(place))
            os.environ["PYTHONPATH"] = str(place)
            importlib.invalidate_caches()
        action()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush(), sys.stderr.flush()
        os._exit(status)


def _results(path: Path) -> dict[str, str]:
    """Return what became of each test in a JUnit file: passed, or the name of what it has instead."""
    if not path.exists():
        return {}
    cases = ElementTree.parse(path).iter("testcase")
    kinds = ((f"{case.get('classname')}::{case.get('name')}", [e.tag for e in case]) for case in cases)
    return {
        name: next((tag for tag in tags if tag in ("failure", "error", "skipped")), "passed") for name, tags in kinds
    }


def script(text: str, folder: Path) -> Callable[[], object]:
    """Return what runs a script as ``python FILE`` does."""
    path = folder / "repro.py"
    path.write_text(text)

    def run() -> None:
        import runpy

        runpy.run_path(str(path), run_name="__main__")

    return run


def pytest_run(files: Iterable[Path], log: Path, rootdir: Path) -> Callable[[], object]:
    """Return what runs test files apart from this project's settings."""
    command = ["-q", "-c", os.devnull, f"--rootdir={rootdir}", "-p", "no:cacheprovider", "--import-mode=importlib"]
    command += ["-k", ELSEWHERE, "-o", f"pythonpath={rootdir / CONFTEST}"]
    command += [f"--junitxml={log.with_suffix('.xml')}", *map(str, files)]

    def run() -> None:
        import pytest

        sys.exit(int(pytest.main(command)))

    return run


class Trial:
    """The tries of one page, each with its complaint."""

    def __init__(self, page: Page, installed: Path, folder: Path) -> None:
        self.page, self.installed, self.folder = page, installed, folder
        self.complaints: list[str] = []
        self.told: list[str] = []
        self.patched = folder / "overlay"
        self.release = version("executorch")
        self.fits = self.release in page.versions
        if self.fits:
            self.patched.mkdir()
            try:
                overlay(page, installed, self.patched)
            except PageError as error:
                self.fits = False
                self.complaints.append(str(error))
        else:
            self.told.append(f"the patch is for ExecuTorch {', '.join(page.versions)}")

    def with_patch(self) -> None:
        """Try the patch: the repro passes, the page's test passes."""
        self.expect_mended(self._try("repro", self.patched))
        outcome = self._try("test", self.patched)
        self._expect(outcome.status == 0, "test passes", f"its test fails with the patch: {outcome.end}")
        if self.page.tests:
            self.results = self._try("upstream", self.patched).tests

    def expect_mended(self, repro: Outcome) -> None:
        """Complain about a repro that fails with the patch."""
        self._expect(repro.status == 0, "repro passes with the patch", f"fails with the patch: {repro.end}")

    def as_installed(self, whole: bool) -> None:
        """Try what is installed: the repro fails, the page's test fails, upstream's tests are no better."""
        page = self.page
        outcome = self._try("repro", None)
        drop = f"drop {page.correction} with its tests for releases that have the fix, " if page.correction else ""
        done = (
            f"the repro passes on ExecuTorch {self.release}, so the bug is fixed there: set fixed_in of {page.issue} "
            f"in safe_arm/known_issues/issues.json, {drop}and remove this page, which is done"
        )
        self._expect(outcome.status != 0, f"fails as installed ({outcome.end[:90]})", done)
        if not whole or not self.fits:
            return
        outcome = self._try("test", None)
        failed = "failure" in outcome.tests.values()
        self._expect(failed, "test fails as installed", f"its test does not fail as installed: {outcome.end}")
        if page.tests:
            before = self._try("upstream", None).tests
            lost = sorted(name for name, kind in before.items() if kind == "passed" != self.results.get(name))
            passed = sum(kind == "passed" for kind in before.values())
            self._expect(
                bool(passed), f"{passed} upstream tests pass", "none of the upstream tests passes as installed"
            )
            self._expect(
                not lost, f"{len(lost)} are lost", f"upstream tests that fail with the patch: {', '.join(lost)}"
            )

    def _try(self, what: str, place: Path | None) -> Outcome:
        log = self.folder / f"{what}-{'patched' if place else 'installed'}.log"
        if what == "repro":
            return forked(script(self.page.repro, self.folder), place, log)
        if what == "test":
            file = self.folder / "test_page.py"
            file.write_text(self.page.test)
            return forked(pytest_run([file], log, self.folder), place, log)
        # An overlay has the packages of the patched files alone.
        root = (
            place
            if place and all((place / each.split("::")[0]).exists() for each in self.page.tests)
            else self.installed
        )
        return forked(pytest_run([root / each for each in self.page.tests], log, root), place, log)

    def _expect(self, right: bool, told: str, complaint: str) -> None:
        (self.told if right else self.complaints).append(told if right else complaint)


def batches(trials: Iterable[Trial]) -> list[list[Trial]]:
    """Return trials in groups whose pages patch different files."""
    groups: list[list[Trial]] = []
    for trial in trials:
        for group in groups:
            if not any({*trial.page.files} & {*other.page.files} for other in group):
                group.append(trial)
                break
        else:
            groups.append([trial])
    return groups


def try_batch(batch: list[Trial], modules: Iterable[str], place: Path) -> None:
    """Try the repros of pages with all their patches at once, so that what is patched is imported once.

    Args:
        batch: trials of pages that patch different files.
        modules: what to import for them.
        place: a folder to be made, for the overlay.
    """
    place.mkdir()
    for trial in batch:
        overlay(trial.page, trial.installed, place)
    logs = {trial: trial.folder / "repro-patched.log" for trial in batch}

    def repros() -> None:
        for module in modules:
            importlib.import_module(module)
        for trial, log in logs.items():
            outcome = forked(script(trial.page.repro, trial.folder), None, log)
            log.with_suffix(".status").write_text(str(outcome.status))

    forked(repros, place, place.with_suffix(".log"))
    for trial, log in logs.items():
        trial.expect_mended(Outcome(int(log.with_suffix(".status").read_text()), log.read_text(errors="replace"), {}))


def packages() -> Path:
    """Return site-packages."""
    return Path(yaml.__file__).parents[1]


def patched_package(page: Page) -> str:
    """Return the distribution's package that a page patches, such as executorch."""
    return page.files[0].partition("/")[0]


def main() -> int:
    """Try the pages that were asked for, and print a line about each; exit status 1 with a complaint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", metavar="NUMBER", help="pages such as 01; all without")
    parser.add_argument("--whole", action="store_true", help="the page's test and upstream's own tests too")
    parser.add_argument("--keep", type=Path, help="a folder for the overlays and the logs, which are removed without")
    arguments = parser.parse_args()
    paths = [
        path for path in sorted(PAGES.glob("[0-9]*.md")) if not arguments.numbers or path.name[:2] in arguments.numbers
    ]
    if missing := sorted({*arguments.numbers} - {path.name[:2] for path in paths}):
        parser.error(f"no page has the numbers {', '.join(missing)}; there are {', '.join(p.name[:2] for p in paths)}")
    with tempfile.TemporaryDirectory() as temporary:
        return tried(paths, arguments.keep or Path(temporary), arguments.whole)


def tried(paths: list[Path], folder: Path, whole: bool) -> int:
    """Try pages, those first that patch what the others find imported."""
    os.environ.update(ENVIRONMENT)
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))  # flatc, vela
    pages = {path: page_of(path) for path in paths}
    trials = {}
    for path, page in pages.items():
        (folder / path.stem).mkdir(parents=True)
        trials[path] = Trial(page, packages(), folder / path.stem)
    for package, modules in SHARED:
        mine = [trial for path, trial in trials.items() if trial.fits and patched_package(pages[path]) == package]
        alone = [trial for trial in mine if whole or trial.page.number in QUICK]
        for trial in alone:
            trial.with_patch()
        for number, batch in enumerate(batches(trial for trial in mine if trial not in alone)):
            try_batch(batch, modules, folder / f"{package}-{number}")
        for module in modules:
            importlib.import_module(module)
    for trial in trials.values():
        trial.as_installed(whole or trial.page.number in QUICK)
    for path, trial in trials.items():
        print(f"{path.stem} ({pages[path].issue}): {'; '.join(trial.told)}")
        for complaint in trial.complaints:
            print(f"  WRONG: {complaint}")
    wrong = sum(bool(trial.complaints) for trial in trials.values())
    print(f"{len(paths)} pages, {wrong} of them with a complaint, on ExecuTorch {version('executorch')}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
