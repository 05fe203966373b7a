"""A note on a node stands beside those of others."""

import torch
from graph_changes import graph_of

from safe_arm.core.notes import note_on, write_note


def test_a_note_is_beside_those_that_are_there():
    node = graph_of(lambda m, x: torch.relu(x)).graph.output_node()
    assert note_on(node, "mine") == ""
    node.meta["custom"] = {"theirs": 1}
    write_note(node, "mine", "text")
    assert note_on(node, "mine") == "text"
    assert node.meta["custom"]["theirs"] == 1
