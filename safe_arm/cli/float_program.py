"""Write a float program for a float profile with operators that TOSA has, before it is lowered."""

from __future__ import annotations

import inspect
from typing import Any

import sympy
import torch
from torch import SymInt, Tensor
from torch.export import Dim, ExportedProgram
from torch.utils._pytree import tree_unflatten

from safe_arm.cli.progress import Steps
from safe_arm.cli.quantising import quantizer_for
from safe_arm.cli.request import Request
from safe_arm.core.exceptions import Caught, attempted


def rewritten(
    request: Request, program: ExportedProgram, steps: Steps
) -> ExportedProgram:
    """Return a float program in which operators that TOSA lacks are written with others.

    The target's quantiser does that to every net before it quantises; without a configuration it does nothing else. The
    result is compared with the program on the inputs that it was exported with.

    Returns:
        The program itself if it was saved without inputs, if one of its sizes is more than a symbol, or if what is
        written cannot be exported, which is noted.
    """
    shapes = dynamic_shapes(program)
    if program.example_inputs is None or shapes is None:
        return program
    result = attempted(_rewritten, request, program, shapes)
    if isinstance(result, Caught):
        steps.note(
            f"Note: the program is lowered as it was exported, because writing it for TOSA failed: {result.reason}"
        )
        return program
    return result


def _rewritten(
    request: Request, program: ExportedProgram, shapes: tuple[Any, ...]
) -> ExportedProgram:
    assert program.example_inputs is not None
    args, keywords = program.example_inputs
    module = program.module(check_guards=False)
    inputs = inspect.signature(module.forward).bind(*args, **keywords).args
    module = quantizer_for(request).quantize_with_submodules(module, [inputs])
    return torch.export.export(module, inputs, dynamic_shapes=shapes)


def dynamic_shapes(program: ExportedProgram) -> tuple[Any, ...] | None:
    """Return the dynamic sizes of a program's inputs as ``torch.export.export`` takes them, arguments by name last.

    Returns:
        None if a size is more than a symbol, such as twice another size.
    """
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    dimensions: dict[sympy.Symbol, Dim] = {}
    leaves = []
    for name in program.graph_signature.user_inputs:
        value = values.get(name)
        sizes = value.shape if isinstance(value, Tensor) else ()
        leaf: dict[int, Dim] = {}
        for axis, size in enumerate(sizes):
            if not isinstance(size, SymInt):
                continue
            symbol = size.node.expr
            if not symbol.is_Symbol:
                return None
            if symbol not in dimensions:
                dimensions[symbol] = _dimension(program, symbol)
            leaf[axis] = dimensions[symbol]
        leaves.append(leaf)
    args, keywords = tree_unflatten(leaves, program.call_spec.in_spec)
    return (*args, *keywords.values())


def _dimension(program: ExportedProgram, symbol: sympy.Symbol) -> Dim:
    allowed = program.range_constraints[symbol]
    largest = int(allowed.upper) if allowed.upper.is_Integer else None
    return Dim(symbol.name, min=int(allowed.lower), max=largest)
