"""Exported graphs, and whether a step changes them."""

from __future__ import annotations

from small import Lambda, image
from stubborn import exported


def graph_of(rule, *inputs):
    """Export a forward written in one line."""
    return exported(Lambda(rule), inputs or image())


def changes(step, model):
    """Run a step on a graph, and tell whether it changed it."""
    before = str(model.graph)
    step(model)
    return str(model.graph) != before


def changes_once(step, model):
    """Run a step twice, and tell whether the first run alone changed the graph."""
    return changes(step, model) and not changes(step, model)
