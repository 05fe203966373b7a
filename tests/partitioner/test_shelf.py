"""What trials made is on the shelf until ExecuTorch takes it, once, and no longer than its program is lowered."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from small import Lambda, image

from safe_arm._compat.upstream import DelegationSpec
from safe_arm.partitioner import shelf
from safe_arm.partitioner.fingerprint import fingerprint
from safe_arm.partitioner.lowering import Cut, Lowered


class Result:
    """Stands for what a backend gave."""


def program(factor=2.0):
    return torch.export.export(Lambda(lambda m, x: x * factor), image())


def lowered(program, printed=""):
    cut = Cut("tag0", program, DelegationSpec("", []), fingerprint(program, []), ())
    return cut, Lowered(Result(), printed, b"", {}, [], (), 0, ())


@pytest.fixture
def opened():
    with shelf.shelf_open():
        yield


def test_what_is_put_is_taken_once_and_its_tools_are_heard(opened, capsys):
    each = lowered(program(), "Network summary\n")
    shelf.put([each])
    assert shelf.take(program(3.0), []) is None, "another program"
    assert shelf.take(program(), []) is each[1].result
    assert shelf.take(program(), []) is None
    assert capsys.readouterr().out == "Network summary\n"


def test_doubles_are_taken_one_by_one(opened):
    pair = [lowered(program()), lowered(program())]
    shelf.put(pair)
    taken = [shelf.take(program(), []) for _ in range(3)]
    assert {*map(id, taken)} == {id(None), *(id(result.result) for _, result in pair)}


def test_all_methods_are_kept_until_the_scope_ends():
    each = [lowered(program(2.0)), lowered(program(3.0))]
    with shelf.shelf_open():
        for one in each:
            shelf.put([one])
        assert shelf.take(program(2.0), []) is each[0][1].result
    assert shelf.take(program(3.0), []) is None
    left = weakref.ref(each[1][1].result)
    del each, one
    gc.collect()
    assert left() is None, "nothing holds what was not taken"


def test_a_scope_ends_in_an_exception_as_well():
    with pytest.raises(RuntimeError, match="the backend"), shelf.shelf_open():
        shelf.put([lowered(program())])
        raise RuntimeError("the backend")
    assert shelf.take(program(), []) is None


def test_out_of_a_scope_the_last_partitioning_alone_is_kept():
    last = lowered(program(3.0))
    shelf.put([lowered(program(2.0))])
    shelf.put([last])
    assert shelf.take(program(2.0), []) is None
    assert shelf.take(program(3.0), []) is last[1].result


def test_another_thread_has_a_shelf_of_its_own(opened):
    shelf.put([lowered(program())])
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(shelf.take, program(), []).result() is None


def test_methods_of_one_program_know_that_they_are():
    with shelf.shelf_open():
        first = shelf.program()
        assert shelf.program() is first
    with shelf.shelf_open():
        assert shelf.program() is not first
    assert shelf.program() is not shelf.program()


@pytest.mark.parametrize("printed", ["", "Network summary\n"])
def test_a_process_without_standard_output_takes_too(opened, monkeypatch, printed):
    each = lowered(program(), printed)
    shelf.put([each])
    monkeypatch.setattr("sys.stdout", None)
    assert shelf.take(program(), []) is each[1].result
