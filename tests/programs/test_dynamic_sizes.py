"""A dynamic size stays one: the lowered program keeps every symbol that stock keeps, and no guard is added."""

from contextlib import nullcontext

import pytest
import torch
from dynamic import NETS, guards, lowered, quantised, symbols
from executorch.backends.arm.ethosu import EthosUCompileSpec
from lowering import PROFILES, RELEASE, executed, tosa
from small import Nothing

from safe_arm import SafeArmPartitioner
from safe_arm._compat.upstream import TOSAPartitioner

pytestmark = pytest.mark.filterwarnings("default::safe_arm.core.errors.DemotionWarning")


@pytest.mark.parametrize("profile", [*PROFILES, "TOSA-1.0+FP"])
@pytest.mark.parametrize("name", NETS)
def test_every_symbol_that_stock_keeps(name, profile):
    program, _, _ = quantised(name, profile)
    before = guards(program)
    partitioner = SafeArmPartitioner(tosa(profile), non_fuseable="propagate", verify=False)
    ours = lowered(program, partitioner).exported_program()
    assert symbols(ours) == symbols(program)
    assert guards(program) == before
    assert all(verdict.reasons for verdict in partitioner.report.verdicts if not verdict.delegate)


@pytest.mark.parametrize("name", NETS)
def test_what_stock_does_with_them(name):
    """It keeps what we keep, dies, or fixes a height: its check of a max-pool compares it."""
    program, _, _ = quantised(name, "TOSA-1.0+FP")
    before = symbols(program)
    dies = name.startswith(("linear", "vit"))
    with pytest.raises(Exception) if dies else nullcontext():
        stock = lowered(program, TOSAPartitioner(tosa("TOSA-1.0+FP"))).exported_program()
        assert (symbols(stock) == before) == (name != "unet-height")


@pytest.mark.parametrize("name", NETS)
def test_what_stays_off_runs_at_every_size_on_the_portable_kernels(name):
    program, module, inputs = quantised(name, "TOSA-1.0+FP")
    partitioner = SafeArmPartitioner(tosa("TOSA-1.0+FP"), [Nothing()])
    manager = lowered(program, partitioner)
    assert not partitioner.report.delegates
    for sample, (actual,) in zip(inputs, executed(manager, *inputs), strict=True):
        with torch.no_grad():
            expected = module(*sample)
        assert actual.shape == expected.shape
        assert torch.allclose(actual, expected, rtol=1e-4, atol=1e-5)  # kernels sum in another order


@pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 delegates nothing of a dynamic size")
@pytest.mark.parametrize("name", ["conv-batch", "conv-height", "unet-batch"])
def test_a_delegate_is_verified_at_the_smallest_a_middle_and_the_largest_size(name, profile):
    program, _, _ = quantised(name, profile)
    partitioner = SafeArmPartitioner(tosa(profile), verify=True, non_fuseable="propagate")
    lowered(program, partitioner)
    (proof,) = partitioner.report.verifications
    assert proof.verified
    assert proof.worst == 0
    _, shape, _, (dim, (smallest, _, largest)) = NETS[name]
    for size in (smallest, largest):
        assert "x".join(map(str, [*shape[:dim], size, *shape[dim + 1 :]])) in proof.note, proof.note


def test_what_cannot_be_taken_dynamically_is_a_fallback_with_that_reason():
    program, _, _ = quantised("unet-height", "TOSA-1.0+INT")
    partitioner = SafeArmPartitioner(tosa("TOSA-1.0+INT"), non_fuseable="propagate", verify=False)
    lowered(program, partitioner)
    (pool,) = [verdict for verdict in partitioner.report.fallbacks if "max_pool2d" in verdict.op]
    assert "would fix a dynamic size: " in pool.reason
    assert partitioner.report.delegates


def test_an_ethos_u_needs_resolved_shapes_and_the_report_says_so():
    spec = EthosUCompileSpec("ethos-u55-128")
    program, _, _ = quantised("conv-batch", "TOSA-1.0+INT")
    partitioner = SafeArmPartitioner(spec)
    lowered(program, partitioner)
    assert partitioner.report.delegates == ()
    reasons = " ".join(reason.text for v in partitioner.report.fallbacks for reason in v.reasons)
    assert "shape" in reasons
    assert guards(program) == []
