"""The shortcut the tests take in torch: the same table, filled from the dispatcher once a look."""

import torch
from executorch.exir.program import _program
from operator_tables import filled_quickly, overridden_again, registered
from torch._export import utils
from torch.export import exported_program


def test_the_table_is_stock_s_and_sees_what_is_registered_later():
    filled_quickly()
    collect = utils._collect_all_valid_cia_ops
    assert collect() == collect.stock()
    with torch.library._scoped_library("safe_arm_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
        assert torch.ops.safe_arm_test.twice.default in collect() == collect.stock()


def test_a_table_and_what_it_is_split_into_are_stock_s():
    filled_quickly()
    make = _program._default_decomposition_table
    split = exported_program._split_decomp_table_to_cia_and_python_decomp
    tables = []
    for _ in range(2):
        table = make()
        assert table.keys() == make.stock().keys()
        del table[torch.ops.aten.linear.default]
        expected = split.stock(dict(table))
        tables.append(split(dict(table)))
        assert tables[-1] == expected
    for composite, others in tables:
        composite.clear()
        others.clear()
    assert torch.ops.aten.linear.default in make()
    assert split(dict(table)) == expected


def test_an_override_inside_another_gives_back_what_it_found():
    filled_quickly()
    composite = dict.fromkeys(list(utils._collect_all_valid_cia_ops())[:20], torch.relu)
    before = {op: set(op.py_kernels) for op in composite}
    for _ in range(2):
        with overridden_again(composite):
            with overridden_again(composite):
                pass
            assert all(op.py_kernels.keys() > before[op] for op in composite)
        assert {op: set(op.py_kernels) for op in composite} == before


def test_an_operator_that_is_registered_shows_and_so_does_its_kernel():
    before = registered()
    with torch.library._scoped_library("safe_arm_test", "DEF") as library:
        library.define("thrice(Tensor x) -> Tensor")
        defined = registered()
        library.impl("thrice", lambda x: x + x + x, "CPU")
        assert len({before, defined, registered()}) == 3
