"""Operators that a quantisation left float because it failed on them, with the reason."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from torch.fx import Node

from safe_arm.core.island import op_name
from safe_arm.core.notes import note_on, write_note
from safe_arm.core.source_line import source_line

Stage = Literal["transform", "annotate", "observe"]
#: Key in ``node.meta["custom"]``, which torch.export carries into the edge program.
REASON_KEY = "safe_arm_left_float"


@dataclass(frozen=True)
class LeftFloat:
    """One operator that stays float because quantising it failed.

    Attributes:
        node, op: the node's name and operator; both empty when a stage failed as a whole.
        stage: where it failed: ``transform`` (the passes before annotation), ``annotate`` or ``observe``.
        reason: what it failed with.
        source: the user's own line, ``file:line  code``; empty if export kept none.
    """

    node: str
    op: str
    stage: Stage
    reason: str
    source: str

    def __str__(self) -> str:
        what = f"{self.node} ({self.op})" if self.op else self.node or "the whole graph"
        where = f", {self.source}" if self.source else ""
        return f"{what}{where}: {self.reason}"


class Ledger:
    """The operators that one quantiser left float so far, each once; all copies of a model share one ledger."""

    def __init__(self) -> None:
        self._entries: dict[LeftFloat, bool] = {}

    def __iter__(self) -> Iterator[LeftFloat]:
        return iter(self._entries)

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        return self

    def add(
        self, stage: Stage, reason: str, node: Node | None = None, name: str = ""
    ) -> None:
        """Note that a node stays float, or a stage as a whole if no node is given, and write it on the node.

        A node that is no operator, such as an output that stays float with what it returns, is only written on.

        Args:
            stage, reason: where it failed, and with what.
            node: the node.
            name: what the user knows it by, if that is not its name any more.
        """
        if node is None:
            entry = LeftFloat("", "", stage, reason, "")
        else:
            known_as = name or node.name
            line = source_line(node)
            entry = LeftFloat(known_as, operator(node), stage, reason, line)
            write_note(node, REASON_KEY, f"{stage}: {reason}")
        if node is None or node.op == "call_function":
            self._entries.setdefault(entry, False)

    def take(self, other: Ledger) -> None:
        """Note what another ledger has; its nodes are written on already."""
        for entry in other:
            self._entries.setdefault(entry, False)

    def warn(self) -> None:
        """Say in one warning what was noted since the last one; nothing if there is nothing new."""
        news = [entry for entry, warned in self._entries.items() if not warned]
        if not news:
            return
        self._entries.update(dict.fromkeys(news, True))
        operators = []
        others = []
        for entry in news:
            if entry.node:
                operators.append(str(entry))
            else:
                others.append(entry.reason)
        sentences = []
        if operators:
            sentences.append(
                f"{len(operators)} operator(s) stay float because quantising them failed: {'; '.join(operators)}"
            )
        if others:
            sentences.append(
                f"quantising failed in part, for all operators alike: {'; '.join(others)}"
            )
        warnings.warn(". ".join(sentences), stacklevel=3)


def operator(node: Node) -> str:
    """Return a node's operator for a reader, such as ``aten::addmm``."""
    return op_name(node) or str(node.target)


def is_left_float(node: Node) -> bool:
    """Return whether an earlier stage decided to leave a node float."""
    return bool(note_on(node, REASON_KEY))


def reason_left_float(node: Node) -> str:
    """Return the stage and the reason for which a node was left float, also of its descendant in an edge program."""
    return note_on(node, REASON_KEY)
