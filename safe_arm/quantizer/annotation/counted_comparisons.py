"""Comparisons that are counted for an index stay float.

Where two values have one code, a comparison gives another truth value than in the float net. Counted, it is another
place, or one outside of the tensor: a sparsemax that no value supports gathers at -1, which kills the program. Where
sorted values are compared with their running sums, every result of theirs alone stays float: a threshold that is
counted or chosen by a tie is another one, and sorting is done on the CPU in any case.
"""

from __future__ import annotations

from collections.abc import Callable

from torch.fx import GraphModule, Node

from safe_arm._compat.annotations import Q_ANNOTATION_KEY
from safe_arm.core.island import (
    CONV_LIKE,
    DECOMPOSED_LINEAR,
    call_functions,
    op_name,
)
from safe_arm.core.operators import named
from safe_arm.quantizer.graphs.graph_edits import depends_on_input, tensor_of

_READ_AT_INDICES = named("gather index index_select take take_along_dim")
_COUNTS = named("sum count_nonzero cumsum")
_COMPARISONS = named("eq ge gt le lt ne")
#: Operators that are as exact in float as what they read.
_ARITHMETIC = named("add cumsum div mul neg rsub sub")
_WHY = "it is compared and counted for an index, and a tie in codes would count another number"
_SORTS = named("sort topk")
_RUNNING_SUMS = named("cumsum")
#: Operators that are left to the delegate, whatever they read.
_LAYERS = CONV_LIKE | DECOMPOSED_LINEAR | named("matmul")
_WHY_SORTED = "sorted values are compared with their running sums, and a tie in codes would choose others"


def counted_for_indices(model: GraphModule) -> dict[Node, str]:
    """Return annotated comparisons whose count is an index, and the arithmetic they compare, with why they stay float.

    Args:
        model: an annotated float graph.
    """
    indices = []
    for reader in call_functions(model):
        if op_name(reader) in _READ_AT_INDICES:
            indices += reader.all_input_nodes
    counts = []
    for node in _before(indices, _is_no_float):
        if op_name(node) in _COUNTS:
            counts += node.all_input_nodes
    reasons = {}
    for node in _before(counts, _is_no_float):
        if op_name(node) in _COMPARISONS:
            for each in (node, *_before(node.all_input_nodes, _is_arithmetic)):
                if Q_ANNOTATION_KEY in each.meta:
                    reasons[each] = _WHY
    return reasons


def chosen_of_sorted(model: GraphModule) -> dict[Node, str]:
    """Return annotated operators on sorted values alone that are compared with their running sums, with why.

    Args:
        model: an annotated float graph.
    """
    reasons = {}
    for node in call_functions(model):
        if op_name(node) not in _SORTS:
            continue
        results = _results_of(node)
        if not _compares_sums(results):
            continue
        for each in results:
            if Q_ANNOTATION_KEY in each.meta:
                reasons[each] = _WHY_SORTED
    return reasons


def _results_of(sort: Node) -> dict[Node, None]:
    """Return a sort and what is computed of it and of constants alone, in graph order."""
    results = {sort: None}
    for node in sort.graph.nodes:
        if node.op != "call_function" or op_name(node) in _LAYERS:
            continue
        inputs = node.all_input_nodes
        others = [each for each in inputs if each not in results]
        if len(others) < len(inputs) and not any(map(depends_on_input, others)):
            results[node] = None
    return results


def _compares_sums(results: dict[Node, None]) -> bool:
    for node in results:
        if op_name(node) not in _COMPARISONS:
            continue
        compared = _before(node.all_input_nodes, results.__contains__)
        if not _RUNNING_SUMS.isdisjoint(map(op_name, compared)):
            return True
    return False


def _before(sources: list[Node], goes_on: Callable[[Node], bool]) -> list[Node]:
    """Return values and what they are computed of, as long as a node is one to go on from."""
    nodes: dict[Node, None] = {}
    waiting = list(sources)
    while waiting:
        node = waiting.pop()
        if node not in nodes and goes_on(node):
            nodes[node] = None
            waiting += node.all_input_nodes
    return list(nodes)


def _is_no_float(node: Node) -> bool:
    value = tensor_of(node)
    return value is not None and not value.is_floating_point()


def _is_arithmetic(node: Node) -> bool:
    return op_name(node) in _ARITHMETIC
