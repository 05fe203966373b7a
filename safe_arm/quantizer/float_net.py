"""The net as the user exported it, kept to be run beside what quantising makes of it."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Interpreter, Node
from torch.utils._pytree import tree_leaves, tree_map

from safe_arm.core.attributes import attribute, set_attribute
from safe_arm.core.island import op_name
from safe_arm.quantizer.hold_out import copy_of

_BATCH_NORM = "aten::batch_norm"
#: Positions of the statistics and of the flag ``training`` among the arguments of a batch norm.
_STATISTICS, _TRAINING = (3, 4), 5


def copy_with_own_state(model: GraphModule) -> GraphModule:
    """Return a copy of a graph that shares every tensor but those that it writes into."""
    own = copy_of(model)
    for name in written_buffers(model):
        set_attribute(own, name, attribute(model, name).detach().clone())
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
        self._rest = {
            name: attribute(model, name).detach().clone() for name in self.state
        }

    def reset(self) -> None:
        """Give the net the state that it had when it was exported."""
        set_state(self.module, self._rest)

    def rest_of(self, module: GraphModule) -> dict[str, Tensor]:
        """Return the state that the net was exported with, as far as another graph has it."""
        return {
            name: value
            for name, value in self._rest.items()
            if _held(module, name) is not None
        }

    def run(self, call: Call) -> Results:
        """Call the net once, and let its state move on."""
        return results_of(self.module, call, self.state)

    def cannot_run(self) -> str:
        """Return why the net cannot be run here, in a few words; empty if it can."""
        for name, tensor in (
            *self.module.named_parameters(),
            *self.module.named_buffers(),
        ):
            if isinstance(tensor, FakeTensor):
                return f"{name!r} is a fake tensor"
            if tensor.is_meta:
                return f"{name!r} is on the meta device"
        return ""

    def is_random(self) -> bool:
        """Tell whether an operator draws random numbers, so that two calls differ."""
        graphs = [
            each for each in self.module.modules() if isinstance(each, GraphModule)
        ]
        return any(_draws(node) for each in graphs for node in each.graph.nodes)


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
        outputs = {f"output {index}": value for index, value in enumerate(self.outputs)}
        return {
            **outputs,
            **{f"state {name!r}": value for name, value in self.state.items()},
        }


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
        {name: _held(module, name) for name in state},
    )


@contextmanager
def state_kept(module: GraphModule) -> Iterator[None]:
    """Undo at the end of the block what a graph wrote into its buffers inside of it."""
    names = written_buffers(module)
    before = {name: attribute(module, name).detach().clone() for name in names}
    try:
        yield
    finally:
        set_state(module, before)


def set_state(module: GraphModule, values: Mapping[str, Tensor]) -> None:
    """Write values into a graph's buffers of those names."""
    with torch.no_grad():
        for name, value in values.items():
            attribute(module, name).copy_(value)


def written_buffers(module: GraphModule) -> tuple[str, ...]:
    """Return the names of the tensors that a graph writes into when it is called."""
    found: dict[str, None] = {}
    for node in module.graph.nodes:
        for written in _written(node):
            root = written
            while _is_view(root):
                root = root.args[0]  # type: ignore[assignment]
            if root.op == "get_attr" and isinstance(_attribute(module, root), Tensor):
                found[str(root.target)] = None
    return tuple(found)


def _written(node: Node) -> list[Node]:
    """Return the arguments that an operator writes into."""
    if op_name(node) == _BATCH_NORM and node.args[_TRAINING] is True:
        return [
            each
            for each in (node.args[index] for index in _STATISTICS)
            if isinstance(each, Node)
        ]
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not schema.is_mutable:
        return []
    if torch.Tag.inplace_view in node.target.tags:  # type: ignore[union-attr]
        return []  # It makes its argument a view of itself, and leaves the values as they are.
    arguments = zip(schema.arguments, node.args, strict=False)
    written = [
        value
        for argument, value in arguments
        if argument.alias_info and argument.alias_info.is_write
    ]
    return [value for value in written if isinstance(value, Node)]


def _is_view(node: Node) -> bool:
    """Tell whether a node's value is its first argument, or lies in it."""
    if (
        node.op != "call_function"
        or not node.args
        or not isinstance(node.args[0], Node)
    ):
        return False
    if node.target is operator.getitem:
        return _is_view(node.args[0])
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(
        each.alias_info is not None for each in schema.returns
    )


def _draws(node: Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(
        node.target, "tags", ()
    ) and not _is_idle_dropout(node)


def _is_idle_dropout(node: Node) -> bool:
    """Tell a dropout that lets everything through, as all do outside of training."""
    schema: Any = getattr(node.target, "_schema", None)
    names = [each.name for each in schema.arguments]
    given: dict[str, Any] = {
        each.name: each.default_value
        for each in schema.arguments
        if each.has_default_value()
    }
    given |= dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    if "dropout_p" in given:  # an attention
        return bool(given["dropout_p"] == 0.0)
    return given.get("train", given.get("training")) is False


def _attribute(module: GraphModule, node: Node) -> object:
    try:
        return attribute(module, node.target)
    except AttributeError:
        return None


def _held(module: GraphModule, name: str) -> Tensor | None:
    try:
        value = attribute(module, name)
    except AttributeError:
        return None
    return value.detach().clone() if isinstance(value, Tensor) else None


def _own(value: Any) -> Any:
    """Return a copy of a tensor, anything else as it is."""
    return value.detach().clone() if isinstance(value, Tensor) else value
