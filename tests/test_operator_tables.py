"""The shortcut the tests take in torch: the same table, filled from the dispatcher once a look."""

import operator_tables
import torch
from executorch.exir.program import _program
from operator_tables import filled_quickly, overridden_again, registered
from torch._export import utils
from torch._subclasses import fake_impls
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
    tables[0][0].clear()
    assert torch.ops.aten.linear.default in make()
    assert split(dict(table)) == expected


def kernels_of(composite):
    implementations = fake_impls.op_implementations_dict
    return {op: (set(op.py_kernels), op in implementations) for op in composite}


def test_kernels_are_overridden_as_at_once_and_given_back():
    filled_quickly()
    composite = dict.fromkeys(list(utils._collect_all_valid_cia_ops())[:20], torch.relu)
    before = kernels_of(composite)
    with operator_tables.AT_ONCE(composite):
        expected = kernels_of(composite)
    for _ in range(2):
        with overridden_again(composite):
            assert kernels_of(composite) == expected != before
            with overridden_again(composite):
                pass
        assert kernels_of(composite) == before


def test_a_kernel_that_is_registered_shows():
    before = registered()
    with torch.library._scoped_library("safe_arm_test", "DEF") as library:
        library.define("thrice(Tensor x) -> Tensor")
        assert registered() != before
