"""Plant a fault into one real pass of the Arm pipeline: what it does is done, and then a little more or less."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import executorch.backends.arm._passes as arm_passes
import torch
from executorch.backends.arm._passes.arm_pass_utils import get_param_tensor
from executorch.exir.dialects._ops import ops as exir_ops
from faults import replaced
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from safe_arm.core.island import op_name

#: Changes a graph after (or before) a pass has run on it and tells whether it found what it changes.
Change = Callable[["Site"], bool]


class Site:
    """The pass at work and the graph it works on."""

    def __init__(self, working: Any, graph_module: GraphModule) -> None:
        self.working, self.graph_module, self.graph = working, graph_module, graph_module.graph

    def calls(self, *names: str) -> list[Node]:
        """The operators of those names, such as ``tosa::CONV2D``, in graph order."""
        return [node for node in self.graph.nodes if op_name(node) in names]

    def rescales_of(self, *names: str) -> list[Node]:
        """The RESCALEs that read an operator of those names."""
        return [n for n in self.calls("tosa::RESCALE") if op_name(n.args[0]) in names]

    def rescales_for(self, name: str) -> list[Node]:
        """The RESCALEs that operators of that name read, in argument order."""
        return [n for call in self.calls(name) for n in call.args if op_name(n) == "tosa::RESCALE"]

    def tensor(self, constant: Node) -> torch.Tensor:
        """The data of a constant placeholder."""
        return get_param_tensor(self.working.exported_program, constant)

    def overwrite(self, constant: Node, data: torch.Tensor) -> bool:
        """Give a constant other data of the same shape; the tensor that was there is left alone."""
        program, before = self.working.exported_program, self.tensor(constant)
        assert (data.shape, data.dtype) == (before.shape, before.dtype)
        signature = program.graph_signature
        names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        names.update(signature.inputs_to_lifted_tensor_constants)
        name = names[constant.name]
        store = program.state_dict if name in program.state_dict else program.constants
        changed = not torch.equal(data, before)
        store[name] = torch.nn.Parameter(data, False) if isinstance(store[name], torch.nn.Parameter) else data.clone()
        return changed


@contextmanager
def planted(pass_name: str, change: Change, *, before: bool = False) -> Iterator[None]:
    """Plant a change into every run of a stock pass and its subclasses, after its work or before it reads the graph."""
    pass_class: Any = getattr(arm_passes, pass_name)
    stock = pass_class.call

    def call(self: Any, graph_module: GraphModule) -> PassResult:
        done = before and change(Site(self, graph_module))
        result = stock(self, graph_module)
        done = done or (not before and change(Site(self, result.graph_module)))
        return PassResult(result.graph_module, result.modified or done)

    with replaced(pass_class, "call", call):
        yield


# Changes


def _each(find: Callable[[Site], Iterable[Node]], edit: Callable[[Node], Any]) -> Change:
    """Edit each of the nodes that are found."""

    def change(site: Site) -> bool:
        nodes = list(find(site))
        for node in nodes:
            edit(node)
        return bool(nodes)

    return change


def _named(*names: str) -> Callable[[Site], list[Node]]:
    return lambda site: site.calls(*names)


def arg(index: int, value: Callable[[Any], Any], *names: str) -> Change:
    """Another value for one argument of every operator of those names."""
    return nodes_arg(_named(*names), index, value)


def kwarg(name: str, value: Callable[[Any], Any], *names: str) -> Change:
    """Another value for one keyword argument of every operator of those names."""
    return _each(_named(*names), lambda node: node.update_kwarg(name, value(node.kwargs[name])))


def nodes_arg(find: Callable[[Site], Iterable[Node]], index: int, value: Callable[[Any], Any]) -> Change:
    """Another value for one argument of the nodes that are found."""
    return _each(find, lambda node: node.update_arg(index, value(node.args[index])))


def swapped(first: int, second: int, *names: str) -> Change:
    """Two arguments of every operator of those names, swapped."""

    def edit(node: Node) -> None:
        args = list(node.args)
        args[first], args[second] = args[second], args[first]
        node.args = tuple(args)

    return _each(_named(*names), edit)


def data(index: int, value: Callable[[torch.Tensor], torch.Tensor], *names: str) -> Change:
    """Other data in the constant that every operator of those names has as an argument."""

    def change(site: Site) -> bool:
        constants = [node.args[index] for node in site.calls(*names)]
        changed = [site.overwrite(constant, value(site.tensor(constant))) for constant in constants]
        return any(changed)

    return change


def target(new: Any, *names: str, args: Callable[[tuple], tuple] = lambda args: args) -> Change:
    """Another operator in the place of every one of those names."""

    def edit(node: Node) -> None:
        node.target, node.args = new, args(node.args)

    return _each(_named(*names), edit)


def bypassed(*names: str) -> Change:
    """Every operator of those names gone, its first argument in its place."""

    def edit(node: Node) -> None:
        node.replace_all_uses_with(node.args[0])
        node.graph.erase_node(node)

    return _each(_named(*names), edit)


def qparams(edit: Callable[[dict, dict], None], *names: str) -> Change:
    """Other qparams in the metadata of every operator of those names: edit (input_qparams, output_qparams) in place."""

    def edited(node: Node) -> None:
        ins, outs = dict(node.meta.get("input_qparams", {})), dict(node.meta.get("output_qparams", {}))
        edit(ins, outs)
        node.meta["input_qparams"], node.meta["output_qparams"] = ins, outs

    return _each(_named(*names), edited)


def preceded(new: Any, args: tuple, *names: str) -> Change:
    """Another operator before the first argument of every one of those names, of the same shape and domain."""

    def edit(node: Node) -> None:
        source = node.args[0]
        with node.graph.inserting_before(node):
            extra = node.graph.call_function(new, (source, *args))
        extra.meta = dict(source.meta)
        node.replace_input_with(source, extra)

    return _each(_named(*names), edit)


def followed(new: Any, args: tuple, find: Callable[[Site], Iterable[Node]]) -> Change:
    """Another operator behind the nodes that are found, of the same shape and domain."""

    def edit(node: Node) -> None:
        with node.graph.inserting_after(node):
            extra = node.graph.call_function(new, (node, *args))
        extra.meta = dict(node.meta)
        node.replace_all_uses_with(extra, delete_user_cb=lambda user: user is not extra)

    return _each(find, edit)


def repeating_last(dim: int, *names: str) -> Change:
    """The last of a dimension is what the one before it is, in what every operator of those names gives."""
    aten = exir_ops.edge.aten

    def edit(node: Node) -> None:
        value = node.meta["val"]
        size = value.shape[dim]
        with node.graph.inserting_after(node):
            first = node.graph.call_function(aten.slice_copy.Tensor, (node, dim, 0, size - 1))
        with node.graph.inserting_after(first):
            last = node.graph.call_function(aten.slice_copy.Tensor, (node, dim, size - 2, size - 1))
        with node.graph.inserting_after(last):
            both = node.graph.call_function(aten.cat.default, ([first, last], dim))
        for each, of in ((first, (0, size - 1)), (last, (size - 2, size - 1)), (both, (0, size))):
            each.meta = {**node.meta, "val": value.narrow(dim, of[0], of[1] - of[0])}
            each.meta["input_qparams"] = dict.fromkeys((0, 1), node.meta["output_qparams"][0])
        node.replace_all_uses_with(both, delete_user_cb=lambda user: user not in (first, last))

    return _each(_named(*names), edit)
