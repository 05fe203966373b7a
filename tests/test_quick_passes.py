"""Passes that are made without an empty graph run as stock's do."""

import torch
from executorch.exir.pass_base import ExportPass
from quick_passes import BASE, made_quickly
from stubborn import exported, ramp
from torch.utils._traceback import CapturedTraceback


def made_by_stock():
    made = ExportPass.__new__(ExportPass)
    BASE.__init__.stock(made)
    return made


def test_they_have_the_attributes_of_stock_s():
    made_quickly()
    assert vars(ExportPass()).keys() == vars(made_by_stock()).keys()


def test_they_trace_what_stock_s_trace():
    made_quickly()
    graph_module = exported(torch.nn.ReLU(), ramp())
    graphs = [str(each(graph_module).graph_module.graph) for each in (ExportPass(), made_by_stock())]
    assert graphs[0] == graphs[1]
    assert "relu" in graphs[0]


def test_a_stack_is_the_one_that_python_formats():
    made_quickly()
    last = CapturedTraceback.extract().summary()[-1]
    assert (last.filename, last.name) == (__file__, "test_a_stack_is_the_one_that_python_formats")
    assert last.line == "last = CapturedTraceback.extract().summary()[-1]"
