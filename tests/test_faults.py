"""The injected faults reach stock's export and leave nothing behind."""

import signal
from contextlib import contextmanager

import faults
import pytest
import torch
from failure import Failure, in_company, said, stock

INT = Failure("plain", "", "TOSA-1.0+INT", in_company(lambda m, h: torch.tanh(h)), "int8", (), "", "")
VGF = Failure("plain", "", "vgf:TOSA-1.0+FP", in_company(lambda m, h: torch.tanh(h)), None, (), "", "")
ETHOS_U = Failure("plain", "", "ethos-u55-128", in_company(lambda m, h: torch.tanh(h)), "int8", (), "", "")

FAULTS = {
    "pass-raising": (INT, faults.pass_raising, RuntimeError, faults.ADDED),
    "pass-out-of-memory": (INT, lambda: faults.pass_raising(MemoryError), MemoryError, ""),
    "pass-interrupted": (INT, lambda: faults.pass_raising(KeyboardInterrupt), KeyboardInterrupt, ""),
    "pass-raising-at": (INT, lambda: faults.pass_raising_at(1), RuntimeError, faults.ADDED),
    "pass-raising-for": (
        INT,
        lambda: faults.pass_raising_for("aten::tanh"),
        RuntimeError,
        "executing %aten_tanh",
    ),
    "pass-raising-blindly": (INT, lambda: faults.pass_raising_blindly_for("aten::tanh"), RuntimeError, ""),
    "visitor-raising": (INT, faults.visitor_raising, RuntimeError, faults.ADDED),
    "operators-not-serialized": (INT, faults.operators_not_serialized, RuntimeError, faults.ADDED),
    "serializer-raising": (INT, faults.serializer_raising, RuntimeError, faults.ADDED),
    "converter-failing": (VGF, faults.converter_failing, RuntimeError, faults.ADDED),
    "converter-missing": (VGF, faults.converter_missing, RuntimeError, "Unable to locate a model converter"),
    "vela-raising": (ETHOS_U, faults.vela_raising, RuntimeError, faults.ADDED),
    "vela-exiting": (ETHOS_U, lambda: faults.vela_raising(SystemExit(1)), SystemExit, "1"),
    "vela-saying": (ETHOS_U, faults.vela_saying, FileNotFoundError, "out_vela.npz"),
    "disk-full-vgf": (VGF, faults.disk_full, OSError, "No space left"),
    "disk-full-ethos-u": (ETHOS_U, faults.disk_full, OSError, "No space left"),
}


def chain(error):
    return [] if error is None else [error, *chain(error.__cause__ or error.__context__)]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_met_by_stock(name):
    net, fault, kind, message = FAULTS[name]
    with fault(), pytest.raises(BaseException) as caught:
        stock(net)
    assert any(isinstance(error, kind) for error in chain(caught.value))
    assert message in said(caught.value)


@contextmanager
def impatient(seconds):
    def give_up(*args):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(("net", "fault"), [(VGF, faults.converter_hanging), (ETHOS_U, faults.vela_hanging)])
def test_a_hanging_tool_is_waited_for(net, fault):
    with fault(), pytest.raises(TimeoutError), impatient(3):
        stock(net)


@pytest.mark.parametrize("net", [INT, VGF, ETHOS_U], ids=["int", "vgf", "ethos-u"])
def test_nothing_is_left_behind(net):
    assert stock(net) is not None
