"""The script of a repro: a module of what was demoted, and the stock flow that exports and lowers it."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

import torch
from jinja2 import Environment, StrictUndefined, Template
from torch import Tensor
from torch.fx import Node

from safe_arm._compat.compile_specs import SpecSource
from safe_arm.core.sizes import example_size
from safe_arm.repro.source_code import Source, comment, literal, packed

#: Names the script uses itself.
TAKEN = frozenset(
    (
        "EXPECTED",
        "QUANTISED",
        "Unit",
        "WEIGHTS",
        "Path",
        "base64",
        "main",
        "packed",
        "root",
        "sys",
        "zlib",
        "traceback",
    )
)
TAKEN |= {
    "EdgeCompileConfig",
    "to_edge_transform_and_lower",
    "annotate",
    "preserve_node_meta",
}
TAKEN |= {"Delegates", "apart", "tosa_reference_model"}
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
        source: the code of what it lowers.
        spec: the compile spec it lowers for.
        expected: the class of the exception that stock raises, None for any.
        beside: whether the weights are in a ``.pt`` file of the script's name.
        differs: stock may raise nothing; then what it made is run and compared. For a TOSA compile spec only.
    """
    values = {
        name: f"WEIGHTS[{name!r}]" if beside else packed(constant.value.detach())
        for name, constant in source.constants.items()
    }
    packs = any("packed(" in value for value in values.values())
    used = "\n".join((*source.body, *source.functions))
    standard = {
        "sys",
        "traceback",
        *(name for name in ("math", "operator") if re.search(rf"\b{name}\.", used)),
    }
    return _template().render(
        source=source,
        spec=spec,
        expected=expected,
        beside=beside,
        differs=differs,
        values=values,
        packs=packs,
        standard=sorted(standard | ({"base64", "zlib"} if packs else set())),
        imports=sorted([*spec.imports, _STOCK, *[_MARKING] * source.marked]),
        examples=[
            (_example(node, random=differs), name)
            for node, name in source.arguments.items()
        ],
        dynamic=_dynamic(source),
    )


@cache
def _template() -> Template:
    environment = Environment(
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {"repr": repr, "comment": comment}
    return environment.from_string(
        (files(__package__) / "script.py.j2").read_text(encoding="utf-8")
    )


def _example(node: Node, *, random: bool) -> str:
    """Return an expression for an example of an argument.

    Args:
        node: what the argument stands for.
        random: every code of an integer type and floats in [-1, 1]. Zeros otherwise: the lowering asks for shape, dtype
            and strides only.
    """
    value = node.meta["val"]
    if not isinstance(value, Tensor):
        return literal(
            value.node.hint
            if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))
            else value
        )
    shape, dtype = tuple(map(example_size, value.shape)), value.dtype
    strided = f"torch.empty_strided({shape}, {tuple(map(example_size, value.stride()))}, dtype={dtype})"
    if not random:
        return (
            f"torch.zeros({shape}, dtype={dtype})"
            if value.is_contiguous()
            else f"{strided}.zero_()"
        )
    if dtype.is_floating_point:
        drawn = f"torch.empty({shape}, dtype={dtype}).uniform_(-1, 1)"
    elif dtype == torch.bool:
        drawn = f"torch.rand({shape}) < 0.5"
    else:
        limits = torch.iinfo(dtype if dtype.itemsize < 4 else torch.int8)
        drawn = f"torch.randint({limits.min}, {limits.max + 1}, {shape}, dtype={dtype})"
    return drawn if value.is_contiguous() else f"{strided}.copy_({drawn})"


def _dynamic(source: Source) -> str:
    """Return the argument for sizes that were dynamic in the user's export, empty if none was."""
    shapes = []
    for node in source.arguments:
        value = node.meta["val"]
        sizes = enumerate(value.shape if isinstance(value, Tensor) else ())
        dynamic = ", ".join(
            f"{dim}: {_AUTO}" for dim, size in sizes if isinstance(size, torch.SymInt)
        )
        shapes.append(_AUTO if isinstance(value, torch.SymInt) else f"{{{dynamic}}}")
    return (
        f", dynamic_shapes=({', '.join(shapes)},)"
        if any("AUTO" in shape for shape in shapes)
        else ""
    )
