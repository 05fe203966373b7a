import errno

import pytest

from safe_arm.core.whole_file import replace_file


def fails(file):
    file.write(b"half")
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("content", [b"new", lambda file: file.write(b"new")], ids=["bytes", "function"])
@pytest.mark.parametrize("old", [None, b"old and longer"])
def test_it_is_there_whole(tmp_path, content, old):
    path = tmp_path / "net.pte"
    if old is not None:
        path.write_bytes(old)
    replace_file(path, content)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"net.pte": b"new"}


def test_or_not_at_all(tmp_path):
    path = tmp_path / "net.pte"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, fails)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"net.pte": b"old"}


def test_what_another_is_filling_stays(tmp_path):
    path = tmp_path / "net.pte"

    def meanwhile(file):
        with pytest.raises(FileExistsError):
            replace_file(path, b"other")
        file.write(b"new")

    replace_file(path, meanwhile)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"net.pte": b"new"}
