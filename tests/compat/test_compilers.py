"""Vela and model-converter on a leash: hangs, crashes and refusals become one error with the tool's own words."""

import os
import shlex
import subprocess
import sys
import tempfile
import time

import faults
import pytest
from executorch.backends.arm import arm_vela
from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
from executorch.backends.arm.vgf import VgfCompileSpec
from executorch.backends.arm.vgf import backend as vgf_backend
from lowering import PROFILES, delegates, lower, quantize, tosa
from small import Lambda, image

from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer, seams
from safe_arm._compat import compilers
from safe_arm.core.errors import ToolError, UsageError
from safe_arm.core.lowering_record import Lowering, lowering
from safe_arm.core.tool_input import keep

ARGUMENTS = ["--accelerator-config=ethos-u55-128"]


@pytest.fixture(autouse=True)
def _installed():
    seams.install()


def vela(seconds=60.0):
    with lowering(Lowering(time_limit=seconds)):
        return arm_vela.vela_compile(b"not a TOSA graph", list(ARGUMENTS))


def converter(seconds=60.0):
    with lowering(Lowering(time_limit=seconds)):
        return vgf_backend.vgf_compile(b"not a TOSA graph", [])


def test_vela_s_refusal_is_quoted_and_repeatable():
    with pytest.raises(ToolError, match=r"Vela exits 1: .*") as caught:
        vela()
    command = shlex.split(keep(caught.value))
    assert command[0] == "vela"
    assert command[1:-1] == ARGUMENTS
    with open(command[-1], "rb") as kept:
        assert kept.read() == b"not a TOSA graph"


def test_vela_that_hangs_is_ended():
    before = time.monotonic()
    with faults.vela_hanging(), pytest.raises(ToolError, match=r"Vela did not finish within 0.5 s"):
        vela(0.5)
    assert time.monotonic() - before < 30


@pytest.mark.parametrize(
    ("main", "says"),
    [
        pytest.param(lambda *_: os.kill(os.getpid(), 9), "Vela was ended by signal 9: and says nothing", id="crash"),
        pytest.param(lambda argv: sys.exit(3), "Vela exits 3: and says nothing", id="sys.exit"),
        pytest.param(lambda argv: print("no such operator") or 1, "Vela exits 1: no such operator", id="status"),
        pytest.param(lambda argv: 0, "Vela exits 0: and says nothing", id="no result"),
        pytest.param(faults.raising(ValueError("bad block")), "Vela exits 1: .*ValueError: bad block", id="exception"),
    ],
)
def test_however_vela_fails_it_is_one_error(main, says):
    with faults.vela_replaced(main), pytest.raises(ToolError, match=says):
        vela()


def test_the_converter_s_refusal_is_quoted_and_repeatable():
    with faults.converter_failing("unsupported: tosa.FOO"):
        with pytest.raises(ToolError) as caught:
            converter()
        again = subprocess.run(shlex.split(keep(caught.value)), capture_output=True, text=True, check=False)
    assert str(caught.value) == "model-converter exits 1: unsupported: tosa.FOO"
    assert (again.returncode, again.stderr) == (1, "unsupported: tosa.FOO\n")


def test_a_converter_that_hangs_is_ended():
    with faults.converter_hanging() as pid, pytest.raises(ToolError, match=r"did not finish within 0.5 s"):
        converter(0.5)
    assert not faults._is_ours(int(pid.read_text()) if pid.exists() else -1)


def test_a_failure_writes_nothing_and_what_is_kept_is_written_once(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ToolError) as caught:
        vela()
    with faults.converter_failing("unsupported"), pytest.raises(ToolError) as converters:
        converter()
    assert list(tmp_path.glob("safe_arm-*")) == []
    for error in (caught.value, converters.value):
        assert error.data == b"not a TOSA graph"
        assert error.command.split().count(error.file_name) == 1
        assert "/" not in error.file_name
        command = keep(error)
        assert keep(error) == command
    assert len(list(tmp_path.glob("safe_arm-*"))) == 2
    (kept,) = tmp_path.glob(f"safe_arm-*/{caught.value.file_name}")
    assert kept.read_bytes() == b"not a TOSA graph"
    assert shlex.split(keep(caught.value))[-1] == str(kept)


def test_what_cannot_be_kept_has_no_command(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert keep(ToolError("Vela", "Vela exits 1", "vela out.tosa", "out.tosa", b"graph")) == ""


def lowered(partitioner):
    graph_module = quantize(Lambda(lambda m, x: m.conv(x)), image(), tosa(PROFILES[0]))
    return delegates(lower(graph_module, image(), partitioner))


@pytest.mark.parametrize("preflight", [True, False])
def test_a_converter_beside_the_interpreter_is_found_by_us_alone(monkeypatch, preflight):
    spec = VgfCompileSpec("TOSA-1.0+INT")
    usual = lowered(SafeArmPartitioner(spec))
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.delenv("MODEL_CONVERTER_PATH", raising=False)
    assert lowered(SafeArmPartitioner(spec, preflight=preflight)) == usual
    with pytest.raises(RuntimeError, match=r"^Unable to locate a model converter"):
        vgf_backend.vgf_compile(b"", [])


@pytest.mark.parametrize("preflight", [True, False])
def test_no_converter_at_all_is_an_error_before_any_lowering(preflight):
    with faults.converter_missing(), pytest.raises(UsageError, match=r"^no model-converter found: looked at MODEL_CON"):
        SafeArmPartitioner(VgfCompileSpec("TOSA-1.0+INT"), preflight=preflight)


def test_a_tmpdir_with_spaces_kills_stock_and_changes_no_byte_of_ours(tmp_path, monkeypatch):
    spec = EthosUCompileSpec("ethos-u55-128")
    net = quantize(Lambda(lambda m, x: m.conv(x)), image(), spec, quantizer_class=SafeEthosUQuantizer)

    def lowered_in(name, partitioner):
        (tmp_path / name).mkdir(exist_ok=True)
        monkeypatch.setenv("TMPDIR", str(tmp_path / name))
        monkeypatch.setattr(tempfile, "tempdir", None)
        return delegates(lower(net, image(), partitioner))

    plain, spaced = "plain", "with  two spaces "
    expected = lowered_in(plain, EthosUPartitioner(spec))
    with pytest.raises((Exception, SystemExit)):
        lowered_in(spaced, EthosUPartitioner(spec))
    assert lowered_in(spaced, SafeArmPartitioner(spec)) == expected
    assert lowered_in(spaced, SafeArmPartitioner(spec, preflight=False)) == expected
    assert len(expected) == 1


@pytest.mark.parametrize("flag", ["", "--verbose-all"])
@pytest.mark.parametrize("directory", ["/tmp/x", "/tmp/a b", "/a  b /c d", "C:\\a b\\c"])
def test_arguments_split_at_spaces_are_whole_again(directory, flag):
    separator = "\\" if ":" in directory else "/"
    paths = [f"--output-dir={directory}{separator}output", f"{directory}{separator}out.tosa"]
    whole = [*ARGUMENTS, *paths, *([flag] if flag else [])]
    assert compilers._with_spaces(" ".join(whole).split(" ")) == whole


def test_without_a_leash_both_fail_as_stock():
    with faults.vela_replaced(faults.raising(ZeroDivisionError)), pytest.raises(ZeroDivisionError):
        arm_vela.vela_compile(b"", list(ARGUMENTS))
    with faults.converter_failing("words"), pytest.raises(RuntimeError, match=r"Vgf compiler failed.[\s\S]*words"):
        vgf_backend.vgf_compile(b"", [])
