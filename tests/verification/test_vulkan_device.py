"""Delegates on a real Vulkan driver compute what the reference model and the quantised graph compute."""

import importlib.util

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.backends.arm.vgf import VgfCompileSpec, VgfPartitioner
from lowering import PROFILES, RELEASE, WIDE, delegates, lower, lower_safely, output_steps, quantize, tosa
from mutation_nets import inputs, quantised
from mutations import MUTATIONS
from small import Lambda, image

import safe_arm
from safe_arm import SafeArmPartitioner, SafeVgfQuantizer, UsageError
from safe_arm.core.int16_tables import FARTHEST
from safe_arm.verification import reference_model, vulkan_device
from safe_arm.verification.delegate import arranged, as_promised, run
from safe_arm.verification.devices import DEVICES, device
from safe_arm.verification.lowered import delegate_of, run_with

on_vulkan = pytest.mark.vulkan
STOCK_LOSES_RELU = RELEASE >= (1, 5)


def codes(values, graph_module):
    return [torch.round(v / step).to(torch.int64) for v, step in zip(values, output_steps(graph_module), strict=True)]


def run_delegate(lowered, given):
    if lowered.backend_id == "TOSABackend":
        return run(delegate_of(lowered, given), given, vulkan_device.run_tosa)
    program = lowered.original_module
    outputs = vulkan_device.run_vgf(lowered.processed_bytes, arranged(None, program, given))
    return as_promised(outputs, program.graph.output_node().args[0])


def run_on_vulkan(program, example):
    return run_with(lambda _, lowered, given: run_delegate(lowered, given), program, example)


def three_ways(graph_module, example, profile, partitioner_of, tosa_partitioner_of):
    """The output codes of a net: on Vulkan, in the reference model, by the quantised graph."""
    vgf = lower(graph_module, example, partitioner_of(VgfCompileSpec(profile)))
    model = lower(graph_module, example, tosa_partitioner_of(tosa(profile)))
    with torch.no_grad():
        expected = graph_module(*example)
    expected = expected if isinstance(expected, (list, tuple)) else (expected,)
    return (
        codes(run_on_vulkan(vgf.exported_program(), example), graph_module),
        codes(reference_model.run_lowered(model.exported_program(), example), graph_module),
        codes(expected, graph_module),
    )


def apart(left, right):
    return max(int((a - b).abs().max()) for a, b in zip(left, right, strict=True))


@on_vulkan
def test_stock_s_lost_relu_is_seen_and_ours_is_gone(profile):
    example = image()
    net = Lambda(lambda m, x: torch.cat((torch.nn.functional.relu(m.conv(x)), x), 1))
    graph_module = quantize(net, example, VgfCompileSpec(profile), quantizer_class=SafeVgfQuantizer)

    def propagating(spec):
        return SafeArmPartitioner(spec, non_fuseable="propagate")

    device_codes, model_codes, graph_codes = three_ways(graph_module, example, profile, propagating, propagating)
    assert apart(device_codes, model_codes) == 0
    assert apart(device_codes, graph_codes) == 0
    stock_device, stock_model, _ = three_ways(graph_module, example, profile, VgfPartitioner, TOSAPartitioner)
    assert apart(stock_device, stock_model) == 0
    lowest = int(stock_device[0][:, :4].min())
    print(f"{profile}: behind stock's ReLU Vulkan gives values down to {lowest} codes")
    assert (lowest < -4) == STOCK_LOSES_RELU
    assert int(device_codes[0][:, :4].min()) == 0


@on_vulkan
@pytest.mark.parametrize(
    "net", ["depthwise", "linear", "softmax", "bilinear", "max_pool", "reshape", "where", "gather"]
)
def test_the_device_agrees_with_the_reference_model_code_for_code(net):
    graph_module = quantised(net, PROFILES[0])
    manager = lower(graph_module, inputs(), SafeArmPartitioner(tosa(PROFILES[0])))
    assert delegates(manager)
    on_device = run_on_vulkan(manager.exported_program(), inputs())
    in_model = reference_model.run_lowered(manager.exported_program(), inputs())
    assert apart(codes(on_device, graph_module), codes(in_model, graph_module)) == 0


@on_vulkan
def test_a_whole_program_is_verified_there():
    graph_module = quantised("softmax", PROFILES[0])
    manager = lower(graph_module, inputs(), SafeArmPartitioner(tosa(PROFILES[0])))
    assert safe_arm.verify(manager, [inputs()], device="vulkan").verified


@on_vulkan
@pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")
def test_a_planted_fault_is_demoted_by_what_the_device_computes(by_measurement_alone):
    fault = next(m for m in MUTATIONS if m.id == "bias-dropped")
    partitioner = SafeArmPartitioner(VgfCompileSpec(PROFILES[0]), verify=True, device="vulkan")
    with fault.planted():
        lower(quantised(fault.net, PROFILES[0]), inputs(), partitioner)
    assert "aten::convolution" in [verdict.op for verdict in partitioner.report.demoted]
    assert "differs from the quantised graph" in partitioner.report.demoted[0].reason


@on_vulkan
def test_no_driver_is_no_pass(monkeypatch):
    monkeypatch.setenv("VK_DRIVER_FILES", "/nonexistent.json")
    with pytest.raises(UsageError, match=r"no Vulkan driver is installed.*apt-get install mesa-vulkan-drivers"):
        lower_safely(quantised("conv", PROFILES[0]), inputs(), tosa(PROFILES[0]), verify=True, device="vulkan")


@on_vulkan
def test_a_driver_without_the_features_is_no_pass(monkeypatch):
    """What a driver without tensors says is what the graph layer says in the wrong order."""
    monkeypatch.setattr(vulkan_device, "_LAYERS", vulkan_device._LAYERS[::-1])
    with pytest.raises(UsageError, match=r"has not the features.*VK_DRIVER_FILES"):
        vulkan_device.run_tosa(*conv_delegate())


@on_vulkan
def test_no_loader_is_no_pass(monkeypatch):
    monkeypatch.setattr(vulkan_device.ctypes.util, "find_library", lambda name: None)
    with pytest.raises(UsageError, match=r"no Vulkan loader.*apt-get install libvulkan1"):
        device("vulkan")


@on_vulkan
@pytest.mark.parametrize("tool", ["vgf_dump", "model-converter"])
def test_what_is_no_graph_is_rejected(tool):
    run = {"vgf_dump": vulkan_device.run_vgf, "model-converter": vulkan_device.run_tosa}[tool]
    with pytest.raises(vulkan_device.VulkanError, match=f"{tool} exits"):
        run(b"nothing", [])


@on_vulkan
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "has 1 inputs and 0 were given"),
        ([torch.zeros(1, 4, 8, 7, dtype=torch.int8)], "given was \\[1, 4, 8, 7\\]"),
    ],
    ids=["number", "shape"],
)
def test_inputs_that_do_not_fit(given, says):
    with pytest.raises(vulkan_device.VulkanError, match=says):
        vulkan_device.run_tosa(conv_delegate()[0], given)


def conv_delegate():
    """A delegate and its input."""
    graph_module = quantize(Lambda(lambda m, x: m.conv(x)), image(), tosa(PROFILES[0]))
    (flatbuffer,) = delegates(lower(graph_module, image(), TOSAPartitioner(tosa(PROFILES[0]))))
    return flatbuffer, [torch.zeros(1, 4, 8, 8, dtype=torch.int8)]


@pytest.mark.parametrize("package", list(vulkan_device._TOOLS))
def test_a_missing_tool_names_what_to_install(monkeypatch, package):
    present = importlib.util.find_spec("json")
    monkeypatch.setattr(vulkan_device.importlib.util, "find_spec", lambda name: None if name == package else present)
    monkeypatch.setattr(vulkan_device.Path, "exists", lambda path: True)
    install = vulkan_device._TOOLS[package][0]
    with pytest.raises(UsageError, match=f"needs {install.split('==')[0]}; install it with: pip install {install}"):
        vulkan_device.require_vulkan()


def test_an_unknown_device_lists_the_known_ones():
    with pytest.raises(UsageError, match="device 'gpu' is not known; accepted: reference-model, vulkan"):
        SafeArmPartitioner(tosa(PROFILES[0]), verify=True, device="gpu")
    assert list(DEVICES) == ["reference-model", "vulkan"]


@on_vulkan
@pytest.mark.parametrize("function", [lambda m, x: x.abs().sqrt(), lambda m, x: torch.exp(x)], ids=["sqrt", "exp"])
def test_a_function_of_16_bits_that_takes_several_tables_is_what_the_reference_model_gives(function):
    net, profile = Lambda(function), "TOSA-1.0+INT+int16"
    graph_module = quantize(net, image(), tosa(profile), config=WIDE)

    def ours(spec):
        return SafeArmPartitioner(spec, verify=False)

    vulkan, model, graph = three_ways(graph_module, image(1), profile, ours, ours)
    assert apart(vulkan, model) == 0
    assert apart(vulkan, graph) <= FARTHEST
