"""Which of equal maxima comes first is a matter of rounding, and ExecuTorch alone rounds in its own way."""

from tests.fuzz import judging
from tests.fuzz.cases import Case, Config, Input, one_line
from tests.fuzz.toolchain import through_ours

#: NNSmith 294 of seed 8.
RESIZED = "F.interpolate(x0, (1, 10, 1), mode='trilinear')"
NET = one_line(f"torch.argmax({RESIZED}, 3), torch.acos({RESIZED})")


def test_what_executorch_alone_computes_is_right(monkeypatch):
    case = Case(NET, (Input((1, 47, 1, 1, 1)),), Config("INT+FP", policy="propagate"), 294)
    assert through_ours(case)[0].verdict == "right"
    monkeypatch.setattr(judging, "_same_alone", lambda *_: False)
    assert through_ours(case)[0].verdict == "wrong"
