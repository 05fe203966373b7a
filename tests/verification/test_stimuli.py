"""The inputs of a proof exercise the domain of every input and stay in it."""

import pytest
import torch
from lowering import PROFILES, edge_program, lower, quantize, tosa
from proving import delegates_of, quantized
from small import Built, Lambda, image

from safe_arm import SafeArmPartitioner
from safe_arm.core.errors import DemotionWarning
from safe_arm.partitioner import proving
from safe_arm.passes.manager import CORRECTIONS
from safe_arm.verification.evaluation import evaluated
from safe_arm.verification.proof import prove
from safe_arm.verification.stimuli import FEWEST, STIMULI, stimuli


def by_name(program):
    return {stimulus.name: stimulus.inputs for stimulus in stimuli(program)}


def test_codes_reach_both_ends_and_the_zero_point(delegate):
    made = by_name(delegate.program)
    assert len(made) == STIMULI
    (zero,), (low,), (high,) = made["all zero"], made["all lowest"], made["all highest"]
    assert (low.dtype, low.unique().tolist(), high.unique().tolist()) == (torch.int8, [-128], [127])
    assert len(zero.unique()) == 1
    (mixed,) = made["uneven rows"]
    assert mixed.flatten()[:4].tolist() == [-128, 127, -128, 127]
    (random,) = made["random"]
    assert random.min() < -120
    assert random.max() > 119
    assert not torch.equal(random, made["random again"][0])


def test_a_loop_gets_inputs_that_lean_to_one_side_and_nothing_else_does(delegate):
    def halved(m, x):
        def goes_on(t):
            return torch.gt(torch.sum(t), torch.full((1,), 2.0)).squeeze()

        return torch.ops.higher_order.while_loop(goes_on, lambda t: (t * torch.full((1,), 0.5),), (x,), ())[0]

    spec = tosa("TOSA-1.0+INT+cf")
    made = by_name(edge_program(quantize(Lambda(halved), image(), spec), image()))
    assert len(made) == STIMULI
    (balanced,), (higher,), (lower,) = made["random"], made["random, higher"], made["random, lower"]
    assert lower.mean() < -0.2 < balanced.mean() < 0.2 < higher.mean()
    assert -1.5 < lower.min() < higher.max() < 1.5, "within the quantiser's range"
    assert not {"random, higher", "random, lower"} & set(by_name(delegate.program))


def test_a_dear_delegate_s_second_input_holds_a_patch_of_every_kind(delegate):
    program = delegate.program
    assert [stimulus.name for stimulus in stimuli(program, FEWEST)] == ["random", "patchwork"]
    _, (patched,) = (stimulus.inputs for stimulus in stimuli(program, FEWEST))
    whole = by_name(program)
    # Two rows of three patches on 8 x 8.
    places = {
        "all lowest": (slice(0, 4), slice(0, 3)),
        "all highest": (slice(0, 4), slice(3, 6)),
        "all zero": (slice(0, 4), slice(6, 8)),
        "uneven rows": (slice(4, 8), slice(0, 3)),
    }
    for name, (rows, columns) in places.items():
        # The first channel alone is uneven as a whole.
        patch, same = (each[:, 0, rows, columns] for each in (patched, whole[name][0]))
        assert torch.equal(patch, same), name
    assert len(patched[..., 4:, 3:].unique()) > 20, "the rest is random"


def test_two_inputs_meet_at_the_same_extremes_and_at_different_ones():
    inputs = (*image(), *image(1))
    net = Lambda(lambda m, x, y: x * y)
    (delegate,) = delegates_of(quantize(net, inputs, tosa(PROFILES[0])), inputs, PROFILES[0])
    x, y = list(stimuli(delegate.program, FEWEST))[1].inputs
    met = {(a, b) for a, b in zip(x.flatten().tolist(), y.flatten().tolist(), strict=True)}
    assert met >= {(-128, -128), (127, 127)}
    assert met & {(-128, 127), (127, -128)}


def rows_of(value):
    """Tell the rows whose codes span their whole range from those within two codes of the zero point."""
    spread = value.int().amax(-1) - value.int().amin(-1)
    assert set(spread.flatten().tolist()) <= {0, 1, 2, 3, 4, 255}
    return spread.flatten() == 255


@pytest.mark.parametrize("shape", [(1, 40), (6, 40), (1, 1, 40), (2, 3, 40), (1, 5, 4, 40)], ids=str)
def test_of_two_inputs_each_is_loud_where_the_other_is_quiet(shape):
    inputs = torch.randn(shape), torch.randn(shape, generator=torch.Generator().manual_seed(1))
    net = Lambda(lambda m, x, y: x * y)
    (delegate,) = delegates_of(quantize(net, inputs, tosa(PROFILES[0])), inputs, PROFILES[0])
    loud, quiet = map(rows_of, by_name(delegate.program)["uneven rows"])
    assert loud[0]
    assert not quiet[0]
    if len(loud) > 1:
        assert not loud[-1]
        assert quiet[-1]


def test_a_row_of_an_image_is_a_channel():
    inputs = torch.randn(1, 5, 4, 40), torch.randn(1, 5, 4, 40)
    (delegate,) = delegates_of(Lambda(lambda m, x, y: x + y), inputs, "TOSA-1.0+FP")
    x, _ = by_name(delegate.program)["uneven rows"]
    largest = x.abs().flatten(2).amax(-1).flatten()
    assert set(largest[:1].tolist()) == {8.0}
    assert largest[-1] < 0.1


def test_a_product_that_wraps_around_where_one_factor_is_loud_is_no_secret():
    """The difference and the root are loud and quiet together unless their inputs are not."""

    def over_another(m, x, y):
        return (x - x.mean(-1, True)) * (y.square().mean(-1, True) + 1e-3).rsqrt()

    inputs = torch.rand(1, 3, 8, 32), torch.rand(1, 3, 8, 32)
    net = quantize(Lambda(over_another), inputs, tosa("TOSA-1.0+INT+int16"))
    made = by_name(edge_program(net, inputs))
    products = {name: net(*values).abs().max() for name, values in made.items()}
    assert max(products, key=products.get) == "uneven rows"


def test_six_sets_where_that_is_cheap_and_two_where_it_is_dear(delegate, monkeypatch):
    program = delegate.program
    assert proving._how_many(program, {}) == STIMULI
    each = proving._cost(program)
    nodes = len(program.graph_module.graph.nodes)
    for allowed, count in ((6.1, STIMULI), (4.5, 4), (0.5, FEWEST)):
        monkeypatch.setattr(proving, "MACS_PER_NODE", allowed * each / nodes)
        assert proving._how_many(program, {}) == count


def test_the_same_delegate_gets_the_same(delegate):
    for first, second in zip(stimuli(delegate.program), stimuli(delegate.program), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(first.inputs, second.inputs, strict=True))


def test_floats_that_are_quantised_lie_away_from_ties_and_beyond_the_range():
    program = edge_program(quantize(Lambda(lambda m, x: torch.sigmoid(x)), image(), tosa(PROFILES[0])), image())
    quantiser = next(n for n in program.graph.nodes if "quantize_per_tensor" in str(n.target))
    _, scale, zero_point, low, high, _ = quantiser.args
    made = by_name(program)
    codes = made["random"][0].double() / scale + zero_point
    assert ((codes - codes.floor() - 0.5).abs() > 0.05).all()
    assert made["all highest"][0].max() > (high - zero_point) * scale
    assert made["all lowest"][0].min() < (low - zero_point) * scale


def test_codes_of_32_bits_are_no_larger_than_those_of_a_product():
    int32 = torch.iinfo(torch.int32)

    def doubled(m, codes):
        domain = (0.01, 0, int32.min, int32.max, torch.int32)
        return torch.ops.quantized_decomposed.dequantize_per_tensor.default(codes, *domain) * 2

    made = by_name(edge_program(Built(doubled), (torch.zeros(4, 64, dtype=torch.int32),)))
    (random,), (low,), (high,) = made["random"], made["all lowest"], made["all highest"]
    assert (low.unique().tolist(), high.unique().tolist()) == ([-(255**2)], [255**2])
    assert len(random.unique()) > 200


WRITTEN = Built(lambda m, x, at, y: torch.index_put(x, (at,), y))


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_indices_stay_below_the_size_of_what_they_read(index_dtype):
    inputs = torch.randn(5, 4), torch.tensor([0, 4, 2], dtype=index_dtype)
    program = edge_program(Built(lambda m, x, at: torch.index_select(x, 0, at)), inputs)
    for _, at in (stimulus.inputs for stimulus in stimuli(program)):
        assert at.dtype == index_dtype
        assert 0 <= at.min() <= at.max() < 5


@pytest.mark.parametrize("shift", [torch.bitwise_left_shift, torch.bitwise_right_shift])
def test_what_is_shifted_has_every_sign_and_shifts_stay_within_its_bits(shift):
    inputs = torch.zeros(4, 64, dtype=torch.int32), torch.zeros(4, 64, dtype=torch.int32)
    made = [stimulus.inputs for stimulus in stimuli(edge_program(Lambda(lambda m, x, by: shift(x, by)), inputs))]
    assert min(x.min() for x, _ in made) < 0
    assert (min(by.min() for _, by in made), max(by.max() for _, by in made)) == (0, 31)


def test_every_other_real_float_lies_where_rounding_changes_over():
    inputs = torch.randn(4, 50), torch.randn(4, 50)
    (delegate,) = delegates_of(Lambda(lambda m, x, y: x + y), inputs, "TOSA-1.0+FP")
    program = delegate.program
    made = by_name(program)
    left, right = made["random again"]
    assert 60 < ((left * 2) % 1 == 0).sum() < 140
    assert (left == right).any(), "two inputs meet at the same halves"
    assert not ((made["random"][0] * 2) % 1 == 0).any()
    _, (patchwork, _) = (stimulus.inputs for stimulus in stimuli(program, FEWEST))
    assert ((patchwork * 2) % 2 == 1).any()


@pytest.mark.parametrize("count", [(9,), (200,), (3, 8, 30, 30)], ids=str)
def test_a_function_that_is_wrong_in_the_middle_alone_is_demoted(count):
    stock = tuple(each for each in CORRECTIONS if each.name != "even-rounding")
    partitioner = SafeArmPartitioner(tosa("TOSA-1.0+FP"), corrections=stock, verify=True)
    with pytest.warns(DemotionWarning, match="differs from the float program"):
        lower(Lambda(lambda m, x: torch.round(x)), (torch.rand(count),), partitioner)
    assert [verdict.op for verdict in partitioner.report.demoted] == ["aten::round"]


def test_indices_to_write_to_are_distinct():
    program = edge_program(WRITTEN, (torch.randn(5, 4), torch.tensor([0, 4, 2]), torch.randn(3, 4)))
    made = by_name(program)
    assert all(len(at.unique()) == 3 for _, at, _ in made.values())
    assert made["all highest"][1].max() == 4


def test_each_of_several_indices_goes_as_far_as_its_own_dimension():
    """Of a dimension of one value, the other indices alone tell the places apart."""

    def write(m, x, down, across, y):
        return torch.index_put(x, (torch.zeros(3, dtype=torch.int64), down, across.to(torch.int64)), y)

    inputs = torch.randn(1, 3, 5, 4), torch.arange(3), torch.arange(3, dtype=torch.int32), torch.randn(3, 4)
    made = by_name(edge_program(Lambda(write), inputs))
    assert [made["all highest"][place].max() for place in (1, 2)] == [2, 4]
    assert all(len(made[name][1].unique()) == 3 for name in made)


def test_writing_by_an_index_that_is_an_input_raises_no_alarm():
    inputs = (torch.randn(5, 4), torch.tensor([0, 4, 2]), torch.randn(3, 4))
    profile = "TOSA-1.0+INT+FP"
    delegates = delegates_of(quantized(WRITTEN.eval(), inputs, profile), inputs, profile)
    assert all(prove(delegate).verified for delegate in delegates)


def test_an_integer_that_becomes_an_index_is_small_enough_to_be_one():
    net = Lambda(lambda m, x, at: torch.index_select(x, 0, at * 2))
    program = edge_program(net, (torch.rand(9, 4), torch.arange(3)))
    state = {**program.state_dict, **program.constants}
    for stimulus in stimuli(program, state=state):
        evaluated(program, state, stimulus.inputs)
