"""Facts about an operator that its schema states."""

from __future__ import annotations

from typing import Any

from torch.fx import Node


def schema_of(node: Node) -> Any:
    """Return the schema of a node's operator; None if it has none."""
    return getattr(node.target, "_schema", None)


def is_mutable(node: Node) -> bool:
    """Return whether an operator writes into one of its arguments."""
    schema = schema_of(node)
    return schema is not None and schema.is_mutable


def written_arguments(node: Node) -> list[Any]:
    """Return the arguments that an operator writes into."""
    written: list[Any] = []
    schema = schema_of(node)
    if schema is None:
        return written
    for index, parameter in enumerate(schema.arguments):
        alias = parameter.alias_info
        if alias is None or not alias.is_write:
            continue
        if index < len(node.args):
            written.append(node.args[index])
        else:
            written.append(node.kwargs.get(parameter.name))
    return written


def may_alias(node: Node) -> bool:
    """Return whether the result of an operator may share memory with an argument."""
    schema = schema_of(node)
    if schema is None:
        return False
    return any(result.alias_info is not None for result in schema.returns)


def arguments_by_name(node: Node) -> dict[str, Any]:
    """Return the arguments of an operator by the names in its schema, defaults included."""
    arguments = {}
    for index, parameter in enumerate(schema_of(node).arguments):
        if index < len(node.args):
            arguments[parameter.name] = node.args[index]
        elif parameter.name in node.kwargs:
            arguments[parameter.name] = node.kwargs[parameter.name]
        elif parameter.has_default_value():
            arguments[parameter.name] = parameter.default_value
    return arguments
