"""A report is written as its suffix says, once there is one."""

import json

import pytest

from safe_arm import UsageError
from safe_arm.core.record import NodeVerdict, Report
from safe_arm.report.files import write_report

REPORT = Report((NodeVerdict("a", "aten::relu", "tag0"),), 0, 0)


@pytest.mark.parametrize("name", ["net.json", "net.html"])
def test_without_a_report_nothing_is_written(tmp_path, name):
    with pytest.raises(UsageError, match=r"^there is no report yet, partitioner.report is None: lower the program"):
        write_report(None, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_report_is_written(tmp_path):
    write_report(REPORT, tmp_path / "net.json")
    assert json.loads((tmp_path / "net.json").read_text())["nodes"][0]["name"] == "a"
