"""The list of kernels is what the runtime asks for when the program loads, and what ExecuTorch's own tools build."""

import re
from contextlib import suppress

import pytest
import torch
import yaml
from executorch.codegen.tools import gen_all_oplist
from executorch.exir import to_edge
from executorch.exir._serialize._program import deserialize_pte_binary, serialize_pte_binary
from executorch.exir.schema import DelegateCall
from executorch.runtime import Runtime
from lowering import EDGE, lower, quantize, tosa
from small import Built, Lambda, image
from torch import nn

from safe_arm import SafeArmPartitioner
from safe_arm.footprint import kernels as kernels_module
from safe_arm.footprint.kernels import kernels_of, library_of, missing_kernels, operator_list

#: A convolution that is delegated before and after a Bessel function that is not.
MIXED = Built(lambda m, x: m.last(m.first(x).i0()), first=nn.Conv2d(4, 4, 3), last=nn.Conv2d(4, 2, 1))


def mixed():
    torch.manual_seed(0)
    spec, inputs = tosa("TOSA-1.0+INT"), image()
    graph = quantize(MIXED.eval(), inputs, spec)
    return lower(graph, inputs, SafeArmPartitioner(spec, verify=False)).to_executorch().buffer


def portable(programs):
    """The file of programs that are not partitioned."""
    return to_edge(programs, compile_config=EDGE).to_executorch().buffer


def exported(function, *inputs, **how):
    return torch.export.export(Lambda(function), inputs, **how)


def two_methods():
    first = exported(lambda net, x: torch.erf(x).sum(1), *image())
    second = exported(lambda net, x: torch.topk(torch.tan(x), 2)[0], *image())
    return portable({"first": first, "second": second})


def looping():
    branch = exported(lambda net, x, n: torch.cond(n.sum() > 0, torch.sin, torch.cos, (x,)), *image(), *image(1))
    return portable(branch)


def dynamic():
    sizes = ({0: torch.export.Dim("batch", min=2, max=8)},)
    return portable(exported(lambda net, x: x.flatten(1) * x.shape[0], torch.rand(4, 2, 3), dynamic_shapes=sizes))


PROGRAMS = {"delegated and not": mixed, "two methods": two_methods, "control flow": looping, "dynamic": dynamic}


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request):
    return PROGRAMS[request.param]()


def asked_for(pte, capfd):
    """What the runtime looks up when it loads each method: every name is changed, so that it finds none."""
    file = deserialize_pte_binary(pte)
    for plan in file.program.execution_plan:
        plan.delegates = []  # Arm's are not registered here, and come first
        for chain in plan.chains:
            chain.instructions = [i for i in chain.instructions if not isinstance(i.instr_args, DelegateCall)]
        for operator in plan.operators:
            operator.name = f"absent_{operator.name}"
    loaded = Runtime.get().load_program(bytes(serialize_pte_binary(file)))
    for plan in file.program.execution_plan:
        with suppress(RuntimeError):
            loaded.load_method(plan.name)
    return set(re.findall(r"Missing operator: \[\d+\] absent_(\S+)", "".join(capfd.readouterr())))


def test_they_are_what_the_runtime_asks_for(program, capfd):
    asked = asked_for(program, capfd)
    assert asked
    assert {kernel.name for kernel in kernels_of(program)} == asked


def test_a_kernel_that_no_library_has_is_found_wherever_a_method_calls_it(monkeypatch):
    sorting = exported(lambda net, x: x.i0() + x, *image())
    programs = {"first": exported(lambda net, x: x + x, *image()), "second": sorting}
    manager = to_edge(programs, compile_config=EDGE).to_executorch()
    assert missing_kernels(manager) == ("aten::i0.out",)
    monkeypatch.setattr(kernels_module, "_kernels_in", lambda library: frozenset())
    assert missing_kernels(manager) == (), "nothing is known of the libraries"


def test_executorchs_tools_build_them_and_no_others(program, tmp_path):
    kernels = kernels_of(program)
    (tmp_path / "selected.yaml").write_text(operator_list(kernels))
    gen_all_oplist.main(["--model_file_list_path", str(tmp_path / "selected.yaml"), "--output_dir", str(tmp_path)])
    built = yaml.safe_load((tmp_path / "selected_operators.yaml").read_text())
    assert set(built["operators"]) == {kernel.name for kernel in kernels}
    selected = {name: set(keys) for name, keys in built["et_kernel_metadata"].items()}
    assert selected == {kernel.name: set(kernel.keys) for kernel in kernels}


def test_a_program_that_is_all_delegate_calls_none(tmp_path):
    spec, inputs = tosa("TOSA-1.0+FP"), image()
    graph = torch.export.export(Lambda(lambda net, x: net.conv(x)).eval(), inputs).module()
    pte = lower(graph, inputs, SafeArmPartitioner(spec, verify=False)).to_executorch().buffer
    assert kernels_of(pte) == ()
    assert not yaml.safe_load(operator_list(()))["operators"]


def test_a_kernel_in_no_library_is_seen():
    assert library_of("aten::add.out") == "portable"
    assert library_of("quantized_decomposed::quantize_per_tensor.out") == "quantized"
    assert library_of("executorch_prim::et_view.default") == "prim"
    assert library_of("dim_order_ops::_to_dim_order_copy.out") == "portable"
    assert library_of("mine::add.out") == library_of("aten::no_such.out") == ""
