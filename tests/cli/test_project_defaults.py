"""``[tool.safe_arm]`` in pyproject.toml: defaults for the same options, checked as well as they are."""

import json

import pytest
from command_line import invoke, refused

from safe_arm.cli.project_defaults import nearest
from safe_arm.cli.targets import TARGETS


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Write a pyproject.toml and run a command in a directory below it."""
    (tmp_path / "project" / "nets").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "nets")

    def run(table, *arguments, header="[tool.safe_arm]\n", status=0):
        (tmp_path / "project" / "pyproject.toml").write_text(f"{header}{table}")
        return invoke(*arguments, status=status)

    return run


def test_they_are_those_of_the_nearest_parent(tmp_path):
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    for folder in ("", "a"):
        (tmp_path / folder / "pyproject.toml").touch()
    assert nearest(tmp_path / "a" / "b" / "c") == tmp_path / "a" / "pyproject.toml"
    assert nearest(tmp_path / "a") == tmp_path / "a" / "pyproject.toml"


def test_an_export_without_options_and_files_beside_the_toml(project, files, tmp_path):
    (tmp_path / "project" / "data.npz").write_bytes(files.data.read_bytes())
    table = (
        'target = "tosa"\nprofile = "TOSA-1.0+INT"\ncalibrate = "data.npz"\nnon-fuseable = "propagate"\n'
        'verify = false\nreport = ["own.json"]\nfail-under = 90\nactivations = 8\n'
    )
    result = project(table, "export", files.model, "-o", files.output)
    assert result.stdout.startswith(f"{files.output}: tosa, TOSA-1.0+INT, --non-fuseable propagate\n")
    assert "verified" not in result.stdout
    assert "Note" not in result.stderr
    record = json.loads((tmp_path / "project" / "own.json").read_text())
    assert record["totals"]["operators_delegated"] == 4


def test_the_command_line_wins_and_says_so(project, files, tmp_path):
    table = 'target = "vgf"\nnon-fuseable = "reject"\nverify = false\nreport = ["a.json"]\nquiet = false\n'
    options = ["--target=tosa", f"--calibrate={files.data}", "--non-fuseable=reject", "--verify", "--report=b.json"]
    result = project(table, "check", files.model, *options)
    toml = tmp_path / "project" / "pyproject.toml"
    notes = [line for line in result.stderr.splitlines() if "of the command line" in line]
    assert notes == [
        f"Note: --target=tosa of the command line is used, not --target=vgf of {toml}",
        f"Note: --verify of the command line is used, not --no-verify of {toml}",
        f"Note: --report=b.json of the command line is used, not --report={tmp_path / 'project' / 'a.json'} of {toml}",
    ], "what both say alike is nobody's business"
    assert "1 of 1" in result.stdout


def test_isolated_leaves_it_out(project, files):
    result = project('target = "tosa"\nbogus = 1\n', "check", "--isolated", files.model, status=2)
    refused(result, f"Error: Missing option '--target'. Give one of: {', '.join(TARGETS)}")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('taget = "vgf"', "[tool.safe_arm]: key 'taget' is not known; accepted: target, profile, non-fuseable, "),
        ("zzz = 1", "key 'zzz' is not known; accepted: "),
        ('output = "x.pte"', "key 'output' is not known; accepted: "),
        ("target = 8", "[tool.safe_arm]: target: target '8' is not known; accepted: vgf, "),
        ('target = "vfg"', "[tool.safe_arm]: target: target 'vfg' is not known; accepted: vgf, tosa, "),
        ('target = ["vgf"]', "[tool.safe_arm]: target is ['vgf']; expected a string"),
        ("calibrate = 3", "[tool.safe_arm]: calibrate is 3; expected a string"),
        ('verify = "no"', "[tool.safe_arm]: verify is 'no'; expected true or false"),
        ("verify = 0", "[tool.safe_arm]: verify is 0; expected true or false"),
        ('report = "a.html"', "[tool.safe_arm]: report is 'a.html'; expected a list of strings"),
        ("report = [1]", "[tool.safe_arm]: report is [1]; expected a list of strings"),
        ('fail-under = "90"', "[tool.safe_arm]: fail-under is '90'; expected a number"),
        ("fail-under = true", "[tool.safe_arm]: fail-under is true; expected a number"),
        ("fail-under = 101", "[tool.safe_arm]: fail-under: 101.0 is not in the range 0<=x<=100"),
        ("activations = 4", "[tool.safe_arm]: activations: --activations '4' is not known; accepted: 8, 16"),
        ("tolerance = 0.5", "[tool.safe_arm]: tolerance is 0.5; expected a whole number"),
        ("tolerance = -1", "[tool.safe_arm]: tolerance: -1 is not in the range x>=0"),
        ("per-tensor = 1.5", "[tool.safe_arm]: per-tensor is 1.5; expected true or false"),
        ("[tool.safe_arm.vgf]\n", "[tool.safe_arm]: key 'vgf' is not known"),
        ("= broken", "pyproject.toml cannot be read: "),
    ],
)
def test_a_key_or_a_value_that_is_none(project, files, tmp_path, table, says):
    result = project(table, "check", files.model, "--target=tosa", status=2)
    refused(result, f"Error: {tmp_path / 'project' / 'pyproject.toml'}", says)


def test_a_table_that_is_none(project, files):
    result = project("safe_arm = 3\n", "check", files.model, header="[tool]\n", status=2)
    refused(result, "pyproject.toml: tool.safe_arm is 3; expected a table, [tool.safe_arm]")


def test_the_keys_of_every_command_are_accepted_and_each_takes_its_own(project, tmp_path):
    """``strict`` is of export alone, ``repro-dir`` too: a script that is run has neither, and runs."""
    (tmp_path / "project" / "nets" / "script.py").write_text("print('ran')")
    table = 'strict = true\nrepro-dir = "scripts"\njson = true\ntarget = "vgf"\n'
    assert project(table, "run", "--allow-empty", "script.py").stdout == "ran\n"


@pytest.mark.parametrize(
    ("table", "options", "says"),
    [
        ('profile = "TOSA-1.0+INT"', ["--target=ethos-u55-128"], "so leave --profile out ([tool.safe_arm] of "),
        ('memory-mode = "Sram_Only"', ["--target=vgf"], "does not compile for vgf; leave it out ([tool.safe_arm] of "),
    ],
)
def test_what_does_not_go_together_says_where_it_is_from(project, files, tmp_path, table, options, says):
    result = project(table, "check", files.model, f"--calibrate={files.data}", *options, status=2)
    assert f"{says}{tmp_path / 'project' / 'pyproject.toml'} has it; --isolated leaves that out)" in result.stderr


def test_a_quantised_program_is_not_quantised_by_the_projects_defaults(project, files, monkeypatch):
    monkeypatch.setattr("safe_arm.cli.request_check.quantising_operator", lambda path: "quantized_decomposed::x")
    table = f'target = "tosa"\ncalibrate = "{files.data}"\nper-tensor = true\n'
    result = project(table, "check", files.model, status=None)
    assert "is quantised already" not in result.stderr
    assert "calibrate on" not in result.stderr
    refused(project(table, "check", files.model, "--per-tensor", status=2), "leave out --per-tensor, or")


@pytest.mark.parametrize("command", [["--help"], ["check", "--help"], ["issues", "S1"], ["--version"]])
def test_help_does_not_need_it(project, command):
    project("= broken", *command)
