"""The converter is found where ExecuTorch looks and beside the interpreter; if not, it is said where it was sought."""

import os
import stat
import sys

import pytest

from safe_arm.core import toolchain
from safe_arm.core.errors import UsageError
from safe_arm.core.toolchain import beside_only, find_converter, require_compiler


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """An interpreter with nothing beside it, a PATH of one empty directory, and no other choice."""
    for name in ("bin", "tools"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    monkeypatch.delenv("MODEL_CONVERTER_PATH", raising=False)
    return tmp_path


def tool(path):
    path.write_text("#!/bin/sh\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize("name", toolchain.CONVERTER_NAMES)
def test_beside_the_interpreter_is_found_and_path_is_as_before(bare, name):
    path = os.environ["PATH"]
    converter = tool(bare / "bin" / name)
    assert find_converter() == converter
    assert beside_only(converter)
    assert os.environ["PATH"] == path


def test_path_comes_before_what_is_beside_the_interpreter(bare):
    tool(bare / "bin" / "model-converter")
    converter = tool(bare / "tools" / "model_converter")
    assert find_converter() == converter
    assert not beside_only(converter)


def test_the_chosen_one_comes_first(bare, monkeypatch):
    tool(bare / "tools" / "model-converter")
    chosen = tool(bare / "bin" / "model-converter")
    monkeypatch.setenv("MODEL_CONVERTER_PATH", chosen)
    assert find_converter() == chosen
    assert not beside_only(chosen)


def test_none_is_an_error_that_says_where_it_was_looked_for(bare):
    with pytest.raises(UsageError) as caught:
        require_compiler("vgf")
    message = str(caught.value)
    assert f"looked at MODEL_CONVERTER_PATH (not set), on PATH ({bare / 'tools'})" in message
    assert f"beside the interpreter ({bare / 'bin'}); install it with" in message


def test_a_missing_vela_is_an_error(monkeypatch):
    monkeypatch.setattr(toolchain, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"^Vela is not installed for .*pip install ethos-u-vela"):
        require_compiler("ethos-u55-128")


@pytest.mark.usefixtures("bare")
def test_tosa_needs_none():
    require_compiler("tosa")
