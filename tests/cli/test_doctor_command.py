"""``safe-arm doctor``: every tool is run, the exit status says ok or not, stdout is text or JSON and nothing else."""

import json
from functools import partial

import pytest
from command_line import invoke, refused
from interpreter import python
from tools_at_hand import tool

TOOLS = ["ExecuTorch", "flatc", "TOSA reference model", "Vela", "model-converter", "Vulkan"]
run = partial(python, "-m", "safe_arm.cli", "doctor")


def test_this_environment_is_ok():
    here = run("--json")
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
    broken = tool(tmp_path / "model-converter", '#!/bin/sh\necho "version \\`GLIBC_9.38\' not found" >&2; exit 1')
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
        (["--target", "vfg"], "target 'vfg' is not known; accepted: vgf, "),
        (["--jsn"], "No such option '--jsn'. Did you mean '--json'?"),
        (["vgf"], "unexpected extra argument"),
    ],
)
def test_wrong_use(arguments, says):
    refused(invoke("doctor", *arguments, status=2), says)
