"""Vela checks its options before the long work, once, and leaves nothing where the user works."""

import pytest

from safe_arm.core import vela_flags
from safe_arm.core.errors import UsageError
from safe_arm.core.processes import Ended
from safe_arm.core.vela_flags import check_vela_flags, doubt_of_family

FLAGS = {
    "accelerator-config": "ethos-u85-256",
    "system-config": "Ethos_U85_SYS_DRAM_Mid",
    "memory-mode": "Sram_Only",
    "config": "Arm/vela.ini",
}


@pytest.fixture(autouse=True)
def _asked_anew():
    check_vela_flags.cache_clear()


def flags(*more, **replaced):
    """The flags that a compile spec gives to Vela, some of them replaced."""
    given = FLAGS | {name.replace("_", "-"): value for name, value in replaced.items()}
    return (*(f"--{name}={value}" for name, value in given.items()), *more)


ACCELERATORS = "target 'ethos-u85-265' is not known; accepted: ethos-u55-32, ethos-u55-64, "
SYSTEMS = (
    '"vela --list-configs Arm/vela.ini" lists what it has: Ethos_U85_SYS_Flash_Low, Ethos_U85_SYS_Flash_High, '
    "Ethos_U85_SYS_DRAM_Low, Ethos_U85_SYS_DRAM_Mid"
)
REFUSED = {
    "target": (flags(accelerator_config="ethos-u85-265"), ACCELERATORS),
    "system": (
        flags(system_config="nope"),
        f"System_Config.nope not found in Vela config file; {SYSTEMS}",
    ),
    "memory": (flags(memory_mode="nope"), "lists what it has: Sram_Only, Shared_Sram, Dedicated_Sram"),
    "file": (flags(config="no.ini"), "Reading input file 'no.ini': File not found"),
    "unknown": (flags("--foo"), 'Vela says: unrecognized arguments: --foo; "vela --help" lists its options'),
    "crash": (flags("--optimise=x"), "--optimise=x: KeyError: 'x'"),
}


@pytest.mark.parametrize(("given", "says"), REFUSED.values(), ids=REFUSED)
def test_what_vela_does_not_take_is_said_with_what_it_takes(given, says):
    for _ in range(2):
        with pytest.raises(UsageError) as caught:
            check_vela_flags(given)
        assert says in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("more", [(), ("--verbose-performance",), ("--output-dir=mine",)], ids=["plain", "more", "dir"])
def test_what_vela_takes_leaves_no_file(tmp_path, monkeypatch, more):
    (tmp_path / "output").write_text("the user's")
    monkeypatch.chdir(tmp_path)
    check_vela_flags(flags(*more))
    assert [path.name for path in tmp_path.iterdir()] == ["output"]


def test_what_is_accepted_is_not_asked_again(monkeypatch):
    check_vela_flags(flags())
    monkeypatch.setattr(vela_flags, "run_vela", None)
    check_vela_flags(flags())


SILENT = {
    "too slow": Ended(-9, "", "did not finish within 60 s", timed_out=True),
    "not started": Ended(1, "", "no such file", started=False),
}


@pytest.mark.parametrize("ended", SILENT.values(), ids=SILENT)
def test_a_vela_that_does_not_answer_refuses_nothing(monkeypatch, ended):
    monkeypatch.setattr(vela_flags, "run_vela", lambda *_: ended)
    check_vela_flags(flags())


def test_a_system_config_of_another_family_is_doubtful():
    for target, config in (("ethos-u85-256", "Ethos_U55_Deep_Embedded"), ("ethos-u55-128", "Ethos_U85_SYS_DRAM_Mid")):
        doubt = doubt_of_family(flags(accelerator_config=target, system_config=config))
        assert doubt.startswith(f"the system config '{config}' is that of another family than the target '{target}'")


@pytest.mark.parametrize("config", ["Ethos_U85_SYS_Flash_Low", "My_Board", ""])
def test_one_of_its_own_or_of_no_family_is_not(config):
    assert doubt_of_family(flags(system_config=config)) == ""
