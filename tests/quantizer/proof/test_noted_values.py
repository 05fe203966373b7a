"""A net that is exported within an autocast is quantised as it computes: in float32."""

import pytest
import torch
from lowering import min_max, quantize, tosa
from small import Lambda, image
from stubborn import calibrated, exported, quantizer_of

from safe_arm.quantizer.proof.noted_values import note_computed_values

INPUTS = image()
NET = Lambda(lambda m, x: m.conv_b(torch.nn.functional.silu(m.conv(x)) * 2))


def within_autocast(net=NET, dtype=torch.bfloat16):
    with torch.autocast("cpu", dtype):
        return exported(net, INPUTS, check_guards=True)


def noted(model):
    return [node.meta["val"].dtype for node in model.graph.nodes if "val" in node.meta]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_an_export_notes_the_dtype_of_the_scope_and_ours_what_is_computed(dtype):
    model = within_autocast(dtype=dtype)
    assert dtype in noted(model)
    assert model(*INPUTS).dtype == torch.float32
    note_computed_values(model)
    assert set(noted(model)) == {torch.float32}
    again = noted(model)
    note_computed_values(model)
    assert noted(model) == again


def test_ours_quantises_it_as_without_the_scope_and_whole():
    quantizer = quantizer_of()
    converted = calibrated(within_autocast(), quantizer, [INPUTS])
    assert not quantizer.left_float
    plain = quantize(NET, INPUTS, tosa("TOSA-1.0+INT"), config=min_max())
    assert torch.equal(converted(*INPUTS), plain(*INPUTS))


def casts(m, x):
    return m.conv_b(m.conv(x).to(torch.bfloat16).relu().float())


def in_scope(m, x):
    with torch.autocast("cpu", torch.bfloat16):
        y = m.conv(x)
    return y.float()


def halves(m, x):
    return torch.mean(x, 1, dtype=torch.float16)


@pytest.mark.parametrize("rule", [casts, in_scope, halves, lambda m, x: m.conv(x)])
def test_the_near_miss_is_left_alone(rule):
    model = exported(Lambda(rule), INPUTS)
    before = [node.meta.get("val") for node in model.graph.nodes]
    note_computed_values(model)
    after = [node.meta.get("val") for node in model.graph.nodes]
    assert all(one is other for one, other in zip(before, after, strict=True))
