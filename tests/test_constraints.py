"""What users are told to install is what is tested: pyproject.toml, constraints/ and the doctor's table agree."""

import importlib.metadata
import sys

import pytest
import tomllib
from interpreter import ROOT
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from safe_arm._compat.tested_releases import NEWEST, PINNED, TESTED, TESTED_BELOW, TESTED_FROM, install_command, parse
from safe_arm.core import toolchain

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NEEDED = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["vgf"]]
NEEDED += PROJECT["optional-dependencies"]["ethos-u"]
#: torch asks for it, and the lanes, which are installed without dependencies, have none of it.
UNPINNED = {"setuptools"}


def pins(lane: str) -> dict[str, str]:
    lines = (ROOT / "constraints" / f"{lane}.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


def test_users_get_the_versions_of_the_main_lane():
    main, users = pins("main"), pins("users")
    assert {name: main.get(name) for name in users} == users


def applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def closure(requirement: Requirement, seen: set[str]) -> set[str]:
    """Names of what a requirement brings, as told by what is installed."""
    name = canonicalize_name(requirement.name)
    if name not in seen:
        seen.add(name)
        for line in importlib.metadata.requires(name) or ():
            if applies(Requirement(line)):
                closure(Requirement(line), seen)
    return seen


@pytest.mark.skipif(importlib.metadata.version("executorch") != PINNED["executorch"], reason="not the main lane")
@pytest.mark.skipif(sys.platform != "linux", reason="other systems need less")
def test_users_constraints_hold_everything_an_install_brings_and_nothing_else():
    brought: set[str] = set()
    for line in NEEDED:
        if applies(Requirement(line)):
            closure(Requirement(line), brought)
    assert set(pins("users")) == brought - UNPINNED


def test_the_bounds_of_the_package_are_what_the_doctor_calls_tested():
    bounds = {Requirement(line).name: Requirement(line).specifier for line in NEEDED}
    assert {name: bounds[name] for name in TESTED} == {name: SpecifierSet(text) for name, text in TESTED.items()}
    low, high = (".".join(map(str, edge)) for edge in (TESTED_FROM, TESTED_BELOW))
    assert SpecifierSet(TESTED["executorch"]) == SpecifierSet(f">={low},<{high}")


@pytest.mark.parametrize("lane", ["main", "executorch-1.4"])
def test_the_lanes_that_run_the_tests_are_within_the_bounds(lane):
    versions = pins(lane)
    for name, text in TESTED.items():
        assert versions[canonicalize_name(name)] in SpecifierSet(text), name


def test_the_bounds_begin_with_the_oldest_release_that_the_tests_run_on():
    lanes = {pins(path.stem)["executorch"] for path in (ROOT / "constraints").glob("executorch-*.txt")}
    assert min(parse(each) for each in lanes) == TESTED_FROM
    assert parse(pins("seeds")["executorch"]) < TESTED_FROM


def test_the_doctor_pins_what_users_are_told_to_install():
    assert {name: pins("users")[canonicalize_name(name)] for name in PINNED} == PINNED


@pytest.mark.parametrize("package", NEWEST)
def test_the_newest_tested_tools_are_newer_than_the_pins_and_within_the_bounds(package):
    newest = NEWEST[package]
    assert Version(newest) > Version(PINNED[package])
    assert newest in SpecifierSet(TESTED[package])
    assert install_command(package) == f"pip install {package}=={newest}"


def test_messages_recommend_the_compilers_that_the_doctor_recommends():
    assert install_command("ethos-u-vela") == f"pip install {toolchain.VELA}"
    assert install_command("ai_ml_sdk_model_converter") == f"pip install {toolchain.CONVERTER}"
    assert toolchain.VELA.startswith(f"{toolchain.VELA_PACKAGE}==")
