"""The values of a graph are found among the delegate's tensors: by name first, by search last."""

import pytest
import torch
from lowering import PROFILES, WIDE, edge_program, lower, lower_safely, quantize, tosa
from proving import delegates_of
from sklearn.datasets import load_sample_images
from small import Lambda, image
from stubborn import calibrated, exported, quantizer_of

from safe_arm import SafeArmPartitioner, verify
from safe_arm.core.island import QUANTIZE, call_functions, op_name
from safe_arm.core.programs import placeholder_values
from safe_arm.verification.culprits import find_culprits
from safe_arm.verification.evaluation import Evaluation
from safe_arm.verification.placing import Computed, Place, Tapped, _layouts, place_unit, run_tapped
from safe_arm.verification.reference_model import run_tosa
from safe_arm.verification.stimuli import stimuli


@pytest.fixture(scope="module")
def delegate():
    net = Lambda(lambda m, x: torch.softmax(m.conv(x), 1)).eval()
    (made,) = delegates_of(quantize(net, image(), tosa(PROFILES[0])), image(), PROFILES[0])
    return made


def checked(delegate, inputs, places):
    return find_culprits(delegate, inputs, *run_tapped(delegate, inputs, run_tosa), places).culprits


def quantised_by(delegate, op):
    operators = delegate.program.graph.find_nodes(
        op="call_function", target=next(node.target for node in delegate.program.graph.nodes if op_name(node) == op)
    )
    return next(user for user in operators[0].users if op_name(user) == QUANTIZE)


def test_a_tensor_of_another_unit_that_fitted_by_chance_is_let_go(delegate):
    first, second, *_ = (stimulus.inputs for stimulus in stimuli(delegate.program))
    places = {}
    assert checked(delegate, first, places) == ()
    exp = quantised_by(delegate, "aten::exp")
    right = places[exp]
    shift = quantised_by(delegate, "aten::sub")
    places[exp] = places[shift]  # As if both had had the same codes on the inputs before.
    assert places[exp] != right
    assert checked(delegate, second, places) == ()
    assert places[exp] == right


def test_a_layout_that_fitted_because_all_values_were_alike_is_let_go():
    """Random inputs saturate the sums of squares of this norm; on photographs two products were then called wrong."""
    samples = []
    for picture in load_sample_images().images:
        image = torch.tensor(picture / 255.0).float().permute(2, 0, 1)[None]
        samples += [(image[:, :, y : y + 16, x : x + 16],) for y in (0, 140, 280) for x in (0, 200, 400)]
    profile = "TOSA-1.0+INT+int16"
    norm = Lambda(lambda m, x: torch.nn.functional.layer_norm(x, (16,)))
    graph_module = calibrated(exported(norm, samples[0]), quantizer_of(profile=profile, config=WIDE), samples[:8])
    _, partitioner = lower_safely(graph_module, samples[0], tosa(profile))
    assert partitioner.report.fallbacks == ()


def test_a_wrong_tensor_of_the_unit_s_own_is_not_explained_away(delegate):
    first, *_ = (stimulus.inputs for stimulus in stimuli(delegate.program))
    places = {}
    checked(delegate, first, places)
    exp = quantised_by(delegate, "aten::exp")

    def off(flatbuffer, inputs):
        tensors = run_tosa(flatbuffer, inputs)
        if len(tensors) > 1:
            tensors[places[exp][0]] = tensors[places[exp][0]] // 2
        return tensors

    findings = find_culprits(delegate, first, *run_tapped(delegate, first, off), dict(places))
    assert "aten_exp_default" in {name for culprit in findings.culprits for name in culprit.names}


@pytest.mark.parametrize("minus", [False, True])
def test_where_several_floats_fit_none_is_taken(minus):
    """The logarithm of 1 + x is next to x where x is small, and computed in two ways of which one is taken."""
    net = Lambda(lambda m, x: -torch.log1p(torch.exp(x)) if minus else torch.log1p(torch.exp(x)))
    inputs = (torch.tensor([-6.7851152]),)
    manager = lower(net, inputs, SafeArmPartitioner(tosa("TOSA-1.0+FP"), verify=False))
    assert verify(manager, [inputs], reference=torch.export.export(net, inputs)).first_wrong is None


def test_of_layouts_within_a_wide_bound_the_nearest_is_taken():
    """The bound of a long sum of 16 bits may be larger than its values."""
    graph = torch.fx.Graph()
    node = graph.call_function(torch.ops.aten.relu.default, (graph.placeholder("x"),))
    graph.output(node)
    value = torch.rand((1, 2, 3, 4), generator=torch.Generator().manual_seed(0)).double()
    node.meta["val"] = value.half()
    eager = Evaluation({node: value}, errors={node: torch.full_like(value, 2.0)})
    stored = Tapped(node.name, value.half().permute(0, 2, 3, 1).contiguous())
    placed = place_unit([node], eager, Computed({}, [stored]), {}, 0).values[node]
    assert placed.distance.worst == 0
    assert torch.equal(placed.tensor, value.half().double())


@pytest.mark.parametrize(("shape", "number"), [((1, 6), 1), ((2, 1, 3), 2), ((1, 2, 3, 2), 6), ((1,) + (2,) * 7, 1)])
def test_a_value_may_be_stored_with_its_axes_in_any_order(shape, number):
    value = torch.rand(shape)
    layouts = list(_layouts(value.permute(*range(len(shape))[::-1]).contiguous(), shape))
    assert len(layouts) == number
    assert number == 1 or any(torch.equal(layout, value) for layout in layouts)


@pytest.mark.parametrize(("owner", "expected"), [("own", Place(0, 0)), ("another", Place(1, 0))])
def test_a_known_place_is_left_only_if_it_is_another_unit_s(owner, expected):
    """There is a tensor that fits elsewhere: it may do so by chance, as may the one at the known place."""
    codes = torch.arange(6, dtype=torch.int32).reshape(2, 3)
    program = edge_program(Lambda(lambda m, x: (x + x) * x), (codes,))
    node, _ = call_functions(program.graph_module)
    eager = Evaluation(placeholder_values(program, {}, (codes,)), errors={})
    eager.run([node])
    value = eager.values[node]
    origins = {"own": node.name, "another": "another"}
    tensors = [Tapped(origins[owner], value + 1), Tapped("a third", value)]
    placed = place_unit((node,), eager, Computed({}, tensors), {node: Place(0, 0)}, 0)
    assert placed.values[node].place == expected
