"""A change that no test notices needs a reason."""

import json

import mutants

RULE, ANOTHER = {"path": "rule.py", "line": "if a:", "by": ""}, {"path": "rule.py", "line": "if b:", "by": ""}


def test_a_survivor_without_a_reason_is_found():
    noticed = {"path": "rule.py", "line": "if c:", "by": "tests/test_rule.py::test_it"}
    assert mutants.unexplained([RULE, ANOTHER, noticed], {"rule.py": {"if a:": "Both are one."}}) == [ANOTHER]
    assert mutants.unexplained([RULE], {"other.py": {"if a:": "Both are one."}}) == [RULE]


def test_every_reason_is_that_of_a_module_there_is():
    reasons = json.loads(mutants.REASONS.read_text())
    assert all((mutants.ROOT / path).exists() for path in reasons)
    assert all(text.endswith(".") for of_module in reasons.values() for text in of_module.values())
