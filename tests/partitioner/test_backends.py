"""ExecuTorch's steps find the backends by name; the Arm ones take what trials lowered, and no other is touched."""

import pytest
from executorch.exir.backend import backend_api
from executorch.exir.backend.backend_details import BackendDetails
from lowering import PROFILES, delegates, edge_program, lower, min_max, quantize, spec_list, tosa
from small import Lambda, image
from spying import noted

from safe_arm import SafeArmPartitioner, seams
from safe_arm._compat.marker import marker
from safe_arm._compat.upstream import EthosUBackend, TOSABackend, VgfBackend
from safe_arm.core.lowering_record import current_lowering
from safe_arm.partitioner import backends

ARM = {TOSABackend, VgfBackend, EthosUBackend}


class Other(BackendDetails):
    """A backend of somebody else's."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        raise NotImplementedError


def test_all_backends_are_found_by_name_and_others_are_themselves():
    stock = BackendDetails.__subclasses__()
    found = backends.ours_among(BackendDetails).__subclasses__()
    assert [each.__name__ for each in found] == [each.__name__ for each in stock]
    assert {before for before, each in zip(stock, found, strict=True) if each is not before} == ARM


@pytest.fixture
def managers(monkeypatch):
    """The pass manager of each run of the backend; None for stock's."""
    seams.install()
    return noted(monkeypatch, TOSABackend, "_preprocess", lambda *_: current_lowering().manager)


@pytest.mark.parametrize("own", [True, False], ids=["ours", "stock's"])
def test_a_program_that_no_trial_has_lowered_is_lowered_by_the_manager_of_its_marker(managers, own):
    program = edge_program(Lambda(lambda m, x: m.conv(x)).eval(), image())
    specs = [*spec_list(tosa("TOSA-1.0+FP")), *([marker(())] if own else [])]
    assert backend_api.to_backend("TOSABackend", program, specs).processed_bytes
    assert [manager is not None for manager in managers] == [own]


def test_what_a_trial_has_lowered_is_neither_copied_nor_lowered_again(managers, monkeypatch):
    copied = []
    stock = BackendDetails.__dict__.get("copy_exported_program_for_preprocess")
    if stock is None:
        pytest.skip("ExecuTorch copies by itself before 1.5")
    copying = classmethod(lambda cls, *args: copied.append(cls) or stock.__func__(cls, *args))
    monkeypatch.setattr(BackendDetails, "copy_exported_program_for_preprocess", copying)
    net = quantize(Lambda(lambda m, x: m.conv(x)), image(), tosa(PROFILES[0]), config=min_max())
    tried = delegates(lower(net, image(), SafeArmPartitioner(tosa(PROFILES[0]))))
    assert (len(managers), copied) == (1, [])
    assert delegates(lower(net, image(), SafeArmPartitioner(tosa(PROFILES[0]), preflight=False))) == tried
    assert (len(managers), copied) == (2, [TOSABackend])
