"""The file: what is in it, what comes back, and that it says the same of the same program."""

import json
from dataclasses import fields, replace

from schemas import check_document, schema
from two_methods import BOTH, ENCODE

from safe_arm.core.record import NodeVerdict, Report, Subject
from safe_arm.gate.baseline import Allowed, Baseline, Operator, baseline_of, read_baseline

SUBJECT = Subject("tosa", "TOSA-1.0+INT", "reject", versions={"torch": "2.13.0", "ethos-u-vela": ""})


def test_it_comes_back_as_it_was_written(tmp_path):
    was = replace(baseline_of(replace(ENCODE, subject=SUBJECT)), allowed=Allowed(5, 2.5, 1))
    check_document(json.loads(was.to_json()), "gate/baseline")
    (tmp_path / "b.json").write_text(was.to_json())
    assert read_baseline(tmp_path / "b.json") == was
    assert was.versions == {"torch": "2.13.0"}


def test_the_schema_has_every_field_and_no_other():
    def names(record):
        return {each.name for each in fields(record)}

    found = schema("gate/baseline")
    properties = found["properties"]
    assert set(properties) == names(Baseline) | {"kind", "schema_version"} == set(found["required"])
    assert set(properties["allowed"]["properties"]) == names(Allowed)
    assert set(properties["operators"]["items"]["properties"]) == names(Operator)


def test_an_operator_has_a_line_and_a_program_without_any_is_json():
    text = baseline_of(replace(ENCODE, subject=SUBJECT)).to_json()
    assert sum('"name": ' in line for line in text.splitlines()) == len(ENCODE.compute)
    assert json.loads(baseline_of(Report((), 0, 0)).to_json())["operators"] == []


def test_operators_alike_are_numbered_and_methods_told_apart():
    nodes = tuple(NodeVerdict(f"relu_{i}", "aten::relu", "tag0", module="act", written="ReLU") for i in range(3))
    names = [each.name for each in baseline_of(Report(nodes, 0, 0)).operators]
    assert names == ["ReLU act (aten::relu)", "ReLU act (aten::relu) #2", "ReLU act (aten::relu) #3"]
    assert {each.name.partition(":")[0] for each in baseline_of(BOTH).operators} == {"enc", "dec"}
