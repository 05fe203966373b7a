"""What leads elsewhere leads back, whatever cannot be flushed."""

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from interpreter import python
from spying import raising

from safe_arm.cli.quiet import quiet
from safe_arm.core.stdio import flush_everything, redirected

ROOT = Path(__file__).parents[2]


class Stuck:
    """A stream that cannot be flushed, from some moment on."""

    encoding = "utf-8"

    def __init__(self, error):
        self.error, self.stuck = error, False

    def write(self, text):
        return len(text)

    def fileno(self):
        raise OSError("it has none")

    def flush(self):
        if self.stuck:
            raise self.error


@pytest.mark.parametrize(
    "error", [OSError("No space left on device"), ValueError("closed"), KeyboardInterrupt()], ids=repr
)
@pytest.mark.parametrize("redirect", [lambda: quiet(True), lambda: redirected(os.open(os.devnull, os.O_WRONLY), 1, 2)])
def test_stdout_is_back_although_it_cannot_be_flushed(monkeypatch, redirect, error):
    stream = Stuck(error)
    monkeypatch.setattr(sys, "stdout", stream)
    before = [os.fstat(descriptor) for descriptor in (1, 2)]
    with suppress(KeyboardInterrupt), redirect():
        assert [os.fstat(descriptor) for descriptor in (1, 2)] != before
        stream.stuck = True
    assert [os.fstat(descriptor) for descriptor in (1, 2)] == before
    assert sys.stdout is stream


def test_without_a_c_library_python_is_flushed(monkeypatch):
    """Windows has none under no name: ``CDLL(None)`` is a TypeError there."""
    flushed = []
    monkeypatch.setattr(ctypes, "CDLL", raising(TypeError("argument of type 'NoneType' is not iterable")))
    monkeypatch.setattr(sys, "stdout", type("Stream", (), {"flush": lambda self: flushed.append(self)})())
    monkeypatch.setattr(sys, "stderr", None)
    flush_everything()
    assert len(flushed) == 1


def test_what_was_written_before_lands_before(tmp_path):
    code = f"""
import ctypes, os, sys
from safe_arm.core.stdio import redirected
c, held = ctypes.CDLL(None), os.open({str(tmp_path / "held")!r}, os.O_CREAT | os.O_WRONLY)
print("python before"); c.printf(b"c before\\n")
with redirected(held, 1):
    print("python inside"); c.printf(b"c inside\\n")
print("python after"); c.printf(b"c after\\n")
"""
    done = python("-c", code)
    inside = (tmp_path / "held").read_text().splitlines()
    assert sorted(inside) == ["c inside", "python inside"]
    assert sorted(done.stdout.splitlines()) == ["c after", "c before", "python after", "python before"]


def test_a_closed_descriptor_stays_closed():
    code = (
        "import os\nfrom safe_arm.core.stdio import redirected\nos.close(1)\nwith redirected(2, 1): pass\nos.fstat(1)"
    )
    done = python("-c", code)
    assert done.stderr.splitlines()[-1] == "OSError: [Errno 9] Bad file descriptor"
