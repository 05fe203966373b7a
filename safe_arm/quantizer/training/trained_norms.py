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
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm._compat.annotations import Q_ANNOTATION_KEY, annotation_of
from safe_arm.core.attributes import stored_value
from safe_arm.core.doubts import COUNTER
from safe_arm.core.island import arguments_by_name, graph_modules, op_name
from safe_arm.core.operators import named
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    calls,
    is_float32,
    is_read_once,
    replace_node,
)
from safe_arm.quantizer.spellings.spelled_norms import as_image, from_image

_ATEN = torch.ops.aten
NORM = _ATEN.batch_norm.default
#: Place of the flag that tells whether a norm is trained.
_TRAINING = 5
#: Layers that a norm is folded into; they take input, weight, bias.
_LAYERS = named("linear conv1d conv2d conv3d")
_TRANSPOSED = named("conv_transpose1d conv_transpose2d conv_transpose3d")
#: Buffers, each with a copy.
Counters = list[tuple[Tensor, Tensor]]
#: Activations that stock annotates with the layer in front of them.
_ACTIVATIONS = (
    _ATEN.relu.default,
    _ATEN.relu_.default,
    _ATEN.hardtanh.default,
    _ATEN.hardtanh_.default,
)


def give_norms_layers(model: GraphModule) -> None:
    """Write a convolution of each channel with 1 in front of each batch norm that no layer of its own stands before.

    The norm is folded into it when training is over.

    Args:
        model: a float graph that is going to be trained, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        for norm in calls(module, NORM):
            if is_float32(norm) and layer_of(norm) is None and _is_stored(norm):
                _give_layer(norm, norm.meta["val"])
        module.recompile()


def join_norms(model: GraphModule) -> None:
    """Move each batch norm behind the layer that it alone reads, with its activation, and give the layer a bias.

    Args:
        model: a float graph before annotation that is going to be trained; changed in place.
    """
    for norm in calls(model, NORM):
        layer = layer_of(norm)
        if layer is None:
            continue
        for parameter in norm.all_input_nodes[1:]:
            if layer < parameter:
                layer.prepend(parameter)
        _put_behind(layer, norm)
        _give_bias(layer, norm)
        readers = list(norm.users)
        if len(readers) == 1 and readers[0].target in _ACTIVATIONS:
            _put_behind(norm, readers[0])
    model.recompile()


def layer_of(norm: Node) -> Node | None:
    """Return the layer that a norm can be folded into: nothing else reads its result. None if there is none."""
    layer = norm.args[0]
    if not is_read_once(layer):
        return None
    if op_name(layer) not in _LAYERS | _TRANSPOSED or not _is_stored(norm):
        return None
    for parameter in layer.args[1:3]:
        if isinstance(parameter, Node) and parameter.op != "get_attr":
            return None
    if not is_float32(layer):
        return None
    # A layer of rows has its channels last, a norm has them second.
    if op_name(layer) == "aten::linear" and layer.meta["val"].dim() != 2:
        return None
    if op_name(layer) in _TRANSPOSED and arguments_by_name(layer)["groups"] != 1:
        return None
    return layer


def output_dim(layer: Node) -> int:
    """Return the dimension of a layer's weights that its outputs are in."""
    return 1 if op_name(layer) in _TRANSPOSED else 0


@contextmanager
def counters_kept(model: GraphModule) -> Iterator[None]:
    """Give how many batches a norm has seen back when the block ends: a pass that folds constants counts one more.

    Args:
        model: the float graph, whose buffers are the user's.
    """
    before = _counters_of(model)
    try:
        yield
    finally:
        _put_back(before)


@contextmanager
def counted_once(model: GraphModule) -> Iterator[None]:
    """Give how many batches a norm has seen back if the block raises: it is run again without what it raises on."""
    before = _counters_of(model)
    try:
        yield
    except Exception:
        _put_back(before)
        raise


def _counters_of(model: GraphModule) -> Counters:
    """Return how many batches each norm has seen: the user's buffers, each with a copy."""
    counters = []
    for name, counter in model.named_buffers():
        if name.endswith(COUNTER):
            counters.append((counter, counter.clone()))
    return counters


def _put_back(counters: Counters) -> None:
    """Give buffers the values of their copies."""
    for counter, value in counters:
        if not torch.equal(counter, value):
            counter.copy_(value)


def keep_statistics(model: GraphModule) -> None:
    """Leave the parameters and statistics of batch norms that are trained or folded float: 1.4 quantises them.

    A norm that reads a fake-quantised copy moves the statistics of that copy.

    Args:
        model: an annotated float graph; its annotations are changed in place.
    """
    for norm in calls(model, NORM):
        annotation = annotation_of(norm)
        if annotation is None:
            continue
        if norm.args[_TRAINING] is not True and layer_of(norm) is None:
            continue
        for parameter in norm.all_input_nodes[1:]:
            annotation.input_qspec_map.pop(parameter, None)
            parameter.meta.pop(Q_ANNOTATION_KEY, None)


def _is_stored(norm: Node) -> bool:
    """Return whether a norm has statistics, and reads them and its parameters from the module."""
    if norm.args[3] is None or norm.args[4] is None:
        return False
    return all(each.op == "get_attr" for each in norm.all_input_nodes[1:])


def _give_layer(norm: Node, value: Tensor) -> None:
    write = Writer(norm)
    source = norm.all_input_nodes[0]
    image = as_image(write, source)
    if image is None:
        return
    channels = int(value.shape[1])
    kernels = torch.ones(channels, 1, 1, 1, device=value.device)
    kernel = write.constant(kernels, "ones")
    one, none = [1, 1], [0, 0]
    layer = write(_ATEN.conv2d.default, image, kernel, None, one, none, one, channels)
    own = write(NORM, layer, *norm.args[1:])
    replace_node(norm, from_image(write, own, value.shape))


def _give_bias(layer: Node, norm: Node) -> None:
    """Let a layer that has no bias add zeros, of the shape of the norm's mean."""
    source, weight, *more = layer.args
    mean = norm.args[3]
    has_bias = bool(more) and more[0] is not None
    if has_bias or not isinstance(mean, Node):
        return
    zeros = torch.zeros_like(stored_value(mean))
    # The norm takes away what would be learnt here.
    zeros = torch.nn.Parameter(zeros, requires_grad=False)
    bias = Writer(layer).constant(zeros, "bias_of")
    layer.args = (source, weight, bias, *more[1:])


def _put_behind(node: Node, reader: Node) -> None:
    if node.next is not reader:
        node.append(reader)
