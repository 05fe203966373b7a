"""The net as the user exported it, kept for comparison with the result of each quantising step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Interpreter, Node
from torch.utils._pytree import tree_leaves, tree_map

from safe_arm.core.attributes import attribute, set_attribute
from safe_arm.core.errors import UsageError
from safe_arm.core.exceptions import attempted
from safe_arm.core.island import arguments_by_name, call_functions
from safe_arm.quantizer.annotation.hold_out import copy_of
from safe_arm.quantizer.graphs.operator_schemas import written_buffers


def copy_with_own_state(model: GraphModule) -> GraphModule:
    """Return a copy of a graph that shares every tensor but those that it writes into."""
    own = copy_of(model)
    for name, value in copies_of(model, written_buffers(model)).items():
        set_attribute(own, name, value)
    return own


@dataclass(frozen=True)
class Call:
    """The arguments of one call of a graph.

    Attributes:
        name: what a message calls it, such as ``calibration sample 3``.
        args, keywords: as the graph's caller gives them.
        flat: whether ``args`` are one for each placeholder instead.
    """

    name: str
    args: tuple[Any, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    flat: bool = False

    def own(self) -> Call:
        """Return the same call on copies of its tensors, which a net may write into."""
        args, keywords = tree_map(_own, (tuple(self.args), dict(self.keywords)))
        return Call(self.name, args, keywords, self.flat)


def list_of_samples(samples: Iterable[Any]) -> list[Any]:
    """Return calibration samples as a list; a list is returned as it is, for it may count what is taken of it.

    Raises:
        UsageError: they cannot be listed; or one is a tensor, which would be taken apart along its first dimension, a
            dictionary, whose keys would be taken for inputs, or has an array of NumPy's.
    """
    if not isinstance(samples, Iterable):
        raise UsageError(
            f"the calibration samples are {samples}; give a list of tuples of the model's inputs"
        )
    listed = samples if isinstance(samples, list) else list(samples)
    for number in range(len(listed)):
        sample = listed[number]
        if isinstance(sample, (Tensor, Mapping, str)):
            kind = type(sample).__name__
            raise UsageError(
                f"calibration sample {number} is a {kind}; give a tuple of the model's inputs, (x,) for a single one"
            )
        if not isinstance(sample, Iterable):
            raise UsageError(
                f"calibration sample {number} is {sample!r}; give a tuple of the model's inputs, (x,) for a single one"
            )
        if any(isinstance(value, np.ndarray) for value in tree_leaves(sample)):
            raise UsageError(
                f"calibration sample {number} has a NumPy array; give torch.from_numpy of it"
            )
    return listed


def calibration_calls(samples: Sequence[Sequence[Any]]) -> list[Call]:
    """Return a call for each calibration sample."""
    calls = []
    for index, sample in enumerate(samples):
        calls.append(Call(f"calibration sample {index}", tuple(sample)))
    return calls


class FloatNet:
    """A float graph with a state of its own, as it was before anything was transformed.

    Attributes:
        module: the graph. It shares every tensor with the user's module, but for the buffers that it writes into.
        state: names of those buffers, in order.
        folds: whether batch norms are folded before the graph is transformed.
    """

    def __init__(self, model: GraphModule, *, folds: bool = False) -> None:
        self.module = copy_with_own_state(model)
        self.folds = folds
        self.state = written_buffers(model)
        self._rest = copies_of(model, self.state)

    def reset(self) -> None:
        """Give the net the state that it had when it was exported."""
        set_state(self.module, self._rest)

    def rest_of(self, module: GraphModule) -> dict[str, Tensor]:
        """Return the state that the net was exported with, as far as another graph has it."""
        rest = {}
        for name, value in self._rest.items():
            if _copy_of_buffer(module, name) is not None:
                rest[name] = value
        return rest

    def run(self, call: Call) -> Results:
        """Call the net once, and let its state move on."""
        return results_of(self.module, call, self.state)

    def cannot_run(self) -> str:
        """Return why the net cannot be run here, in a few words; empty if it can."""
        parameters = self.module.named_parameters()
        buffers = self.module.named_buffers()
        for name, tensor in (*parameters, *buffers):
            if isinstance(tensor, FakeTensor):
                return f"{name!r} is a fake tensor"
            if tensor.is_meta:
                return f"{name!r} is on the meta device"
        return ""

    def is_random(self) -> bool:
        """Return whether an operator draws random numbers, so that two calls differ."""
        return any(_draws(node) for node in call_functions(self.module))


class Results:
    """The outputs of one call of a net, and the state that it left.

    Attributes:
        outputs: its outputs, flat: tensors, numbers or None.
        state: by name the buffers that it wrote, as the call left them; None for one that the graph does not have.
    """

    def __init__(
        self, outputs: Sequence[Any], state: Mapping[str, Tensor | None]
    ) -> None:
        self.outputs = list(outputs)
        self.state = dict(state)

    @property
    def named(self) -> dict[str, Any]:
        """Outputs and state by what a message calls them."""
        named: dict[str, Any] = {}
        for index, value in enumerate(self.outputs):
            named[f"output {index}"] = value
        for name, value in self.state.items():
            named[f"state {name!r}"] = value
        return named


def results_of(module: GraphModule, call: Call, state: Sequence[str] = ()) -> Results:
    """Call a graph on copies of its arguments.

    Args:
        module: the graph.
        call: the arguments, which stay as they are even where the net writes into its inputs.
        state: names of the buffers to return as well.
    """
    own = call.own()
    with torch.no_grad():
        if own.flat:
            outputs = Interpreter(module).run(*own.args, enable_io_processing=False)
        else:
            outputs = module(*own.args, **own.keywords)
    return Results(
        [_own(leaf) for leaf in tree_leaves(outputs)],
        {name: _copy_of_buffer(module, name) for name in state},
    )


def copies_of(module: GraphModule, names: Iterable[str]) -> dict[str, Tensor]:
    """Return copies of a graph's buffers of those names."""
    copies = {}
    for name in names:
        copies[name] = attribute(module, name).detach().clone()
    return copies


@contextmanager
def state_kept(module: GraphModule) -> Iterator[None]:
    """Undo at the end of the block what a graph wrote into its buffers inside of it."""
    before = copies_of(module, written_buffers(module))
    try:
        yield
    finally:
        set_state(module, before)


def set_state(module: GraphModule, values: Mapping[str, Tensor]) -> None:
    """Write values into a graph's buffers of those names."""
    with torch.no_grad():
        for name, value in values.items():
            attribute(module, name).copy_(value)


def _draws(node: Node) -> bool:
    """Return whether an operator draws random numbers, as a dropout does in training alone."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    arguments = arguments_by_name(node)
    if "dropout_p" in arguments:  # an attention
        return bool(arguments["dropout_p"] != 0.0)
    return arguments.get("train", arguments.get("training")) is not False


def _copy_of_buffer(module: GraphModule, name: str) -> Tensor | None:
    """Return a copy of a tensor of a module; None if it has none of that name."""
    value = attempted(attribute, module, name)
    return value.detach().clone() if isinstance(value, Tensor) else None


def _own(value: Any) -> Any:
    """Return a copy of a tensor, anything else as it is."""
    return value.detach().clone() if isinstance(value, Tensor) else value
