"""An integer input stays where the indices that constants make of it are valid."""

import pytest
import torch
from lowering import PROFILES, edge_program, lower_safely, quantize, tosa
from small import Built, Lambda

from safe_arm.core.programs import constants
from safe_arm.verification.delegate import user_inputs
from safe_arm.verification.evaluation import evaluated
from safe_arm.verification.index_ranges import index_range
from safe_arm.verification.stimuli import stimuli

INFINITE = float("inf")
ROWS = torch.rand(17, 4)
AT = torch.tensor([0, 4, 2], dtype=torch.int32)
STEPS = torch.tensor([0, 5, 2], dtype=torch.int32)


def at(compute):
    """Return a net that reads rows at what it computes of its input."""
    return Lambda(lambda m, x, i: torch.index_select(x, 0, compute(i)))


def range_in(net):
    program = edge_program(net, (ROWS, AT))
    state = {**program.state_dict, **program.constants}
    _, index = user_inputs(program)
    return index_range(index, constants(program, state))


FOLLOWED = {
    "itself": (lambda i: i, (0, 16)),
    "a view": (lambda i: i.reshape(3, 1).reshape(3), (0, 16)),
    "a cast": (lambda i: i.long(), (0, 16)),
    "a sum": (lambda i: i + 1, (-1, 15)),
    "a sum with several": (lambda i: STEPS + i, (0, 11)),
    "a difference": (lambda i: i - 3, (3, 19)),
    "a difference from a constant": (lambda i: 20 - i, (4, 20)),
    "a difference from several": (lambda i: STEPS - i, (-11, 0)),
    "a product": (lambda i: i * 3, (0, 5)),
    "a product with one below zero": (lambda i: i * -3, (-5, 0)),
    "a product with zero": (lambda i: i * 0, (-INFINITE, INFINITE)),
    "a quotient": (lambda i: i // 4, (0, 67)),
    "a clamp": (lambda i: i.clamp(0, 16), (-INFINITE, INFINITE)),
    "a clamp from below": (lambda i: i.clamp(min=0), (-INFINITE, 16)),
    "a clamp from above": (lambda i: i.clamp(max=16), (0, INFINITE)),
    "a clamp that is too wide": (lambda i: i.clamp(-1, 20), (0, 16)),
    "a minimum": (lambda i: torch.minimum(i, torch.full((3,), 5, dtype=torch.int32)), (0, INFINITE)),
    "a maximum": (lambda i: torch.maximum(torch.tensor(0, dtype=torch.int32), i), (-INFINITE, 16)),
    "one of the other": (lambda i: (i.clamp(max=7) * 2 + 1).long(), (0, INFINITE)),
}


@pytest.mark.parametrize(("compute", "expected"), FOLLOWED.values(), ids=FOLLOWED)
def test_the_range_of_an_index_goes_back_through(compute, expected):
    assert range_in(at(compute)) == expected


LEFT = {
    "two inputs' sum": lambda i: i + i,
    "a remainder": lambda i: i % 17,
    "a quotient of a constant": lambda i: 20 // i,
    "a quotient by one below zero": lambda i: i // -3 + 9,
    "a quotient that truncates": lambda i: torch.div(i, 4, rounding_mode="trunc"),
    "a quotient that is a float": lambda i: (i / 4).int(),
    "a float": lambda i: (i.float() * 0.5).int(),
    "a mask": lambda i: (i > 0).int(),
    "a clamp by another value": lambda i: torch.clamp(i * i, i.abs(), i.abs() + 1),
}


@pytest.mark.parametrize("compute", LEFT.values(), ids=LEFT)
def test_no_range_is_known_behind(compute):
    assert range_in(at(compute)) is None


def test_a_range_is_known_beside_what_cannot_be_followed():
    net = Lambda(lambda m, x, i: torch.index_select(x, 0, i) + torch.index_select(x, 0, i // -3 + 9))
    assert range_in(net) == (0, 16)


def test_no_range_keeps_two_indices_that_are_too_far_apart():
    net = Lambda(lambda m, x, i: torch.index_select(x, 0, i) + torch.index_select(x, 0, i + 40))
    assert range_in(net) is None


def test_an_operator_s_other_operands_are_no_index():
    taken = Lambda(lambda m, x, i: torch.gather(i, 0, torch.tensor([0, 1])) + x.sum())
    written = Lambda(lambda m, x, i: torch.index_select(x, 0, torch.zeros(1).int()).sum() + i)
    assert (range_in(taken), range_in(written)) == (None, None)


def test_every_stimulus_can_be_evaluated_and_reaches_both_ends():
    net = Lambda(lambda m, x, i: torch.index_select(x, 0, i) + torch.index_select(x, 0, i * 2 + 1))
    program = edge_program(net, (ROWS, AT))
    state = {**program.state_dict, **program.constants}
    reached = set()
    for stimulus in stimuli(program, state=state):
        evaluated(program, state, stimulus.inputs)
        reached |= set(stimulus.inputs[1].tolist())
    assert (min(reached), max(reached)) == (0, 7)


def test_places_to_write_to_stay_distinct_behind_a_sum():
    net = Built(lambda m, x, at, y: torch.index_put(x, (at + 3,), y))
    program = edge_program(net, (ROWS, torch.tensor([0, 4, 2]), torch.randn(3, 4)))
    state = {**program.state_dict, **program.constants}
    made = {each.name: each.inputs[1] for each in stimuli(program, state=state)}
    assert all(len(at.unique()) == 3 for at in made.values())
    assert (made["all lowest"].min(), made["all highest"].max()) == (-3, 13)


def test_values_that_are_written_need_not_be_distinct():
    net = Built(lambda m, x, at, y: torch.index_put(x, (at,), y))
    program = edge_program(net, (AT, torch.tensor([0, 2]), AT[:2]))
    made = {each.name: each.inputs[2] for each in stimuli(program)}
    assert made["all highest"].tolist() == [127, 127]


def test_a_table_that_is_read_at_neighbours_is_verified():
    table = torch.linspace(0, 1, 17).sqrt()
    net = Lambda(lambda m, x, i: x * table[i] + x.sqrt() * table[i + 1])
    inputs = torch.rand(1, 32), torch.arange(32, dtype=torch.int32).reshape(1, 32) % 16
    spec = tosa(PROFILES[0])
    _, partitioner = lower_safely(quantize(net, inputs, spec), inputs, spec, verify=True)
    assert [each.verified for each in partitioner.report.verifications] == [True]
