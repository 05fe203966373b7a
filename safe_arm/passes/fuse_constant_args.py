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
        if data is None or data.numel() > expected.numel() or len(outputs) > 1:
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
        whole: dict[int, QuantArgs] = node.meta.get("input_qparams") or {}
        own: dict[int, list[QuantArgs | None]] = node.meta.get(ELEMENT_QPARAMS) or {}
        schema = getattr(
            node.target, "_schema", None
        )  # a Python function, such as getitem, has none
        index_of = {a.name: i for i, a in enumerate(schema.arguments)} if schema else {}

        def value(arg: Argument, domain: QuantArgs | None) -> Any:
            if isinstance(arg, Node):
                tensor = get_param_tensor(self.exported_program, arg)
                return (
                    tensor
                    if domain is None or tensor is None
                    else domain.dequantize_value(tensor)
                )
            if isinstance(arg, (list, tuple)):
                return type(arg)(value(element, domain) for element in arg)
            return arg

        def argument(arg: Argument, index: int) -> Any:
            if (
                index in own
                and isinstance(arg, (list, tuple))
                and len(arg) == len(own[index])
            ):
                return type(arg)(
                    value(e, domain) for e, domain in zip(arg, own[index], strict=True)
                )
            return value(arg, whole.get(index))

        args = [argument(arg, index) for index, arg in enumerate(node.args)]
        kwargs = {
            name: argument(arg, index_of.get(name, -1))
            for name, arg in node.kwargs.items()
        }
        result = node.target(*args, **kwargs)  # type: ignore[operator]
        return result if isinstance(result, torch.Tensor) else None

    def _replace(self, node: Node, data: torch.Tensor) -> None:
        sources = list(node.all_input_nodes)
        with node.graph.inserting_before(sources[0]):
            constant = create_constant_placeholder(
                exp_program=self.exported_program,
                graph=node.graph,
                kind=get_constant_placeholder_kind(self.exported_program, sources[0]),
                name=node.name + "_fused_const",
                data=data,
                persistent_buffer=is_persistent_buffer(
                    self.exported_program, sources[0]
                ),
            )
        self._propagate_special_dtype(sources, constant, data)
        node.replace_all_uses_with(constant)
