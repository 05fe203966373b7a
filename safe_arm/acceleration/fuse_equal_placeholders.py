"""Fuse equal constants with one new signature for all of them.

The stock pass makes a new signature for every constant that it adds or removes, and each looks at all inputs. A net of
12,621 nodes spent 97 % of its lowering there.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch.export.graph_signature import InputKind, InputSpec
from torch.fx import Graph, GraphModule, Node

from safe_arm._compat import upstream
from safe_arm._compat.upstream import (
    ArmPass,
    ExportPass,
    PassResult,
    TosaSpecialDtype,
    create_constant_placeholder,
    get_constant_placeholder_kind,
)
from safe_arm.acceleration.signatures import CachedSignature

Group = list[tuple[Node, torch.Tensor]]


def at_once(stock: ExportPass) -> ExportPass:
    """Return the pass that fuses all equal constants of a program at once.

    Args:
        stock: the pass in whose place it is put. Before 1.4 it compares every pair of constants, and stays.
    """
    if not hasattr(stock, "_get_param_key"):
        return stock
    return FuseEqualPlaceholdersPass(stock.exported_program)


class FuseEqualPlaceholdersPass(upstream.FuseEqualPlaceholdersPass):
    """Takes the place of the stock pass of this name and leaves the same program."""

    def call(self, graph_module: GraphModule) -> PassResult:
        groups = self._equal_constants(graph_module)
        if not groups:
            return PassResult(graph_module, False)
        graph = graph_module.graph
        program = self.exported_program
        signature = program.graph_signature
        specs = {spec.arg.name: spec for spec in signature.input_specs}
        inputs = graph.find_nodes(op="placeholder")
        if any(node.name not in specs for node in inputs):
            # A branch has inputs that the program's signature does not list, and few constants.
            return super().call(graph_module)
        for group in groups:
            common = self._common(graph, group[0], specs)
            for node, _ in group:
                node.replace_all_uses_with(common)
                spec = specs.pop(node.name)
                held = program.state_dict
                if spec.kind is InputKind.CONSTANT_TENSOR or spec.persistent is False:
                    held = program.constants
                held.pop(spec.target, None)
                graph.erase_node(node)
        names = [node.name for node in graph.find_nodes(op="placeholder")]
        program._graph_signature = CachedSignature(
            [specs[name] for name in names], signature.output_specs
        )
        graph_module.recompile()
        return PassResult(ArmPass.call(self, graph_module).graph_module, True)

    def _equal_constants(self, graph_module: GraphModule) -> list[Group]:
        """Return the groups of two or more equal constants, in the order of the graph."""
        groups: dict[Any, Group] = {}
        for node in graph_module.graph.nodes:
            known = self._get_param_key(node, include_data_hash=True)
            if known is not None:
                key, tensor = known
                groups.setdefault(key, []).append((node, tensor))
        return [group for group in groups.values() if len(group) > 1]

    def _common(
        self,
        graph: Graph,
        first: tuple[Node, torch.Tensor],
        specs: dict[str, InputSpec],
    ) -> Node:
        """Add the constant that takes the place of a group, and its spec."""
        node, tensor = first
        program = self.exported_program
        # The stock helper finds a place among the inputs of the program it gets. Here it is added later, with all.
        alone = SimpleNamespace(
            state_dict=program.state_dict,
            constants=program.constants,
            graph_signature=CachedSignature([], program.graph_signature.output_specs),
        )
        kind = get_constant_placeholder_kind(program, node)
        with graph.inserting_before(node):
            common: Node = create_constant_placeholder(
                alone, graph, f"{node.name}_common", kind, tensor, True
            )
        for spec in alone._graph_signature.input_specs:
            specs[spec.arg.name] = spec
        special = TosaSpecialDtype.meta_key()
        if special in node.meta:
            common.meta[special] = node.meta[special]
        return common
