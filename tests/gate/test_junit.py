from xml.etree import ElementTree

from safe_arm.cli.gating import _demotions
from safe_arm.core.record import NodeVerdict, Reason, Report
from safe_arm.gate.junit import JunitCase, junit

CASES = (
    JunitCase("cycles", "cycles 1 -> 2, since a < b & c", "cycles 1 -> 2"),
    JunitCase("flash", text="flash 10 bytes"),
)


def test_it_counts_and_names_what_failed():
    root = ElementTree.fromstring(junit(CASES, "net.vgf", 1.5))
    (suite,) = root
    for element in (root, suite):
        assert (element.get("tests"), element.get("failures"), element.get("time")) == ("2", "1", "1.500")
    cycles, flash = suite
    assert cycles.find("failure").get("message") == "cycles 1 -> 2, since a < b & c"
    assert flash.find("failure") is None
    assert flash.find("system-out").text == "flash 10 bytes"


def test_a_demotion_is_in_words():
    broken = "APass fails on it: InvariantError: invariant 'domains-meet' broken by APass: x (changed before it by: B)"
    verdict = NodeVerdict("a", "aten::add", None, (Reason(broken, "preflight"),))
    assert _demotions(Report((verdict,), 0, 0)) == "aten::add: APass fails on it: it breaks domains-meet: x"


def test_a_message_with_control_characters_is_xml_still():
    root = ElementTree.fromstring(junit([JunitCase("x", "\x1b[31mred\x00 \ud800 \N{SNOWMAN}")], "s", 0))
    assert root.find(".//failure").get("message") == "?[31mred? ? \N{SNOWMAN}"
