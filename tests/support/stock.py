"""What stock makes of a program is data: read from a record of the wheel's release, computed where there is none.

``stock_lower`` stands for ``lower`` with a stock partitioner. The record, ``tests/data/stock-verdicts-*.json``, has for
each program what it raises, a hash of every delegate, and by how many codes each set of inputs is off; it belongs to
the wheels whose fingerprint it has. A sample is lowered and compared in every run, another one every day.

``make stock-verdicts`` measures anew, with ``SAFE_ARM_STOCK=record``, and writes the record. With
``SAFE_ARM_STOCK=add`` and ``tests/support/stock.py --add`` only what is not on record is measured, and added.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import sys
import time
import zlib
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
import wheels
from executorch.exir import to_edge_transform_and_lower
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

ROOT = Path(__file__).parents[2]
#: Where processes of a run that measures anew leave what they found, a line each.
MEASURED = ROOT / "out" / "stock-verdicts.jsonl"
#: One verdict in so many is measured again and compared, another one every day; 1 is all of them.
SAMPLE = int(os.environ.get("SAFE_ARM_UPSTREAM_SAMPLE", "40"))
#: Files and lines in an error's message, which are another machine's.
_PLACES = re.compile(r"\nOriginal traceback:\n.*?(?=\nUse tlparse|$)", re.DOTALL)


class ForgedError(AssertionError):
    """What is on record is not what stock does."""


def hash_of(*parts: str | bytes) -> str:
    """Return a name for what is computed from these."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def is_sampled(key: str, day: int | None = None) -> bool:
    """Tell whether a verdict is measured again today."""
    today = int(time.time() // 86400) if day is None else day
    return (zlib.crc32(key.encode()) + today) % SAMPLE == 0


def record_path() -> Path:
    """Return the record of the release that is installed."""
    release = importlib.metadata.version("executorch").rpartition(".")[0]
    return ROOT / "tests" / "data" / f"stock-verdicts-{release}.json"


@cache
def record() -> dict[str, dict[str, Any]]:
    """Return the verdicts of the installed wheels by their keys; none if the wheels are others or edited by hand."""
    path = record_path()
    if os.environ.get("SAFE_ARM_STOCK") == "record" or not path.exists() or wheels.patched():
        return {}
    document = json.loads(path.read_text())
    return document["verdicts"] if document["wheels"] == wheels.fingerprint() else {}


def _tensors(named: dict[str, Any]) -> Iterator[bytes]:
    for name, value in sorted(named.items()):
        yield f"{name} {getattr(value, 'dtype', type(value))} {tuple(getattr(value, 'shape', ()))}".encode()
        if isinstance(value, torch.Tensor):
            yield value.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes() if value.numel() else b""
        else:
            yield repr(value).encode()


def _graphs(module: GraphModule) -> Iterator[str]:
    for name, part in module.named_modules():
        if isinstance(part, GraphModule):
            yield name
            for node in part.graph.nodes:
                value = node.meta.get("val")
                shown = [(each.dtype, tuple(each.shape)) for each in _flat(value) if isinstance(each, torch.Tensor)]
                yield f"{node.format_node()} {shown} {_marks(node)}"


def _marks(node: Node) -> dict[str, str]:
    """Return what quantisers have noted; what export notes of itself differs from one export to the next."""
    custom = node.meta.get("custom") or {}
    return {name: str(value) for name, value in sorted(custom.items()) if not name.startswith("_torchdynamo")}


def _flat(value: Any) -> list[Any]:
    return torch.utils._pytree.tree_leaves(value)


def key_of(program: ExportedProgram, partitioner: Any) -> str:
    """Return the name of a program under a partitioner: of its graphs, its tensors and its compile specs."""
    specs = [f"{spec.key}={spec.value!r}" for spec in partitioner.delegation_spec.compile_specs]
    tensors = {**program.state_dict, **program.constants}
    return hash_of(
        type(partitioner).__name__,
        *specs,
        str(program.graph_signature),
        *_graphs(program.graph_module),
        *_tensors(tensors),
    )


class Flatbuffer:
    """A delegate of which the hash is known; its bytes are computed when somebody asks for them."""

    def __init__(self, digest: str, program: StockProgram, place: int) -> None:
        self.digest = digest
        self._program, self._place = program, place

    def __bytes__(self) -> bytes:
        return self._program.lowered_bytes()[self._place]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Flatbuffer):
            return self.digest == other.digest
        return isinstance(other, bytes) and self.digest == hashlib.sha256(other).hexdigest()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Flatbuffer({self.digest})"


class StockProgram:
    """What stock makes of one program: the record's answers, and the lowered program itself for who needs more."""

    def __init__(self, program: ExportedProgram, partitioner: Any, graph_module: Any) -> None:
        self._program, self._partitioner, self._graph_module = program, partitioner, graph_module
        self.key = key_of(program, partitioner)
        self._raised: Exception | None = None
        self._known = record().get(self.key)
        if self._known and is_sampled(self.key):
            self._compare()

    @cached_property
    def manager(self) -> Any:
        """The program, lowered by stock now."""
        from lowering import EDGE

        return to_edge_transform_and_lower(self._program, partitioner=[self._partitioner], compile_config=EDGE)

    def exported_program(self) -> ExportedProgram:
        """Return the lowered program's own."""
        return self.manager.exported_program()

    def raise_as_recorded(self) -> None:
        """Raise what stock raises of this program."""
        if self._known is None:
            self._known = self._measured()
        if self._raised is not None:
            raise self._raised
        if self._known["error"]:
            error, cause = map(_rebuilt, (self._known["error"], self._known["cause"]))
            if error is not None:
                raise error from cause
            self.manager  # noqa: B018

    def delegates(self) -> list[Flatbuffer]:
        """Return the delegates, which equal those of the same bytes."""
        return [Flatbuffer(digest, self, place) for place, digest in enumerate(self._known["delegates"])]

    def lowered_bytes(self) -> list[bytes]:
        """Return the delegates' bytes, lowered now."""
        from lowering import delegates

        return delegates(self.manager)

    def codes_apart(self, *samples: tuple[Any, ...]) -> int:
        """Return the worst difference between the lowered program and the PT2E graph, in codes."""
        name = hash_of(*(part for sample in samples for part in _tensors(_numbered(sample))))[:16]
        codes = self._known["codes"]
        if name not in codes:
            codes[name] = self._codes_apart(samples)
            self._note()
        elif is_sampled(self.key):
            self._check("codes apart", codes[name], self._codes_apart(samples))
        return codes[name]

    def _codes_apart(self, samples: tuple[Any, ...]) -> int:
        from lowering import codes_apart

        return codes_apart(self.manager, self._graph_module, *samples)

    def _measured(self) -> dict[str, Any]:
        from lowering import delegates

        found: dict[str, Any] = {"test": _test(), "error": None, "cause": None, "delegates": [], "codes": {}}
        try:
            flatbuffers = delegates(self.manager)
        except Exception as error:  # raised by who asked, or compared with the record
            self._raised = error
            found["error"], found["cause"] = _described(error), _described(error.__cause__)
        else:
            found["delegates"] = [hashlib.sha256(each).hexdigest() for each in flatbuffers]
        self._known = found
        self._note()
        return found

    def _note(self) -> None:
        if os.environ.get("SAFE_ARM_STOCK") in ("record", "add"):
            MEASURED.parent.mkdir(exist_ok=True)
            with MEASURED.open("a") as file:
                file.write(json.dumps({"key": self.key, **self._known}) + "\n")

    def _compare(self) -> None:
        known = self._known
        fresh = self._measured()
        self._known = known
        for what in ("error", "cause", "delegates"):
            self._check(what, known[what], fresh[what])

    def _check(self, what: str, known: Any, fresh: Any) -> None:
        if known != fresh:
            raise ForgedError(
                f"{record_path().name} has other {what} for {self._known['test']} than these wheels give: "
                f"{known} on record, {fresh} now; `make stock-verdicts` measures anew"
            )


def _numbered(values: tuple[Any, ...]) -> dict[str, Any]:
    return {f"{place:03}": value for place, value in enumerate(_flat(values))}


def _test() -> str:
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]


def _described(error: BaseException | None) -> list[str] | None:
    return None if error is None else [type(error).__module__, type(error).__qualname__, _PLACES.sub("", str(error))]


def _rebuilt(described: list[str] | None) -> Exception | None:
    """Return the error as it was raised, or None if it cannot be made of its message."""
    if described is None:
        return None
    module, name, message = described
    try:
        kind = importlib.import_module(module)
        for part in name.split("."):
            kind = getattr(kind, part)
        error = kind(message)  # type: ignore[operator]
    except (ImportError, AttributeError, TypeError):
        return None
    return error if str(error) == message else None


def stock_lower(graph_module: Any, inputs: tuple[Any, ...], partitioner: Any) -> StockProgram:
    """Return what stock makes of a graph, as ``lower`` does; faults that a test injects are not in the record."""
    if not type(partitioner).__module__.startswith("executorch."):
        raise TypeError(f"{type(partitioner).__name__} is no stock partitioner; lower() is for others")
    lowered = StockProgram(torch.export.export(graph_module, inputs), partitioner, graph_module)
    lowered.raise_as_recorded()
    return lowered


def main() -> None:
    """Write the record from what a run has measured, with ``--add`` beside what it holds."""
    verdicts: dict[str, dict[str, Any]] = dict(record()) if "--add" in sys.argv else {}
    for line in MEASURED.read_text().splitlines():
        found = json.loads(line)
        known = verdicts.setdefault(found.pop("key"), found)
        known["codes"].update(found["codes"])
    rows = ",\n".join(f"{json.dumps(key)}: {json.dumps(verdict)}" for key, verdict in sorted(verdicts.items()))
    record_path().write_text(f'{{"wheels": "{wheels.fingerprint()}", "verdicts": {{\n{rows}\n}}}}\n')
    print(f"{len(verdicts)} verdicts in {record_path()}")


if __name__ == "__main__":
    main()
