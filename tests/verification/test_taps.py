"""The same graph with other outputs gives its intermediate tensors and computes the same."""

import torch

from safe_arm.verification.reference_model import run_tosa
from safe_arm.verification.taps import computed, with_outputs


def test_every_intermediate_can_be_read_and_the_output_is_the_same(delegate):
    graph, before = delegate.flatbuffer, bytes(delegate.flatbuffer)
    codes = [torch.randint(-128, 128, (1, 4, 8, 8), dtype=torch.int8, generator=torch.Generator().manual_seed(0))]
    names = list(computed(graph))
    assert not any("weight" in name for name in names), "constants are no intermediates"
    values = dict(zip(names, run_tosa(with_outputs(graph, names), codes), strict=True))
    assert graph == before
    assert {name: tuple(value.shape) for name, value in values.items()} == computed(graph)
    assert any(value.dtype == torch.int32 for value in values.values()), "a convolution's accumulator"
    (output,) = run_tosa(graph, codes)
    assert torch.equal(values[names[-1]], output)


def test_what_is_written_is_aligned_as_flatbuffers_are(delegate):
    assert len(with_outputs(delegate.flatbuffer, ["a", "bcdef"])) % 4 == 0
