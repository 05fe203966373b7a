"""A trial's bytes are the ones that ship; what changed in between is lowered afresh; nobody's tensors are touched."""

from types import SimpleNamespace

import pytest
import torch
from lowering import PROFILES, codes_apart, delegates, edge_program, lower, min_max, quantize, tosa
from prepared import prepared
from small import Lambda, image
from spying import noted

from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer, seams
from safe_arm._compat.upstream import DelegationSpec, EthosUCompileSpec, TOSABackend
from safe_arm.core.errors import DemotionWarning
from safe_arm.core.lowering_record import current_lowering
from safe_arm.partitioner import lowering
from safe_arm.partitioner.weights import weights_of

#: Two delegates: a Bessel function is on the CPU.
NET = Lambda(lambda m, x: m.conv(torch.sigmoid(torch.tanh(x)).i0()))


def quantised():
    return quantize(NET, image(), tosa(PROFILES[0]), config=min_max())


@pytest.fixture
def backend_runs(monkeypatch):
    """Counts how often the backend turns a program into TOSA."""
    seams.install()  # so that what is put back afterwards is wrapped too
    return noted(monkeypatch, TOSABackend, "_preprocess")


def test_each_delegate_is_lowered_once_and_to_the_same_bytes(profile, backend_runs):
    net = prepared(NET, profile)
    untried = net.lowered(net.partitioner(preflight=False))
    without = len(backend_runs)
    partitioner = net.partitioner()
    tried = lower(net.graph_module, image(), partitioner)
    assert len(backend_runs) - without == without == len(delegates(untried)) == partitioner.report.trials > 1
    assert delegates(tried) == delegates(untried)
    assert codes_apart(tried, net.graph_module, image()) == 0


def followed_by(meddle):
    """A partitioner behind which a tool changes the program before the backend gets it."""

    class Meddler(SafeArmPartitioner):
        def partition(self, exported_program):
            result = super().partition(exported_program)
            meddle(exported_program)
            return result

    return Meddler(tosa(PROFILES[0]), verify=False)


def test_changed_weights_are_noticed(backend_runs):
    changed = quantised()
    *_, bias = (name for name, tensor in changed.state_dict().items() if tensor.dtype == torch.int32)

    def changes_weights(program):
        state, real = weights_of(program)
        assert real
        state[bias].add_(1000)  # In place, and in the quantised module too: export shares its tensors.

    partitioner = followed_by(changes_weights)
    tried = lower(changed, image(), partitioner)
    assert len(backend_runs) == partitioner.report.trials + 1, "exactly the delegate with that bias is lowered again"
    assert codes_apart(tried, changed, image()) == 0


def test_a_changed_graph_is_noticed():
    def leaves_one_out(program):
        sigmoid = next(n for n in program.graph.nodes if "sigmoid" in n.name)
        for node in (sigmoid, *sigmoid.all_input_nodes, *sigmoid.users):
            node.meta.pop("delegation_tag", None)

    tried = prepared(NET).lowered(followed_by(leaves_one_out))
    assert codes_apart(tried, prepared(NET).graph_module, image()) <= 1  # a float sigmoid


def test_the_user_s_parameters_are_not_written_to(monkeypatch):
    given = quantised()
    before = {name: tensor.clone() for name, tensor in given.state_dict().items()}
    stock = TOSABackend._preprocess

    def scribbles(edge_program, compile_spec):
        result = stock(edge_program, compile_spec)
        for tensor in edge_program.state_dict.values():
            tensor.data.zero_()
        return result

    monkeypatch.setattr(TOSABackend, "_preprocess", staticmethod(scribbles))
    lower(given, image(), SafeArmPartitioner(tosa(PROFILES[0]), verify=False))
    assert all(torch.equal(tensor, before[name]) for name, tensor in given.state_dict().items())


def test_the_old_flow_has_its_weights_too(backend_runs):
    manager, report = prepared(NET).safely()
    assert not report.synthetic_weights
    assert len(backend_runs) == report.trials
    assert codes_apart(manager, prepared(NET).graph_module, image()) == 0


def test_without_real_weights_made_up_ones_find_crashes_and_never_ship(backend_runs, monkeypatch):
    monkeypatch.setattr("safe_arm.partitioner.weights.originals", lambda fakes: {})
    manager, report = prepared(NET).safely()
    assert report.synthetic_weights
    assert len(backend_runs) == 2 * report.trials
    assert codes_apart(manager, prepared(NET).graph_module, image()) == 0


def test_audit_reports_and_changes_nothing(backend_runs):
    edge = prepared(NET).program()
    before = [(n.name, dict(n.meta)) for n in edge.graph.nodes]
    partitioner = prepared(NET).partitioner()
    report = partitioner.audit(edge)
    assert [(n.name, n.meta) for n in edge.graph.nodes] == before
    assert report.delegates
    assert report.trials == len(backend_runs) > 0
    assert not report.synthetic_weights
    assert partitioner.report is None


def test_vela_s_summary_is_printed_for_each_delegate_that_ships_and_for_no_other(capsys):
    spec = EthosUCompileSpec("ethos-u55-128")
    outcast = Lambda(lambda m, x: m.conv_b((m.conv(x).to(torch.int16) + 3).float()))
    graph_module = quantize(outcast, image(), spec, quantizer_class=SafeEthosUQuantizer)
    partitioner = SafeArmPartitioner(spec, verify=False)
    with pytest.warns(DemotionWarning):
        lower(graph_module, image(), partitioner)
    assert partitioner.report.trials > len(partitioner.report.delegates) > 0
    assert capsys.readouterr().out.count("Network summary") == len(partitioner.report.delegates)


@pytest.mark.parametrize("written", [(), (b"only",), (b"first", b"second", b"last")], ids=len)
def test_the_graph_of_a_delegate_is_the_last_that_its_backend_wrote(written, monkeypatch):
    def preprocess(program, specs):
        current_lowering().flatbuffers.extend(written)

    monkeypatch.setattr(lowering, "backend_of", lambda _: SimpleNamespace(preprocess=preprocess))
    program, spec = edge_program(Lambda(lambda m, x: x + x), image()), DelegationSpec("a backend", [])
    assert lowering.lower(program, spec, time_limit=600.0, logged=set()).flatbuffer == (written or (b"",))[-1]
