"""The shortcuts the tests take in torch: the same table and the same kernels, in less time."""

import pytest
import torch
from operator_tables import filled_quickly, overridden_at_once
from torch._export import utils
from torch._subclasses import fake_impls
from torch.export import exported_program

TABLE = torch.export.default_decompositions()


def test_the_table_is_stock_s_and_sees_what_is_registered_later():
    filled_quickly()
    collect = utils._collect_all_valid_cia_ops
    assert collect() == collect.stock()
    with torch.library._scoped_library("safe_arm_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
        assert torch.ops.safe_arm_test.twice.default in collect() == collect.stock()


def described(kernel):
    return getattr(kernel, "keywords", None) or getattr(kernel, "__qualname__", kernel)


def kernels_of(operators):
    return {op: {key: described(kernel) for key, kernel in op.py_kernels.items()} for op in operators}


def test_the_kernels_of_composite_operators_are_overridden_as_by_torch_and_put_back():
    stock = exported_program._override_composite_implicit_decomp
    stock = getattr(stock, "__wrapped__", stock)  # the tests may have put ours there
    composite, _ = exported_program._split_decomp_table_to_cia_and_python_decomp(dict(TABLE))
    assert len(composite) > 500
    with stock(composite):
        pass
    before, rules = kernels_of(composite), dict(fake_impls.op_implementations_dict)
    during = []
    for override in (overridden_at_once, stock):
        with override(composite):
            assert not any(op._dispatch_cache for op in composite)
            during.append((kernels_of(composite), set(fake_impls.op_implementations_dict)))
        assert kernels_of(composite) == before
        assert fake_impls.op_implementations_dict == rules
    assert during[0] == during[1]
    assert during[0][0] != before


def test_an_error_puts_the_kernels_back():
    composite, _ = exported_program._split_decomp_table_to_cia_and_python_decomp(dict(TABLE))
    before = kernels_of(composite)
    with pytest.raises(ZeroDivisionError), overridden_at_once(composite):
        raise ZeroDivisionError
    assert kernels_of(composite) == before
