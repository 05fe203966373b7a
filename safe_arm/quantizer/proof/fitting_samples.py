"""Refuse what is no exported graph module, and say of a failure which calibration sample does not fit the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from safe_arm.core.errors import SafeArmError, UsageError
from safe_arm.core.island import call_functions, graph_modules
from safe_arm.quantizer.graphs.graph_edits import tensor_of
from safe_arm.quantizer.graphs.operator_schemas import is_mutable
from safe_arm.quantizer.proof.float_net import Call, list_of_samples


class _OwnSamples(Sequence[Any]):
    """Calibration samples of which copies are iterated, one at a time: the net writes into some of its values."""

    def __init__(self, samples: list[Any]) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, place: Any) -> Any:
        return self._samples[place]

    def __iter__(self) -> Iterator[Any]:
        for sample in self._samples:
            yield Call("", tuple(sample)).own().args


def samples_for(model: object, samples: Iterable[Any]) -> Sequence[Any]:
    """Return calibration samples, which stay as they are, for a model that is a graph module.

    Raises:
        UsageError: it is an eager module or an exported program, from which a graph module can be made; or the samples
            cannot be listed.
    """
    graph_module = _exported(model)
    listed = list_of_samples(samples)
    return _OwnSamples(listed) if _writes(graph_module) else listed


def _writes(model: GraphModule) -> bool:
    """Tell whether an operator of a graph, or of a branch of its control flow, writes into one of its arguments."""
    calls: list[Node] = []
    for module in graph_modules(model):
        calls += call_functions(module)
    return any(map(is_mutable, calls))


def _exported(model: object) -> GraphModule:
    if isinstance(model, GraphModule):
        return model
    if isinstance(model, ExportedProgram):
        raise UsageError(
            "the model is an ExportedProgram; give its graph module, program.module()"
        )
    raise UsageError(
        f"the model is a {type(model).__name__}, which is no exported graph module; give "
        "torch.export.export(model.eval(), inputs).module()"
    )


@contextmanager
def misfits_named(model: GraphModule, samples: Sequence[Any]) -> Iterator[None]:
    """Let an exception of the block say which sample does not fit the model, if one does not.

    Samples are not refused before, since a model may take others than those it was exported with.

    Raises:
        UsageError: the block raises, and a sample has another number of values or other types than the model takes.
    """
    try:
        yield
    except SafeArmError:
        raise
    except Exception as error:
        misfit = _misfit(model, samples)
        if misfit:
            raise UsageError(misfit) from error
        raise


def _misfit(model: GraphModule, samples: Sequence[Any]) -> str:
    """Return what is wrong with the first sample that does not fit a model; empty if all do."""
    inputs = model.graph.find_nodes(op="placeholder")
    # A list may count what is taken of it by iterating.
    for number in range(len(samples)):
        values = tree_leaves(tuple(samples[number]))
        if len(values) != len(inputs):
            names = ", ".join(repr(str(node.target)) for node in inputs)
            return f"calibration sample {number} has {len(values)} values; the model takes {len(inputs)}: {names}"
        for value, node in zip(values, inputs, strict=True):
            wanted = tensor_of(node)
            if wanted is None or _fits(value, wanted):
                continue
            return (
                f"input {str(node.target)!r} of calibration sample {number} is {_described(value)}; the model was "
                f"exported for {_described(wanted)}"
            )
    return ""


def _fits(value: object, wanted: Tensor) -> bool:
    """Tell whether a value has the type and the sizes of a tensor, where those are numbers; a batch may differ."""
    if not isinstance(value, Tensor) or value.dtype != wanted.dtype:
        return False
    if value.dim() != wanted.dim():
        return False
    for given, size in zip(value.shape[1:], wanted.shape[1:], strict=True):
        if isinstance(size, int) and given != size:
            return False
    return True


def _described(value: object) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{dtype} of shape {tuple(value.shape)}"
