"""Passes of ExecuTorch without the empty graph and tracer that each makes on its way, and replaces when it runs."""

import functools
from types import SimpleNamespace

from executorch.exir.pass_base import ExportPass
from torch.fx import Graph, GraphModule, Interpreter
from torch.nn import Module

#: The class that makes them, for all passes.
BASE = next(each for each in ExportPass.__mro__ if "__init__" in vars(each))


def made_quickly() -> None:
    """Patch ExecuTorch for the rest of the process: a lowering makes some 150 passes."""
    if not hasattr(BASE.__init__, "stock"):
        BASE.__init__ = _making_nothing(BASE.__init__)


def _making_nothing(stock):
    empty = Interpreter(GraphModule(Module(), Graph()))

    @functools.wraps(stock)
    def begin(self):
        self.interpreter = empty
        self.tracer = SimpleNamespace(fake_tensor_mode=None)
        self.fake_tensor_mode = None
        self._initialized = True
        self.node_debug_str = None

    begin.stock = stock
    return begin
