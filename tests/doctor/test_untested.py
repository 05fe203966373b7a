"""Every version outside what was tested is named, with what was and a command that brings no other torch."""

import pytest

from safe_arm._compat.tested_releases import PINNED, TESTED
from safe_arm.core.versions import PACKAGES
from safe_arm.doctor.untested import Untested, untested

NAMES = {package: name for name, package in PACKAGES.items()}
PINS = {NAMES[package]: version for package, version in PINNED.items()}


def test_what_the_constraints_for_users_install_is_tested():
    assert untested(PINS) == ()


@pytest.mark.parametrize("package", TESTED)
@pytest.mark.parametrize("version", ["0.0.1", "9999.1", "9999.1.dev2+cu130", "of its own"])
def test_other_versions_are_named_with_what_is_tested(package, version):
    (found,) = untested({**PINS, NAMES[package]: version})
    assert found == Untested(package, version, TESTED[package], f"pip install {package}=={PINNED[package]}")


@pytest.mark.parametrize("here", [{"torch": "2.13.0+cpu"}, {"torch": ""}, {"tosa-tools": "2026.8.0"}])
def test_tested_builds_older_ones_and_what_is_not_installed_are_not(here):
    assert untested({**PINS, **here}) == ()
