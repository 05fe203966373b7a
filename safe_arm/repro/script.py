"""The script of a repro: a module of the demoted nodes, and the stock flow that exports and lowers it."""

from __future__ import annotations

import re
from functools import cache

import torch
from jinja2 import Template
from torch import Tensor
from torch.fx import Node

from safe_arm._compat.compile_specs import SpecSource
from safe_arm.core.sizes import example_size
from safe_arm.core.templates import templates
from safe_arm.repro.source_code import Source, comment, literal, packed

#: Names that the script uses itself.
TAKEN = frozenset(
    ("EXPECTED", "QUANTISED", "Unit", "WEIGHTS", "Path", "base64", "main")
)
TAKEN |= {"packed", "root", "sys", "zlib", "traceback", "Delegates", "apart"}
TAKEN |= {"EdgeCompileConfig", "to_edge_transform_and_lower", "annotate"}
TAKEN |= {"preserve_node_meta", "tosa_reference_model"}
_STOCK = "from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower"
_MARKING = "from torch.fx.traceback import annotate, preserve_node_meta"
_AUTO = "torch.export.Dim.AUTO"


def script(
    source: Source,
    spec: SpecSource,
    expected: str | None,
    *,
    beside: bool,
    differs: bool = False,
) -> str:
    """Return the text of a script, which is ``script.py.j2`` filled in.

    Args:
        source: the code of the nodes that it lowers.
        spec: the compile spec it lowers for.
        expected: the class of the exception that stock raises, None for any.
        beside: true if the weights are in a ``.pt`` file of the script's name.
        differs: stock may raise nothing; then its delegates are run and compared. For a TOSA compile spec only.
    """
    values = {}
    for name, constant in source.constants.items():
        values[name] = f"WEIGHTS[{name!r}]"
        if not beside:
            values[name] = packed(constant.value.detach())
    packs = any("packed(" in value for value in values.values())
    standard = {"sys", "traceback"}
    if packs:
        standard |= {"base64", "zlib"}
    statements = "\n".join((*source.body, *source.functions))
    for name in ("math", "operator"):
        if re.search(rf"\b{name}\.", statements):
            standard.add(name)
    imports = [*spec.imports, _STOCK]
    if source.marked:
        imports.append(_MARKING)
    examples = []
    for node, name in source.arguments.items():
        examples.append((_example(node, random=differs), name))
    return _template().render(
        source=source,
        spec=spec,
        expected=expected,
        beside=beside,
        differs=differs,
        values=values,
        packs=packs,
        standard=sorted(standard),
        imports=sorted(imports),
        examples=examples,
        dynamic=_dynamic(source),
    )


@cache
def _template() -> Template:
    environment = templates("safe_arm.repro", "")
    environment.globals |= {"repr": repr, "comment": comment}
    return environment.get_template("script.py.j2")


def _example(node: Node, *, random: bool) -> str:
    """Return an expression for an example of an argument.

    Args:
        node: the node that the argument stands for.
        random: every code of an integer type and floats in [-1, 1]. Zeros otherwise: the lowering asks for shape, dtype
            and strides only.
    """
    value = node.meta["val"]
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return literal(value.node.hint)
    if not isinstance(value, Tensor):
        return literal(value)
    shape = tuple(map(example_size, value.shape))
    dtype = value.dtype
    strides = tuple(map(example_size, value.stride()))
    strided = f"torch.empty_strided({shape}, {strides}, dtype={dtype})"
    if not random:
        if value.is_contiguous():
            return f"torch.zeros({shape}, dtype={dtype})"
        return f"{strided}.zero_()"
    if dtype.is_floating_point:
        values = f"torch.empty({shape}, dtype={dtype}).uniform_(-1, 1)"
    elif dtype == torch.bool:
        values = f"torch.rand({shape}) < 0.5"
    else:
        limits = torch.iinfo(dtype if dtype.itemsize < 4 else torch.int8)
        bounds = f"{limits.min}, {limits.max + 1}"
        values = f"torch.randint({bounds}, {shape}, dtype={dtype})"
    return values if value.is_contiguous() else f"{strided}.copy_({values})"


def _dynamic(source: Source) -> str:
    """Return the argument for sizes that were dynamic in the user's export, empty if none was."""
    shapes = []
    for node in source.arguments:
        value = node.meta["val"]
        if isinstance(value, torch.SymInt):
            shapes.append(_AUTO)
            continue
        dims: list[str] = []
        if isinstance(value, Tensor):
            for dim, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt):
                    dims.append(f"{dim}: {_AUTO}")
        shapes.append(f"{{{', '.join(dims)}}}")
    listed = ", ".join(shapes)
    return f", dynamic_shapes=({listed},)" if _AUTO in listed else ""
