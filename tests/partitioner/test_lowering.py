"""A trial's bytes are the ones that ship; what changed in between is lowered afresh; nobody's tensors are touched."""

import pytest
import torch
import torch.nn.functional as F
from executorch.exir import to_edge
from lowering import EDGE, PROFILES, codes_apart, delegates, edge_program, lower, quantize, tosa
from small import Lambda, image

from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer
from safe_arm._compat import seams
from safe_arm._compat.extraction import tag_of
from safe_arm._compat.upstream import EthosUCompileSpec, TOSABackend
from safe_arm.core.errors import DemotionWarning
from safe_arm.partitioner.weights import weights_of
from safe_arm.safe_partitioner import HOOKS


def net():
    """Two delegates under ``reject``: the island in the middle is refused."""
    return Lambda(lambda m, x: m.conv_b(torch.cat((F.relu(m.conv(torch.sigmoid(x))), x), 1)[:, :4]))


@pytest.fixture
def backend_runs(monkeypatch):
    """Counts how often the backend turns a program into TOSA."""
    seams.install(HOOKS)  # so that what is put back afterwards is wrapped too
    runs = []
    stock = TOSABackend._preprocess

    def counted(edge_program, compile_spec):
        runs.append(edge_program)
        return stock(edge_program, compile_spec)

    monkeypatch.setattr(TOSABackend, "_preprocess", staticmethod(counted))
    return runs


@pytest.mark.parametrize("profile", PROFILES)
def test_each_delegate_is_lowered_once_and_to_the_same_bytes(profile, backend_runs):
    quantised = quantize(net(), image(), tosa(profile))
    untried = lower(quantised, image(), SafeArmPartitioner(tosa(profile), preflight=False))
    without = len(backend_runs)
    partitioner = SafeArmPartitioner(tosa(profile))
    tried = lower(quantised, image(), partitioner)
    assert len(backend_runs) - without == without == len(delegates(untried)) == partitioner.report.trials > 1
    assert delegates(tried) == delegates(untried)
    assert codes_apart(tried, quantised, image()) == 0


class Meddler(SafeArmPartitioner):
    """Stands for a tool that changes the program between ``partition`` and the backend."""

    def partition(self, exported_program):
        result = super().partition(exported_program)
        self.meddle(exported_program)
        return result


def test_changed_weights_are_noticed(backend_runs):
    quantised = quantize(net(), image(), tosa(PROFILES[0]))
    *_, bias = (name for name, tensor in quantised.state_dict().items() if tensor.dtype == torch.int32)

    class ChangesWeights(Meddler):
        def meddle(self, program):
            state, real = weights_of(program)
            assert real
            state[bias].add_(1000)  # In place, and in the quantised module too: export shares its tensors.

    partitioner = ChangesWeights(tosa(PROFILES[0]))
    tried = lower(quantised, image(), partitioner)
    assert len(backend_runs) == partitioner.report.trials + 1, "exactly the delegate with that bias is lowered again"
    assert codes_apart(tried, quantised, image()) == 0


def test_a_changed_graph_is_noticed(backend_runs):
    quantised = quantize(net(), image(), tosa(PROFILES[0]))

    class LeavesOneOut(Meddler):
        def meddle(self, program):
            sigmoid = next(n for n in program.graph.nodes if "sigmoid" in n.name)
            tag = tag_of(sigmoid)
            self.out = [n for n in program.graph.nodes if tag_of(n) == tag and n.op == "call_function"]
            for node in (sigmoid, *sigmoid.all_input_nodes, *sigmoid.users):
                node.meta.pop("delegation_tag", None)

    partitioner = LeavesOneOut(tosa(PROFILES[0]))
    tried = lower(quantised, image(), partitioner)
    assert codes_apart(tried, quantised, image()) <= 1  # a float sigmoid in eager, exact by hand of its table


def test_the_user_s_parameters_are_not_written_to(monkeypatch):
    quantised = quantize(net(), image(), tosa(PROFILES[0]))
    before = {name: tensor.clone() for name, tensor in quantised.state_dict().items()}
    stock = TOSABackend._preprocess

    def scribbles(edge_program, compile_spec):
        result = stock(edge_program, compile_spec)
        for tensor in edge_program.state_dict.values():
            tensor.data.zero_()
        return result

    monkeypatch.setattr(TOSABackend, "_preprocess", staticmethod(scribbles))
    lower(quantised, image(), SafeArmPartitioner(tosa(PROFILES[0])))
    assert all(torch.equal(tensor, before[name]) for name, tensor in quantised.state_dict().items())


def old_flow(quantised):
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]))
    manager = to_edge(torch.export.export(quantised, image()), compile_config=EDGE).to_backend(partitioner)
    return manager, partitioner.report


def test_the_old_flow_has_its_weights_too(backend_runs):
    quantised = quantize(net(), image(), tosa(PROFILES[0]))
    manager, report = old_flow(quantised)
    assert not report.synthetic_weights
    assert len(backend_runs) == report.trials
    assert codes_apart(manager, quantised, image()) == 0


def test_without_real_weights_made_up_ones_find_crashes_and_never_ship(backend_runs, monkeypatch):
    monkeypatch.setattr("safe_arm.partitioner.weights.originals", lambda fakes: {})
    quantised = quantize(net(), image(), tosa(PROFILES[0]))
    manager, report = old_flow(quantised)
    assert report.synthetic_weights
    assert len(backend_runs) == 2 * report.trials
    assert codes_apart(manager, quantised, image()) == 0


def test_audit_reports_and_changes_nothing(backend_runs):
    edge = edge_program(quantize(net(), image(), tosa(PROFILES[0])), image())
    before = [(n.name, dict(n.meta)) for n in edge.graph.nodes]
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]))
    report = partitioner.audit(edge)
    assert [(n.name, n.meta) for n in edge.graph.nodes] == before
    assert report.delegates
    assert report.trials == len(backend_runs) > 0
    assert not report.synthetic_weights
    assert partitioner.report is None


def test_vela_s_summary_is_printed_for_each_delegate_that_ships_and_for_no_other(capsys):
    spec = EthosUCompileSpec("ethos-u55-128")
    outcast = Lambda(lambda m, x: m.conv_b((m.conv(x).to(torch.int16) + 3).float()))
    quantised = quantize(outcast, image(), spec, quantizer_class=SafeEthosUQuantizer)
    partitioner = SafeArmPartitioner(spec)
    with pytest.warns(DemotionWarning):
        lower(quantised, image(), partitioner)
    assert partitioner.report.trials > len(partitioner.report.delegates) > 0
    assert capsys.readouterr().out.count("Network summary") == len(partitioner.report.delegates)
