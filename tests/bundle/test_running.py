"""A program file run in pieces: what is between its Arm delegates, in ExecuTorch's runtime."""

import pytest
import torch
from bundling import shipped
from executorch.exir import to_edge
from small import Built, Lambda

from safe_arm._compat.pte import DelegateCall, MethodCut, Piece, UncuttableError, read_program
from safe_arm._compat.pte_runtime import RuntimeRunError, read_bundle, run_program
from safe_arm.bundle.running import calls_of_graphs, run_method
from safe_arm.core.errors import SafeArmError, UsageError
from safe_arm.verification.reference_model import run_tosa


def opened(bundle):
    """The program file of a bundle, its only method cut, and the bundled cases."""
    file = read_program(bundle.pte.read_bytes(), "net")
    _, suites = read_bundle(bundle.pte.with_suffix(".bpte").read_bytes(), "net")
    return file, MethodCut(file, "forward", bundle.manifest.methods[0].calls), suites["forward"]


def test_it_is_cut_at_its_delegates(between):
    _, cut, _ = opened(between)
    assert [type(step) for step in cut.steps] == [Piece, DelegateCall, Piece, DelegateCall, Piece]


def test_a_view_is_what_was_written_there(alone):
    """The linear reads a view of the input, for which there is no instruction."""
    _, cut, cases = opened(alone)
    (piece,) = cut.steps
    assert piece.inputs == cut.inputs
    for inputs, expected in cases:
        (output,) = run_method(cut, inputs, lambda *_: [])
        assert torch.equal(output, expected[0])


def views_of_delegates(m, x):
    """A delegate that reads a view of what the CPU computed, and an output that is a view of what a delegate did."""
    y = torch.atan2(m.first(x) * 8, torch.ones(1))
    return m.last(y.view(1, 16, 4, 4)).view(4, 16)


@pytest.mark.parametrize("target", ["tosa", "float"])
def test_views_at_the_border_of_delegates(target, tmp_path):
    torch.manual_seed(0)
    first, last = torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.Conv2d(16, 4, 1)
    net = Built(views_of_delegates, first=first, last=last)
    bundle = shipped(target, net, tmp_path / "net", quantised=target == "tosa")
    (bound,) = bundle.manifest.methods[0].bounds
    assert bundle.manifest.delegates
    assert bound.from_quantised <= (1 if target == "tosa" else bound.atol)


def test_a_channels_last_input(tmp_path):
    def of_channels_last(m, x):
        y = m.conv(x.to(memory_format=torch.channels_last))
        return torch.atan2(y * 8, y)

    net = Lambda(of_channels_last)
    bundle = shipped("tosa", net, tmp_path / "net")
    assert bundle.manifest.delegates
    assert bundle.manifest.methods[0].bounds[0].from_quantised <= 1e-6


def test_a_delegate_of_too_few_outputs_is_named(between):
    _, cut, cases = opened(between)
    with pytest.raises(SafeArmError, match="gives 0 outputs and its call takes 1"):
        run_method(cut, cases[0][0], lambda *_: [])


def test_the_graph_of_a_delegate_is_what_decides(between):
    """A wrong graph gives wrong outputs: the comparison does not pass whatever a delegate computes."""
    file, cut, cases = opened(between)
    delegates = zip(between.manifest.delegates, file.program.backend_delegate_data, strict=True)
    graphs = {known.index: (bytes(found.data), (0,)) for known, found in delegates}
    right = calls_of_graphs(graphs, run_tosa)
    wrong = calls_of_graphs(graphs, lambda *given: [-run_tosa(*given)[0]])
    inputs, (expected,) = cases[0]
    assert torch.equal(run_method(cut, inputs, right)[0], expected)
    assert not torch.allclose(run_method(cut, inputs, wrong)[0], expected, atol=between.manifest.methods[0].atol)


def test_what_the_runtime_says_of_a_program_it_cannot_run(between):
    with pytest.raises(RuntimeRunError, match="ExecuTorch's runtime does not run it: "):
        run_program(between.pte.read_bytes(), [torch.zeros(1, 4, 8, 8)])


@pytest.mark.parametrize("data", [b"", b"\0" * 10, b"TFL3" * 100, b"1234ET12" + b"\xff" * 200])
def test_what_is_no_program_is_refused(data):
    says = "is not an ExecuTorch program" if data.startswith(b"TFL3") else r"; (copy it again|give a \.pte)"
    with pytest.raises(UsageError, match=says):
        read_program(data, "net")


UNCUT = {
    "it branches": Built(lambda m, x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))),
    "it keeps state": Built(lambda m, x: m.count.add_(x) + 0, count=torch.zeros(2)),
}


@pytest.mark.parametrize("says", UNCUT)
def test_a_program_that_branches_or_keeps_state_is_not_cut(says):
    program = to_edge(torch.export.export(UNCUT[says], (torch.ones(2),))).to_executorch()
    with pytest.raises(UncuttableError, match=says):
        MethodCut(read_program(program.buffer, "net"), "forward", ())
