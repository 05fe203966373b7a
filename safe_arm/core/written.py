"""The place of an operator in the user's model: its module, and the operator it was decomposed from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch.fx import Node
from torch.fx.traceback import NodeSource

from safe_arm.core.island import op_name

#: Classes of torch's own that are layers; what is called in any other module was written as a function.
_LAYERS = "torch.nn.modules."
_NO_LAYERS = ("torch.nn.modules.container.", "torch.nn.modules.module.")


def module_path(node: Node) -> str:
    """Return the path of the innermost module a node was called in, such as ``d1.c``; empty for the model itself."""
    path, _ = _innermost(node)
    return path


def written(node: Node) -> str:
    """Return the user's name of a node's operator, if it differs from the operator's own.

    That is the class of a layer of torch's (``ReLU6``, ``SiLU``), for every operator of the layer, or the ATen operator
    that was exported (``aten::silu``) where it was decomposed or replaced since; else empty.
    """
    _, layer = _innermost(node)
    if layer.startswith(_LAYERS) and not layer.startswith(_NO_LAYERS):
        return layer.rsplit(".", 1)[-1]
    exported = exported_operator(node)
    return "" if _plain(exported) == _plain(op_name(node)) else exported


def exported_operator(node: Node) -> str:
    """Return the ATen operator that was exported where a node is now, such as ``aten::silu``; empty if unknown."""
    exported = ""
    for target in _targets(node):
        namespace, _, rest = target.partition(".")
        if namespace == "aten" and rest:
            exported = f"aten::{rest.partition('.')[0]}"
    return exported


def earlier_names(node: Node) -> tuple[str, ...]:
    """Return the names that a node and those it was made from had in the graphs before, without those of its own."""
    names: dict[str, None] = {}
    for source in _sources(node):
        names[str(source.name)] = None
    names.pop(node.name, None)
    return tuple(names)


def model_class(nodes: Iterable[Node]) -> str:
    """Return the name of the model's class, such as ``UNet``; empty if it is torch's own or export kept none."""
    for node in nodes:
        for _, layer in _modules(node)[:1]:
            name = _class_name(layer)
            if name and not name.startswith("torch."):
                return name.rsplit(".", 1)[-1]
    return ""


def module_paths(node: Node) -> list[str]:
    """Return the names of the modules a node was called in, the outermost first; the net itself has the empty one."""
    return [str(path).removeprefix("L['self'].") for path, _ in _modules(node)]


def _innermost(node: Node) -> tuple[str, str]:
    """Return the path and the class of the innermost module; both empty if export kept none."""
    for path, layer in _modules(node)[-1:]:
        return str(path), _class_name(layer)
    return "", ""


def _modules(node: Node) -> list[tuple[str, str | type]]:
    """Return path and class of the modules a node was called in, the outermost first."""
    return list((node.meta.get("nn_module_stack") or {}).values())


def _class_name(layer: str | type) -> str:
    if isinstance(layer, str):
        return layer
    return f"{layer.__module__}.{layer.__qualname__}"


def _targets(node: Node) -> Iterator[str]:
    """Yield what a node and the nodes it was made from call, back to the export of the user's model."""
    for source in _sources(node):
        yield str(source.target)


def _sources(node: Node) -> Iterator[NodeSource]:
    """Yield the nodes that a node was made from, back to the export of the user's model."""
    sources = node.meta.get("from_node") or []
    while sources:
        yield sources[0]
        sources = sources[0].from_node


def _plain(name: str) -> str:
    """Return an operator's name without the suffix of its copying or in-place form."""
    return name.removesuffix("_copy").removesuffix("_")
