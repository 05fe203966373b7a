"""Fold ops on constants, with each argument in its own quantisation domain."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import Argument

from safe_arm._compat import upstream
from safe_arm._compat.upstream import (
    QuantArgs,
    TosaSpecialDtype,
    create_constant_placeholder,
    get_constant_placeholder_kind,
    get_first_fake_tensor,
    get_param_tensor,
    is_persistent_buffer,
)
from safe_arm.passes.applied import applied
from safe_arm.passes.invariants.domains import input_qparams
from safe_arm.passes.record_element_qparams import ELEMENT_QPARAMS


class FuseConstantArgsPass(upstream.FuseConstantArgsPass):
    """Takes the place of the stock pass of this name.

    Qparams are looked up by top-level argument index and hold for everything nested in that argument, unless its
    elements carry their own. Stock 1.2 looks them up by flattened input index, so every list element but the first
    stays raw codes (pytorch/executorch#18971). A fold that cannot be exact is left alone: no or several output
    domains for an integer result, a result of another dtype or size than the graph says.
    """

    def _fuse_nodes(self, node: Node) -> bool:
        if node.meta.get(TosaSpecialDtype.meta_key()) == TosaSpecialDtype.SHAPE:
            return False
        data = self._evaluate(node)
        expected = get_first_fake_tensor(node)
        outputs = set((node.meta.get("output_qparams") or {}).values())
        if len(outputs) > 1:
            return False
        if data is None or data.numel() > expected.numel():
            return False
        for domain in outputs:
            data = domain.quantize_value(data)
        if outputs and data.dtype != expected.dtype:
            return False
        if data.is_floating_point() != expected.is_floating_point():
            return False
        self._replace(node, data)
        if ELEMENT_QPARAMS in node.meta:
            applied(self, node)
        return True

    def _evaluate(self, node: Node) -> torch.Tensor | None:
        """Return the op's value on its dequantised constants; None if an argument has no unambiguous domain."""
        schema = getattr(node.target, "_schema", None)  # A Python function has none.
        names = [] if schema is None else [each.name for each in schema.arguments]
        args = [self._argument(node, i, arg) for i, arg in enumerate(node.args)]
        kwargs = {}
        for name, arg in node.kwargs.items():
            index = names.index(name) if name in names else -1
            kwargs[name] = self._argument(node, index, arg)
        result = node.target(*args, **kwargs)  # type: ignore[operator]
        if isinstance(result, torch.Tensor):
            return result
        return None

    def _argument(
        self,
        node: Node,
        index: int,
        arg: Argument,
    ) -> Any:
        """Return an argument, its constants dequantised by the qparams of its elements, or else by its own."""
        elements = (node.meta.get(ELEMENT_QPARAMS) or {}).get(index, ())
        if isinstance(arg, (list, tuple)) and 0 < len(arg) == len(elements):
            return type(arg)(map(self._value, arg, elements))
        return self._value(arg, input_qparams(node).get(index))

    def _value(self, arg: Argument, domain: QuantArgs | None) -> Any:
        if isinstance(arg, Node):
            tensor = get_param_tensor(self.exported_program, arg)
            if tensor is None or domain is None:
                return tensor
            return domain.dequantize_value(tensor)
        if isinstance(arg, (list, tuple)):
            return type(arg)(self._value(element, domain) for element in arg)
        return arg

    def _replace(self, node: Node, data: torch.Tensor) -> None:
        sources = list(node.all_input_nodes)
        program = self.exported_program
        first = sources[0]
        with node.graph.inserting_before(first):
            constant = create_constant_placeholder(
                exp_program=program,
                graph=node.graph,
                kind=get_constant_placeholder_kind(program, first),
                name=node.name + "_fused_const",
                data=data,
                persistent_buffer=is_persistent_buffer(program, first),
            )
        self._propagate_special_dtype(sources, constant, data)
        node.replace_all_uses_with(constant)
