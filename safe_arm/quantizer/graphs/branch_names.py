"""The graphs of conditions and loops are the graph's own, and keep their names.

Stock prepares the graphs within a branch by the names that they had before the branch was prepared, and raises where
the passes have named them anew.
"""

from __future__ import annotations

import copy
from typing import Any

from torch.fx import GraphModule

from safe_arm.core.control_flow import CONDITION, LOOP, branch_reads
from safe_arm.quantizer.graphs.graph_edits import calls


def own_branches(model: GraphModule) -> None:
    """Give a graph copies of its branches: it shares them with the program of the user's that it was made of.

    Args:
        model: a float graph before annotation; changed in place.
    """
    for name in names_of_branches(model):
        branch = copy.deepcopy(model.get_submodule(name))
        model.set_submodule(name, branch)


def names_of_branches(model: GraphModule) -> list[str]:
    """Return the names of the graphs of conditions and loops, in the order of these."""
    return [read.target for read in _reads(model)]


def name_branches(model: GraphModule, names: list[str]) -> None:
    """Give the graphs of conditions and loops names.

    Args:
        model: a float graph; changed in place.
        names: the names, in the order of the conditions and loops.
    """
    reads = _reads(model)
    if len(reads) != len(names) or names_of_branches(model) == names:
        return
    branches = []
    for read in reads:
        branches.append(model.get_submodule(read.target))
        model.delete_submodule(read.target)
    for read, name, branch in zip(reads, names, branches, strict=True):
        read.target = name
        model.add_module(name, branch)
    model.recompile()


def _reads(model: GraphModule) -> list[Any]:
    reads: list[Any] = []
    for node in calls(model, CONDITION, LOOP):
        reads += branch_reads(node)
    return reads
