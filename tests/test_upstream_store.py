"""What is kept of upstream's results is what upstream computes, whatever state the store is in."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import upstream_store
import wheels
from spying import raising
from upstream_store import SAMPLE, StoreError, is_sampled, kept, key_of

KEY = key_of("net", b"weights")
never = raising(AssertionError("computed although it is kept"))


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store of this test's own, in which nothing is sampled."""
    monkeypatch.setenv("SAFE_ARM_CACHE", str(tmp_path))
    monkeypatch.delenv("SAFE_ARM_UPSTREAM_STORE", raising=False)
    monkeypatch.setattr(upstream_store, "is_sampled", lambda key: False)
    return tmp_path


def entry(value=b"computed"):
    """Keep a value, and return the file that it is in."""
    assert kept("kind", KEY, lambda: value) == value
    return upstream_store.folder() / "kind" / KEY


def test_another_input_or_kind_is_another_entry(store):
    entry()
    assert kept("kind", key_of("net", b"other"), lambda: 2) == 2
    assert kept("other", KEY, lambda: 3) == 3
    assert key_of("ab", "c") != key_of("a", "bc")


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda whole: b"", id="empty"),
        pytest.param(lambda whole: whole[:-3], id="half-written"),
        pytest.param(lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]), id="a bit flipped"),
        pytest.param(lambda whole: pickle.dumps("forged"), id="foreign"),
    ],
)
def test_what_cannot_be_trusted_is_computed_again(store, spoil):
    path = entry()
    path.write_bytes(spoil(path.read_bytes()))
    assert kept("kind", KEY, lambda: "anew") == "anew"
    assert kept("kind", KEY, never) == "anew"


def test_a_store_that_cannot_be_written_keeps_nothing_and_says_nothing(store):
    upstream_store.folder().parent.mkdir(exist_ok=True)
    upstream_store.folder().write_text("a file where the folder should be")
    assert kept("kind", KEY, lambda: 1) == 1
    assert kept("kind", KEY, lambda: 2) == 2


def test_two_workers_may_fill_one_entry(store):
    fills = f"import upstream_store as u; assert u.kept('kind', {KEY!r}, lambda: b'x' * 200_000) == b'x' * 200_000"
    environment = {**os.environ, "PYTHONPATH": str(Path(upstream_store.__file__).parent)}
    workers = [subprocess.Popen([sys.executable, "-c", fills], env=environment) for _ in range(4)]
    assert [worker.wait(60) for worker in workers] == [0] * 4
    assert kept("kind", KEY, never) == b"x" * 200_000
    assert len(list(upstream_store.folder().rglob("*"))) == 2


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SAFE_ARM_TEST_WHEELS", '{"fingerprint": "same", "patched": ["executorch/exir/a.py"]}'),
        ("SAFE_ARM_UPSTREAM_STORE", "0"),
    ],
    ids=["edited wheels", "switched off"],
)
def test_nothing_is_kept(variable, value, store, monkeypatch):
    entry()
    monkeypatch.setenv(variable, value)
    assert kept("kind", KEY, lambda: "anew") == "anew"


def test_other_wheels_have_another_folder(store, monkeypatch):
    first = upstream_store.folder()
    monkeypatch.setenv("SAFE_ARM_TEST_WHEELS", '{"fingerprint": "other", "patched": []}')
    assert upstream_store.folder() != first


def test_a_sampled_entry_that_is_wrong_is_an_error(store, monkeypatch):
    entry()
    monkeypatch.setattr(upstream_store, "is_sampled", lambda key: True)
    assert kept("kind", KEY, lambda: b"computed") == b"computed"
    with pytest.raises(StoreError, match="is not what these wheels compute"):
        kept("kind", KEY, lambda: b"other")


def test_every_entry_is_sampled_once_in_so_many_days():
    days = [day for day in range(SAMPLE) if is_sampled(KEY, day)]
    assert len(days) == 1


def test_an_edited_file_is_found(monkeypatch, tmp_path):
    monkeypatch.delenv("SAFE_ARM_TEST_WHEELS")
    monkeypatch.setattr(wheels, "PACKAGES", ("torchao",))
    assert wheels.patched() == []
    whole = wheels._hash
    monkeypatch.delenv("SAFE_ARM_TEST_WHEELS")
    monkeypatch.setattr(wheels, "_hash", lambda path: "" if path.name == "quant_api.py" else whole(path))
    assert [name for name in wheels.patched() if name.endswith("quant_api.py")] != []
    assert "SAFE_ARM_TEST_WHEELS" in os.environ
