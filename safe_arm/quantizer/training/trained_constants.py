"""Keep trainable what a net computes of its parameters alone, in quantisation-aware training.

Stock folds such values into constants before annotation: position embeddings of which a part is read, the gains of a
layer scale, weights that are normalised. They have no gradient then (known issue T47).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from executorch.backends.arm.quantizer import QuantizationConfig
from torch.fx import GraphModule, Node
from torch.nn import Parameter
from torchao.quantization.pt2e.fake_quantize import FakeQuantizeBase

from safe_arm.core.attributes import stored_value
from safe_arm.core.island import graph_modules, op_name
from safe_arm.core.operators import RESHAPES, named
from safe_arm.quantizer.graphs.constant_values import ConstantValues
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    moved_from,
    tensor_of,
)
from safe_arm.quantizer.graphs.own_names import write_name

#: Begins the name of what is computed of parameters.
COMPUTED = "computed of "
_RESHAPES = RESHAPES | named("squeeze unsqueeze")
#: Operators that leave a value as it is if it keeps its shape.
_WHOLES = named("slice expand alias clone")
#: Parameters by their names.
Parameters = dict[str, Parameter]
#: The warning about a parameter that is left as it is.
UNTRAINED = (
    "parameter {!r} is not trained where constants are computed of it: that is done before training begins, and its "
    "values are repeated or read several times; read it once (export with a batch of one), or train it before"
)


def is_for_training(config: QuantizationConfig | None) -> bool:
    """Return whether a config asks for fake-quantise modules."""
    spec = config and config.input_activation
    make = getattr(spec, "observer_or_fake_quant_ctr", None)
    made = getattr(getattr(make, "p", None), "func", None)
    return isinstance(made, type) and issubclass(made, FakeQuantizeBase)


@dataclass(frozen=True)
class Stored:
    """Parameters that stand in a graph for values which it computes of parameters alone.

    Attributes:
        values: parameters with these values, by the names of the parameters that they are computed of.
        shared: the names of parameters that are not, because their values are repeated or read several times.
    """

    values: Parameters
    shared: tuple[str, ...]


def store_trained_values(
    model: GraphModule, config: QuantizationConfig | None, *, only_views: bool = False
) -> Stored:
    """Replace what a graph computes of parameters alone by a parameter with its value, if the net is to be trained.

    Values of a parameter that are repeated, or read several times, would be trained apart. These are left as they are:
    what is computed of parameters may have as many elements as they have.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
        config: the quantiser's.
        only_views: leave alone what is not a view or a part of one parameter, and name its parameters.
    """
    stored: Parameters = {}
    shared: Parameters = {}
    if is_for_training(config):
        for module in graph_modules(model):
            computed = _Computed(module)
            for node, parameters in computed.values.items():
                if only_views and moved_from(node).op != "get_attr":
                    shared.update(parameters)
                    continue
                if not computed.is_apart(parameters):
                    shared.update(parameters)
                    continue
                is_reshaped = _is_reshaped(node)
                value = computed.value_of(node, is_copied=not is_reshaped)
                name = ", ".join(parameters)
                if not is_reshaped:
                    name = f"{COMPUTED}{name}"
                stored[name] = value
                # Several parts of one parameter have its name.
                write_name(_replaced(node, value), name)
            module.graph.eliminate_dead_code()
            module.recompile()
    return Stored(stored, tuple(shared))


class _Computed:
    """Values that a graph computes of its parameters alone, and that an operator reads which depends on an input.

    Attributes:
        values: the nodes, each with the parameters that it is computed of.
    """

    def __init__(self, module: GraphModule) -> None:
        self.values: dict[Node, Parameters] = {}
        self._module = module
        self._constants = ConstantValues(module, of_parameters=True)
        self._sources: dict[Node, Parameters] = {}
        self._read: dict[str, float] = defaultdict(float)
        for node in module.graph.nodes:
            sources = self._sources_of(node)
            self._sources[node] = sources
            if sources and self._is_last(node):
                self._add(node, sources)

    def is_apart(self, parameters: Parameters) -> bool:
        """Return whether no element of these parameters is read twice."""
        return all(
            self._read[name] <= parameter.numel()
            for name, parameter in parameters.items()
        )

    def value_of(self, node: Node, *, is_copied: bool) -> Parameter:
        """Return what a node gives, as a parameter."""
        value = self._constants.of(node)
        assert value is not None
        value = value.detach()
        return Parameter(value.clone() if is_copied else value)

    def _sources_of(self, node: Node) -> Parameters:
        """Return the parameters of which a node is computed, and of nothing that depends on an input."""
        if node.op == "get_attr":
            return self._own(node)
        sources: Parameters = {}
        if node.op != "call_function" or self._constants.of(node) is None:
            return sources
        for each in node.all_input_nodes:
            sources |= self._sources[each]
        return sources

    def _own(self, node: Node) -> Parameters:
        value = stored_value(node)
        if isinstance(value, Parameter) and value.requires_grad:
            return {str(node.target): value}
        return {}

    def _is_last(self, node: Node) -> bool:
        return any(self._constants.of(reader) is None for reader in node.users)

    def _add(self, node: Node, parameters: Parameters) -> None:
        """Note what is read of these parameters; each has its share of the elements."""
        elements = 0
        for parameter in parameters.values():
            elements += parameter.numel()
        value = self._constants.of(node)
        assert value is not None
        share = value.numel() / max(elements, 1)
        for name, parameter in parameters.items():
            self._read[name] += share * parameter.numel()
        if node.op == "call_function":
            self.values[node] = parameters


def _is_reshaped(node: Node) -> bool:
    """Return whether a value has the elements of a parameter in their order."""
    while node.op == "call_function":
        source = node.args[0]
        before, after = tensor_of(source), tensor_of(node)
        if not isinstance(source, Node) or before is None or after is None:
            return False
        is_whole = op_name(node) in _WHOLES and before.shape == after.shape
        if op_name(node) not in _RESHAPES and not is_whole:
            return False
        node = source
    return node.op == "get_attr"


def _replaced(node: Node, value: Parameter) -> Node:
    """Return what reads a parameter in the place of a value."""
    constant = Writer(node).constant(value, "trained")
    node.replace_all_uses_with(constant)
    return constant
