"""What safe_arm touches in ExecuTorch, torchao and torch's internals, collected from its own code.

python tools/surface.py    writes tests/data/upstream-surface-<minor release>.json
"""

import ast
import collections.abc
import functools
import importlib
import inspect
import json
import pkgutil
import re
import types
import typing
from pathlib import Path

import safe_arm
from safe_arm import seams
from safe_arm._compat.tested_releases import executorch_version, parse

PACKAGE = Path(safe_arm.__file__).parent
OTHERS = ("executorch", "torchao", "torch")
ABSENT = "absent"


DATA = PACKAGE.parent / "tests" / "data"


def installed_release():
    """The installed ExecuTorch's minor release, such as 1.5."""
    return ".".join(map(str, parse(executorch_version())))


def recorded_in(release):
    """The file with the surface of a minor release."""
    return DATA / f"upstream-surface-{release}.json"


def compared_release():
    """The minor release to compare with: the installed one if it is recorded, else the newest recorded one."""
    if recorded_in(installed_release()).exists():
        return installed_release()
    releases = [path.stem.rpartition("-")[2] for path in DATA.glob("upstream-surface-*.json")]
    return max(releases, key=parse)


def changed(found):
    """By name, what is recorded and what is there now, of everything that moved or has another signature."""
    recorded = json.loads(recorded_in(compared_release()).read_text())
    changes = {}
    for name in sorted(recorded.keys() | found.keys()):
        was, now = recorded.get(name, ABSENT), found.get(name, ABSENT)
        if was != now:
            changes[name] = was, now
    return changes


def told(changes):
    """What moved, as text: what safe_arm needs and is gone first, then new signatures, then what is new."""
    release, recorded = installed_release(), compared_release()
    lines = [f"{len(changes)} names differ between the recorded ExecuTorch {recorded} and the installed {release}"]
    gone = [name for name, (_, now) in changes.items() if now == ABSENT]
    new = [name for name, (was, _) in changes.items() if was == ABSENT]
    lines += [f"  gone     {name}" for name in gone]
    for name, (was, now) in changes.items():
        if ABSENT not in (was, now):
            lines += [f"  changed  {name}", f"    was  {was}", f"    now  {now}"]
    lines += [f"  new      {name}" for name in new]
    if changes:
        lines.append("see each, then record it: python tools/surface.py")
    return "\n".join(lines)


@functools.cache
def used():
    """What the package imports, as pairs of module and name, and the names of all attributes that it reads."""
    trees = [ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))]
    read = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    read = {name for name in read if not name.startswith("__")}
    return sorted({each for tree in trees for each in imported(tree)}), read


def surface():
    """By name, the signature of everything imported, read, wrapped or overridden that others may move."""
    found = {}
    names_imported, read = used()
    for module, name in names_imported:
        value = resolved(module, name)
        found[f"{module}.{name}"] = described(value)
        if inspect.isclass(value) and internal(value.__module__):
            names = {each for base in value.__mro__ if internal(base.__module__) for each in vars(base)} & read
            found.update({f"{module}.{name}.{each}": described(raw(value, each)) for each in names})
    for patch in seams.patches():
        found[f"{path_of(patch.owner)}.{patch.name}"] = described(raw(patch.owner, patch.name))
    for base, name in overridden():
        found[f"{path_of(base)}.{name}"] = described(raw(base, name))
    return dict(sorted(found.items()))


def internal(module):
    """Whether others may move what is in a module: all of ExecuTorch and torchao, of torch what has an underscore."""
    return module.startswith(OTHERS[:2]) or (module.startswith("torch.") and "._" in module.replace("torch._C", ""))


def imported(tree):
    """The (module, name) pairs that a file imports from inside others, lazily or not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OTHERS:
            for alias in node.names:
                if internal(node.module) or alias.name.startswith("_"):
                    yield node.module, alias.name


def overridden():
    """The (class, name) pairs that our subclasses of others' classes define anew."""
    for module in pkgutil.walk_packages([str(PACKAGE)], "safe_arm."):
        if module.name.endswith("__main__"):
            continue
        for cls in vars(importlib.import_module(module.name)).values():
            if not inspect.isclass(cls) or not cls.__module__.startswith("safe_arm"):
                continue
            for name in (name for name, value in vars(cls).items() if callable(value) or isinstance(value, property)):
                base = next((b for b in cls.__mro__[1:] if name in vars(b)), None)
                if base is not None and internal(base.__module__):
                    yield base, name


def resolved(module, name):
    """Return what a module has by a name, or a module below it; ``ABSENT`` if there is neither."""
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        pass
    except ImportError:
        return ABSENT
    try:
        return importlib.import_module(f"{module}.{name}")
    except ImportError:
        return ABSENT


def raw(owner, name):
    """Return an attribute as it stands in its owner."""
    return inspect.getattr_static(owner, name, ABSENT)


def path_of(owner):
    """Return the dotted path of a class or a module."""
    return owner.__name__ if inspect.ismodule(owner) else f"{owner.__module__}.{owner.__qualname__}"


def described(value):
    """A signature, or what kind of thing has none; without what differs from run to run."""
    if value is ABSENT:
        return ABSENT
    if value is typing.Callable:  # ours, installed in the place of the other
        value = collections.abc.Callable
    if isinstance(value, types.SimpleNamespace):  # ours, in the place of a class or a module
        value = getattr(value, "__wrapped__", value)
    if isinstance(value, (staticmethod, classmethod)):
        return f"{type(value).__name__} {described(value.__func__)}"
    if isinstance(value, property) or inspect.isdatadescriptor(value):
        return "attribute"
    try:
        return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.signature(value)))
    except (TypeError, ValueError):
        # A wrapper of ours may stand for a module.
        return "module" if type(value).__name__ in ("module", "SimpleNamespace") else f"a {type(value).__name__}"


if __name__ == "__main__":
    recorded_in(installed_release()).write_text(json.dumps(surface(), indent=1) + "\n")
