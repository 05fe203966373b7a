"""Copies of a program in which some operators are changed before stock sees them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm._compat.extraction import with_graph
from safe_arm.core.island import graph_modules


def changed_copy(
    program: ExportedProgram,
    find: Callable[[GraphModule], Iterable[Node]],
    change: Callable[[Node], Any],
) -> ExportedProgram:
    """Return a copy of a program in which the operators that are found are changed; the program if there are none.

    Args:
        program: as ``torch.export`` gives it, before decompositions; left as it is.
        find: gives the operators of a graph, its branches included.
        change: changes one of them in its graph.
    """
    if not list(find(program.graph_module)):
        return program
    duplicate = copy.deepcopy(program.graph_module)
    copied = with_graph(program, duplicate, program.state_dict)
    for node in list(find(copied.graph_module)):
        change(node)
    for module in graph_modules(copied.graph_module):
        module.graph.eliminate_dead_code()
        module.recompile()
    return copied
