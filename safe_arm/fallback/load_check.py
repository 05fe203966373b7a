"""Refuse an export if another backend of the chain lowers something that its runtime cannot load."""

from __future__ import annotations

from torch.export import ExportedProgram

from safe_arm._compat.loading import LOADABLE, delegates, why_it_does_not_load
from safe_arm.core.errors import FallbackError
from safe_arm.core.island import call_functions


def check_fallbacks_load(program: ExportedProgram) -> None:
    """Load every delegate that a CPU backend behind us in the chain made, once, in this machine's runtime.

    XNNPACK marks the quantise node behind a convolution as part of it before it knows whether it takes the convolution.
    With the bias of ``float_biases.py`` it takes those of one and two dimensions and linears; what it still refuses,
    a ``conv3d`` for one, leaves a delegate of the activation alone that lowers and never loads.

    Args:
        program: an edge program after all its delegates were cut out.

    Raises:
        FallbackError: one does not load. The message names its operators.
    """
    for name, module in delegates(program.graph_module):
        if module.backend_id in LOADABLE and (error := why_it_does_not_load(module)):
            nodes = ", ".join(
                node.name
                for node in call_functions(module.original_module.graph_module)
            )
            raise FallbackError(
                f"the exported program would not load: {module.backend_id} lowered {name} and its runtime refuses it "
                f"({error}). It holds {nodes}. Leave its partitioner out of the list and the portable kernels take "
                "them, or pass preflight=False to export it all the same."
            )
