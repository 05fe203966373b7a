"""Which jobs a command line of many programs and targets stands for, and what they are called."""

from pathlib import Path

import pytest

from safe_arm.cli.matrix import VELAS, combinations, is_pattern, names_of, programs
from safe_arm.core.errors import UsageError


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b.pt2", "a.pt2", "c.npz", "sub/a.pt2", "odd[1].pt2"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()


def test_a_pattern_is_its_files_sorted_and_each_once(models):
    given = [Path("b.pt2"), Path("*.pt2"), Path("nowhere.pt2")]
    assert list(map(str, programs(given))) == ["b.pt2", "a.pt2", "odd[1].pt2", "nowhere.pt2"]
    assert len(programs([Path("**/a.pt2")])) == 2


def test_a_file_that_reads_like_a_pattern_is_a_file(models):
    assert not is_pattern(Path("odd[1].pt2"))
    assert is_pattern(Path("odd[2].pt2"))
    assert programs([Path("odd[1].pt2")]) == (Path("odd[1].pt2"),)


def test_a_pattern_without_a_file_is_refused(models):
    with pytest.raises(UsageError, match=r"no file matches 'none/\*\.pt2'; give \.pt2 files, or a pattern such as"):
        programs([Path("none/*.pt2")])


def test_names_are_the_files_and_no_two_are_alike():
    paths = [Path("x/a.pt2"), Path("x/b.pt2"), Path("y/a.pt2"), Path("x-y/b.c.pt2")]
    names = names_of(paths)
    assert names[Path("x/b.pt2")] == "b"
    assert names[Path("x-y/b.c.pt2")] == "b.c"
    assert names[Path("x/a.pt2")].endswith("-x-a")
    assert names[Path("y/a.pt2")].endswith("-y-a")
    clashing = names_of([Path("/p/q-r/a.pt2"), Path("/p/q/r-a.pt2"), Path("/p-q/r/a.pt2")])
    assert len(set(clashing.values())) == 3


def combined(targets, profiles, policies):
    params = {"target": targets, "profile": profiles, "non_fuseable": policies}
    return [tuple(each[name] for name in params) for each in combinations(params)]


def test_the_product_leaves_an_ethos_u_its_own_profile():
    found = combined(("vgf", "ethos-u55-128"), ("TOSA-1.0+INT", "TOSA-1.0+FP"), ("reject", "propagate"))
    assert found == [
        ("vgf", "TOSA-1.0+INT", "reject"),
        ("vgf", "TOSA-1.0+FP", "reject"),
        ("vgf", "TOSA-1.0+INT", "propagate"),
        ("vgf", "TOSA-1.0+FP", "propagate"),
        ("ethos-u55-128", None, "reject"),
        ("ethos-u55-128", None, "propagate"),
    ]
    assert combined(("vgf", "vgf"), (), ("reject",)) == [("vgf", None, "reject")]


def test_vela_s_options_are_left_to_an_ethos_u():
    vgf, ethos = combinations({"target": ("vgf", "ethos-u55-128"), "profile": (), "non_fuseable": ("reject",)})
    assert all(vgf[name] is None and name not in ethos for name in VELAS)
