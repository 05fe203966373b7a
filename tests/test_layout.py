"""The layout keeps its promises: one rule, one file, one test file; a small surface."""

import ast
import functools
import io
import re
import tokenize
from collections import Counter

import layers
import modules
import pytest
from interpreter import ROOT

import safe_arm
from safe_arm.known_issues import known_issues
from safe_arm.partitioner.checks import CHECKS
from safe_arm.passes.manager import CORRECTIONS

PACKAGE = ROOT / "safe_arm"
MODULES = {path: path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
parsed = functools.cache(ast.parse)
#: Names that say nothing, or not what they mean.
BANNED = frozenset(("said", "made", "there", "behind", "ails", "uproot", "chatter", "near", "endings", "work"))
#: How many hidden channels there may be at most: state that travels by itself, and wrappers in other packages.
HIDDEN = {"ContextVar": 5, "Patch": 19}


def test_hidden_channels_do_not_become_more():
    calls = Counter(
        getattr(node.func, "id", getattr(node.func, "attr", ""))
        for text in MODULES.values()
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.Call)
    )
    assert {name: calls[name] for name in HIDDEN} == HIDDEN, "fewer are welcome: lower the number"


#: How dense the code may be at most: tokens a line of code, and expressions with control flow in them per 1,000 lines.
DENSEST = {"tokens": 8.0, "comprehensions": 35, "conditional expressions": 18}
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
WITHOUT_TEXT = {*["NEWLINE", "NL", "INDENT", "DEDENT", "COMMENT", "ENDMARKER"]}


def docstring_lines(tree):
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node):
            yield from range(node.body[0].lineno, node.body[0].end_lineno + 1)


def test_a_line_holds_one_idea():
    found = Counter()
    for text in MODULES.values():
        tree = parsed(text)
        left_out = set(docstring_lines(tree))
        tokens = [
            each.start[0]
            for each in tokenize.generate_tokens(io.StringIO(text).readline)
            if tokenize.tok_name[each.type] not in WITHOUT_TEXT and each.start[0] not in left_out
        ]
        found["tokens"] += len(tokens)
        found["lines"] += len(set(tokens))
        found["comprehensions"] += sum(isinstance(node, COMPREHENSIONS) for node in ast.walk(tree))
        found["conditional expressions"] += sum(isinstance(node, ast.IfExp) for node in ast.walk(tree))
    thousands = found["lines"] / 1000
    assert found["tokens"] / found["lines"] <= DENSEST["tokens"]
    assert found["comprehensions"] / thousands <= DENSEST["comprehensions"]
    assert found["conditional expressions"] / thousands <= DENSEST["conditional expressions"]


def test_a_name_of_a_public_class_means_one_thing():
    names = Counter(
        node.name for text in MODULES.values() for node in ast.walk(parsed(text)) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1 and not name.startswith("_")] == []


#: Folders with one rule a file.
RULES = ["passes", "passes/invariants", "partitioner", "partitioner/checks", "quantizer"]
RULES += [f"quantizer/{path.parent.name}" for path in sorted((PACKAGE / "quantizer").glob("*/__init__.py"))]


@pytest.mark.parametrize("folder", RULES)
def test_every_rule_has_a_test_file_of_its_name(folder):
    exempt = {"__init__", "base"}
    rules = {f.stem for f in (PACKAGE / folder).glob("*.py")} - exempt
    tests = {f.stem.removeprefix("test_") for f in (ROOT / "tests" / folder).glob("test_*.py")}
    assert rules == tests


def test_the_public_names():
    assert safe_arm.__all__ == [
        "CORRECTIONS", "SafeArmError", "SafeArmPartitioner", "SafeArmPassManager", "SafeEthosUQuantizer",
        "SafeTOSAQuantizer", "SafeVgfQuantizer", "UsageError", "verify",
    ]  # fmt: skip
    for name in safe_arm.__all__:
        value = getattr(safe_arm, name)
        assert name == "CORRECTIONS" or value.__doc__.strip().splitlines()[0].endswith((".", ":")), name


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(AttributeError, match="it has CORRECTIONS, SafeArmError"):
        safe_arm.SafePartitioner  # noqa: B018


def test_issue_ids_in_code_are_known():
    known = {issue.id for issue in known_issues()}
    assert {check.issue for check in CHECKS} | {c.issue for c in CORRECTIONS} <= known
    assert len(known) == len(known_issues())


def test_internals_of_executorch_are_imported_in_compat_only():
    offenders = []
    for path in MODULES:
        if "_compat" in path.parts:
            continue
        for node in ast.walk(parsed(MODULES[path])):
            module = getattr(node, "module", "") or ""
            internal = ("_passes", "tosa", "operator_support", "common", "constants")
            if module.startswith(tuple(f"executorch.backends.arm.{name}" for name in internal)):
                offenders.append(f"{path.relative_to(ROOT)}: {module}")
    assert offenders == []


def test_files_and_functions_are_short():
    long = []
    for path, text in MODULES.items():
        if len(text.splitlines()) > 500:
            long.append(path.name)
        for node in ast.walk(parsed(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno - node.lineno >= 60:
                long.append(f"{path.name}:{node.name}")
    assert long == []


def test_no_two_modules_have_one_file_name():
    names = Counter(path.name for path in MODULES if path.stem not in ("__init__", "__main__"))  # Python's own names
    assert [name for name, count in names.items() if count > 1] == []


def test_every_module_opens_with_a_sentence():
    openings = {path: ast.get_docstring(parsed(text)) or "" for path, text in MODULES.items() if text}
    without = [path for path, text in openings.items() if not text.partition("\n")[0].endswith((".", ":"))]
    assert [str(path.relative_to(ROOT)) for path in without] == []


def declared(path, text):
    """The names that a module declares: its own, those of functions, classes, parameters and attributes."""
    yield path.stem
    for node in ast.walk(parsed(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        if isinstance(node, ast.ClassDef):
            fields = (each for each in node.body if isinstance(each, (ast.Assign, ast.AnnAssign)))
            targets = (target for each in fields for target in getattr(each, "targets", None) or [each.target])
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def test_names_say_what_they_are():
    found = {f"{path.name}: {name}" for path, text in MODULES.items() for name in {*declared(path, text)} & BANNED}
    assert found == set()


def test_the_picture_of_the_layers_and_the_page_of_the_modules_are_current():
    assert layers.written() == layers.chart(), "python tools/layers.py --write"
    assert modules.PAGE.read_text() == modules.page(), "python tools/modules.py --write"


def test_the_architecture_fits_on_two_screens():
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 100


def test_unit_tests_lower_nothing():
    """What `make check` runs stays quick: a file that makes delegates is not in ``tests/unit.txt``."""
    names = "lower|by_stock|stock_lower|lower_safely|lower_exactly|lower_program|to_edge_transform_and_lower|to_edge"
    lowers = re.compile(rf"(?<![.\w])({names})\(")
    files = [ROOT / "tests" / name for name in (ROOT / "tests" / "unit.txt").read_text().splitlines()]
    assert len(files) > 90
    assert [str(path) for path in files if lowers.search(path.read_text())] == []
