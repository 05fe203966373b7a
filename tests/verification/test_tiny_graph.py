"""The doctor's tiny graph: one CLAMP of TOSA 1.0, whose status and values are looked at."""

import sys
from types import SimpleNamespace

import pytest
import tosa_flatbuffer
from tosa_reference_model import GraphStatus

from safe_arm.verification.tiny_graph import HIGH, LOW, main, tiny_graph

VALID, UNPREDICTABLE, ERROR = GraphStatus.TOSA_VALID, GraphStatus.TOSA_UNPREDICTABLE, GraphStatus.TOSA_ERROR


def test_it_is_a_clamp_of_a_version_that_is_no_draft():
    from tosa.TosaGraph import TosaGraph

    version = TosaGraph.GetRootAs(tiny_graph(), 0).Version()
    assert (version._Major(), version._Minor(), version._Draft()) == (1, 0, False)
    assert tosa_flatbuffer.operators(tiny_graph()) == ["CLAMP"]


@pytest.mark.parametrize(
    ("status", "low", "says"),
    [
        (VALID, LOW, None),
        (VALID, LOW - 1, "the reference model computes a clamp wrong"),
        (UNPREDICTABLE, LOW, "the reference model calls a clamp TOSA_UNPREDICTABLE"),
        (ERROR, LOW, "the reference model calls a clamp TOSA_ERROR"),
    ],
    ids=["right", "wrong", "unpredictable", "an error"],
)
def test_a_wrong_status_or_value_ends_it_with_a_sentence(status, low, says, monkeypatch, tmp_path):
    def run(flatbuffer, inputs, **_):
        return [inputs[0].clip(low, HIGH)], status

    monkeypatch.setitem(sys.modules, "tosa_reference_model", SimpleNamespace(run=run, GraphStatus=GraphStatus))
    path = tmp_path / "tiny.tosa"
    if says is None:
        main(str(path))
    else:
        with pytest.raises(SystemExit) as ended:
            main(str(path))
        assert ended.value.code == says
    assert path.read_bytes() == tiny_graph()
