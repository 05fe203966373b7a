"""Which of equal maxima comes first is a matter of rounding, and ExecuTorch alone rounds in its own way."""

from tests.fuzz import judging
from tests.fuzz.cases import Case, Config, Input
from tests.fuzz.toolchain import through_ours

#: NNSmith 294 of seed 8.
RESIZED = """class Net(nn.Module):
    def forward(self, x0):
        v0 = torch.ops.aten.upsample_trilinear3d.vec(x0, [1, 10, 1], False, None)
        return torch.ops.aten.argmax.default(v0, 3), torch.ops.aten.acos.default(v0)
"""


def test_what_executorch_alone_computes_is_right(monkeypatch):
    case = Case(RESIZED, (Input((1, 47, 1, 1, 1)),), Config("INT+FP", policy="propagate"), 294)
    assert through_ours(case)[0].verdict == "right"
    monkeypatch.setattr(judging, "_same_alone", lambda *_: False)
    assert through_ours(case)[0].verdict == "wrong"
