"""What ExecuTorch and torchao compute on the way to the same result, in less time, for stock too.

A pass makes an empty graph and tracer, and replaces both when it runs. It formats the whole stack, of which it notes
one frame. A histogram observer searches its range on tensors of one element. A traced node is told its stack, of which
the frames of the test runner are the same each time.
"""

import functools
import sys
import traceback
from types import SimpleNamespace

import torch
from executorch.exir.pass_base import ExportPass
from torch.fx import Graph, GraphModule, Interpreter
from torch.nn import Module
from torch.utils import _traceback
from torchao.quantization.pt2e.observer import HistogramObserver

from safe_arm.acceleration.histogram_search import _range

#: Modules that note a frame of the stack; the oldest release of the seeds does not have them all.
NOTING = (
    "executorch.backends.arm._passes.arm_pass",
    "executorch.backends.arm._passes.arm_pass_utils",
    "executorch.backends.transforms.aten_to_dialect_pass",
)
#: The class that makes them, for all passes.
BASE = next(each for each in ExportPass.__mro__ if "__init__" in vars(each))


def made_quickly() -> None:
    """Patch ExecuTorch for the rest of the process: a lowering makes some 150 passes."""
    if not hasattr(BASE.__init__, "stock"):
        BASE.__init__ = _making_nothing(BASE.__init__)
        for module in filter(None, map(sys.modules.get, NOTING)):
            module.traceback = SimpleNamespace(format_stack=last_of_stack)
        _traceback._extract_symbolized_tb = stack_of
        HistogramObserver._non_linear_param_search = _searching_floats(HistogramObserver._non_linear_param_search)


def last_of_stack() -> list[str]:
    """Format the two last frames of the stack; whoever asks reads the last but one."""
    return traceback.format_stack(sys._getframe(1), 2)


def stack_of(symbolized, skip):
    """Return the frames of a stack, each made once in this process."""
    frames = (_frame(each["filename"], each["line"], each["name"]) for each in reversed(symbolized[skip:]))
    return traceback.StackSummary(frames)


@functools.cache
def _frame(filename, line, name):
    return traceback.FrameSummary(filename, line, name)


def _searching_floats(stock):
    @functools.wraps(stock)
    def search(self):
        return _range(self) if self.histogram.dtype == torch.float32 else stock(self)

    search.stock = stock
    return search


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
