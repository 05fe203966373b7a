"""The results of the gate as the JUnit XML that CI systems show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import SubElement

#: Characters that XML cannot hold, not even escaped.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class JunitCase:
    """One check of the gate.

    Attributes:
        name: the name of the check.
        failure: what is wrong; empty if nothing is.
        text: the result in words.
    """

    name: str
    failure: str = ""
    text: str = ""


def junit(cases: Sequence[JunitCase], suite: str, seconds: float) -> bytes:
    """Return the file: one suite with one test case for each check.

    Args:
        cases: the checks.
        suite: the program and the target.
        seconds: the time that it took.
    """
    totals = {
        "tests": str(len(cases)),
        "failures": str(sum(bool(case.failure) for case in cases)),
        "errors": "0",
        "time": f"{seconds:.3f}",
    }
    root = ElementTree.Element("testsuites", totals, name="safe-arm check")
    parent = SubElement(root, "testsuite", totals, name=suite, skipped="0")
    for case in cases:
        element = SubElement(
            parent, "testcase", classname=suite, name=case.name, time="0"
        )
        if case.failure:
            failure = _ILLEGAL.sub("?", case.failure)
            wrong = SubElement(element, "failure", message=failure, type="gate")
            wrong.text = failure
        if case.text:
            output = SubElement(element, "system-out")
            output.text = _ILLEGAL.sub("?", case.text)
    ElementTree.indent(root)
    return ElementTree.tostring(root, "utf-8", xml_declaration=True) + b"\n"
