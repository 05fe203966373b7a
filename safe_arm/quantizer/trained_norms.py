"""Let a batch norm that is trained stand directly behind its layer, and an activation directly behind the norm.

Stock annotates the three as one, which torchao folds when training is over, only if no node stands between them
(executorch/backends/cortex_m/quantizer/pattern_matcher.py). A pass that traces the graph again, as for a pool, puts the
norm's own parameters there; an export puts the layer of another branch. The norm then stays float on the CPU, and cuts
the delegate at every layer.

torchao gives a layer without a bias the norm's when training is over, too late to be quantised: stock's layer stays
float with it. Such a layer has a bias of zero from the start, which is quantised as every other bias.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.fx import GraphModule, Node

from safe_arm._compat.annotations import Q_ANNOTATION_KEY
from safe_arm.core.attributes import attribute
from safe_arm.quantizer.graph_edits import add_constant, tensor_of
from safe_arm.quantizer.trained_names import COUNTER

_NORM = torch.ops.aten.batch_norm.default
#: Place of the flag that tells whether a norm is trained.
_TRAINING = 5
#: Layers that torchao folds a trained norm into; they take input, weight, bias.
_LAYERS = (
    torch.ops.aten.conv1d.default,
    torch.ops.aten.conv2d.default,
    torch.ops.aten.conv_transpose1d.default,
    torch.ops.aten.conv_transpose2d.input,
)
#: Activations that stock annotates with the layer in front of them.
_ACTIVATIONS = (
    torch.ops.aten.relu.default,
    torch.ops.aten.relu_.default,
    torch.ops.aten.hardtanh.default,
    torch.ops.aten.hardtanh_.default,
)


def join_norms(model: GraphModule) -> None:
    """Move each batch norm behind the layer that it alone reads, with its activation, and give the layer a bias.

    Args:
        model: a float graph before annotation; changed in place.
    """
    found = model.graph.find_nodes(op="call_function", target=_NORM)
    norms = list(found)
    for norm in norms:
        layer = norm.args[0]
        if not _is_layer(layer) or not _is_own(norm):
            continue
        for parameter in norm.all_input_nodes[1:]:
            if layer < parameter:
                layer.prepend(parameter)
        _put_behind(layer, norm)
        _give_bias(model, layer, norm)
        readers = list(norm.users)
        if len(readers) == 1 and readers[0].target in _ACTIVATIONS:
            _put_behind(norm, readers[0])
    if norms:
        model.recompile()


@contextmanager
def counters_kept(model: GraphModule) -> Iterator[None]:
    """Give how many batches a norm has seen back when the block ends: a pass that folds constants counts one more.

    Args:
        model: the float graph, whose buffers are the user's.
    """
    before = []
    for name, counter in model.named_buffers():
        if name.endswith(COUNTER):
            before.append((counter, counter.clone()))
    try:
        yield
    finally:
        for counter, value in before:
            if not torch.equal(counter, value):
                counter.copy_(value)


def keep_statistics(model: GraphModule) -> None:
    """Leave the parameters and statistics of trained batch norms float: 1.4 quantises them.

    A norm that reads a fake-quantised copy moves the statistics of that copy.

    Args:
        model: an annotated float graph; its annotations are changed in place.
    """
    for norm in model.graph.find_nodes(op="call_function", target=_NORM):
        annotation = norm.meta.get(Q_ANNOTATION_KEY)
        if annotation is None or norm.args[_TRAINING] is not True:
            continue
        for parameter in norm.all_input_nodes[1:]:
            annotation.input_qspec_map.pop(parameter, None)
            parameter.meta.pop(Q_ANNOTATION_KEY, None)


def _is_layer(node: object) -> bool:
    """Return whether a node is a layer whose result nobody but a norm reads."""
    if not isinstance(node, Node) or len(node.users) != 1:
        return False
    return node.target in _LAYERS


def _is_own(norm: Node) -> bool:
    """Return whether a norm is trained, with parameters and statistics that no other operator reads or writes."""
    if norm.args[_TRAINING] is not True:
        return False
    readers: set[Node] = set()
    for parameter in norm.all_input_nodes[1:]:
        if parameter.op != "get_attr":
            return False
        readers.update(parameter.users)
    return readers == {norm}


def _give_bias(model: GraphModule, layer: Node, norm: Node) -> None:
    """Let a layer that has no bias add zeros, of the shape of the norm's mean."""
    source, weight, *more = layer.args
    mean = norm.args[3]
    like = tensor_of(mean)
    if more and more[0] is not None:
        return
    if not isinstance(mean, Node) or like is None:
        return
    zeros = torch.zeros_like(attribute(model, mean.target))
    # torchao replaces a parameter by that of the norm, and no buffer; the norm takes away what would be learnt here.
    zeros = torch.nn.Parameter(zeros, requires_grad=False)
    with model.graph.inserting_before(layer):
        bias = add_constant(model, f"bias_of_{layer.name}", zeros, like)
    layer.args = (source, weight, bias, *more[1:])


def _put_behind(node: Node, reader: Node) -> None:
    if node.next is not reader:
        node.append(reader)
