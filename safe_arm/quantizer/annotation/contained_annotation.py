"""Annotate a graph; a node that an annotator or an observer cannot take stays float."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import QuantizationAnnotation

from safe_arm._compat.annotations import (
    Q_ANNOTATION_KEY,
    annotated_nodes,
    annotation_of,
    grouped,
    hidden_from_annotators,
    refused_by_convert,
    refused_by_prepare,
    share_from_values,
    shares,
    unmark_quantized,
    unshare,
)
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.origins import attempted_on
from safe_arm.quantizer.annotation.counted_comparisons import (
    chosen_of_sorted,
    counted_for_indices,
)
from safe_arm.quantizer.annotation.hold_out import own_meta
from safe_arm.quantizer.annotation.left_float import Ledger, Stage, is_left_float
from safe_arm.quantizer.graphs.operator_schemas import is_mutable
from safe_arm.quantizer.graphs.own_names import own_name

#: Maximum number of runs of the annotators.
ATTEMPTS = 24
_OBSERVABLE = (torch.float32, torch.float16, torch.bfloat16)


def annotate(
    model: GraphModule, stock: Callable[[GraphModule], GraphModule], ledger: Ledger
) -> GraphModule:
    """Annotate a graph as ``stock`` does, without the nodes that make it raise or that cannot be observed.

    A node that stays float is hidden and the rest annotated anew, so its neighbours are annotated as whole units. If
    no node can be blamed, nothing is annotated.

    Args:
        model: the graph, annotated in place.
        stock: the annotators.
        ledger: where to note what stays float.
    """
    hidden = dict.fromkeys(filter(is_left_float, model.graph.nodes), "")
    before = _metas(model)
    failure = "the annotators ask for ever more nodes to be left alone"
    for _ in range(ATTEMPTS):
        with disguised(hidden):
            result, accused = attempted_on(model, stock)
        stage: Stage = "observe"
        if isinstance(result, Caught):
            stage = "annotate"
            failure = result.reason
            culprits = _culprit(accused, failure, model, hidden)
        else:
            _open_circles(model)
            culprits = (
                unobservable(model)
                or unshareable(model)
                or (counted_for_indices(model) | chosen_of_sorted(model))
            )
            if not culprits:
                return model
        if not culprits:
            break
        _reset(before)
        hidden |= culprits
        for node, why in culprits.items():
            # The annotation before the transformation leaves its mark behind, and INT+FP would go by it.
            unmark_quantized(node)
            if not is_mutable(node):  # A write runs on the CPU in any case.
                ledger.add(stage, why, node)
        before = _metas(model)
    _reset(before)
    ledger.add(
        "annotate",
        f"nothing is quantised, for no operator could be blamed for {failure}",
    )
    return model


def change(
    model: GraphModule, steps: Sequence[Callable[[GraphModule], Any]], ledger: Ledger
) -> None:
    """Let steps change a graph and its annotations; one that raises ends there.

    Args:
        model: an annotated graph; changed in place. What a step has changed before it raises stays.
        steps: they keep what the graph computes with each change.
        ledger: where to note which step ends early, and why.
    """
    for step in steps:
        result = attempted(step, model)
        if isinstance(result, Caught):
            _leave_out(step, result.reason, ledger)


def refine(
    model: GraphModule, steps: Sequence[Callable[[GraphModule], Any]], ledger: Ledger
) -> None:
    """Let steps change the annotations of a graph, without those that make torchao or themselves raise.

    Args:
        model: an annotated graph; its annotations are changed in place. If torchao raises on it before any step, the
            nodes that make it raise share with no other (T20).
        steps: they change annotations alone, each on top of those before.
        ledger: where to note which step is left out, and why.
    """
    before = _annotations(model)
    if not _failure(model, steps):
        return
    _restore(before)
    part_circles(model, ledger)
    for step in steps:
        before = _annotations(model)
        failure = _failure(model, (step,))
        if failure:
            _restore(before)
            _leave_out(step, failure, ledger)


def _leave_out(
    step: Callable[[GraphModule], Any], failure: str, ledger: Ledger
) -> None:
    name = step.__name__.lstrip("_")
    ledger.add("annotate", f"{name} is left out: {failure}")


def _failure(model: GraphModule, steps: Sequence[Callable[[GraphModule], Any]]) -> str:
    """Run steps, and return why one of them or the grouping behind them fails; empty if none does."""
    for step in steps:
        result = attempted(step, model)
        if isinstance(result, Caught):
            return result.reason
    groups = attempted(grouped, model)
    return groups.reason if isinstance(groups, Caught) else ""


def _annotations(model: GraphModule) -> dict[Node, QuantizationAnnotation | None]:
    """Return copies of all annotations."""
    copies: dict[Node, QuantizationAnnotation | None] = {}
    for node in model.graph.nodes:
        annotation = annotation_of(node)
        if annotation is not None:
            specs = dict(annotation.input_qspec_map)
            annotation = replace(annotation, input_qspec_map=specs)
        copies[node] = annotation
    return copies


def _restore(annotations: dict[Node, QuantizationAnnotation | None]) -> None:
    for node, annotation in annotations.items():
        node.meta.pop(Q_ANNOTATION_KEY, None)
        if annotation is not None:
            node.meta[Q_ANNOTATION_KEY] = annotation


def _culprit(
    accused: Iterable[str], reason: str, model: GraphModule, hidden: Container[Node]
) -> dict[Node, str]:
    """Return the likeliest suspect that annotators still see, and the reason; empty if there is none."""
    visible = {}
    for node in model.graph.nodes:
        if node.op == "call_function" and node not in hidden:
            visible[node.name] = node
    for name in accused:
        if name in visible:
            return {visible[name]: reason}
    return {}


def unobservable(model: GraphModule) -> dict[Node, str]:
    """Return the annotated nodes that cannot be observed, and why.

    Observers pass empty tensors by, so those are no reason; a dtype that quantise operators refuse is.
    """
    reasons = {}
    for node, annotation in annotated_nodes(model.graph):
        refusal = refused_by_prepare(node) or refused_by_convert(node)
        if refusal:
            reasons[node] = refusal
        specs = [*annotation.input_qspec_map.items(), (node, annotation.output_qspec)]
        for value, spec in specs:
            dtype = getattr(value.meta.get("val"), "dtype", torch.float32)
            if spec is not None and dtype not in _OBSERVABLE:
                reasons[node] = (
                    f"{own_name(value)} is {dtype}, which cannot be quantised"
                )
    return reasons


def _open_circles(model: GraphModule) -> None:
    """Let nodes share the quantisation of values, not that of their readers, if torchao cannot tell whose it is."""
    if isinstance(attempted(grouped, model), Caught):
        share_from_values(model)


def unshareable(model: GraphModule) -> dict[Node, str]:
    """Return a node without whose annotation torchao can tell which values share an observer, if it cannot (T20)."""
    failure = attempted(grouped, model)
    if not isinstance(failure, Caught):
        return {}
    reason = f"torchao cannot tell whose quantisation it shares: {type(failure.root).__name__}"
    candidates = []
    for node in model.graph.nodes:
        if node.op == "call_function" and shares(node):
            candidates.append(node)
    # A write loses least without its annotation: it runs on the CPU in any case.
    candidates.sort(key=is_mutable, reverse=True)
    for node in candidates:
        annotation = node.meta.pop(Q_ANNOTATION_KEY)
        remains = attempted(grouped, model)
        node.meta[Q_ANNOTATION_KEY] = annotation
        if not isinstance(remains, Caught):
            return {node: reason}
    return dict.fromkeys(candidates[:1], reason)


def part_circles(model: GraphModule, ledger: Ledger) -> None:
    """Let nodes share no quantisation with others until torchao can tell which values share an observer (T20).

    Stock's annotators have been checked before; this is for what our own steps have changed since. A node that still
    makes torchao raise loses its annotation, and stays float.

    Args:
        model: an annotated graph; its annotations are changed in place.
        ledger: where to note the nodes, and why.
    """
    _open_circles(model)
    for _ in range(ATTEMPTS):
        culprits = unshareable(model)
        if not culprits:
            return
        for node, why in culprits.items():
            unshare(node)
            if not isinstance(attempted(grouped, model), Caught):
                ledger.add("annotate", f"{node.name} shares with no other: {why}")
                return
            node.meta.pop(Q_ANNOTATION_KEY)
            unmark_quantized(node)
            ledger.add("annotate", why, node)


@contextmanager
def disguised(nodes: Iterable[Node]) -> Iterator[None]:
    """Let annotators see nodes as taken already and as calls of nothing they know, while the block runs."""
    calls = [n for n in nodes if n.op == "call_function"]
    targets = [n.target for n in calls]
    with hidden_from_annotators(nodes):
        for node in calls:
            node.target = left_alone
        try:
            yield
        finally:
            for node, target in zip(calls, targets, strict=True):
                node.target = target


def left_alone(*args: Any, **kwargs: Any) -> None:
    """Stand in for the operator of a node that no annotator shall know; never called."""


def _metas(model: GraphModule) -> dict[Node, dict[str, Any]]:
    return {node: own_meta(node) for node in model.graph.nodes}


def _reset(metas: dict[Node, dict[str, Any]]) -> None:
    for node, meta in metas.items():
        node.meta.clear()
        node.meta.update(meta)
