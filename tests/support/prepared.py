"""Nets that are quantised and made edge programs once, for all tests that lower them."""

import copy
from functools import cache

import torch
from executorch.backends.arm.quantizer import get_symmetric_a16w8_quantization_config
from executorch.exir.program import _program
from lowering import EDGE, PROFILES, min_max, quantize, tosa
from small import Lambda, image

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer

INT16 = "TOSA-1.0+INT+int16"


class Prepared:
    """A quantised net and its edge program; every lowering has a copy.

    The net is a module or a function to make a ``Lambda`` of, or a graph module that is quantised already.
    """

    def __init__(self, net, profile=PROFILES[0], inputs=None, graph_module=None):
        net = net if net is None or isinstance(net, torch.nn.Module) else Lambda(net)
        self.profile, self.inputs = profile, inputs or image()
        self.graph_module = graph_module or quantize(net, self.inputs, tosa(profile), config=min_max())
        asked, exported = self.partitioner(preflight=False), torch.export.export(self.graph_module, self.inputs)
        programs = {"forward": [asked]}, {"forward": exported}
        self._manager = _program._gen_edge_manager_for_partitioners(*programs, EDGE, None)

    def partitioner(self, **options):
        """Return a partitioner for its profile."""
        return SafeArmPartitioner(tosa(self.profile), **options)

    def program(self):
        """Return a copy of the edge program."""
        return copy.deepcopy(self._manager).exported_program()

    def lowered(self, partitioner):
        """Return what a partitioner makes of it, as ``lower`` does."""
        return copy.deepcopy(self._manager).to_backend(partitioner)

    def safely(self, **options):
        """Lower with our partitioner; return the program manager and the report."""
        partitioner = self.partitioner(**options)
        return self.lowered(partitioner), partitioner.report

    def partitioned(self, **options):
        """Return the report of a partitioning of ours, without a lowering."""
        partitioner = self.partitioner(**options)
        partitioner.partition(self.program())
        return partitioner.report


#: Makes each net once in a process; its arguments are those of ``Prepared``.
prepared = cache(Prepared)


def int16_graph(function, inputs, quantizer_class=SafeTOSAQuantizer, config=get_symmetric_a16w8_quantization_config):
    """A function and a sum behind it, its activations quantised to int16 unless another configuration is given."""
    net = Lambda(lambda m, x: function(x) + 1.0)
    return quantize(net, inputs, tosa(INT16), quantizer_class=quantizer_class, config=config())


@cache
def prepared_int16(function, inputs):
    """The same, made once in a process."""
    return Prepared(None, INT16, inputs, int16_graph(function, inputs))
