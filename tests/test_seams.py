"""Our pass manager lowers our delegates, their branches included, and stock's lowers stock's."""

import pytest
import torch
from executorch.exir.backend.backend_api import to_backend
from lowering import edge_program, lower, spec_list, tosa
from small import Built, image
from spying import noted
from torch.export.graph_signature import ExportGraphSignature

from safe_arm import SafeArmPartitioner, SafeArmPassManager, seams
from safe_arm._compat.marker import marker
from safe_arm._compat.upstream import ArmPassManager
from safe_arm.core.lowering_record import Lowering, lowering
from safe_arm.passes.manager import manager_of

PROFILE = "TOSA-1.0+FP+cf"


def nested(m, x, y):
    """A condition with another in one of its branches."""

    def inner(x):
        return torch.cond(y.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    return torch.cond(x.sum() > 0, inner, lambda x: x * 2, (x,))


@pytest.fixture
def managers(monkeypatch):
    """The class of each pass manager that ran a pipeline through to the end."""
    seams.install()
    return noted(monkeypatch, ArmPassManager, "_tosa_pipeline", lambda self, *_: type(self))


def lowered(*markers):
    program = edge_program(Built(nested), (*image(), *image(1)))
    return to_backend("TOSABackend", program, [*spec_list(tosa(PROFILE)), *markers]).processed_bytes


@pytest.mark.usefixtures("by_measurement_alone")
def test_each_graph_of_a_delegate_has_one_manager_and_branches_have_ours_too(managers):
    stock = lowered()
    assert managers == [ArmPassManager] * 5
    managers.clear()
    assert lowered(marker(())) == stock
    assert len(managers) == 5
    assert all(issubclass(each, SafeArmPassManager) for each in managers)
    managers.clear()
    assert lowered() == stock
    assert managers == [ArmPassManager] * 5


def test_a_subclass_of_somebody_else_s_runs_its_own_pipeline_inside_ours(managers):
    class Theirs(ArmPassManager):
        pass

    with lowering(Lowering(manager=manager_of(()))):
        program = edge_program(torch.nn.ReLU(), image())
        Theirs(tosa(PROFILE)).transform_to_backend_pipeline(program, program.graph_module)
    assert managers == [Theirs]


def test_a_lowered_program_has_a_stock_signature():
    manager = lower(torch.nn.Conv2d(4, 4, 1).eval(), image(), SafeArmPartitioner(tosa("TOSA-1.0+FP")))
    signature = manager.exported_program().graph_signature
    assert type(signature) is ExportGraphSignature
    assert type(signature.input_specs) is list
