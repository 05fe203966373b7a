"""The inputs that are bundled, what is expected of them, and how far off a device may be."""

import faults
import pytest
import torch
from bundling import SPECS, shipped, two_delegates
from executorch.exir import to_edge_transform_and_lower
from lowering import EDGE, quantize
from small import Built, image

from safe_arm import SafeArmPartitioner
from safe_arm.bundle import cases
from safe_arm.bundle.cases import BY_GRAPH, BY_PROGRAM, CODE, EXACT, MEASURED, REAL, make_cases
from safe_arm.bundle.verifying import verify_pte
from safe_arm.bundle.writing import ShippedGraphs, write_bundle
from safe_arm.core.errors import SafeArmError

TAGS = ("tag0", "tag1")


def exported(module, *inputs, **kwargs):
    return torch.export.export(module.eval(), inputs, **kwargs)


unrun = faults.raising(AssertionError("no delegate is to be run"))
#: An integer and a float.
COUNTS = Built(lambda m, x: ((x > 0).sum(), x * 2))
#: A sum whose terms cancel: float32 is off by much more than it rounds of what is left.
CANCELS = Built(lambda m, x: (x * 1e6 + 1e7) - x * 1e6 - 1e7)


def test_a_quantised_output_may_be_half_a_code_off(between):
    (method,) = between.manifest.methods
    (bound,) = method.bounds
    assert method.computed_by == BY_PROGRAM
    assert (bound.reason, bound.atol) == (CODE, bound.step / 2)
    assert bound.from_quantised <= 1


def test_a_real_float_may_be_rounded(alone):
    (bound,) = alone.manifest.methods[0].bounds
    assert bound.reason == REAL
    assert bound.from_quantised < bound.atol < 1e-4


def test_integers_are_exact_and_one_bound_serves_all_outputs():
    found = make_cases(exported(COUNTS, torch.ones(2, 3)), "it is not run in this test", unrun)
    assert [bound.step for bound in found.bounds] == [1.0, None]
    assert found.computed_by == BY_GRAPH


def test_a_program_run_here_bounds_its_integers_by_nothing(tmp_path):
    bundle = shipped("tosa", COUNTS, tmp_path / "net", quantised=False)
    integers, floats = bundle.manifest.methods[0].bounds
    assert (integers.reason, integers.atol, floats.reason) == (EXACT, 0.0, REAL)
    assert verify_pte(bundle.pte).good


def test_what_rounds_more_than_one_operator_is_measured():
    node = list(exported(CANCELS, torch.ones(4)).graph.nodes)[-2]
    bound = cases._bound(node, [torch.tensor([1.0, 0.5])], [torch.tensor([0.0, 0.0])], BY_PROGRAM)
    assert (bound.reason, bound.atol, bound.from_quantised) == (MEASURED, 2.0, 1.0)


@pytest.mark.parametrize(("macs", "count"), [(0, 6), (10**6, 6), (10**9, 3), (10**11, 1)])
def test_of_a_large_program_fewer_inputs_are_run(macs, count):
    found = make_cases(exported(two_delegates(), *image()), "it is not run in this test", unrun, macs=macs)
    assert len(found.cases) == count


def test_samples_come_first():
    found = make_cases(exported(two_delegates(), *image()), "it is not run in this test", unrun, [image(7)])
    assert [case.stimulus.name for case in found.cases][:2] == ["sample 0", "random"]
    assert torch.equal(found.cases[0].stimulus.inputs[0], image(7)[0])
    assert [case.seed is None for case in found.cases][:2] == [True, False]


def test_what_computes_an_index_gets_integers_that_lead_to_its_table():
    net = Built(lambda m, at: m.table(at + 2), table=torch.nn.Embedding(10, 4))  # positions that begin at 2
    found = make_cases(exported(net, torch.tensor([0, 7])), "it is not run in this test", unrun)
    assert {tuple(case.outputs[0].shape) for case in found.cases} == {(2, 4)}
    assert all(torch.equal(case.outputs[0], net(*case.stimulus.inputs)) for case in found.cases)


def test_dynamic_sizes_are_tried_at_three():
    shapes = {"x": {2: torch.export.Dim("height", min=4, max=16)}}
    found = make_cases(exported(two_delegates(), *image(), dynamic_shapes=shapes), "it has dynamic sizes", unrun)
    assert [tuple(case.stimulus.inputs[0].shape) for case in found.cases] == [(1, 4, n, 8) for n in (4, 10, 16)]
    assert [case.outputs[0].shape for case in found.cases] == [case.stimulus.inputs[0].shape for case in found.cases]


def test_what_can_be_run_nowhere_is_an_error(monkeypatch):
    monkeypatch.setattr(cases, "_quantised", lambda *_: None)
    with pytest.raises(SafeArmError, match=r"cannot be run here \(it branches\), nor can its quantised graph"):
        make_cases(exported(two_delegates(), *image()), "it branches", unrun)


def test_each_method_of_several_has_its_cases(tmp_path):
    spec, collected = SPECS["tosa"](), ShippedGraphs()
    programs = {name: torch.export.export(quantize(two_delegates(), image(), spec), image()) for name in ("a", "b")}
    partitioner = SafeArmPartitioner(spec, listener=collected)
    lowered = to_edge_transform_and_lower(programs, partitioner=[partitioner], compile_config=EDGE).to_executorch()
    pte = tmp_path / "net.pte"
    pte.write_bytes(lowered.buffer)
    manifest = write_bundle(pte, lowered, programs, collected, partitioner.report)
    assert {each.data.name for each in manifest.delegates} == {f"{name}:{tag}" for name in "ab" for tag in TAGS}
    steps = {step.name: step.outcome for step in verify_pte(pte).steps if step.outcome != "recorded"}
    assert steps == {
        "hashes": "passed",
        "a in the TOSA reference model and ExecuTorch's runtime": "passed",
        "b in the TOSA reference model and ExecuTorch's runtime": "passed",
    }
