"""Lowered programs run here, delegates in the reference model."""

import pytest
import torch
import torch.nn.functional as F
from lowering import codes_apart, lower, lower_exactly, quantize, tosa
from mutations import MUTATIONS
from small import Lambda, image
from tosa_flatbuffer import constants

from safe_arm import SafeArmError, SafeArmPartitioner, UsageError, verify
from safe_arm.core.errors import DemotionWarning
from safe_arm.verification.reference_model import arrays_of, run_lowered


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_tensors_cross_in_their_dim_order(profile, memory_format):
    net = Lambda(lambda m, x: m.conv_b(torch.nn.functional.relu(m.conv(x))))
    inputs = tuple(t.contiguous(memory_format=memory_format) for t in image())
    graph_module = quantize(net, inputs, tosa(profile))
    lower_exactly(graph_module, tosa(profile), inputs)


def test_a_program_without_delegates_runs_eagerly():
    net, inputs = Lambda(lambda m, x: torch.erfc(x)), image()
    manager = lower(net, inputs, SafeArmPartitioner(tosa("TOSA-1.0+FP")))
    assert torch.equal(run_lowered(manager.exported_program(), inputs)[0], torch.erfc(*inputs))


def lowered_module(manager):
    return next(m for n, m in manager.exported_program().graph_module.named_children() if n.startswith("lowered"))


def test_a_flipped_code_is_seen(small, delegate, monkeypatch):
    """The comparison itself can fail: a constant changed in the flatbuffer shows."""
    weight = next(c for c in constants(delegate.flatbuffer).values() if c.size == 4 * 4 * 9)
    damaged = bytearray(delegate.flatbuffer)
    damaged[damaged.index(weight.tobytes())] ^= 0x40
    assert codes_apart(small.manager, small.graph_module, image()) == 0
    monkeypatch.setattr(lowered_module(small.manager), "_processed_bytes", bytes(damaged))
    assert codes_apart(small.manager, small.graph_module, image()) > 0


def test_only_tosa_delegates_run(small, monkeypatch):
    monkeypatch.setattr(lowered_module(small.manager), "_backend_id", "VgfBackend")
    with pytest.raises(SafeArmError, match="this one is for VgfBackend"):
        run_lowered(small.manager.exported_program(), image())
    with pytest.raises(UsageError, match=r"are for VgfBackend; lower it for a TosaCompileSpec .*verify=True\)$"):
        verify(small.manager, [image()])


def test_a_tensor_crosses_with_its_bytes_and_an_unsigned_one_as_signed():
    tensors = [torch.tensor([0, 127, 128, 255], dtype=torch.uint8), torch.tensor([-1], dtype=torch.int16)]
    arrays = arrays_of(tensors)
    assert [str(array.dtype) for array in arrays] == ["int8", "int16"]
    assert [array.tolist() for array in arrays] == [[0, 127, -128, -1], [-1]]


NARROW = pytest.mark.parametrize(
    ("dtype", "narrow_profile"),
    [(torch.float16, "TOSA-1.0+FP"), (torch.bfloat16, "TOSA-1.0+FP+bf16")],
    ids=["float16", "bfloat16"],
)


@NARROW
def test_attention_in_16_bits_is_verified_in_one_delegate(dtype, narrow_profile):
    """Between its casts to float32 the model does not round to 16 bits."""

    def attention(m, x):
        x = F.layer_norm(x, (8,))
        return F.scaled_dot_product_attention(m.linear(x), x, x)

    net = Lambda(attention).to(dtype)
    partitioner = SafeArmPartitioner(tosa(narrow_profile))
    lower(net, (torch.randn(1, 1, 16, 8).to(dtype),), partitioner)
    report = partitioner.report
    assert (report.fallbacks, [proof.verified for proof in report.verifications]) == ((), [True])


@NARROW
def test_a_relu_that_is_lost_in_16_bits_is_seen(dtype, narrow_profile):
    relu_dropped = next(mutation for mutation in MUTATIONS if mutation.id == "relu-dropped")
    partitioner = SafeArmPartitioner(tosa(narrow_profile))
    with relu_dropped.planted(), pytest.warns(DemotionWarning):
        lower(Lambda(lambda m, x: torch.relu(m.conv(x))).to(dtype), (image()[0].to(dtype),), partitioner)
    assert {verdict.op for verdict in partitioner.report.demoted} == {"aten::relu"}
