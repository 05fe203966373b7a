"""The tests of every step that writes a float graph anew; a class in the step's test file gives the nets."""

from collections import defaultdict
from typing import ClassVar

import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import changes
from lowering import PROFILES, lower_exactly, lower_in_part, min_max, quantize, tosa
from small import Lambda
from stubborn import exported


class Rewriting:
    """What a step has to do.

    Attributes:
        step: the step, as a static method.
        inputs: an example of the nets' inputs.
        also: more of them, to compute the nets with.
        written: by name, nets that the step changes.
        wrong: by name, those that stock computes wrong, or leaves on the CPU; ``written`` if not said.
        kept: by name, near misses.
        gone: names that the changed graph lacks.
        tolerance: how near the changed graph comes to the net.
    """

    inputs = also = gone = ()
    tolerance: ClassVar = {}

    @property
    def wrong(self):
        return self.written

    def pytest_generate_tests(self, metafunc):
        for rows in ("written", "kept", "wrong", "proven"):
            if rows in metafunc.fixturenames:
                nets = getattr(self, rows)
                metafunc.parametrize(rows, nets.values(), ids=nets)

    def case(self, row):
        """Return the net of a row, and an example of its inputs."""
        return Lambda(row), self.inputs

    def graph(self, row):
        return exported(*self.case(row))

    @staticmethod
    def by_shape(*examples):
        """Group inputs of one shape, which are exported alike."""
        groups = defaultdict(list)
        for inputs in examples:
            groups[tuple((value.shape, value.dtype) for value in inputs)].append(inputs)
        return groups.values()

    def test_the_float_graph_computes_the_net_and_twice_equals_once(self, written):
        net, example = self.case(written)
        for alike in self.by_shape(example, *self.also):
            model = exported(net, alike[0])
            wanted = [model(*inputs) for inputs in alike]
            assert changes(self.step, model)
            for inputs, each in zip(alike, wanted, strict=True):
                torch.testing.assert_close(model(*inputs), each, **self.tolerance)
            assert [name for name in self.gone if name in str(model.graph)] == []
            assert not changes(self.step, model)

    def test_the_near_miss_is_left_alone(self, kept):
        assert not changes(self.step, self.graph(kept))


def codes_off(graph_module, rule, inputs):
    """How far the result of a graph is from that of a rule, in codes of the rule's range."""
    wanted = rule(None, *(each.clone() for each in inputs))
    given = graph_module(*inputs)
    assert given.shape == wanted.shape
    step = (wanted.max().clamp(min=0) - wanted.min().clamp(max=0)) / 255
    return float((given - wanted).abs().max() / step)


class Correcting(Rewriting):
    """A step without which stock computes another net.

    Attributes:
        stock_is_off: more codes than this.
        ours_is_off: so many codes at most.
        in_part: nets of which something stays on the CPU.
    """

    in_part = ()

    def test_stock_computes_another_net(self, wrong):
        how = {"quantizer_class": TOSAQuantizer, "config": min_max()}
        assert (
            not codes_off(quantize(Lambda(wrong), self.inputs, tosa(PROFILES[0]), **how), wrong, self.inputs)
            <= self.stock_is_off
        )

    def test_ours_computes_the_net_and_is_exact(self, written, profile):
        graph_module = quantize(Lambda(written), self.inputs, tosa(profile))
        assert codes_off(graph_module, written, self.inputs) <= self.ours_is_off
        lower = lower_in_part if written in self.in_part else lower_exactly
        lower(graph_module, tosa(profile), self.inputs)
