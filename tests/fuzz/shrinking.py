"""Make a failing case small: fewer outputs and statements, inputs in place of what was computed, defaults."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, replace

import torch

from tests.fuzz.building import nets, samples
from tests.fuzz.cases import Case, Config, Input

#: Says whether a case still fails as the first one did.
Fails = Callable[[Case], bool]


def smallest(case: Case, fails: Fails, runs: int = 60) -> Case:
    """Return a smaller case that fails alike, after at most so many runs."""
    left, smaller = runs, True
    while smaller and left > 0:
        smaller = False
        for candidate in candidates(case):
            left -= 1
            if fails(candidate):
                case, smaller = candidate, True
                break
            if left <= 0:
                break
    return case


def candidates(case: Case) -> Iterator[Case]:
    """Yield cases that are a step smaller, those that may be smaller by most first."""
    yield from _plainer(case)
    try:
        tree, shapes = ast.parse(case.source), _shapes(case)
    except Exception:  # not of statements, or it does not run
        return
    if not any(isinstance(each, ast.ClassDef) for each in tree.body):
        return
    returned = _forward(tree).body[-1].value.elts
    if len(returned) > 1:
        for index in range(len(returned)):
            yield _rewritten(case, lambda forward, index=index: _return_one(forward, index))
    statements = _forward(tree).body[:-1]
    for index in reversed(range(len(statements))):
        (target,) = statements[index].targets
        if isinstance(target, ast.Name) and target.id in shapes:
            given = Input(shapes[target.id])
            yield _rewritten(case, lambda forward, index=index: _as_input(forward, index), given)
    for index in reversed(range(len(statements))):
        if not isinstance(statements[index].targets[0], ast.Name):
            continue
        for name in sorted(filter(re.compile(r"[vx]\d+").fullmatch, _names(statements[index].value))):
            yield _rewritten(case, lambda forward, index=index, name=name: _bypassed(forward, index, name))


def _plainer(case: Case) -> Iterator[Case]:
    """The case with one thing in its configuration as it is by default."""
    for each in fields(Config):
        if each.name not in ("profile", "policy") and getattr(case.config, each.name) != each.default:
            yield replace(case, config=replace(case.config, **{each.name: each.default}))


def _forward(tree: ast.Module) -> ast.FunctionDef:
    (net,) = (each for each in tree.body if isinstance(each, ast.ClassDef))
    return next(each for each in net.body if isinstance(each, ast.FunctionDef) and each.name == "forward")


def _shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """The shapes of all float values, by name."""
    tree = ast.parse(case.source)
    forward = _forward(tree)
    names = [s.targets[0].id for s in forward.body[:-1] if isinstance(s.targets[0], ast.Name)]
    forward.body[-1] = ast.parse(f"return {{{', '.join(f'{name!r}: {name}' for name in names)}}}").body[0]
    net = nets(replace(case, source=ast.unparse(tree)))["forward"]
    with torch.no_grad():
        values = net(*samples(case)[0][0])
    return {name: tuple(value.shape) for name, value in values.items() if value.is_floating_point()}


def _return_one(forward: ast.FunctionDef, index: int) -> None:
    forward.body[-1].value.elts = [forward.body[-1].value.elts[index]]


def _as_input(forward: ast.FunctionDef, index: int) -> None:
    forward.args.args.append(ast.arg(forward.body.pop(index).targets[0].id))


def _names(*trees: ast.AST) -> set[str]:
    return {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _bypassed(forward: ast.FunctionDef, index: int, name: str) -> None:
    (target,) = forward.body.pop(index).targets
    for node in ast.walk(forward):
        if isinstance(node, ast.Name) and node.id == target.id:
            node.id = name


def _rewritten(case: Case, change: Callable[[ast.FunctionDef], None], given: Input | None = None) -> Case:
    """Return the case with a changed ``forward``, without what nothing uses any more."""
    tree = ast.parse(case.source)
    forward = _forward(tree)
    change(forward)
    kept: list[ast.stmt] = []
    for statement in reversed(forward.body):
        targets = _names(statement.targets[0]) if isinstance(statement, ast.Assign) else set()
        if isinstance(statement, ast.Return) or targets & _names(*kept):
            kept.insert(0, statement)
    forward.body = kept
    used = _names(*kept)
    inputs = [*case.inputs, *([given] if given else [])]
    pairs = list(zip(forward.args.args[1:], inputs, strict=True))
    left = [pair for pair in pairs if pair[0].arg in used] or pairs[:1]
    forward.args.args[1:] = [argument for argument, _ in left]
    source = _without_unused_layers(ast.unparse(tree))
    return replace(case, source=f"{source}\n", inputs=tuple(each for _, each in left))


def _without_unused_layers(source: str) -> str:
    body = source[source.index("def forward") :]
    lines = []
    for line in source.splitlines():
        found = re.match(r"\s+self\.(m\d+) = |\s+self\.register_buffer\('(m\d+)'", line)
        if not found or re.search(rf"\bself\.{found[1] or found[2]}\b", body):
            lines.append(line)
    return "\n".join(lines)
