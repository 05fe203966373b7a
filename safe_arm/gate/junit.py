"""What was gated on, as the JUnit XML that CI systems show."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from xml.etree import ElementTree

#: What XML cannot hold, not even escaped.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Case:
    """One thing that was gated on.

    Attributes:
        name: of what.
        failure: what is wrong with it; empty if nothing is.
        text: what was found.
    """

    name: str
    failure: str = ""
    text: str = ""


def junit(cases: Iterable[Case], suite: str, seconds: float) -> bytes:
    """Return the file: one suite, one test case for each thing that was gated on.

    Args:
        cases: what was gated on.
        suite: what of: the program and the target.
        seconds: how long it took.
    """
    listed = list(cases)
    failures = sum(bool(case.failure) for case in listed)
    totals = {
        "tests": str(len(listed)),
        "failures": str(failures),
        "errors": "0",
        "time": f"{seconds:.3f}",
    }
    root = ElementTree.Element("testsuites", {"name": "safe-arm check", **totals})
    parent = ElementTree.SubElement(
        root, "testsuite", {"name": suite, **totals, "skipped": "0"}
    )
    for case in listed:
        element = ElementTree.SubElement(
            parent, "testcase", {"classname": suite, "name": case.name, "time": "0"}
        )
        if case.failure:
            failure = _ILLEGAL.sub("?", case.failure)
            ElementTree.SubElement(
                element, "failure", {"message": failure, "type": "gate"}
            ).text = failure
        if case.text:
            ElementTree.SubElement(element, "system-out").text = _ILLEGAL.sub(
                "?", case.text
            )
    ElementTree.indent(root)
    return ElementTree.tostring(root, "utf-8", xml_declaration=True) + b"\n"
