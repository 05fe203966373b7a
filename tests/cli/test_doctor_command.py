"""``safe-arm doctor``: every tool is run, the exit status says ok or not, stdout is text or JSON and nothing else."""

import json
from functools import partial

import pytest
from interpreter import python

TOOLS = ["ExecuTorch", "flatc", "TOSA reference model", "Vela", "model-converter", "Vulkan"]


run = partial(python, "-m", "safe_arm.cli", "doctor")


@pytest.fixture(scope="module")
def here():
    return run("--json")


def test_this_environment_is_ok(here):
    assert (here.returncode, here.stderr) == (0, "")
    found = json.loads(here.stdout)
    assert (found["schema_version"], found["ok"], found["target"]) == (1, True, None)
    assert found["untested"] == []
    assert [tool["name"] for tool in found["tools"]] == TOOLS
    assert {tool["state"] for tool in found["tools"][:5]} == {"ok"}
    assert all(found["versions"].values())
    keys = {"name", "state", "version", "needed_for", "needed_by", "detail", "fix", "blocks"}
    assert all(set(tool) == keys for tool in found["tools"])
    assert {"S1", "H1"} <= {issue["id"] for issue in found["known_issues"]}
    assert all(tool["fix"] for tool in found["tools"] if tool["state"] != "ok")


def test_a_broken_tool_is_not_ok_and_the_text_names_the_fix(tmp_path):
    broken = tmp_path / "model-converter"
    broken.write_text('#!/bin/sh\necho "version \\`GLIBC_9.38\' not found" >&2; exit 1')
    broken.chmod(0o755)
    done = run(MODEL_CONVERTER_PATH=str(broken))
    assert (done.returncode, done.stderr) == (1, "")
    assert f"  model-converter: {broken} needs glibc 9.38" in done.stdout
    assert "  fix: pip install --no-deps ai_ml_sdk_model_converter==0.11.0" in done.stdout
    assert " known issues affect ExecuTorch " in done.stdout.splitlines()[-1]
    assert done.stdout.splitlines()[0] == "not ok: model-converter is broken"
    assert "\x1b" not in done.stdout
    assert "Failed to load" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["--target", "vfg"], "target 'vfg' is not known; accepted: vgf, ", id="target"),
        pytest.param(["--jsn"], "No such option '--jsn'. Did you mean '--json'?", id="option"),
        pytest.param(["vgf"], "unexpected extra argument", id="argument"),
    ],
)
def test_wrong_use(arguments, says):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr
