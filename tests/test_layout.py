"""The layout keeps its promises: one rule, one file, one test file; a small surface; a wheel of the package alone."""

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import safe_arm
from safe_arm.known_issues import known_issues
from safe_arm.partitioner.checks import CHECKS
from safe_arm.passes.manager import CORRECTIONS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "safe_arm"


@pytest.mark.parametrize("folder", ["passes", "passes/invariants", "partitioner", "partitioner/checks", "quantizer"])
def test_every_rule_has_a_test_file_of_its_name(folder):
    exempt = {"__init__", "base"}
    rules = {f.stem for f in (PACKAGE / folder).glob("*.py")} - exempt
    tests = {f.stem.removeprefix("test_") for f in (ROOT / "tests" / folder).glob("test_*.py")}
    assert rules == tests


def test_the_public_names():
    assert safe_arm.__all__ == [
        "CORRECTIONS",
        "SafeArmError",
        "SafeArmPartitioner",
        "SafeArmPassManager",
        "SafeEthosUQuantizer",
        "SafeTOSAQuantizer",
        "SafeVgfQuantizer",
        "UsageError",
        "verify",
    ]
    for name in safe_arm.__all__:
        value = getattr(safe_arm, name)
        assert name == "CORRECTIONS" or value.__doc__.strip().splitlines()[0].endswith((".", ":")), name


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(AttributeError, match="it has CORRECTIONS, SafeArmError"):
        safe_arm.SafePartitioner  # noqa: B018


def test_issue_ids_in_code_are_known():
    known = {issue.id for issue in known_issues()}
    assert {check.issue for check in CHECKS} | {c.issue for c in CORRECTIONS} <= known
    assert len(known) == len(known_issues())


def test_internals_of_executorch_are_imported_in_compat_only():
    offenders = []
    for path in PACKAGE.rglob("*.py"):
        if "_compat" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            module = getattr(node, "module", "") or ""
            internal = ("_passes", "tosa", "operator_support", "common", "constants")
            if module.startswith(tuple(f"executorch.backends.arm.{name}" for name in internal)):
                offenders.append(f"{path.relative_to(ROOT)}: {module}")
    assert offenders == []


def test_files_and_functions_are_short():
    long = []
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        if len(text.splitlines()) > 500:
            long.append(path.name)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno - node.lineno > 80:
                long.append(f"{path.name}:{node.name}")
    assert long == []


def test_the_wheel_holds_the_package_and_nothing_else(tmp_path):
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    expected = {str(f.relative_to(ROOT)) for f in PACKAGE.rglob("*") if f.is_file() and "__pycache__" not in f.parts}
    assert expected <= set(names)
    assert {name.split("/")[0] for name in names} == {"safe_arm", f"safe_arm-{safe_arm.__version__}.dist-info"}


def test_the_wheel_works_where_the_checkout_is_not(tmp_path):
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    script = (
        f"import sys; sys.path.insert(0, {str(wheel)!r}); import safe_arm; "
        f"from safe_arm.known_issues import known_issues; "
        "from safe_arm.report.html import html; from safe_arm.core.record import Report; "
        "assert '.whl' in safe_arm.__file__, safe_arm.__file__; assert known_issues(); "
        "assert html(Report((), 0, 0)); print('ok')"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "ok", result.stderr
