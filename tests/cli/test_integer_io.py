"""``--io int8``: the program takes and returns codes, and tells what they stand for."""

from io import StringIO

import numpy as np
import pytest
import torch
from executorch.exir._serialize._program import deserialize_pte_binary
from small import Built

from safe_arm.cli.integer_io import take_integers
from safe_arm.cli.pipeline import load, quantise
from safe_arm.cli.progress import Steps
from safe_arm.cli.quantising import Loaded, samples_of
from safe_arm.cli.request import Request
from safe_arm.cli.targets import profile_for


def interface(path):
    """The scalar types that a .pte takes and returns, and the names of its other methods."""
    program = deserialize_pte_binary(path.read_bytes())
    plan, *others = getattr(program, "program", program).execution_plan
    types = [[plan.values[index].val.scalar_type.name for index in each] for each in (plan.inputs, plan.outputs)]
    return types, {other.name: other.values[0].val for other in others}


@pytest.mark.parametrize("profile", ["TOSA-1.0+INT", "TOSA-1.0+INT+FP"])
def test_codes_in_and_out(files, profile):
    result = files.run("--io=int8", "--non-fuseable=propagate", profile=profile)
    assert "operators       4 of 4 delegated" in result.stdout
    assert "1 of 1 delegate against the quantised graph" in result.stdout
    types, methods = interface(files.output)
    assert types == [["CHAR", "CHAR"], ["CHAR"]]
    ends, names = ("input0", "input1", "output0"), ("scale", "zp", "quant_min", "quant_max", "dtype")
    assert set(methods) == {f"forward_{end}_{name}" for end in ends for name in names}


def test_the_codes_are_those_of_the_quantised_program(conv_relu_cat):
    """Run eagerly: codes in give the codes of what floats in give."""
    program, arrays = load(conv_relu_cat[0]), np.load(conv_relu_cat[1])
    steps = Steps(StringIO())
    samples = samples_of(program, arrays, steps)
    request = Request(conv_relu_cat[0], "tosa", profile_for("tosa", "TOSA-1.0+INT"), "reject")
    floats = quantise(Loaded(request, program, samples), steps).program
    wanted = floats.module(check_guards=False)(*samples[0])
    methods = take_integers(floats)

    def of(end):
        return [methods[f"forward_{end}_{name}"] for name in ("scale", "zp", "quant_min", "quant_max")]

    to_codes = torch.ops.quantized_decomposed.quantize_per_tensor
    codes = [to_codes(x, *of(f"input{index}"), torch.int8) for index, x in enumerate(samples[0])]
    state, signature = {**floats.state_dict, **floats.constants}, floats.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    names |= signature.inputs_to_lifted_tensor_constants
    found = floats.graph_module(*(state[target] for target in names.values()), *codes)[0]
    assert found.dtype == torch.int8
    assert torch.equal(found, to_codes(wanted, *of("output0"), torch.int8))


def test_an_input_that_nothing_reads_stays_as_it_is(files, save, tmp_path):
    net = Built(lambda m, x, unused, y: x + y)
    model = save(net, torch.rand(3, 1, 4).unbind(), tmp_path / "net.pt2")
    arrays = {
        name: np.random.default_rng(0).uniform(-1, 1, (3, 1, 4)).astype("float32") for name in ("x", "more_0", "more_1")
    }
    np.savez(tmp_path / "data.npz", **arrays)
    files.run("--io=int8", model=model, calibrate=tmp_path / "data.npz")
    types, methods = interface(files.output)
    assert types == [["CHAR", "FLOAT", "CHAR"], ["CHAR"]]
    assert {name.split("_")[1] for name in methods} == {"input0", "input2", "output0"}


def test_an_output_that_is_not_quantised_is_named(files, save, tmp_path):
    net = Built(lambda m, x: (x + 1, (x > 0).to(torch.float32) * 1.5))
    model = save(net, (torch.rand(1, 4),), tmp_path / "net.pt2")
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).uniform(-1, 1, (3, 1, 4)).astype("float32"))
    result = files.run("--io=int8", model=model, calibrate=tmp_path / "data.npz", status=None)
    if result.exit_code:  # which operators the quantiser leaves float is ExecuTorch's business
        assert result.exit_code == 2, (result.stderr, result.exception)
        assert "Error: --io int8: output 1 of the model is float and not quantised as a whole" in result.stderr
    else:
        assert interface(files.output)[0][1] == ["CHAR", "CHAR"]
