"""The drop-in partitioner behaves as the stock one of its compile spec in everything else."""

import inspect
import pydoc
import re

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.backends.arm.vgf import VgfCompileSpec, VgfPartitioner
from lowering import PROFILES, edge_program, executed, lower, output_steps, quantize, tosa
from small import Lambda, Nothing, image
from spying import doubts

from safe_arm import SafeArmPartitioner, UsageError
from safe_arm._compat import tested_releases

SPECS = {
    "VgfBackend": (lambda: VgfCompileSpec("TOSA-1.0+INT+FP"), VgfPartitioner),
    "EthosUBackend": (lambda: EthosUCompileSpec(target="ethos-u55-128"), EthosUPartitioner),
    "TOSABackend": (lambda: tosa("TOSA-1.0+INT"), TOSAPartitioner),
}


@pytest.mark.parametrize("backend", SPECS)
def test_one_class_for_every_spec(backend):
    make, stock_class = SPECS[backend]
    ours, stock = SafeArmPartitioner(make()), stock_class(make())
    assert isinstance(ours, (SafeArmPartitioner, TOSAPartitioner))
    assert isinstance(ours, stock_class)
    assert ours.delegation_spec.backend_id == stock.delegation_spec.backend_id == backend
    own = {"delegation_spec", "additional_checks", "_decomposable_resize_support", "compile_spec"}
    for name in set(vars(stock)) - own:
        assert getattr(ours, name) == getattr(stock, name), name
    assert ours.delegation_spec.compile_specs[:-1] == stock.delegation_spec.compile_specs


def test_help_shows_every_option():
    shown = inspect.signature(SafeArmPartitioner)
    assert list(shown.parameters)[:3] == ["compile_spec", "additional_checks", "non_fuseable"]
    assert not {"args", "kwargs"} & set(shown.parameters)
    text = pydoc.render_doc(SafeArmPartitioner, renderer=pydoc.plaintext)
    assert "verify_tolerance: 'int' = 0" in text
    described = inspect.getdoc(SafeArmPartitioner).partition("Args:")[2]
    assert all(f"    {name}: " in described for name in shown.parameters)


def test_a_subclass_may_make_its_own_compile_spec():
    class Mine(SafeArmPartitioner):
        def __init__(self, profile):
            super().__init__(tosa(profile))

    assert isinstance(Mine("TOSA-1.0+INT"), TOSAPartitioner)
    assert list(inspect.signature(Mine).parameters) == ["profile"]


@pytest.mark.parametrize("backend", SPECS)
def test_the_same_ops_are_kept_whole(backend):
    make, stock_class = SPECS[backend]
    net, inputs = Lambda(lambda m, x: F.silu(m.linear(F.relu(m.conv(x))))), image()
    program = torch.export.export(quantize(net, inputs, make()), inputs).run_decompositions({})
    ops, keeps = SafeArmPartitioner(make()).ops_to_not_decompose(program)
    stock_ops, stock_keeps = stock_class(make()).ops_to_not_decompose(program)
    assert set(ops) == set(stock_ops)
    nodes = [n for n in program.graph.nodes if n.op == "call_function"]
    assert [keeps(n) for n in nodes] == [stock_keeps(n) for n in nodes]


@pytest.mark.skipif(not hasattr(TOSAPartitioner, "register_custom_partition_op"), reason="no custom ops before 1.3")
def test_custom_partition_ops_are_passed_on():
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]))
    partitioner.register_custom_partition_op(torch.ops.aten.erfc.default)
    kept, _ = partitioner.ops_to_not_decompose(edge_program(Lambda(lambda m, x: x + 1), image()))
    assert torch.ops.aten.erfc.default in kept


def test_intermediates_are_dumped(tmp_path):
    net, inputs = Lambda(lambda m, x: F.relu(m.conv(x))), image()
    spec = tosa(PROFILES[0]).dump_intermediate_artifacts_to(str(tmp_path))
    lower(quantize(net, inputs, spec), inputs, SafeArmPartitioner(spec))
    assert list(tmp_path.glob("*.tosa"))


def test_fallback_runs_in_the_runtime():
    """What is refused is right on the portable kernels, on 1.4 too, whose kernels are wrong without us (P1)."""
    net, inputs = Lambda(lambda m, x: torch.cat((F.relu(m.linear(x)), x), 1)), image()
    graph_module = quantize(net, inputs, tosa(PROFILES[0]))
    refused = lower(graph_module, inputs, SafeArmPartitioner(tosa(PROFILES[0]), [Nothing()]))
    without = lower(graph_module, inputs)
    ((actual,),) = executed(refused, inputs)
    (step,) = output_steps(graph_module)
    assert torch.round((actual - graph_module(*inputs)).abs().max() / step) == 0
    ((plain,),) = executed(without, inputs)
    right = tested_releases.parse(tested_releases.executorch_version()) >= (1, 5)
    assert torch.equal(actual, plain) == right


def test_the_graph_is_not_changed():
    net = Lambda(lambda m, x: F.hardtanh(m.conv(x), 0.0, 1.0))
    program = edge_program(quantize(net, image(), tosa(PROFILES[0])), image())
    before = str(program.graph)
    SafeArmPartitioner(tosa(PROFILES[0])).partition(program)
    assert str(program.graph) == before


BEST = 'non_fuseable="best" propagates what is verified; leave {} out, or pass "reject" or "propagate"'
ACCEPTED = (
    'accepted: VgfCompileSpec(), EthosUCompileSpec("ethos-u55-128") or another accelerator, '
    'TosaCompileSpec("TOSA-1.0+INT") or another profile'
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"non_fuseable": "refuse"}, "non_fuseable 'refuse' is not known; accepted: reject, propagate, best"),
        ({"non_fuseable": "best", "verify": False}, BEST.format("verify=False")),
        ({"non_fuseable": "best", "preflight": False}, BEST.format("preflight=False")),
        ({"compile_spec": "ethos-u85-256"}, f"compile spec 'ethos-u85-256' is a str; {ACCEPTED}"),
        ({"compile_spec": VgfCompileSpec}, f"compile spec {VgfCompileSpec!r} is a class; {ACCEPTED}"),
        ({"verify": "yes"}, "verify 'yes' is not known; accepted: True, False"),
        ({"strict": "no"}, "strict 'no' is not known; accepted: True, False"),
    ],
)
def test_wrong_use_says_what_would_do(arguments, message):
    with pytest.raises(UsageError) as error:
        SafeArmPartitioner(**({"compile_spec": tosa(PROFILES[0])} | arguments))
    assert str(error.value) == message


MISNAMED = {
    "target": (
        lambda: EthosUCompileSpec("ethos-u85-265"),
        "target 'ethos-u85-265' is not known; accepted: ethos-u55-32,",
    ),
    "system": (
        lambda: EthosUCompileSpec("ethos-u85-256", system_config="nope"),
        "Section System_Config.nope not found",
    ),
    "flag": (lambda: EthosUCompileSpec("ethos-u85-256", extra_flags=["--foo"]), "unrecognized arguments: --foo"),
}


@pytest.mark.parametrize(("spec", "says"), MISNAMED.values(), ids=MISNAMED)
def test_what_vela_does_not_take_is_an_error_before_any_lowering(spec, says):
    assert EthosUPartitioner(spec())
    for _ in range(2):
        with pytest.raises(UsageError, match=re.escape(says)):
            SafeArmPartitioner(spec())


def test_a_system_config_of_another_family_is_warned_of():
    def made(config):
        return doubts(SafeArmPartitioner, EthosUCompileSpec("ethos-u85-256", system_config=config))[1]

    (message,) = made("Ethos_U55_Deep_Embedded")
    assert "is that of another family than the target 'ethos-u85-256'" in message
    assert made("Ethos_U85_SYS_DRAM_Low") == made(None) == []
