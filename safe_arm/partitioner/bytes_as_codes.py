"""The bytes of an input that are cast to floats are codes of scale 1, which a delegate reads as they are.

A camera gives bytes, and ``x.float() / 255`` begins many a net. TOSA casts no uint8, and stock keeps the cast and what
moves the bytes before it on the CPU. It delegates inputs that are quantised to uint8.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm.core.calls import insert_like
from safe_arm.core.island import MARK_KEY, QUANTIZE, QParams, op_name
from safe_arm.core.notes import write_note
from safe_arm.core.operators import VIEWS, ElementOrigin, operators
from safe_arm.partitioner.changed_copies import changed_copy

_QUANTIZED = torch.ops.quantized_decomposed
_QUANTIZE = _QUANTIZED.quantize_per_tensor.default
_DEQUANTIZE = _QUANTIZED.dequantize_per_tensor.default
#: The domain in which a byte is its own code.
_OF_BYTES = (1.0, 0, 0, 255, torch.uint8)


def with_bytes_as_codes(program: ExportedProgram) -> ExportedProgram:
    """Return a program that dequantises its bytes in place of casting them; the same program if it casts none.

    Args:
        program: as ``torch.export`` gives it, before decompositions; left as it is.
    """
    inputs = frozenset(program.graph_signature.user_inputs)

    def find(model: GraphModule) -> Iterator[Node]:
        return _casts(model, inputs)

    return changed_copy(program, find, _read_codes)


def _casts(graph_module: GraphModule, inputs: frozenset[object]) -> Iterator[Node]:
    """Yield the casts of an input's bytes that are quantised to int8 and not read otherwise."""
    for node in graph_module.graph.nodes:
        if op_name(node) not in operators(ElementOrigin.CAST):
            continue
        if node.meta["val"].dtype != torch.float32 or not _is_quantised(node):
            continue
        source = _moved(node)[0]
        if source.name in inputs and source.meta["val"].dtype == torch.uint8:
            yield node


def _is_quantised(cast: Node) -> bool:
    """Tell whether all that reads a cast quantises it to int8."""
    for reader in cast.users:
        qparams = QParams.of(reader) if op_name(reader) == QUANTIZE else None
        if qparams is None or qparams.dtype != torch.int8:
            return False
    return bool(cast.users)


def _moved(cast: Node) -> list[Node]:
    """Return what a cast reads: a value, and the operators that move it, in graph order."""
    source = cast.all_input_nodes[0]
    moves: list[Node] = []
    while op_name(source) in VIEWS and len(source.all_input_nodes) == 1:
        moves.insert(0, source)
        source = source.all_input_nodes[0]
    return [source, *moves]


def _read_codes(cast: Node) -> None:
    """Replace a cast by a dequantise node of the bytes, and what moves them by the same on codes of int8."""
    source, *moves = _moved(cast)
    for quantise in list(cast.users):
        domain = quantise.args[1:]
        with cast.graph.inserting_before(quantise):
            value = insert_like(cast, _DEQUANTIZE, source, *_OF_BYTES)
            codes = insert_like(quantise, _QUANTIZE, value, *domain)
            for move in moves:
                value = insert_like(quantise, _DEQUANTIZE, codes, *domain)
                assert callable(move.target)
                value = insert_like(move, move.target, value, *move.args[1:])
                write_note(value, MARK_KEY, {"quantized": True})
                codes = insert_like(quantise, _QUANTIZE, value, *domain)
        quantise.replace_all_uses_with(codes)
        cast.graph.erase_node(quantise)
