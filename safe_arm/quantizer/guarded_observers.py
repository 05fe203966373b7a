"""Observers that survive what they cannot take: the operators they watch stay float instead."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import ObserverOrFakeQuantize
from torchao.quantization.pt2e.observer import ObserverBase
from torchao.quantization.pt2e.quantizer import EdgeOrNode

from safe_arm._compat.annotations import unmark_quantized
from safe_arm.acceleration import histogram_search
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import QUANTIZE, is_dequantize, is_marked_quantized, op_name
from safe_arm.quantizer.calibration_watch import CalibrationWatch
from safe_arm.quantizer.left_float import Ledger
from safe_arm.quantizer.own_names import own_name


def guard_observers(
    observers: dict[EdgeOrNode, ObserverOrFakeQuantize],
    ledger: Ledger,
    watch: CalibrationWatch | None = None,
) -> None:
    """Put a guarded observer in the place of every observer that torchao is about to insert; works in place.

    Args:
        observers: the observer of each annotated value and edge. One may watch several values that share a domain; each
            of these values gets a guard of its own.
        ledger: where an observer that fails notes which operators stay float.
        watch: is shown what reaches the inputs.
    """
    guarded: dict[tuple[int, Node], GuardedObserver] = {}
    for place, observer in observers.items():
        if observer is not None:
            value = place[0] if isinstance(place, tuple) else place
            observers[place] = guarded.setdefault(
                (id(observer), value), GuardedObserver(observer, ledger)
            )
            if watch is not None and value.op == "placeholder":
                guarded[id(observer), value].watched_as = str(value.target), watch


class GuardedObserver(ObserverBase):
    """Watches one value through a stock observer or fake-quantise module, and does not raise on what it is shown.

    The stock module forgets a value that it raised on, and goes on watching others of the same domain. All that is
    asked of the guard and that it does not have itself is the stock module's.
    """

    def __init__(self, observer: ObserverOrFakeQuantize, ledger: Ledger) -> None:
        super().__init__(observer.dtype, getattr(observer, "is_dynamic", False))
        self.observer = observer
        self.ledger = ledger
        self.watched_as: tuple[str, CalibrationWatch] | None = None

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("observer"), name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the stock module makes of a value of any shape; the value itself where that fails."""
        if torch.compiler.is_compiling() or isinstance(x, FakeTensor):
            return self.observer(x)
        if self.watched_as is not None:
            name, watch = self.watched_as
            attempted(
                watch.show, name, x
            )  # What cannot be looked into is for the observer to take.
        before = [(module, dict(module._buffers)) for module in self.observer.modules()]
        before = [
            (module, {k: v if v is None else v.clone() for k, v in b.items()})
            for module, b in before
        ]
        result = attempted(self.observer, x)
        if not isinstance(result, Caught) and not _saw_nan(self.observer):
            return result
        failure = (
            result.reason if isinstance(result, Caught) else "its values include NaN"
        )
        for module, buffers in before:
            module._buffers.update(buffers)
        # torchao lets an observer that has this attribute convert itself.
        self.convert = partial(leave_float, why=failure, ledger=self.ledger)
        return x

    def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return scales and zero points as the stock module does; the calibration is over then."""
        if self.watched_as is not None:
            self.watched_as[1].warn()
        with histogram_search.on_floats(self.observer):
            scale, zero_point = self.observer.calculate_qparams()
        low, high = (
            getattr(self.observer, "quant_min", None),
            getattr(self.observer, "quant_max", None),
        )
        if (
            self.watched_as is not None
            and scale.numel() == 1
            and low is not None
            and high is not None
        ):
            name, watch = self.watched_as
            watch.judge(name, float(scale), int(high) - int(low))
        return scale, zero_point


def _saw_nan(observer: ObserverOrFakeQuantize) -> bool:
    seen = getattr(observer, "activation_post_process", observer)
    bounds = (getattr(seen, "min_val", None), getattr(seen, "max_val", None))
    return any(isinstance(b, torch.Tensor) and bool(b.isnan().any()) for b in bounds)


def leave_float(model: GraphModule, node: Node, why: str, ledger: Ledger) -> None:
    """Take a failed observer out of a graph that torchao is converting, and leave the operators on either side float.

    Whole units stay float, their weights and biases too. Values that they share with quantised operators keep their
    quantisation: a float operator reads what the accelerator wrote.
    """
    value, users = node.args[0], list(node.users)
    assert isinstance(value, Node)
    node.replace_all_uses_with(value)
    model.graph.erase_node(node)
    for member in dict.fromkeys(m for end in (value, *users) for m in _unit(end)):
        unmark_quantized(member)
        ledger.add(
            "observe", f"the observer of {own_name(value)} failed: {why}", member
        )
        for source in member.all_input_nodes:
            _read_constant_itself(model, member, source)
    ledger.warn()


def _unit(node: Node) -> Iterator[Node]:
    """Yield a quantised operator and those fused with it: no observer stands between, and each has one consumer."""
    found: dict[Node, None] = {}
    frontier = [node]
    while frontier:
        member = frontier.pop()
        if member in found or not is_marked_quantized(member):
            continue
        found[member] = None
        frontier += [
            n for n in member.all_input_nodes if len(n.users) == 1 and _is_float(n)
        ]
        frontier += member.users if len(member.users) == 1 and _is_float(member) else []
    yield from found


def _is_float(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _read_constant_itself(model: GraphModule, member: Node, source: Node) -> None:
    """Let a float operator read its weight or bias instead of the observed or quantised copy of it."""
    origin = source
    while origin.args and (
        origin.op == "call_module"
        or op_name(origin) == QUANTIZE
        or is_dequantize(origin)
    ):
        origin = origin.args[0]  # type: ignore[assignment]
    if origin is not source and origin.op == "get_attr":
        member.replace_input_with(source, origin)
