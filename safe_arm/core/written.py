"""How an operator was written in the user's model: in which module, and what it was before it was decomposed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch.fx import Node

from safe_arm.core.island import op_name

#: Classes of torch's own that are layers; what is called in any other module was written as a function.
_LAYERS = "torch.nn.modules."
_NO_LAYERS = ("torch.nn.modules.container.", "torch.nn.modules.module.")


def module_path(node: Node) -> str:
    """Return the path of the innermost module a node was called in, such as ``d1.c``; empty for the model itself."""
    path, _ = _innermost(node)
    return path


def written(node: Node) -> str:
    """Return what a user would call a node's operator, if that is not its own name.

    That is the class of a layer of torch's (``ReLU6``, ``SiLU``), all operators of a layer alike, or the ATen operator
    that was exported (``aten::silu``) where it was decomposed or replaced since; else empty.
    """
    _, layer = _innermost(node)
    if layer.startswith(_LAYERS) and not layer.startswith(_NO_LAYERS):
        return layer.rsplit(".", 1)[-1]
    exported = next(
        (
            name
            for target in reversed(list(_targets(node)))
            if (name := _schema_name(target))
        ),
        "",
    )
    return "" if _plain(exported) == _plain(op_name(node)) else exported


def model_class(nodes: Iterable[Node]) -> str:
    """Return the name of the model's class, such as ``UNet``; empty if it is torch's own or export kept none."""
    outermost = (
        next(iter((node.meta.get("nn_module_stack") or {}).values()), ("", ""))
        for node in nodes
    )
    names = (_class_name(layer) for _, layer in outermost)
    return next(
        (name for name in names if name and not name.startswith("torch.")), ""
    ).rsplit(".", 1)[-1]


def _innermost(node: Node) -> tuple[str, str]:
    """Return the path and the class of the innermost module; both empty if export kept none."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, layer = stack[-1] if stack else ("", "")
    return str(path), _class_name(layer)


def _class_name(layer: str | type) -> str:
    return (
        layer if isinstance(layer, str) else f"{layer.__module__}.{layer.__qualname__}"
    )


def _targets(node: Node) -> Iterator[str]:
    """Yield what a node and the nodes it was made from call, back to the export of the user's model."""
    sources = node.meta.get("from_node") or []
    while sources:
        yield str(sources[0].target)
        sources = sources[0].from_node


def _schema_name(target: str) -> str:
    """Return ``aten::silu`` for ``aten.silu.default``; empty for what is no ATen operator."""
    namespace, _, rest = target.partition(".")
    return f"aten::{rest.partition('.')[0]}" if namespace == "aten" and rest else ""


def _plain(name: str) -> str:
    """Return an operator's name without what tells a copying or in-place form apart; empty stays empty."""
    return name.removesuffix("_copy").removesuffix("_")
