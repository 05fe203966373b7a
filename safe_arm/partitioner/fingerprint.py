"""Tell whether a delegate's program is the one a trial lowered: the same graph and the same weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_map

from safe_arm._compat.upstream import CompileSpec
from safe_arm.core.programs import constant_placeholders


def fingerprint(program: ExportedProgram, compile_specs: Iterable[CompileSpec]) -> str:
    """Return a digest of everything the lowering of a program depends on.

    Names of parameters count. Names of other values do not, only where the values come from: after a neighbour was
    demoted the same delegate's inputs have other names.

    Args:
        program: the exported program of one delegate.
        compile_specs: its compile specs.
    """
    digest = hashlib.sha256()
    for spec in compile_specs:  # Values are bytes; 1.4 has text in some.
        digest.update(f"{spec.key}={spec.value!r};".encode())
    digest.update(f"{program.verifier} {program.range_constraints}".encode())
    _add_graph(digest, program.graph_module, constant_placeholders(program))
    signature = program.graph_signature
    for spec in (*signature.input_specs, *signature.output_specs):
        digest.update(f"{spec.kind} {spec.target};".encode())
    for held in (program.state_dict, program.constants):
        for name, value in sorted(held.items()):
            digest.update(f"{name} {_described(value)!r}".encode())
            if isinstance(value, Tensor):
                flat = value.detach().contiguous().reshape(-1)
                if flat.numel():
                    digest.update(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]
    return digest.hexdigest()


def _add_graph(
    digest: hashlib._Hash, module: GraphModule, constants: frozenset[str]
) -> None:
    number: dict[Node, str] = {}

    def numbered(argument: object) -> object:
        return (
            number.get(argument, argument) if isinstance(argument, Node) else argument
        )

    for node in module.graph.nodes:
        number[node] = node.name if node.name in constants else f"%{len(number)}"
        arguments = tree_map(numbered, (node.args, node.kwargs))
        values = tree_map(_described, node.meta.get("val"))
        target = number[node] if node.op == "placeholder" else node.target
        digest.update(
            f"{node.op} {target} {arguments!r} {values!r} {_annotations(node)!r};".encode()
        )
        if node.op == "get_attr":
            nested = getattr(module, str(node.target), None)
            if isinstance(nested, GraphModule):
                _add_graph(digest, nested, frozenset())


def _annotations(node: Node) -> object:
    """Return the annotations of a node, without those that torch adds only after an earlier export."""
    notes = node.meta.get("custom")
    if not isinstance(notes, dict):
        return notes
    return {
        name: note
        for name, note in notes.items()
        if not str(name).startswith("_torchdynamo_")
    }


def _described(value: object) -> object:
    if not isinstance(value, Tensor):
        return value
    shape = tuple(map(str, value.shape))
    stride = tuple(map(str, value.stride()))
    return str(value.dtype), shape, stride
