"""Which jobs a command line of many programs and targets stands for, and what they are called."""

from pathlib import Path

import pytest

from safe_arm.cli.many_programs import combinations, is_pattern, names_of, programs


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


def test_names_are_the_files_and_no_two_are_alike():
    paths = [Path("x/a.pt2"), Path("x/b.pt2"), Path("y/a.pt2"), Path("x-y/b.c.pt2")]
    names = names_of(paths)
    assert (names[paths[1]], names[paths[3]]) == ("b", "b.c")
    assert names[paths[0]].endswith("-x-a")
    assert names[paths[2]].endswith("-y-a")
    clashing = names_of([Path("/p/q-r/a.pt2"), Path("/p/q/r-a.pt2"), Path("/p-q/r/a.pt2")])
    assert len(set(clashing.values())) == 3


def combined(targets, profiles, policies):
    params = {"target": targets, "profile": profiles, "non_fuseable": policies}
    return [" ".join(str(each[name]) for name in params) for each in combinations(params)]


def test_the_product_leaves_an_ethos_u_its_own_profile():
    vgf = ["vgf TOSA-1.0+INT reject", "vgf TOSA-1.0+FP reject"]
    vgf += ["vgf TOSA-1.0+INT propagate", "vgf TOSA-1.0+FP propagate"]
    ethos_u = ["ethos-u55-128 None reject", "ethos-u55-128 None propagate"]
    profiles = "TOSA-1.0+INT", "TOSA-1.0+FP"
    assert combined(("vgf", "ethos-u55-128"), profiles, ("reject", "propagate")) == vgf + ethos_u
    assert combined(("vgf", "vgf"), (), ("reject",)) == ["vgf None reject"]
