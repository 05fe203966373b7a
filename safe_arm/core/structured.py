"""Read values of dataclasses from JSON's own types, as ``dataclasses.asdict`` writes them."""

from __future__ import annotations

from dataclasses import is_dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints


def structured(kind: Any, content: Any) -> Any:
    """Return the value of a type that some content stands for.

    Args:
        kind: a dataclass, a tuple of one type, a type or None; content of any other type is returned as it is.
        content: the value in JSON's types.

    Raises:
        KeyError: a dataclass has no such field, or the content lacks one.
        TypeError: the content of a dataclass or a tuple is something else.
    """
    arguments = get_args(kind)
    if get_origin(kind) is tuple:
        return tuple([structured(arguments[0], each) for each in content])
    if get_origin(kind) is UnionType and content is not None:
        return structured(arguments[0], content)
    if not is_dataclass(kind):
        return content
    rest = dict(content)
    values = {}
    for name, hint in get_type_hints(kind).items():
        values[name] = structured(hint, rest.pop(name))
    if rest:
        raise KeyError(next(iter(rest)))
    return kind(**values)  # type: ignore[operator]
