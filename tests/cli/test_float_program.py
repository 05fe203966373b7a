"""A float program is written with operators that TOSA has before it is lowered for a float profile."""

import pytest
import torch
from command_line import invoke
from lowering import RELEASE
from small import Built
from torch.export import Dim

from safe_arm.cli.float_program import dynamic_shapes

X = torch.randn(2, 3, 8, 8)


def norm(m, x):
    return m.norm(m.conv(x))


def net(forward=lambda m, x: torch.std_mean(norm(m, x[:, [2, 1, 0]]), -1)):
    """An index of channels, an instance norm and a deviation, which stock leaves on the CPU in a float profile."""
    torch.manual_seed(0)
    return Built(forward, conv=torch.nn.Conv2d(3, 4, 3), norm=torch.nn.InstanceNorm2d(4)).eval()


class TestCommand:
    @pytest.fixture
    def check(self, save, tmp_path):
        def run(target, *forward, **how):
            model = save(net(*forward), (X,), tmp_path / "net.pt2", **how)
            return invoke("check", model, f"--target={target}", "--profile=TOSA-1.0+FP").stdout

        return run

    @pytest.mark.parametrize("target", ["vgf", "tosa"])
    def test_one_delegate_has_all_of_it_and_is_compared_with_the_float_net(self, check, target):
        stdout = check(target)
        assert "delegates       1 " in stdout
        assert "MACs            100.0 % " in stdout
        assert "not compared" not in stdout

    def test_a_program_that_cannot_be_written_anew_is_lowered_as_it_is(self, save, tmp_path, monkeypatch):
        model = save(net(norm), (X,), tmp_path / "net.pt2")

        def fail(*_):
            raise RuntimeError("boom")

        monkeypatch.setattr("safe_arm.cli.float_program.quantizer_for", fail)
        result = invoke("check", model, "--target=tosa", "--profile=TOSA-1.0+FP")
        assert "because writing it for TOSA failed: RuntimeError: boom" in result.stderr
        assert "MACs            100.0 % " in result.stdout

    @pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 delegates nothing of a dynamic size")
    def test_a_dynamic_size_stays_dynamic(self, check):
        stdout = check("tosa", norm, dynamic_shapes=({0: Dim("rows", min=1, max=6)},))
        assert "delegates       1 " in stdout
        assert "verified at 2x3x8x8, 4x3x8x8, 6x3x8x8: " in stdout


class Named(torch.nn.Module):
    def forward(self, x, more, scale=None):
        return x + more["a"].sum() + more["number"] + scale


def exported(more=Dim.STATIC, rows=Dim.STATIC):
    inputs = (X, {"a": torch.randn(4), "number": 2})
    dynamic = {"x": {0: rows}, "more": {"a": {0: more}, "number": None}, "scale": {0: rows}}
    return torch.export.export(Named(), inputs, {"scale": X}, dynamic_shapes=dynamic)


def sizes(shapes):
    return torch.utils._pytree.tree_map_only(Dim, lambda dim: (dim.min, dim.max), shapes)


def test_dynamic_sizes_are_those_of_the_program():
    shapes = dynamic_shapes(exported(Dim("length", min=3, max=16), Dim("rows", min=2, max=8)))
    assert sizes(shapes) == ({0: (2, 8)}, {"a": {0: (3, 16)}, "number": {}}, {0: (2, 8)})
    assert shapes[0][0] is shapes[2][0]


def test_static_ones_are_none():
    assert dynamic_shapes(exported()) == ({}, {"a": {}, "number": {}}, {})


def test_a_multiple_of_a_size_is_not_given():
    assert dynamic_shapes(exported(2 * Dim("half", min=2, max=8))) is None
