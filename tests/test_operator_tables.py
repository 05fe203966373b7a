"""The shortcut the tests take in torch: the same table, filled from the dispatcher once a look."""

import torch
from operator_tables import filled_quickly
from torch._export import utils


def test_the_table_is_stock_s_and_sees_what_is_registered_later():
    filled_quickly()
    collect = utils._collect_all_valid_cia_ops
    assert collect() == collect.stock()
    with torch.library._scoped_library("safe_arm_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
        assert torch.ops.safe_arm_test.twice.default in collect() == collect.stock()
