"""The serialiser's lines about versions are kept off stdout, and stdout is put back whatever happens."""

import ctypes
import os
import subprocess
import sys

import pytest
from spying import raising

from safe_arm.verification.stdout_filter import serializer_warnings_hidden, serializer_warnings_shown

NOISE = b"WARNING: Different TOSA spec in flatbuffer and serializer versions detected. Serializer: 1\n"
#: Of tosa-tools 2026.8.0, about a graph that 2026.5.0 has written.
OLDER = (
    b"INFO: TOSA file created with older SerLib version 2026.5.0 but is backward compatible with current version "
    b"2026.8.0\n"
)
NEWER = OLDER.replace(b"older", b"newer").replace(b"backward", b"forward")
WITHOUT = b"WARNING: TOSA file created with version of SerLib before software version was encoded. It is backward\n"
INCOMPATIBLE = b"ERROR: TOSA file created with newer SerLib version 2026.9.0 is not compatible with current version\n"


class Failing:
    """A stream whose buffer cannot be written, the second time or from the first."""

    def __init__(self, good):
        self.good = good

    def flush(self):
        self.good -= 1
        if self.good < 0:
            raise OSError("no space left on device")


def _where(descriptor):
    return os.readlink(f"/proc/self/fd/{descriptor}")


@pytest.fixture
def _as_it_was():
    """The descriptors as they are now; also that none is left open."""
    before, count = _where(1), len(os.listdir("/proc/self/fd"))
    yield
    assert (_where(1), len(os.listdir("/proc/self/fd"))) == (before, count)


@pytest.mark.parametrize("noise", [NOISE, OLDER, NEWER, WITHOUT], ids=["spec", "older", "newer", "no version"])
def test_the_line_is_hidden_and_the_rest_is_not(capfd, noise):
    with serializer_warnings_hidden():
        os.write(1, b"before\n" + noise + INCOMPATIBLE + b"after\n")
    assert capfd.readouterr().out == f"before\n{INCOMPATIBLE.decode()}after\n"


def test_it_is_shown_if_wanted(capfd):
    with serializer_warnings_shown(True), serializer_warnings_hidden():
        os.write(1, NOISE)
    with serializer_warnings_shown(False), serializer_warnings_hidden():
        os.write(1, NOISE)
    assert capfd.readouterr().out == NOISE.decode()


@pytest.mark.usefixtures("_as_it_was")
@pytest.mark.parametrize("good", [0, 1], ids=["first", "last"])
def test_stdout_is_put_back_when_a_flush_fails(capfd, monkeypatch, good):
    monkeypatch.setattr(sys, "stdout", Failing(good))
    with pytest.raises(OSError, match="no space left"), serializer_warnings_hidden():
        os.write(1, b"kept\n" + NOISE)
    os.write(1, b"goes on\n")
    assert capfd.readouterr().out == ("kept\n" * good) + "goes on\n"


@pytest.mark.usefixtures("_as_it_was")
def test_stdout_is_put_back_when_the_block_fails(capfd):
    with pytest.raises(ZeroDivisionError), serializer_warnings_hidden():
        os.write(1, NOISE + b"kept\n")
        raise ZeroDivisionError
    assert capfd.readouterr().out == "kept\n"


@pytest.mark.parametrize("error", [TypeError("expected str, not None"), OSError("no such library")])
def test_a_c_library_that_cannot_be_reached_is_no_failure(capfd, monkeypatch, error):
    monkeypatch.setattr(ctypes, "CDLL", raising(error))
    with serializer_warnings_hidden():
        os.write(1, NOISE + b"kept\n")
    assert capfd.readouterr().out == "kept\n"


def test_a_closed_stdout_is_left_alone():
    script = """
import os
from safe_arm.verification.stdout_filter import serializer_warnings_hidden
os.close(1)
with serializer_warnings_hidden():
    os.write(2, b"runs")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stderr.endswith(b"runs")
