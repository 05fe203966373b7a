"""Code that a .pt2 file would make torch.export.load run, found before torch is loaded.

``torch.export.load`` unpickles some members of the archive, evaluates symbolic sizes as Python expressions and writes
the names of inputs into the source of a function: docs/security.md. What is not plain data is refused here; what torch
unpickles as tensors is left to its own safe unpickler, see ``tensors_only``.
"""

from __future__ import annotations

import ast
import json
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

#: Payloads that are tensors; the others are pickled objects.
_TENSOR = re.compile(r"(weight|tensor)_\d+")
#: A name, an attribute path, an operator: nothing that ends a name in Python source.
_PLAIN = re.compile(r"[\w.$<>-]*")
#: Strings that reach no source: what torch quotes, or keeps to itself.
_QUOTED = ("as_string", "as_strings", "stack_trace")
_FILES = re.compile(r"torch\.ops\.(aten\.(from_file|save)|debugprims)\b")
#: What sympy's Symbol('s0') and Float('1.5') hold.
_WORD_OR_NUMBER = re.compile(r"[\w.+-]*")
_FUNCTION = re.compile(r"[A-Z]\w*|floor|ceiling|sqrt")
#: What torch writes of guards: sizes of inputs (``L['x'].size()[0]``) and arithmetic on them; nothing else has letters,
#: quotes or brackets. No two alternatives fit the same text, so that nothing is tried twice.
_GUARD = re.compile(
    r"(L(\[('[\w.$ -]*'|\d+)\])+(\.(size|stride|storage_offset)\(\)(\[\d+\])?)?"
    r"|math\.[a-z]\w*|torch\._?sym_\w+|(max|min|abs|round|IsNonOverlappingAndDenseIndicator)\("
    r"|\b(and|or|not|if|else)\b|\d(e[+-]?\d)?|[ ().,+*/%<>=!&|^~-])*"
)
_ARITHMETIC = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.Call,
    ast.Name,
    ast.Constant,
    ast.keyword,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
)


def code_in(archive: zipfile.ZipFile) -> str:
    """Return what in an archive would be run, or might be, when torch loads it; empty if it is plain data.

    Raises:
        ValueError: a JSON member is none.
    """
    names = archive.namelist()
    folded = [name.lower() for name in names]
    if len(set(folded)) < len(
        folded
    ):  # whose first or last torch may read, and not tell capitals apart
        return f"two members of one name ({next(n for n, f in zip(names, folded, strict=True) if folded.count(f) > 1)})"
    return next(
        (found for name in names if (found := _code_in_member(archive, name))), ""
    )


def _code_in_member(archive: zipfile.ZipFile, name: str) -> str:
    inside = name.partition("/")[
        2
    ]  # torch takes the first directory for the archive's name
    if inside.startswith("data/aotinductor/") or name.endswith((".so", ".cubin")):
        return f"compiled code ({name})"
    if inside.startswith("data/") and name.endswith("_config.json"):
        payloads = json.loads(archive.read(name))["config"].items()
        objects = (
            constant
            for constant, payload in payloads
            if not _TENSOR.fullmatch(str(payload["path_name"]))
        )
        return next((f"a pickled Python object ({each!r})" for each in objects), "")
    if inside.startswith("models/") or name == "serialized_exported_program.json":
        return next(_unfit(json.loads(archive.read(name)), ()), "")
    return ""


@contextmanager
def tensors_only() -> Iterator[None]:
    """Make ``torch.load`` refuse everything but tensors and plain values, while the block runs."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _unfit(value: object, path: tuple[str | int, ...]) -> Iterator[str]:
    """Yield each text in a program that might be run as code, with what it is."""
    if path == ("graph_module", "metadata"):
        return
    if (
        path[-1:] == ("metadata",)
        and len(path) > 2
        and path[-3] == "nodes"
        and isinstance(path[-2], int)
    ):
        return
    if isinstance(value, dict):
        for key, each in value.items():
            if not _PLAIN.fullmatch(key) and path != ("range_constraints",):
                yield f"the name {_short(key)}"
            yield from _unfit(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _unfit(each, (*path, index))
    elif isinstance(value, str) and (problem := _text_problem(value, path)):
        yield f"{problem} {_short(value)}"


def _text_problem(text: str, path: tuple[str | int, ...]) -> str:
    field = next((key for key in reversed(path) if isinstance(key, str)), "")
    if field in _QUOTED:
        return ""
    if field == "expr_str":
        return "" if _is_arithmetic(text) else "the size"
    if path[:1] == ("guards_code",):
        return "" if _GUARD.fullmatch(text) else "the guard"
    if field in ("in_spec", "out_spec"):
        return _spec_problem(text)
    if field == "target" and _FILES.match(text):
        return "an operator on files,"
    return "" if _PLAIN.fullmatch(text) or field == "torch_version" else "the name"


def _spec_problem(text: str) -> str:
    """Say what is wrong with a description of arguments: JSON, with JSON in its strings."""
    try:
        value = json.loads(text)
    except ValueError:
        return "" if _PLAIN.fullmatch(text.replace(" ", "")) else "the argument"
    for each in _members(value):
        if each in ("__enum__", "default_factory_module"):
            return "a module to import in"
        if isinstance(each, str) and (problem := _spec_problem(each)):
            return problem
    return ""


def _members(value: object) -> Iterator[object]:
    """Yield the keys and the values that are no containers, of JSON data."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _members(each)
    else:
        yield value


def _is_arithmetic(text: str) -> bool:
    """Say whether an expression is of numbers, symbols and sympy's functions alone."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(
        isinstance(node, _ARITHMETIC) and _is_harmless(node) for node in ast.walk(tree)
    )


def _is_harmless(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return (
            isinstance(node.func, ast.Name)
            and _FUNCTION.fullmatch(node.func.id) is not None
        )
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
        return (
            isinstance(node.value, str)
            and _WORD_OR_NUMBER.fullmatch(node.value) is not None
        )
    return not (isinstance(node, ast.Name) and node.id.startswith("__"))


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}...")
