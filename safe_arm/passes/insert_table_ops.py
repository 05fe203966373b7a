"""Read functions of 16 bits from as many tables as they need (known issue S55)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node

from safe_arm._compat import upstream
from safe_arm._compat.upstream import (
    PassResult,
    QuantArgs,
    create_constant_placeholder,
    exir_ops,
)
from safe_arm.core.int16_tables import Table, Tables, tables_of, whole_table
from safe_arm.passes.applied import applied
from safe_arm.passes.compare_exactly import without_qparams
from safe_arm.passes.invariants.domains import input_qparams, output_qparams

_TABLE = exir_ops.backend.tosa.TABLE.default
_RESCALE = exir_ops.backend.tosa.RESCALE.default
_ADD = exir_ops.edge.aten.add.Tensor
#: Seven bits of what a table gives are a fraction of a code.
_WHOLE_CODES = 2.0**-7


class InsertTableOpsPass(upstream.InsertTableOpsPass):
    """Takes the place of the stock pass of this name.

    A TABLE of 16 bits has 513 codes of a function, with straight lines between them. Stock reads every function from
    one, however far the lines are from it: near 0, a logarithm is thousands of codes off. Here a function is read
    from one table if that is within 10 codes of it, and else from several: one of all codes, and finer ones of those
    around 0, which are added to it. A table of halves is doubled if a line leads beyond the largest code.
    """

    def call(self, graph_module: GraphModule) -> PassResult:
        modified = False
        for node in list(graph_module.graph.nodes):
            if node.op != "call_function" or node not in self.table_ops:
                continue
            tables = self._tables_of(node)
            if tables:
                self._insert(node, tables)
                applied(self, node)
                modified = True
        result = super().call(graph_module)
        if modified and not result.modified:
            graph_module = upstream.ArmPass.call(self, graph_module).graph_module
            return PassResult(graph_module, True)
        return result

    def _tables_of(self, node: Node) -> Tables:
        """Return the tables of a function of 16 bits; none if stock's one table has the same entries."""
        source = input_qparams(node).get(0)
        result = output_qparams(node)
        if source is None or result is None or len(input_qparams(node)) != 1:
            return ()
        if not (source.dtype == result.dtype == torch.int16):
            return ()
        operator = self.table_ops[node]
        function = _in_codes(operator, source, result)
        tables = tables_of(function) or (whole_table(function),)
        if len(tables) == 1:
            stock, _ = self.generate_table_values(operator, source, result)
            apart = (stock.int() - tables[0].entries.int()).abs()
            if not apart.gt(1).any():
                return ()
        return tables

    def _insert(self, node: Node, tables: Tables) -> None:
        """Replace a function by the sum of its tables."""
        total = self._read(node, tables[0])
        for table in tables[1:]:
            value = self._read(node, table)
            with node.graph.inserting_before(node):
                total = _sum(node, total, value)
        node.replace_all_uses_with(total)
        node.graph.erase_node(node)

    def _read(self, node: Node, table: Table) -> Node:
        """Read the value of a table in place of a function."""
        entries = self._constant(node, table)
        with node.graph.inserting_before(node):
            codes = node.args[0]
            if table.magnified:
                codes = _rescaled(node, codes, 2.0**table.magnified)
            value = _rescaled(node, _call(node, _TABLE, codes, entries), _WHOLE_CODES)
            if table.is_doubled:
                value = _rescaled(node, value, 2.0)
        return value

    def _constant(self, node: Node, table: Table) -> Node:
        """Add the entries of a table to the program."""
        first = next(iter(node.graph.nodes))
        with node.graph.inserting_before(first):
            constant: Node = create_constant_placeholder(
                exp_program=self.exported_program,
                graph=node.graph,
                kind=InputKind.BUFFER,
                name=f"b_{node.name}_table_constant_{table.magnified}",
                data=table.entries,
                persistent_buffer=True,
            )
        return constant


def _sum(node: Node, first: Node, second: Node) -> Node:
    """Add two values of 16 bits as stock adds them, in 32: a compiler knows that pattern."""
    first, second = (
        _rescaled(node, each, 1.0, torch.int32) for each in (first, second)
    )
    return _rescaled(node, _call(node, _ADD, first, second), 1.0)


def _rescaled(
    node: Node, value: object, factor: float, dtype: torch.dtype = torch.int16
) -> Node:
    return _call(node, _RESCALE, value, dtype, [factor], 0, 0)


def _call(node: Node, operator: Callable[..., object], *args: object) -> Node:
    """Call an operator for a node, in codes that have no domain of their own."""
    call = node.graph.call_function(operator, args)  # type: ignore[arg-type]
    call.meta = without_qparams(node.meta)
    return call


def _in_codes(
    operator: Callable[[Tensor], Tensor], source: QuantArgs, result: QuantArgs
) -> Tensor:
    """Return a function at each code of its input, and at the one behind the last, in codes of its result."""
    codes = torch.arange(-(2**15), 2**15 + 1)
    values = (codes - source.get_zp_per_tensor()).float()
    function = operator(values * source.get_scale_per_tensor()).double()
    return function / result.get_scale_per_tensor() + result.get_zp_per_tensor()
