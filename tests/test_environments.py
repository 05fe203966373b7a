"""In an environment that lacks something, or has it in another version, all say so in one line with what fixes it."""

import json
import os
import sys

import pytest
from interpreter import ROOT, python

TOGETHER = "executorch==1.5.1 torch==2.13.0 torchao==0.18.0"
#: Run by every Python that has it on its path: modules that are not there, nor the metadata of their packages.
SITE = """
import importlib.metadata
import sys

for name in {modules}:
    sys.modules[name] = None


def from_name(cls, name, real=importlib.metadata.Distribution.from_name.__func__):
    if name in {packages}:
        raise importlib.metadata.PackageNotFoundError(name)
    return real(cls, name)


importlib.metadata.Distribution.from_name = classmethod(from_name)
"""
TOSA = ("tosa_serializer", "tosa_reference_model", "tosa")
#: By what is missing: the modules, the packages, the command that installs it.
MISSING = {
    "torch": (("torch",), ("torch",), "pip install torch==2.13.0"),
    "executorch": (("executorch",), ("executorch",), f"pip install {TOGETHER}"),
    "tosa-tools": (TOSA, ("tosa-tools",), "pip install tosa-tools==2026.8.0"),
}
#: By package: a version that was not tested, those that were, the command that brings one.
OTHERS = {
    "executorch": ("1.6.0", ">=1.4,<1.6", f"pip install {TOGETHER}"),
    "torch": ("2.14.0", ">=2.13,<2.14", "pip install torch==2.13.0"),
    "tosa-tools": ("2026.9.0", ">=2026.5,<2026.9", "pip install tosa-tools==2026.8.0"),
}
COMMANDS = {
    "check": ["check", "net.pt2", "--target=tosa", "--calibrate=random"],
    "export": ["export", "net.pt2", "--target=tosa", "--calibrate=samples.npz", "--output=net.pte"],
    "export of many": ["export", "net.pt2", "*.pt2", "--target=tosa", "--calibrate=samples.npz", "--output=shipped"],
    "repro": ["repro", "net.pt2", "--target=tosa", "--calibrate=samples.npz", "--output=repros"],
    "run": ["run", "nowhere.py"],
    "tune": ["tune", "net.pt2", "--target=tosa", "--calibrate=samples.npz", "--min-sqnr=30", "--output=net.json"],
    "verify-pte": ["verify-pte", "net.pte"],
}
IMPORTS = {
    "safe_arm": "from safe_arm import SafeArmPartitioner",
    "accuracy": "import safe_arm.accuracy",
    "recipes": "from safe_arm.recipes import safe",
    "tuning": "from safe_arm.tuning import apply",
}


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """Folders to put on the path, by what is missing in the processes that have them there."""
    folders = {}
    for name, (modules, packages, _) in MISSING.items():
        folders[name] = tmp_path_factory.mktemp(name)
        (folders[name] / "sitecustomize.py").write_text(SITE.format(modules=modules, packages=packages))
    return folders


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """A folder to put on the path, by which all of ``OTHERS`` are installed."""
    folder = tmp_path_factory.mktemp("others")
    for name, (version, _, _) in OTHERS.items():
        metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


def run(folder, *arguments, cwd):
    return python(*arguments, cwd=cwd, PYTHONPATH=os.pathsep.join((str(folder), str(ROOT))), COLUMNS="80")


def warning(name):
    version, tested, fix = OTHERS[name]
    says = f"safe_arm is tested on {name} {tested}; {version} is installed, which its corrections may not fit."
    return f"{says} Mend it with: {fix}"


@pytest.mark.parametrize("missing", MISSING)
def test_each_command_says_what_is_missing(without, tmp_path, missing):
    for name in ("net.pt2", "net.pte", "samples.npz"):
        (tmp_path / name).write_bytes(b"nothing")
    # One process for all: none of them comes to import anything.
    script = (
        "import json; from click.testing import CliRunner; from safe_arm.cli.main import cli\n"
        f"runs = [CliRunner().invoke(cli, arguments) for arguments in {list(COMMANDS.values())!r}]\n"
        "print(json.dumps([[each.exit_code, each.stdout, each.stderr] for each in runs]))"
    )
    done = run(without[missing], "-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    says = f"Error: {missing} is not installed for {sys.executable}; install with: {MISSING[missing][2]}\n"
    results = dict(zip(COMMANDS, json.loads(done.stdout), strict=True))
    assert results == {name: [2, "", says] for name in COMMANDS}
    assert {file.name for file in tmp_path.iterdir()} == {"net.pt2", "net.pte", "samples.npz"}


@pytest.mark.parametrize("command", ["--help", "issues", "export --help"])
def test_what_needs_nothing_runs_without(without, tmp_path, command):
    done = run(without["torch"], "-m", "safe_arm", *command.split(), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("missing", MISSING)
def test_each_import_says_what_is_missing(without, tmp_path, missing):
    script = "\n".join(
        f"try:\n    {code}\n    print('imported')\nexcept ImportError as error:\n    print(type(error).__name__, error)"
        for code in ("import safe_arm", *IMPORTS.values())
    )
    done = run(without[missing], "-c", script, cwd=tmp_path)
    says = f"InstallationError {missing} is not installed for {sys.executable}; install with: {MISSING[missing][2]}"
    assert done.stdout.splitlines() == ["imported", *[says] * len(IMPORTS)], done.stderr


def test_an_import_that_is_not_caught_ends_with_that_line(without, tmp_path):
    done = run(without["torch"], "-c", IMPORTS["safe_arm"], cwd=tmp_path)
    assert done.returncode == 1
    assert "During handling" not in done.stderr
    assert done.stderr.splitlines()[-1].endswith(f"; install with: {MISSING['torch'][2]}")


@pytest.mark.parametrize("missing", MISSING)
def test_the_doctor_says_what_is_missing(without, tmp_path, missing):
    done = run(without[missing], "-m", "safe_arm", "doctor", "--target=tosa", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("not ok for tosa: ExecuTorch is ")
    assert f"  fix: {MISSING[missing][2]}" in lines
    assert "Traceback" not in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_warns_of_other_versions(others, tmp_path, command):
    (tmp_path / "net.pt2").write_bytes(b"nothing")
    done = run(others, "-m", "safe_arm", *COMMANDS[command], cwd=tmp_path)
    warnings = done.stderr.splitlines()[: len(OTHERS)]
    assert warnings == [f"Warning: {warning(name)}" for name in OTHERS]
    assert done.stderr.count("Warning: ") == len(OTHERS)
    assert done.returncode == (1 if command == "export of many" else 2)  # a row that failed


def test_each_import_warns_of_other_versions_once(others, tmp_path):
    script = "import warnings\nwith warnings.catch_warnings(record=True) as caught:\n"
    script += "".join(f"    {code}\n" for code in ("warnings.simplefilter('always')", *IMPORTS.values()))
    script += "for each in caught:\n    if 'safe_arm is tested' in str(each.message): print(each.message)"
    done = run(others, "-c", script, cwd=tmp_path)
    assert done.stdout.splitlines() == [warning(name) for name in OTHERS], done.stderr


def test_the_doctor_names_other_versions(others, tmp_path):
    done = run(others, "-m", "safe_arm", "doctor", "--target=tosa", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "ok for tosa; not tested with " + ", ".join(f"{name} {OTHERS[name][0]}" for name in OTHERS)
    for name, (version, tested, fix) in OTHERS.items():
        assert f"  {name} {version} is outside what is tested, {tested}" in lines
        assert f"  fix: {fix}" in lines


def test_an_executorch_that_does_not_fit_is_told_in_one_line(others, tmp_path):
    (tmp_path / "executorch.py").write_text("raise ImportError('undefined symbol: _ZN2at')")
    path = os.pathsep.join((str(tmp_path), str(others)))
    done = run(path, "-c", IMPORTS["safe_arm"], cwd=tmp_path)
    what = "ExecuTorch's Arm backend cannot be imported: ImportError: undefined symbol: _ZN2at"
    others = [f"{name} {version} is installed, tested is {tested}" for name, (version, tested, _) in OTHERS.items()]
    fix = f"fix it with: pip install --force-reinstall --no-deps {TOGETHER}"
    says = "; ".join((f"safe_arm.core.errors.InstallationError: {what}", *others, fix))
    assert done.stderr.splitlines()[-1] == says


def test_what_is_here_is_complete_and_tested(tmp_path):
    (tmp_path / "net.pt2").write_bytes(b"nothing")
    done = run(tmp_path, "-m", "safe_arm", *COMMANDS["check"], cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "not a .pt2 program" in done.stderr
