"""The tests of every step that writes a float graph anew; a class in the step's test file gives the nets."""

from typing import ClassVar

import torch
from graph_changes import changes, changes_once, graph_of


class Rewriting:
    """What a step has to do.

    Attributes:
        step: the step, as a static method.
        inputs: an example of the nets' inputs.
        also: more of them, to compute the nets with.
        written: by name, nets that the step changes.
        kept: by name, near misses.
        tolerance: how near the changed graph comes to the net.
    """

    inputs = also = ()
    tolerance: ClassVar = {}

    def pytest_generate_tests(self, metafunc):
        for rows in ("written", "kept"):
            if rows in metafunc.fixturenames:
                nets = getattr(self, rows)
                metafunc.parametrize(rows, nets.values(), ids=nets)

    def test_the_float_graph_computes_the_net(self, written):
        for inputs in (self.inputs, *self.also):
            model = graph_of(written, *inputs)
            wanted = model(*inputs)
            assert changes(self.step, model)
            torch.testing.assert_close(model(*inputs), wanted, **self.tolerance)

    def test_the_near_miss_is_left_alone(self, kept):
        assert not changes(self.step, graph_of(kept, *self.inputs))

    def test_twice_equals_once(self, written):
        assert changes_once(self.step, graph_of(written, *self.inputs))
