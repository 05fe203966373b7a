"""A pass before annotation that raises costs the node it raised on, not the quantisation."""

import pytest
import stubborn
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, lower_in_part, targets, tosa
from small import Built
from stubborn import Stubborn, converted, exported, quantised_inputs, quantizer_of, ramp

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.quantizer.annotation import contained_transform
from safe_arm.quantizer.annotation.contained_transform import ATTEMPTS, transform
from safe_arm.quantizer.annotation.left_float import Ledger

ROWS = [(profile, *row) for row in stubborn.TRANSFORM for profile in PROFILES]
ROWS += [(PROFILES[0], *row) for row in stubborn.TRANSFORM_INT]
IDS = [f"{name}-{profile}" for profile, name, _, _ in ROWS]
#: What stock fails on here is computed before the passes, as it depends on no input, or written in another way.
AVOIDED = ("addmm", "arange_0_cat", "index_by_nothing", "vector_norm_inf")


@pytest.mark.parametrize(("profile", "name", "between", "words"), ROWS, ids=IDS)
def test_stock_dies(profile, name, between, words):
    caught = attempted(stubborn.prepare, Stubborn(between), quantizer_of(TOSAQuantizer, profile), ramp())
    assert isinstance(caught, Caught)
    assert "An error occurred when running the" in str(caught.causes[-1])
    assert words in str(caught.root)


@pytest.mark.parametrize(("profile", "name", "between", "words"), ROWS, ids=IDS)
@pytest.mark.filterwarnings("ignore:.*stay float")
def test_ours_leaves_at_most_one_node_float_and_is_exact(profile, name, between, words):
    quantizer = quantizer_of(profile=profile)
    graph_module = converted(Stubborn(between), quantizer, ramp())
    if name in AVOIDED:
        assert quantizer.left_float == ()
    else:
        assert [e.stage for e in quantizer.left_float] == ["transform"]
        assert words in quantizer.left_float[0].reason
    assert quantised_inputs(graph_module, "conv2d") == [3, 3]
    lower_in_part(graph_module, tosa(profile), ramp(), (torch.rand(1, 4, 8, 8) * 2 - 1,))


@pytest.mark.filterwarnings("ignore:.*stay float")
def test_the_check_of_the_inputs_is_no_obstacle():
    """``ExportedProgram.module()`` calls a module that checks shapes; stock passes that re-trace die on the call."""
    net = Stubborn(lambda m, a: torch.nn.functional.softmax(a.mean((2, 3)), -1).reshape(1, 4, 1, 1) * a)
    graph_module = exported(net, ramp(), check_guards=True)
    quantizer = quantizer_of()
    transformed = quantizer.transform_for_annotation(graph_module)
    assert quantizer.left_float == ()
    assert "softmax" not in targets(transformed)


def graph():
    return exported(Stubborn(lambda m, a: torch.relu(torch.tanh(a)) + torch.tanh(a)), ramp())


def raising_on(*names):
    """A pipeline that dies on the named nodes, one a time, and that does nothing else."""
    seen = []

    def stock(graph_module):
        seen.append(graph_module)
        for node in graph_module.graph.nodes:
            if node.op == "call_function" and node.name in names:
                raise ValueError(f"{node.name} is too much")
        return graph_module

    return stock, seen


def test_near_miss_gets_stock_s_own_result():
    net = Stubborn(lambda m, a: a / (a.abs() + 1))
    ours, stock = (stubborn.transformed(net, each, ramp()) for each in (SafeTOSAQuantizer, TOSAQuantizer))
    assert ours.code == stock.code
    assert [set(n.meta) for n in ours.graph.nodes] == [set(n.meta) for n in stock.graph.nodes]


def test_where_nothing_raises_the_pipeline_sees_the_graph_itself_once():
    stock, seen = raising_on()
    graph_module, ledger = graph(), Ledger()
    assert transform(graph_module, stock, ledger) is graph_module
    assert seen == [graph_module]
    assert list(ledger) == []


def test_several_nodes_and_twice_equals_once():
    stock, seen = raising_on("relu", "tanh")
    ledger = Ledger()
    transformed = transform(graph(), stock, ledger)
    assert {e.node: e.reason for e in ledger} == {n: f"ValueError: {n} is too much" for n in ("relu", "tanh")}
    assert len(seen) == 3
    assert sorted(targets(transformed)) == sorted(targets(graph()))
    assert torch.equal(transformed(*ramp()), graph()(*ramp()))
    twice = transform(transformed, stock, Ledger())
    assert targets(twice) == targets(transformed)
    assert torch.equal(twice(*ramp()), transformed(*ramp()))


def test_the_whole_graph_is_left_as_exported_if_nobody_can_be_blamed():
    def stock(graph_module):
        graph_module.graph.erase_node(graph_module.graph.output_node())
        raise ValueError("no idea")

    ledger = Ledger()
    transformed = transform(graph(), stock, ledger)
    assert targets(transformed) == targets(graph())
    (entry,) = ledger
    assert (entry.node, entry.stage) == ("", "transform")
    assert "no idea" in entry.reason


def test_many_nodes_of_one_operator_are_held_out_together_and_attempts_are_bounded():
    def net(m, a):
        for _ in range(2 * ATTEMPTS):
            a = torch.tanh(a)
        return a

    names = [f"tanh_{i}" for i in range(1, 2 * ATTEMPTS)] + ["tanh"]
    stock, seen = raising_on(*names)
    ledger = Ledger()
    transform(exported(Stubborn(net), ramp()), stock, ledger)
    assert {e.node for e in ledger} == set(names)
    assert len(seen) <= contained_transform._ONE_BY_ONE + 2


@pytest.mark.parametrize("fatal", [KeyboardInterrupt, MemoryError])
def test_what_must_reach_the_user_does(fatal):
    def stock(graph_module):
        node = next(iter(graph_module.graph.nodes))
        try:
            raise fatal
        except fatal as error:
            raise Exception(f"An error occurred at {node}") from error

    with pytest.raises(fatal):
        transform(graph(), stock, Ledger())


def test_a_write_into_a_buffer_is_transformed_without_gradients():
    """Stock traces it on a leaf that requires gradients, and dies (T11); contained, its net would stay float."""

    def forward(m, x, position):
        m.keys.index_copy_(1, position, m.linear(x))
        return m.keys * 2

    cache = Built(forward, linear=torch.nn.Linear(8, 8), keys=torch.zeros(1, 4, 8)).eval()
    inputs = (torch.randn(1, 1, 8), torch.tensor([2]))
    with pytest.raises(Exception, match="DecomposeIndexCopyPass"):
        quantizer_of(TOSAQuantizer).transform_for_annotation(exported(cache, inputs))
    quantizer = quantizer_of()
    module = quantizer.transform_for_annotation(exported(cache, inputs))
    assert quantizer.left_float == ()
    assert not [node for node in module.graph.nodes if "index_copy" in str(node.target)]


def test_an_input_is_not_held_out():
    pristine, ledger = graph(), Ledger()
    (node,) = pristine.graph.find_nodes(op="placeholder")

    def dies_of_the_input(graph_module):
        raise ValueError(f"{node.name} is too much")

    transform(pristine, dies_of_the_input, ledger)
    assert "no operator could be blamed for" in next(iter(ledger)).reason
