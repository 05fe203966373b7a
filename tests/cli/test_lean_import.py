"""The package and its help load neither torch nor executorch."""

import pytest
from interpreter import python

HEAVY = ("torch", "executorch", "torchao")
#: What a command may load when it runs, but not to tell what it is for.
LATE = (*HEAVY, "numpy", "networkx", "rich")
REPORT = "import sys; print([m for m in {} if m in sys.modules])"
HELP = """
from safe_arm.cli.main import cli
try:
    cli({arguments}, prog_name="safe-arm")
except SystemExit as end:
    assert end.code == 0, end.code
"""


def loaded_after(code: str, looked_for: tuple[str, ...]) -> str:
    done = python("-c", f"{code}\n{REPORT.format(looked_for)}")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import safe_arm", id="package"),
        pytest.param(HELP.format(arguments=["--help"]), id="help"),
        pytest.param(HELP.format(arguments=["export", "--help"]), id="export help"),
        pytest.param(HELP.format(arguments=["run", "--help"]), id="run help"),
        pytest.param(HELP.format(arguments=["--version"]), id="version"),
        pytest.param(HELP.format(arguments=["issues"]), id="issues"),
    ],
)
def test_loads_nothing_heavy(code):
    assert loaded_after(code, LATE) == "[]"


@pytest.mark.parametrize(
    "option",
    [
        *("--keep-float=frist", "--memory-mode=Nope", "--profile=TOSA-1.0+INT", "--activations=4", "--io=int16"),
        *("--tolerance=-1", "--fail-under=101", "--calibrate=random", "--report=x.xml"),
    ],
)
def test_bad_input_loads_no_torch(conv_relu_cat, tmp_path, option):
    model, data = map(str, conv_relu_cat)
    files = [model, f"--calibrate={data}", f"--output={tmp_path / 'net.pte'}"]
    arguments = ["export", *files, "--target=ethos-u55-128", option]
    code = HELP.format(arguments=arguments).replace("== 0", "== 2")
    assert loaded_after(code, HEAVY) == "[]"


@pytest.mark.parametrize(
    "content", [None, b"PK\x03\x04zip", b"\x00\x00\x00\x00ET12"], ids=["missing", "no program", "without a proof"]
)
def test_what_verify_pte_cannot_check_loads_no_torch(tmp_path, content):
    program = tmp_path / "net.pte"
    if content is not None:
        program.write_bytes(content)
    code = HELP.format(arguments=["verify-pte", str(program)]).replace("== 0", "== 2")
    assert loaded_after(code, HEAVY) == "[]"


def test_this_test_can_fail():
    assert loaded_after("import safe_arm; safe_arm.SafeArmPartitioner", HEAVY) == str(list(HEAVY))
    assert loaded_after("import rich.console", LATE) == "['rich']"


@pytest.mark.parametrize("name", ["safe_arm", "safe_arm.cli"])
def test_python_m_is_the_command(name):
    done = python("-m", name, "--help")
    assert done.stdout.startswith("Usage: safe-arm ")
    assert "export" in done.stdout
