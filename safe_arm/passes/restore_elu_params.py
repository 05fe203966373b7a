"""Give an ELU that stays float its own parameters back (known issue T58)."""

from __future__ import annotations

from torch.fx import Node

from safe_arm.core.island import op_name
from safe_arm.passes.applied import CorrectivePass
from safe_arm.passes.invariants.domains import input_qparams

#: Names of the parameters, in the order of the arguments, and of the notes that stock's pass keeps them in.
_PARAMETERS = ("float_alpha", "float_scale", "float_input_scale")


class RestoreEluParamsPass(CorrectivePass):
    """Takes back the placeholders that stock writes into an ELU behind a dequantiser if it becomes no table.

    Stock notes the parameters apart and writes 1, 1 and 2 in their place. A table is made of the notes; a float ELU is
    decomposed with the placeholders.
    """

    def correct(self, node: Node) -> bool:
        if op_name(node) != "aten::elu" or input_qparams(node):
            return False
        if not all(name in node.meta for name in _PARAMETERS):
            return False
        parameters = [node.meta.pop(name) for name in _PARAMETERS]
        node.args = (node.args[0], *parameters)
        node.kwargs = {}
        return True
