"""ExecuTorch's own tools through us as through stock: ETRecord, ETDump, the Inspector, and taps inside delegates."""

import pytest
import torch
import torch.utils._pytree as pytree
from bundling import SPECS, one_softmax, two_delegates
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.devtools import Inspector
from executorch.exir import to_edge_transform_and_lower
from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer
from lowering import EDGE, RELEASE, quantize, tosa
from small import Built, image

from safe_arm import SafeArmPartitioner
from safe_arm._compat.upstream import EthosUPartitioner, TOSAPartitioner, VgfPartitioner
from safe_arm.verification.reference_model import run_lowered

taps = pytest.importorskip("executorch.devtools.intermediate_output_tap", reason="ExecuTorch 1.2 has no taps")

STOCK = {"tosa": TOSAPartitioner, "vgf": VgfPartitioner, "ethos-u55-128": EthosUPartitioner}


def two_convs(forward, between=4):
    torch.manual_seed(0)
    return Built(forward, first=torch.nn.Conv2d(4, 4, 3, padding=1), last=torch.nn.Conv2d(between, 4, 1)).eval()


def log():
    """Return a net of which nothing is for the INT profile, left float."""
    torch.manual_seed(0)
    return Built(lambda m, x: torch.log2(torch.relu(m.conv(x)) + 1), conv=torch.nn.Conv2d(4, 4, 3, padding=1)).eval()


def recorded(partitioners, module):
    """Lower a graph with ``generate_etrecord=True``; return the program and its record."""
    program = torch.export.export(module, image())
    edge = to_edge_transform_and_lower(program, partitioner=partitioners, compile_config=EDGE, generate_etrecord=True)
    lowered = edge.to_executorch()
    return lowered, lowered.get_etrecord()


def handles(record):
    """For each instruction, the operators it stands for."""
    numbers = record._debug_handle_map["forward"]
    return {n: {each} if isinstance(each, int) else set(each) for n, each in numbers.items()}


@pytest.mark.parametrize("target", STOCK)
def test_debug_handles_are_stock_s_inside_and_outside_delegates(target):
    graph = quantize(two_delegates().eval(), image(), SPECS[target]())
    ours, stock = (recorded([cls(SPECS[target]())], graph)[1] for cls in (SafeArmPartitioner, STOCK[target]))
    assert handles(ours) == handles(stock)
    assert ours._delegate_map == stock._delegate_map
    assert max(map(len, handles(ours).values())) > 3, "a delegate stands for all its operators"


def test_what_is_refused_keeps_its_handle():
    """Relu before a cat is no island that can be fused: stock delegates it, ours leaves it to the CPU."""
    net = two_convs(lambda m, x: m.last(torch.cat((torch.relu(m.first(x)), x), 1)), 8)
    graph = quantize(net, image(), tosa("TOSA-1.0+INT"))
    partitioner = SafeArmPartitioner(tosa("TOSA-1.0+INT"))
    _, ours = recorded([partitioner], graph)
    _, nothing = recorded([], graph)
    assert "aten::relu" in {v.op for v in partitioner.report.fallbacks}
    # The CPU reads the bias as a float: of the node that dequantised it nothing is left.
    (bias,) = set.union(*handles(nothing).values()) - set.union(*handles(ours).values())
    named = {n.meta["debug_handle"]: n for n in ours.edge_dialect_program.graph.nodes if n.op == "call_function"}
    assert "bias" in str(named[bias].args[0]) or str(named[bias].args[0]).startswith("b__frozen_param")


def gaps(lowered, record, folder):
    """Run a program in the wheel's runtime with an ETDump and let the Inspector compare it with its record."""
    if RELEASE < (1, 5):
        pytest.skip("the wheel of 1.4 writes no ETDump")
    record.update_representative_inputs(list(image()))
    record.save(str(folder / "net.etrecord"))
    module = _load_for_executorch_from_buffer(lowered.buffer, enable_etdump=True, debug_buffer_size=1 << 20)
    module.run_method("forward", list(image()))
    paths = str(folder / "net.etdump"), str(folder / "net.bin")
    module.write_etdump_result_to_file(*paths)
    inspector = Inspector(etdump_path=paths[0], etrecord=str(folder / "net.etrecord"), debug_buffer_path=paths[1])
    return inspector.calculate_numeric_gap("MSE")


def test_the_inspector_resolves_fallbacks_to_the_user_s_operators(tmp_path):
    spec = tosa("TOSA-1.0+INT")
    found = gaps(*recorded([SafeArmPartitioner(spec)], log()), tmp_path)
    assert [list(names) for names in found["aot_ops"]] == [["conv2d"], ["relu"], ["add"], ["log2"]]
    assert [gap for (gap,) in found["gap"]] == pytest.approx([0, 0, 0, 0], abs=1e-12)
    stock = gaps(*recorded([TOSAPartitioner(spec)], log()), tmp_path)
    ours, theirs = (each.drop(columns="stacktraces", errors="ignore").astype(str) for each in (found, stock))
    assert ours.equals(theirs)


def test_the_inspector_sees_a_wrong_fallback(tmp_path):
    """The comparison can fail: the record's program has other weights than the one that ran."""
    spec = tosa("TOSA-1.0+INT")
    other = log()
    other.conv.weight.data *= 2
    lowered, _ = recorded([SafeArmPartitioner(spec)], other)
    _, record = recorded([SafeArmPartitioner(spec)], log())
    assert max(gap for (gap,) in gaps(lowered, record, tmp_path)["gap"]) > 1e-3


def test_the_inspector_resolves_a_delegate_of_another_backend(tmp_path):
    chain = [SafeArmPartitioner(tosa("TOSA-1.0+INT")), XnnpackPartitioner()]
    found = gaps(*recorded(chain, log()), tmp_path)
    operators = zip(found["aot_ops"], found["runtime_ops"], strict=True)
    assert {"conv2d", "relu"} <= {name for names, ran in operators if "DELEGATE_CALL" in ran for name in names}


def test_taps_see_every_operator_inside_a_delegate():
    """Every dequantised code is tapped, and ExecuTorch's own table compares them with the reference model."""
    spec = tosa("TOSA-1.0+INT+FP")
    partitioner = SafeArmPartitioner(spec)
    graph = quantize(two_convs(lambda m, x: m.last(torch.sigmoid(m.first(x)))), image(), spec)
    program, specs = taps.tap_intermediate_outputs_(
        torch.export.export(graph, image()),
        rules=[(taps.select_by_op_type("quantized_decomposed.dequantize_per_tensor.default"), taps.FULL_TENSOR)],
    )
    expected = pytree.tree_leaves(program.module()(*image()))
    edge = to_edge_transform_and_lower(program, partitioner=[partitioner], compile_config=EDGE)
    taps.strip_taps_(edge)
    actual = list(run_lowered(edge.exported_program(), image()))
    assert partitioner.report.delegates == ("tag0",)
    assert {v.op for v in partitioner.report.fallbacks} == {"executorch_devtools::tap"}
    table = taps.compare_aot_runtime_dataframe(specs, expected, actual)
    assert list(table["sqnr_db"]) == [float("inf")] * 4
    wrong = [*actual]
    wrong[specs[1].output_index] = wrong[specs[1].output_index] + 0.1
    off = taps.compare_aot_runtime_dataframe(specs, expected, wrong)
    assert [name for name, db in zip(off["node_name"], off["sqnr_db"], strict=True) if db < 100] == [specs[1].node_name]


def test_stock_s_inspector_dies_of_a_linear_on_an_image(tmp_path):
    """Known issue I1: its view, permute, addmm and view have one debug handle; a shape is compared with another's."""
    with pytest.raises(ValueError, match="must match the size of tensor"):
        gaps(*recorded([], one_softmax().eval()), tmp_path)
