"""The record's verdicts, totals and JSON, without a backend."""

import json
from dataclasses import fields, replace

import pytest
from jsonschema import ValidationError
from schemas import check_document, schema
from two_methods import BOTH, ENCODE

from safe_arm.core.device_cost import Footprint, Kernel, VelaSummary
from safe_arm.core.record import Applied, NodeVerdict, QParamsRecord, Reason, Report, Subject, Verification, joined
from safe_arm.core.unit_accuracy import Accuracy, UnitAccuracy

SCHEMA = schema("report/report")
CONV = NodeVerdict("conv", "aten::convolution", "tag0", macs=30, inputs=("x",), value="float32[1, 4]")
RELU = NodeVerdict("relu", "aten::relu", None, (Reason("not implied", "check", "S1"), Reason("rank 6", "stock")))
SINE = NodeVerdict("sin", "aten::sin", None, (Reason("not implied", "check", "S1"),), macs=10)
BORDER, INT8 = Reason("border", "boundary"), QParamsRecord("int8", -128, 127)
QUANTIZE = NodeVerdict("q", "quantized_decomposed::quantize_per_tensor", None, (BORDER,), qparams=INT8)
REPORT = Report(
    (CONV, RELU, SINE, QUANTIZE),
    1,
    1,
    verifications=(Verification("tag0", True, "", 30, 1.0, 12, 0.5),),
    applied=(Applied("honest-fusion", "S1", "tag0", ("conv",)),),
    vela=(VelaSummary("tag0", {"cycles_total": 30, "system_config": "A"}, 16, 8, 4, 1, None),),
    footprint=Footprint(100, {"forward": (16, 8)}, (Kernel("aten::sin.out", ("v1/6;0",), "portable"),)),
    subject=Subject("vgf", "TOSA-1.0+INT", "reject", ("honest-fusion",), {"torch": "2.13.0", "torchao": ""}, ("x",)),
)


@pytest.mark.parametrize(
    ("stages", "verdict"),
    [("check stock partition", "refused"), ("boundary", "de-tagged"), ("preflight converter verify", "demoted")],
)
def test_the_first_reason_decides_the_verdict(stages, verdict):
    for stage in stages.split():
        node = NodeVerdict("n", "aten::sin", None, (Reason("why", stage), Reason("more", "stock")))
        assert (node.verdict, node.stage, node.reason) == (verdict, stage, "why")
        assert stage in SCHEMA["$defs"]["stage"]["enum"]


def test_totals():
    assert REPORT.delegates == ("tag0",)
    assert REPORT.macs_delegated == 0.75
    assert REPORT.fallbacks == (RELU, SINE)
    assert REPORT.by_reason() == {("not implied", "S1"): [RELU, SINE]}
    assert REPORT.by_op() == {
        "aten::convolution": {"delegated": 1},
        "aten::relu": {"refused": 1},
        "aten::sin": {"refused": 1},
    }


def test_json_validates_against_the_published_schema():
    record = json.loads(json.dumps(REPORT.to_dict()))
    check_document(record, "report/report")
    assert [node["verdict"] for node in record["nodes"]] == ["delegated", "refused", "refused", "de-tagged"]
    assert record["totals"]["by_reason"] == [{"reason": "not implied", "issue": "S1", "nodes": ["relu", "sin"]}]


#: By its name in the schema, what has its fields.
RECORDS = {
    "node": NodeVerdict, "reason": Reason, "qparams": QParamsRecord, "verification": Verification, "applied": Applied,
    "footprint": Footprint, "vela": VelaSummary, "subject": Subject, "unit": UnitAccuracy, "accuracy": Accuracy,
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
def test_the_schema_has_every_field_and_no_other(name):
    described = SCHEMA["$defs"][name]
    names = {each.name for each in fields(RECORDS[name])} | ({"verdict"} if name == "node" else set())
    assert set(described["properties"]) == names == set(described["required"])


def test_accuracy_is_described_too():
    units = (UnitAccuracy("conv", "a", "aten::conv2d", 40.0, 200.0, 0.0, 1.0, None, None, None, ("conv",)),)
    record = json.loads(json.dumps(replace(REPORT, accuracy=Accuracy(units, (40.0,), 8, 0.5)).to_dict()))
    check_document(record, "report/report")
    assert record["accuracy"]["units"][0]["isolated_db"] == 200.0
    record["accuracy"]["units"][0]["saturated"] = 1.5
    with pytest.raises(ValidationError, match="maximum"):
        check_document(record, "report/report")


def test_the_schema_refuses_a_fallback_without_a_reason():
    record = json.loads(json.dumps(REPORT.to_dict()))
    record["nodes"][1]["reasons"] = []
    with pytest.raises(ValidationError, match=r"non-empty|too short"):
        check_document(record, "report/report")


def test_one_report_joined_is_itself():
    assert joined({"enc": ENCODE}) is ENCODE
    assert ENCODE.by_method == {}
    assert ENCODE.label(ENCODE.verdicts[0]) == "q"


def test_what_runs_one_after_another_shares_its_memory():
    assert Footprint(1, {"enc": (16, 8), "dec": (20,)}).planned == 24
    assert Footprint(1, {}).planned == 0


def test_two_methods_keep_everything_apart():
    assert BOTH.methods == ("enc", "dec")
    assert BOTH.delegates == ("enc:tag0", "dec:tag0")
    assert BOTH.cycles == {"enc:tag0": 300, "dec:tag0": 100}
    assert [(v.method, v.delegate) for v in BOTH.verifications] == [("enc", "enc:tag0"), ("dec", "dec:tag0")]
    assert [each.delegate for each in BOTH.applied] == ["enc:tag0", "dec:tag0"]
    assert [each.delegate for each in BOTH.vela] == ["enc:tag0", "dec:tag0"]
    assert [v.graph for v in BOTH.verdicts] == [*["enc"] * 3, "enc:true_graph_0", *["dec"] * 3, "dec:true_graph_0"]
    assert len({(v.graph, v.name) for v in BOTH.verdicts}) == len(BOTH.verdicts) == 8
    assert BOTH.subject.inputs == ("enc:x", "dec:x")
    assert BOTH.subject.outputs == ("enc:relu", "enc:x", "dec:relu", "dec:x")
    assert [v.inputs for v in BOTH.verdicts[:3]] == [("enc:x",), ("q",), ("conv", "enc:x")]
    assert (BOTH.islands_refused, BOTH.propagate_would_keep, BOTH.trials) == (4, 2, 6)
    assert {name: own.macs_delegated for name, own in BOTH.by_method.items()} == {"enc": 1.0, "dec": 1.0}
    assert [len(own.fallbacks) for own in BOTH.by_method.values()] == [2, 2]


def test_an_operator_of_a_nested_graph_may_be_called_as_an_input():
    both = NodeVerdict("x", "aten::neg", "t", graph="g"), NodeVerdict("y", "aten::neg", "t", inputs=("x",), graph="g")
    report = Report(both, 0, 0, subject=Subject(inputs=("x",)))
    assert joined({"a": report, "b": report}).verdicts[1].inputs == ("x",)


def test_the_json_of_two_methods_is_described_too():
    record = json.loads(json.dumps(BOTH.to_dict()))
    check_document(record, "report/report")
    assert record["methods"] == ["enc", "dec"]
    assert [node["method"] for node in record["nodes"]] == ["enc"] * 4 + ["dec"] * 4
    assert record["totals"]["by_reason"][0]["nodes"] == ["enc:relu", "enc:relu", "dec:relu", "dec:relu"]
    assert record["totals"]["delegates"] == 2
    assert set(record) == set(SCHEMA["properties"]) == set(SCHEMA["required"])
