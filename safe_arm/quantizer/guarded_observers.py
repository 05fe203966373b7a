"""Observers that survive what they cannot take: the operators they watch stay float instead."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.observer import PartialWrapper
from torchao.quantization.pt2e.quantizer import QuantizationSpec

from safe_arm._compat.annotations import Q_ANNOTATION_KEY, unmark_quantized
from safe_arm.core.island import QUANTIZE, is_dequantize, is_marked_quantized, op_name
from safe_arm.core.origins import is_fatal, reason
from safe_arm.quantizer.left_float import Ledger

_PER_TENSOR = (torch.per_tensor_affine, torch.per_tensor_symmetric)


def guard_observers(model: GraphModule, ledger: Ledger) -> None:
    """Let every observer that the annotations of a graph ask for be a guarded one; works in place.

    Args:
        model: the annotated graph.
        ledger: where an observer that fails notes which operators stay float.
    """
    specs: dict[int, QuantizationSpec] = {}

    def guarded(spec: Any) -> Any:
        if not isinstance(spec, QuantizationSpec) or spec.observer_or_fake_quant_ctr is None:
            return spec
        if id(spec) not in specs:
            maker = _guarded_maker(spec.observer_or_fake_quant_ctr, ledger)
            specs[id(spec)] = dataclasses.replace(spec, observer_or_fake_quant_ctr=maker)
        return specs[id(spec)]

    for node in model.graph.nodes:
        annotation = node.meta.get(Q_ANNOTATION_KEY)
        if annotation is not None:
            annotation.input_qspec_map = {n: guarded(spec) for n, spec in annotation.input_qspec_map.items()}
            annotation.output_qspec = guarded(annotation.output_qspec)


def _guarded_maker(maker: Any, ledger: Ledger) -> Any:
    """Return the maker of an observer, a class or a partial call of one, with the guarded class in its place."""
    if isinstance(maker, PartialWrapper):
        inner = maker.p.func
        if isinstance(inner, PartialWrapper):
            inner, extra = _guarded_maker(inner, ledger), {}
        elif isinstance(inner, type):
            inner, extra = guarded_class(inner), {"safe_arm_ledger": ledger}
        else:
            return maker
        wrapper = PartialWrapper(functools.partial(inner, *maker.p.args, **maker.p.keywords, **extra))
        wrapper.callable_args = dict(maker.callable_args)
        return wrapper
    if isinstance(maker, type):
        return PartialWrapper(functools.partial(guarded_class(maker), safe_arm_ledger=ledger))
    return maker


class _Guard:
    """What a guarded observer or fake-quantise module adds to the stock class it stands in for.

    One observer may watch several values that share a domain. It fails for the one it raised on, forgets that it saw
    it, and goes on watching the others.
    """

    safe_arm_ledger: Ledger
    safe_arm_failures: dict[str, str]

    def __init__(self, *args: Any, safe_arm_ledger: Ledger | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.safe_arm_ledger = safe_arm_ledger or Ledger()
        self.safe_arm_failures = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling() or isinstance(x, FakeTensor):
            return super().forward(x)  # type: ignore[misc]
        before = [(module, dict(module._buffers)) for module in self.modules()]  # type: ignore[attr-defined]
        before = [(module, {k: v if v is None else v.clone() for k, v in b.items()}) for module, b in before]
        try:
            return super().forward(x)  # type: ignore[misc]
        except Exception as error:
            if is_fatal(error):
                raise
            for module, buffers in before:
                module._buffers.update(buffers)
            self.safe_arm_failures[_name_of(x)] = reason(error)
            return x

    @property
    def convert(self) -> Any:
        """How torchao shall convert the observer if it failed; an observer that did not has no such attribute."""
        if _saw_nan(self):
            self.safe_arm_failures.setdefault("", "its values include NaN")
        if not self.safe_arm_failures:
            raise AttributeError("convert")
        return self._convert

    def _convert(self, model: GraphModule, node: Node) -> None:
        failures = self.safe_arm_failures
        why = failures.get(node.args[0].name) or failures.get("")  # type: ignore[union-attr]
        if why is None and self.qscheme in _PER_TENSOR:  # type: ignore[attr-defined]
            quantise(model, node, self)
        else:
            leave_float(model, node, why=why or next(iter(failures.values())), ledger=self.safe_arm_ledger)

    def calculate_qparams(self) -> Any:
        """Return the stock class's qparams, or of a failed observer something to derive dead bias qparams from."""
        if "" in self.safe_arm_failures:
            return torch.ones(1), torch.zeros(1, dtype=torch.int64)
        return super().calculate_qparams()  # type: ignore[misc]

    def __reduce__(self) -> Any:
        # The class is made at run time, so a pickle must name the one it was made from.
        return _restore, (type(self).__bases__[1],), self.__dict__


@functools.cache
def guarded_class(stock: type) -> type:
    """Return the class of observers like ``stock`` that do not raise on what they are shown."""
    return type(stock.__name__, (_Guard, stock), {"__module__": stock.__module__, "__doc__": stock.__doc__})


def _restore(stock: type) -> Any:
    guarded: Any = guarded_class(stock)
    return guarded.__new__(guarded)


def _name_of(x: torch.Tensor) -> str:
    """Return the name of the node whose value an observer is shown, empty if the caller is not a graph module's code.

    Code that fx generates keeps each value in a local variable of its node's name.
    """
    frame = sys._getframe(2)
    while frame is not None and not isinstance(frame.f_locals.get("self"), GraphModule):
        frame = frame.f_back  # type: ignore[assignment]
    return next((name for name, value in frame.f_locals.items() if value is x), "") if frame else ""


def _saw_nan(observer: Any) -> bool:
    seen = getattr(observer, "activation_post_process", observer)
    bounds = (getattr(seen, "min_val", None), getattr(seen, "max_val", None))
    return any(isinstance(b, torch.Tensor) and bool(b.isnan().any()) for b in bounds)


def quantise(model: GraphModule, node: Node, observer: Any) -> None:
    """Convert an observer of a value it did not fail on to quantise and dequantise, per tensor, as torchao does."""
    scale, zero_point = observer.calculate_qparams()
    qparams = (float(scale), int(zero_point), observer.quant_min, observer.quant_max, observer.dtype)
    ops = torch.ops.quantized_decomposed
    with model.graph.inserting_before(node):
        quantised = model.graph.call_function(ops.quantize_per_tensor.default, (node.args[0], *qparams))
        dequantised = model.graph.call_function(ops.dequantize_per_tensor.default, (quantised, *qparams))
    node.replace_all_uses_with(dequantised)
    model.graph.erase_node(node)


def leave_float(model: GraphModule, node: Node, *, why: str, ledger: Ledger) -> None:
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
        ledger.add("observe", f"the observer of {value.name} failed: {why}", member)
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
        frontier += [n for n in member.all_input_nodes if len(n.users) == 1 and _is_float(n)]
        frontier += member.users if len(member.users) == 1 and _is_float(member) else []
    yield from found


def _is_float(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _read_constant_itself(model: GraphModule, member: Node, source: Node) -> None:
    """Let a float operator read its weight or bias instead of the observed or quantised copy of it."""
    origin = source
    while origin.args and (origin.op == "call_module" or op_name(origin) == QUANTIZE or is_dequantize(origin)):
        origin = origin.args[0]  # type: ignore[assignment]
    if origin is not source and origin.op == "get_attr":
        member.replace_input_with(source, origin)
