"""What Vela is told on the command line, and its own complaints, in a line and before the work."""

import re
from functools import partial
from pathlib import Path

import ethosu
import pytest

from safe_arm._compat.compile_specs import spec_source
from safe_arm._compat.upstream import EthosUCompileSpec
from safe_arm.cli.request import Vela
from safe_arm.cli.vela_options import DEFAULTS, with_board


def test_what_is_not_given_is_executorchs_choice():
    for family, own in DEFAULTS.items():
        spec = EthosUCompileSpec(f"{family}-256")
        listed = (getattr(spec, "_to_list", None) or spec.to_list)()
        source = spec_source("EthosUBackend", listed).expression
        for value in (own.system_config, own.memory_mode, own.config):
            assert f"'{value}'" in source or f"={value}" in source, source


def cycles(result):
    return int(re.search(r"Vela cycles +([\d,]+)", result.stdout)[1].replace(",", ""))


def test_vela_gets_them(files, tmp_path, monkeypatch):
    """The configuration is the user's, in a directory of a relative name: Vela's, under another name."""
    text = (Path(ethosu.__path__[0]) / "config_files" / "Arm" / "vela.ini").read_text()
    text = text.replace("Ethos_U55_High_End_Embedded", "My_Board").replace("Sram_Only", "My_Memory")
    (tmp_path / "board").mkdir()
    (tmp_path / "board" / "mine.ini").write_text(text)
    monkeypatch.chdir(tmp_path)
    check = partial(files.check, "--no-verify", target="ethos-u55-128")
    own = ["--system-config=My_Board", "--memory-mode=My_Memory", "--config=board/mine.ini"]
    assert cycles(check(*own)) != cycles(check())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ["--system-config=Nope"],
            'System_Config.Nope not found in Vela config file; "vela --list-configs Arm/vela.ini" lists what it has: '
            "Ethos_U55_Deep_Embedded, Ethos_U55_High_End_Embedded",
        ),
        (["--memory-mode=Nope"], "--memory-mode=Nope: Section Memory_Mode.Nope not found in Vela config file"),
        (["--config=no.ini"], "Reading input file 'no.ini': File not found"),
        (["--config=net.txt"], "Configuration files must use the .ini extension"),
        (["--memory-mode=a b"], "--memory-mode 'a b' has a space in it, at which ExecuTorch would split it"),
    ],
    ids=["system", "memory", "no file", "ending", "space"],
)
def test_velas_own_complaint_in_a_line(files, options, says):
    files.refuses(*options, target="ethos-u55-128", says=says)


def test_a_system_config_of_another_family_is_warned_of_and_nothing_is_left(files, tmp_path, monkeypatch):
    """Vela makes a folder of that name where it is run."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "output").write_text("the user's")
    monkeypatch.chdir(folder)
    result = files.check("--no-verify", "--system-config=Ethos_U85_SYS_DRAM_Mid", target="ethos-u55-128")
    assert "net.pt2: ethos-u55-128 (Ethos_U85_SYS_DRAM_Mid, Shared_Sram), TOSA-1.0+INT" in result.stdout
    assert "is that of another family than the target 'ethos-u55-128'" in result.stderr
    assert [path.name for path in folder.iterdir()] == ["output"]


def test_the_line_about_the_program_names_what_its_cycles_depend_on():
    own = Vela(system_config="My_Board")
    assert with_board("ethos-u85-256", Vela()) == "ethos-u85-256 (Ethos_U85_SYS_DRAM_Mid, Sram_Only)"
    assert with_board("ethos-u55-128", own) == "ethos-u55-128 (My_Board, Shared_Sram)"
    assert with_board("vgf", Vela()) == "vgf"
