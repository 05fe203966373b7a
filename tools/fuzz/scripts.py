"""A failure as a script that repeats it: run, it says what comes of the case; in ``tests/fuzz/found``, it is a test."""

from dataclasses import fields

from tools.fuzz.cases import Case, Config
from tools.fuzz.outcome import Outcome

_SCRIPT = '''"""{title}"""

from tools.fuzz.cases import Case, Config, Input
from tools.fuzz.properties import run

SOURCE = """\\
{source}"""
CASE = Case(SOURCE, {inputs}, {config}, {seed})


def test_it_is_right():
    outcome = run(CASE)
    assert outcome.verdict == "right", outcome


if __name__ == "__main__":
    print(run(CASE))
'''


def script_of(case: Case, outcome: Outcome, found: str) -> str:
    """Return the script of a case, and in its first line how it failed when it was found."""
    text = f"{found}: {outcome.verdict} in {outcome.stage}: {outcome.detail}"
    title = text.replace("\\", "/").replace('"', "'")[:300]
    changed = {
        f.name: getattr(case.config, f.name) for f in fields(Config) if getattr(case.config, f.name) != f.default
    }
    config = f"Config({', '.join(f'{name}={value!r}' for name, value in changed.items())})"
    return _SCRIPT.format(title=title, source=case.source, inputs=repr(case.inputs), config=config, seed=case.seed)
