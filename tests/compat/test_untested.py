"""Every version outside what was tested is named, with what was and a command that brings no other torch."""

import pytest

from safe_arm._compat import untested as module
from safe_arm._compat.tested_releases import PINNED, TESTED, TOGETHER, install_command
from safe_arm._compat.untested import Untested, untested, warn_if_untested
from safe_arm.core.versions import PACKAGES

NAMES = {package: name for name, package in PACKAGES.items()}
PINS = {NAMES[package]: version for package, version in PINNED.items()}


@pytest.mark.parametrize("package", TESTED)
@pytest.mark.parametrize("version", ["0.0.1", "9999.1", "9999.1.dev2+cu130", "of its own"])
def test_other_versions_are_named_with_what_is_tested(package, version):
    (found,) = untested({**PINS, NAMES[package]: version})
    fix = install_command(*TOGETHER) if package == "executorch" else install_command(package)
    assert found == Untested(package, version, TESTED[package], fix)


@pytest.mark.parametrize(
    "here", [{}, {"torch": "2.13.0+cpu"}, {"torch": ""}, {"tosa-tools": "2026.8.0"}, {"ethos-u-vela": "5.2.0"}]
)
def test_what_users_install_other_builds_of_it_and_what_is_not_installed_are_not(here):
    assert untested({**PINS, **here}) == ()


@pytest.fixture
def installed(monkeypatch):
    """Versions by package, instead of those that are installed."""
    here = dict(PINNED)
    monkeypatch.setattr(module, "installed", lambda name: here.get(name, ""))
    monkeypatch.setattr(module, "_warned", set())
    return here


@pytest.mark.parametrize("version", ["1.3.1", "1.4.0.dev20260305+cpu", "1.6.0", "2.0.0a1"])
def test_an_untested_executorch_is_warned_about_once(installed, version, recwarn):
    installed["executorch"] = version
    warn_if_untested()
    warn_if_untested()
    (warning,) = recwarn.list
    assert str(warning.message) == (
        f"safe_arm is tested on executorch >=1.4,<1.6; {version} is installed, which its corrections may not fit. "
        f"Mend it with: {install_command(*TOGETHER)}"
    )


COMPILERS = {"ethos-u-vela": "9.0", "ai_ml_sdk_model_converter": "0.10.0"}


@pytest.mark.parametrize("version", ["1.4.0", "1.5.1", "1.5.2.dev20261005+cpu", ""])
def test_a_tested_executorch_is_not_and_the_compilers_are_the_doctor_s_business(installed, version, recwarn):
    installed.update({"executorch": version, **COMPILERS})
    warn_if_untested()
    assert not recwarn.list
