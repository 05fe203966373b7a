"""What Vela is told on the command line, and its own complaints, in a line and before the work."""

import re
from functools import partial
from pathlib import Path

import ethosu
import pytest

from safe_arm._compat.compile_specs import spec_source
from safe_arm._compat.upstream import EthosUCompileSpec
from safe_arm.cli.vela_options import DEFAULTS


def test_what_is_not_given_is_executorchs_choice():
    for family, own in DEFAULTS.items():
        spec = EthosUCompileSpec(f"{family}-256")
        listed = (getattr(spec, "_to_list", None) or spec.to_list)()
        source = spec_source("EthosUBackend", listed).expression
        for value in (own.system_config, own.memory_mode, own.config):
            assert f"'{value}'" in source or f"={value}" in source, source


@pytest.fixture
def own_config(tmp_path):
    """A configuration of the user's, in a directory of a relative name: Vela's, under another name."""
    (text,) = (path.read_text() for path in Path(ethosu.__path__[0]).glob("config_files/Arm/vela.ini"))
    (tmp_path / "board").mkdir()
    path = tmp_path / "board" / "mine.ini"
    path.write_text(text.replace("Ethos_U55_High_End_Embedded", "My_Board").replace("Sram_Only", "My_Memory"))
    return path


def cycles(result):
    return int(re.search(r"Vela cycles +([\d,]+)", result.stdout)[1].replace(",", ""))


def test_vela_gets_them(files, own_config, monkeypatch):
    monkeypatch.chdir(own_config.parents[1])
    check = partial(files.check, "--no-verify", target="ethos-u55-128")
    own = ["--system-config=My_Board", "--memory-mode=My_Memory", "--config=board/mine.ini"]
    default = check()
    given = check(*own)
    assert (default.exit_code, given.exit_code) == (0, 0), (default.stderr, given.stderr)
    assert cycles(given) != cycles(default)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ["--system-config=Nope"],
            'Section System_Config.Nope not found in Vela config file; "vela --list-configs Arm',
        ),
        (["--memory-mode=Nope"], "--memory-mode=Nope: Section Memory_Mode.Nope not found in Vela config file"),
        (["--config=no.ini"], "Reading input file 'no.ini': File not found"),
        (["--config=net.txt"], "Configuration files must use the .ini extension"),
        (["--memory-mode=a b"], "--memory-mode 'a b' has a space in it, at which ExecuTorch would split it"),
    ],
    ids=["system", "memory", "no file", "ending", "space"],
)
def test_velas_own_complaint_in_a_line(files, options, says):
    files.refuses(files.run(*options, target="ethos-u55-128"), says)


@pytest.mark.parametrize("target", ["vgf", "tosa"])
def test_they_are_for_an_ethos_u(files, target):
    result = files.run("--memory-mode=Sram_Only", "--config=x.ini", target=target)
    files.refuses(result, f"--memory-mode, --config: for an Ethos-U only, Vela does not compile for {target}")
