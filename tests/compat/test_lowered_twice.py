"""A program that was lowered can be lowered again: it keeps its constants (known issue E2)."""

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import delegates, lower_program, tosa
from small import Lambda

from safe_arm import SafeArmPartitioner

SPECS = ("TOSA-1.0+FP", "TOSA-1.0+INT+FP")


def program():
    net = Lambda(lambda m, x: x + torch.tensor([6.0, 1.0, 2.0]) + m.scale)
    net.register_buffer("scale", torch.tensor(2.0), persistent=False)
    return torch.export.export(net.eval(), (torch.ones(2, 3),))


def ours(spec):
    return SafeArmPartitioner(tosa(spec), verify=False)


def lowered(exported, partitioner):
    return delegates(lower_program(exported, partitioner))


def held(exported):
    return {name: value.tolist() for name, value in exported.constants.items()}


@pytest.mark.parametrize("spec", SPECS)
def test_ours_leaves_them_and_gives_the_same_bytes_again(spec):
    exported = program()
    before = held(exported)
    first = lowered(exported, ours(spec))
    assert held(exported) == before
    assert first
    assert lowered(exported, ours(spec)) == first == lowered(program(), ours(spec))


def test_stock_takes_them_still_when_ours_was_there():
    exported = program()
    lowered(exported, ours(SPECS[0]))
    assert len(held(exported)) == 2
    lowered(exported, TOSAPartitioner(tosa(SPECS[0])))
    assert not held(exported)
    with pytest.raises(KeyError):
        lowered(exported, TOSAPartitioner(tosa(SPECS[0])))
