"""The names of a program's outputs: the keys under which the net returns them, else their numbers."""

from __future__ import annotations

from typing import Any

from torch.utils._pytree import TreeSpec, tree_flatten_with_path, tree_unflatten


def output_names(spec: TreeSpec | None, count: int) -> list[str]:
    """Return the names of the outputs, such as ``logits``, ``aux[1]`` or ``output 0``.

    Args:
        spec: the structure in which the net returns them; None if it is not known.
        count: how many there are.
    """
    names = [f"output {index}" for index in range(count)]
    if spec is None or spec.num_leaves != count:
        return names
    paths, _ = tree_flatten_with_path(tree_unflatten(names, spec))
    for index, (path, _) in enumerate(paths):
        names[index] = _named(path) or names[index]
    return names


def _named(path: tuple[Any, ...]) -> str:
    """Return the last key of a path with the indices after it; empty if it has no key."""
    name = ""
    for step in path:
        key = getattr(step, "key", getattr(step, "name", None))
        if key is not None:
            name = str(key)
        elif name:
            name += f"[{step.idx}]"
    return name
