"""What a program takes is known before it starts, from its file alone."""

import numpy as np
import pytest
import torch

from safe_arm.cli.program_memory import LOADED, OF_SAMPLES, OF_VALUES, OF_WEIGHTS, expected_memory


def test_weights_values_and_samples_count(tmp_path, save):
    model = save(torch.nn.Linear(100, 300, bias=False), (torch.rand(2, 100),), tmp_path / "net.pt2")
    np.savez(tmp_path / "data.npz", np.zeros((5, 2, 100), "float32"))
    values = 4 * (300 * 100 + 2 * 100 + 2 * 300)  # the weight is one of them
    alone = expected_memory(model, None)
    weights = (alone - LOADED - OF_VALUES * values) / OF_WEIGHTS
    assert 4 * 300 * 100 <= weights < 4 * 300 * 100 + 2000
    more = expected_memory(model, tmp_path / "data.npz") - alone
    assert OF_SAMPLES * 5 * 800 <= more < OF_SAMPLES * (5 * 800 + 400)


def test_dynamic_sizes_are_no_error(tmp_path, save):
    dynamic = {"input": {0: torch.export.Dim("n", min=2, max=8)}}
    model = save(torch.nn.Linear(4, 4), (torch.rand(3, 4),), tmp_path / "net.pt2", dynamic_shapes=dynamic)
    assert expected_memory(model, None) > LOADED


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04"])
def test_what_cannot_be_read_takes_what_any_process_takes(tmp_path, content):
    (tmp_path / "bad.pt2").write_bytes(content)
    assert expected_memory(tmp_path / "bad.pt2", tmp_path / "nowhere.npz") == LOADED
