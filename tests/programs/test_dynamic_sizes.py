"""A dynamic size stays one: the lowered program keeps every symbol that stock keeps, and no guard is added."""

import pytest
import torch
from dynamic import NETS, guards, lowered, quantised, symbols
from executorch.runtime import Runtime
from lowering import PROFILES, tosa
from torch.fx.passes.operator_support import OperatorSupportBase

from safe_arm import SafeArmPartitioner
from safe_arm._compat.upstream import TOSAPartitioner

pytestmark = pytest.mark.filterwarnings("default::safe_arm.core.errors.DemotionWarning")


@pytest.mark.parametrize("profile", [*PROFILES, "TOSA-1.0+FP"])
@pytest.mark.parametrize("name", NETS)
def test_every_symbol_that_stock_keeps(name, profile):
    program, _, _ = quantised(name, profile)
    before = guards(program)
    partitioner = SafeArmPartitioner(tosa(profile), non_fuseable="propagate")
    ours = lowered(program, partitioner).exported_program()
    stock = lowered(quantised(name, profile)[0], TOSAPartitioner(tosa(profile))).exported_program()
    assert symbols(ours) == symbols(stock)
    assert guards(program) == before
    assert all(verdict.reasons for verdict in partitioner.report.verdicts if not verdict.delegate)


class Nothing(OperatorSupportBase):
    def is_node_supported(self, submodules, node):
        return False


@pytest.mark.parametrize("name", NETS)
def test_what_stays_off_runs_at_every_size_on_the_portable_kernels(name):
    program, module, inputs = quantised(name, "TOSA-1.0+FP")
    partitioner = SafeArmPartitioner(tosa("TOSA-1.0+FP"), [Nothing()])
    manager = lowered(program, partitioner)
    assert not partitioner.report.delegates
    method = Runtime.get().load_program(manager.to_executorch().buffer).load_method("forward")
    for sample in inputs:
        with torch.no_grad():
            expected = module(*sample)
        (actual,) = method.execute(sample)
        assert actual.shape == expected.shape
        assert torch.allclose(actual, expected, rtol=1e-4, atol=1e-5)  # kernels sum in another order


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", ["conv-batch", "conv-height", "linear-batch", "linear-length"])
def test_a_delegate_is_verified_at_the_smallest_a_middle_and_the_largest_size(name, profile):
    program, _, _ = quantised(name, profile)
    partitioner = SafeArmPartitioner(tosa(profile), verify=True, non_fuseable="propagate")
    lowered(program, partitioner)
    (proof,) = partitioner.report.verifications
    assert proof.verified
    assert proof.worst == 0
    smallest, _, largest = NETS[name][3][1]
    assert str(smallest if name != "conv-height" else 2) in proof.note, proof.note
    assert str(largest if name != "conv-height" else 16) in proof.note, proof.note
