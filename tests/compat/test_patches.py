"""Patches are installed all or none, taken off without a trace, and each says why it is there."""

import importlib
import threading
import types

import pytest
from packaging.version import Version

from safe_arm import seams
from safe_arm._compat.patches import REVIEW, Patch, Patches
from safe_arm._compat.tested_releases import TESTED_BELOW
from safe_arm.acceleration import switch
from safe_arm.known_issues import known_issues

ALL = seams.patches()
ABSENT = object()


class Base:
    @classmethod
    def inherited(cls):
        return cls.__name__


class Owner(Base):
    def plain(self):
        """Documented."""
        return 1

    @staticmethod
    def static(x):
        return x

    @property
    def held(self):
        return 2


def plus_one(stock):
    if isinstance(stock, property):
        return property(lambda self: stock.fget(self) + 1)
    return lambda *args: f"{stock(*args)}+"


def patch(name, wrap=plus_one, owner=Owner):
    return Patch(owner, name, wrap, "A test.")


PATCHES = [patch(name) for name in ("plain", "static", "held", "inherited")]


def raw(patches):
    return [vars(each.owner).get(each.name, ABSENT) for each in patches]


def same(some, others):
    return all(a is b for a, b in zip(some, others, strict=True))


def test_each_kind_of_attribute_is_wrapped_and_given_back():
    before, patches = raw(PATCHES), Patches()
    patches.install(PATCHES)
    assert (Owner().plain(), Owner.static(5), Owner().held, Owner.inherited()) == ("1+", "5+", 3, "Owner+")
    assert Owner.plain.__doc__ == "Documented."
    assert Base.inherited() == "Base"
    patches.uninstall()
    assert same(raw(PATCHES), before)
    assert "inherited" not in vars(Owner)


def test_a_second_call_does_nothing_and_two_of_one_name_come_off_in_turn():
    before, patches, twice = raw(PATCHES), Patches(), [*PATCHES, patch("plain")]
    patches.install(twice)
    patches.install(twice)
    assert Owner().plain() == "1++"
    patches.uninstall()
    patches.uninstall()
    assert same(raw(PATCHES), before)


def interrupted(stock):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        pytest.param(patch("no_such_name"), AttributeError, id="no such attribute"),
        pytest.param(patch("plain", interrupted), KeyboardInterrupt, id="interrupted"),
        pytest.param(Patch(int, "bit_length", plus_one, "A test."), TypeError, id="cannot be set"),
    ],
)
@pytest.mark.parametrize("position", range(len(PATCHES) + 1))
def test_one_that_fails_leaves_nothing_behind_and_the_next_install_works(position, bad, error):
    before, patches = raw(PATCHES), Patches()
    with pytest.raises(error):
        patches.install([*PATCHES[:position], bad, *PATCHES[position:]])
    assert same(raw(PATCHES), before)
    patches.install(PATCHES)
    assert Owner().plain() == "1+"
    patches.uninstall()
    assert same(raw(PATCHES), before)


def test_threads_that_install_at_once_install_once():
    before, patches, together = raw(PATCHES), Patches(), threading.Barrier(8)

    def install():
        together.wait()
        patches.install(PATCHES)

    threads = [threading.Thread(target=install) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Owner().plain() == "1+"
    patches.uninstall()
    assert same(raw(PATCHES), before)


@pytest.mark.parametrize("position", [0, 1, len(ALL) // 2, len(ALL) - 1])
def test_the_seams_fail_half_way_and_leave_the_process_as_it_was(monkeypatch, position):
    seams.uninstall()
    before = raw(ALL)
    broken = [*ALL[:position], patch("plain", interrupted), *ALL[position:]]
    with monkeypatch.context() as during:
        during.setattr(seams, "patches", lambda: broken)
        with pytest.raises(KeyboardInterrupt):
            seams.install()
    assert same(raw(ALL), before)
    seams.install()
    assert not any(now is stock for now, stock in zip(raw(ALL), before, strict=True))
    seams.uninstall()
    assert same(raw(ALL), before)
    seams.install()


def named(each):
    return f"{each.owner.__name__}.{each.name}"


@pytest.mark.parametrize("each", ALL, ids=named)
def test_each_says_in_a_sentence_why_it_is_there_and_was_reviewed_for_each_tested_release(each):
    assert each.reason[0].isupper()
    assert each.reason.endswith(".")
    assert not each.issue or each.issue in {issue.id for issue in known_issues()}
    untested = Version(".".join(map(str, TESTED_BELOW)))
    assert untested <= Version(REVIEW), f"is {named(each)} still needed? delete it or review it"


def test_what_is_needed_for_being_right_touches_nothing_of_torch():
    needed = seams.needed()
    owners = [
        each.owner.__name__ if isinstance(each.owner, types.ModuleType) else each.owner.__module__ for each in needed
    ]
    assert len(needed) < len(ALL) or not switch.is_on()
    assert {importlib.import_module(owner).__name__.split(".")[0] for owner in owners} == {"executorch"}
