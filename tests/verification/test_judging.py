"""One unit is judged by the tensors that the delegate has for its values."""

from types import SimpleNamespace

import pytest
import torch
from lowering import PROFILES, edge_program
from proving import delegates_of, quantized
from small import Lambda, image, qdq

from safe_arm.core.island import call_functions
from safe_arm.core.programs import placeholder_values
from safe_arm.verification.culprits import find_culprits
from safe_arm.verification.distance import Distance, distance
from safe_arm.verification.evaluation import Evaluation
from safe_arm.verification.judging import blame, judge
from safe_arm.verification.placing import PlacedUnit, PlacedValue, run_tapped
from safe_arm.verification.reference_model import run_tosa
from safe_arm.verification.stimuli import stimuli


def test_a_value_moved_before_it_is_clamped_is_no_culprit():
    """Passes put a channel shuffle ahead of the relu: its tensor holds the right codes in another order."""
    net = Lambda(lambda m, x: torch.relu(m.conv(x)).reshape(1, 2, 2, 8, 8).transpose(1, 2).reshape(1, 4, 8, 8))
    profile = f"{PROFILES[0]}+int16"
    (shuffled,) = delegates_of(quantized(net, image(), profile, wide=True), image(), profile)
    for stimulus in stimuli(shuffled.program):
        computed = run_tapped(shuffled, stimulus.inputs, run_tosa)
        assert find_culprits(shuffled, stimulus.inputs, *computed).culprits == ()


def judged(function, change, *, is_output):
    """What the verdict says of a unit of one operator, whose value is changed in the delegate."""
    codes = torch.arange(6, dtype=torch.int32).reshape(2, 3)
    program = edge_program(Lambda(lambda m, x: function(x)), (codes,))
    (node,) = call_functions(program.graph_module)
    eager = Evaluation(placeholder_values(program, {}, (codes,)), errors={})
    eager.run([node])
    actual = change(eager.values[node])
    values = {node: PlacedValue(actual, distance(node, actual, eager))}
    verdict = judge(PlacedUnit((node,), eager, values), (node,) if is_output else (), 0)
    return verdict.fits, verdict.convicts, verdict.wrong is not None, verdict.certain, node in verdict.taken


def moved(x):
    return x.permute(1, 0)


def computed(x):
    return x + x


@pytest.mark.parametrize(
    ("function", "change", "is_output", "expected"),
    [
        pytest.param(computed, lambda x: x, False, (True, True, False, False, True), id="right"),
        pytest.param(computed, lambda x: x + 1, False, (False, False, True, True, True), id="wrong"),
        pytest.param(computed, lambda x: x.flip(0), False, (False, False, True, False, True), id="in another order"),
        pytest.param(computed, lambda x: x.flip(0), True, (False, True, True, True, True), id="so at the output"),
        pytest.param(moved, lambda x: x, False, (True, False, False, False, True), id="moved right"),
        pytest.param(moved, lambda x: x + 1, False, (False, False, False, False, False), id="moved, wrong"),
        pytest.param(moved, lambda x: x + 1, True, (False, True, True, True, True), id="moved, wrong at the output"),
    ],
)
def test_one_unit(function, change, is_output, expected):
    assert judged(function, change, is_output=is_output) == expected


@pytest.mark.parametrize(
    ("function", "reference"),
    [(computed, "the float program"), (lambda x: computed(qdq(x, 0.1, 0)), "the quantised graph")],
    ids=["of floats", "with quantisers"],
)
def test_a_culprit_differs_from_the_graph_that_was_lowered(function, reference):
    program = edge_program(Lambda(lambda m, x: function(x)), image())
    nodes = call_functions(program.graph_module)
    culprit = blame(SimpleNamespace(program=program), frozenset(nodes), Distance(1.0, 1, 1))
    assert culprit.reference == reference
