"""The export never dies: the corpus of stock's failures and injected faults; stock raises on each natural one."""

import faults
import pytest
import torch
from executorch.runtime import Runtime
from failure import STAGES, Failure, in_company, safe, said, stock
from failures import FAILURES

from safe_arm.core.errors import DemotionWarning, MachineError, UsageError
from safe_arm.core.island import CONV_LIKE

pytestmark = pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")


@pytest.mark.corpus
@pytest.mark.parametrize("failure", [pytest.param(f, id=f.name) for f in FAILURES])
def test_stock_raises(failure):
    with pytest.raises(BaseException) as caught:
        stock(failure)
    assert not isinstance(caught.value, KeyboardInterrupt)
    assert failure.raises in said(caught.value)


def test_the_corpus_is_well_formed():
    names = [failure.name for failure in FAILURES]
    assert len(names) == len(set(names))
    assert {failure.stage for failure in FAILURES} <= set(STAGES)
    assert all(failure.culprits for failure in FAILURES)


#: What cannot work at all is said by the quantiser, before any work.
REFUSED_FIRST = [f for f in FAILURES if f.quantised == "a16w8" and f.profile == "TOSA-1.0+INT"]


@pytest.mark.parametrize("failure", REFUSED_FIRST, ids=lambda failure: failure.name)
def test_what_cannot_work_names_the_profile_that_would(failure):
    with pytest.raises(UsageError, match=r"use TOSA-1.0\+INT\+int16"):
        safe(failure)


@pytest.mark.corpus
@pytest.mark.parametrize("failure", [f for f in FAILURES if f not in REFUSED_FIRST], ids=lambda failure: failure.name)
def test_a_natural_failure_costs_its_unit_at_most(failure):
    exported = safe(failure)
    report = exported.partitioner.report
    assert {verdict.op for verdict in report.demoted} <= set(failure.culprits)
    assert exported.pte
    if not report.delegates:
        executes(exported.pte, failure.build()[1])


def executes(pte, inputs):
    return Runtime.get().load_program(pte).load_method("forward").execute(list(inputs))


def plain(profile):
    """conv, ReLU, sigmoid, conv: nothing that any backend should fail on."""
    build = in_company(lambda m, x: torch.sigmoid(x))
    return Failure("plain", "", profile, build, "int8", (), "")


TOOL_LIMIT = 1.0
INJECTED = {
    "a pass raises at operator 0": ("TOSA-1.0+INT", lambda: faults.pass_raising_at(0)),
    "a pass raises at operator 2": ("TOSA-1.0+INT", lambda: faults.pass_raising_at(2)),
    "a pass raises on everything": ("TOSA-1.0+INT+FP", faults.pass_raising),
    "a pass says nothing": ("TOSA-1.0+INT", lambda: faults.pass_raising_blindly_for("aten::sigmoid")),
    "a visitor raises": ("TOSA-1.0+INT+FP", lambda: faults.visitor_raising("tosa.TABLE.default")),
    "no operator is serialized": ("TOSA-1.0+INT", faults.operators_not_serialized),
    "the serializer raises": ("TOSA-1.0+INT", faults.serializer_raising),
    "the converter exits 1": ("vgf:TOSA-1.0+INT", faults.converter_failing),
    "the converter hangs": ("vgf:TOSA-1.0+INT", faults.converter_hanging),
    "Vela raises": ("ethos-u55-128", faults.vela_raising),
    "Vela exits": ("ethos-u55-128", lambda: faults.vela_raising(SystemExit(1))),
    "Vela complains of an operator": ("ethos-u55-128", faults.vela_saying),
    "Vela hangs": ("ethos-u55-128", faults.vela_hanging),
}
#: What is wrong with the machine is an error, and no operator is demoted for it.
MACHINE = {
    "no converter": ("vgf:TOSA-1.0+INT", faults.converter_missing, UsageError, "^no model-converter found: looked at"),
    "a converter that does not run": (
        "vgf:TOSA-1.0+INT", faults.converter_broken, UsageError, r"does not run: .*status 1 \(GLIBC_2.38 not found\)",
    ),
    "a full disk for Vela": ("ethos-u55-128", faults.disk_full, MachineError, "whatever the model: .*No space left"),
    "a full disk for the converter": (
        "vgf:TOSA-1.0+INT", faults.disk_full, MachineError, "whatever the model: .*No space left",
    ),
}  # fmt: skip
#: What strikes one operator; the others strike every delegate whatever is in it.
LOCAL = {"a pass says nothing": "aten::sigmoid", "a visitor raises": "aten::sigmoid"}
#: A delegate of two operators escapes it.
SPARES_SMALL_GRAPHS = {"a pass raises at operator 2"}


@pytest.mark.parametrize("name", INJECTED)
def test_an_injected_fault(name):
    profile, fault = INJECTED[name]
    failure = plain(profile)
    if "hangs" not in name:
        with fault(), pytest.raises((Exception, SystemExit)):
            stock(failure)
    with fault(), pytest.warns(DemotionWarning):
        exported = safe(failure, tool_time_limit=TOOL_LIMIT)
    report = exported.partitioner.report
    assert report.demoted
    if name in LOCAL:
        assert {verdict.op for verdict in report.demoted} == {LOCAL[name]}
        assert any(verdict.delegate for verdict in report.compute if verdict.op in CONV_LIKE)
    elif name in SPARES_SMALL_GRAPHS:
        assert report.delegates
    else:
        assert report.delegates == ()
        executes(exported.pte, failure.build()[1])


@pytest.mark.filterwarnings("error::safe_arm.core.errors.DemotionWarning")
@pytest.mark.parametrize("name", MACHINE)
def test_what_is_wrong_with_the_machine_is_an_error_and_demotes_nothing(name):
    profile, fault, error, says = MACHINE[name]
    with fault(), pytest.raises(error, match=says):
        safe(plain(profile))
