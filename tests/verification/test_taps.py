"""The same graph with other outputs gives its intermediate tensors and computes the same."""

import numpy as np
import torch

from safe_arm.verification.reference_model import run_tosa
from safe_arm.verification.taps import computed, with_outputs


def codes():
    return [torch.from_numpy(np.random.default_rng(0).integers(-128, 128, (1, 4, 8, 8)).astype(np.int8))]


def test_every_intermediate_can_be_read_and_the_output_is_the_same(delegate):
    graph = delegate.flatbuffer
    names = list(computed(graph))
    values = dict(zip(names, run_tosa(with_outputs(graph, names), codes()), strict=True))
    assert {name: tuple(value.shape) for name, value in values.items()} == computed(graph)
    assert any(value.dtype == torch.int32 for value in values.values()), "a convolution's accumulator"
    (output,) = run_tosa(graph, codes())
    assert torch.equal(values[names[-1]], output)


def test_the_graph_itself_is_not_touched(delegate):
    graph = delegate.flatbuffer
    before = bytes(graph)
    with_outputs(graph, list(computed(graph))[:1])
    assert graph == before


def test_constants_are_no_intermediates(delegate):
    assert not any("weight" in name for name in computed(delegate.flatbuffer))


def test_what_is_written_is_aligned_as_flatbuffers_are(delegate):
    assert len(with_outputs(delegate.flatbuffer, ["a", "bcdef"])) % 4 == 0
