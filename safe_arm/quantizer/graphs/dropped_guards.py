"""Take the guards of an export out of its graph.

``ExportedProgram.module()`` adds a call of ``_guards_fn``, which checks the sizes of the inputs, unless
``check_guards=False`` is given. It reads every input: a rule about the only reader of a value does not hold of an input
then, and stock's passes that trace the graph raise on it (known issue T60). The quantised graph is exported again, and
has guards of that export.
"""

from __future__ import annotations

from torch.fx import GraphModule

_NAME = "_guards_fn"


def drop_guards(model: GraphModule) -> None:
    """Remove the guards of a float graph; changed in place."""
    for call in model.graph.find_nodes(op="call_module", target=_NAME):
        if not call.users:
            model.graph.erase_node(call)
            model.recompile()
