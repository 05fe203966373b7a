"""Vela and model-converter on a leash: hangs, crashes and refusals become one error with the tool's own words."""

import os
import shlex
import signal
import subprocess
import sys
import time

import faults
import pytest
from executorch.backends.arm import arm_vela
from executorch.backends.arm.vgf import backend as vgf_backend

from safe_arm._compat import compilers, seams
from safe_arm.core.errors import ToolError
from safe_arm.core.tool_input import keep
from safe_arm.safe_partitioner import HOOKS

ARGUMENTS = ["--accelerator-config=ethos-u55-128"]


@pytest.fixture(autouse=True)
def _installed():
    seams.install(HOOKS)


def vela(seconds=60.0):
    with compilers.leashed(seconds, []):
        return arm_vela.vela_compile(b"not a TOSA graph", list(ARGUMENTS))


def converter(seconds=60.0):
    with compilers.leashed(seconds, []):
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


def crash(*_):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("main", "says"),
    [
        pytest.param(crash, "Vela was ended by signal 9: and says nothing", id="crash"),
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


def test_without_a_leash_both_fail_as_stock():
    with faults.vela_replaced(faults.raising(ZeroDivisionError)), pytest.raises(ZeroDivisionError):
        arm_vela.vela_compile(b"", list(ARGUMENTS))
    with faults.converter_failing("words"), pytest.raises(RuntimeError, match=r"Vgf compiler failed.[\s\S]*words"):
        vgf_backend.vgf_compile(b"", [])
