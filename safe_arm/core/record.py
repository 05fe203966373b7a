"""The record of what was delegated, what was not, and why. Needs neither torch nor executorch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from safe_arm.core.device_cost import Border, Footprint, VelaSummary
from safe_arm.core.float_comparison import FloatComparison
from safe_arm.core.names import shown
from safe_arm.core.totals import Totals
from safe_arm.core.unit_accuracy import Accuracy

#: Goes up when a field changes its meaning or goes away; ``report.schema.json`` describes this version.
SCHEMA_VERSION = 2

Verdict = Literal["delegated", "refused", "demoted", "de-tagged"]
#: What each stage that keeps an operator off the accelerator makes of it; all others refuse.
_VERDICT_OF_STAGE: dict[str, Verdict] = {
    "preflight": "demoted",
    "converter": "demoted",
    "verify": "demoted",
    "boundary": "de-tagged",
}


@dataclass(frozen=True)
class Reason:
    """The reason why an operator is not delegated.

    Attributes:
        text: the text for the user.
        stage: what found it: ``"check"`` (a check of safe_arm), ``"stock"`` (a check of the stock partitioner),
            ``"partition"`` (such a check failed), ``"boundary"`` (removed at a delegate's border), ``"cost"`` (its
            delegate computes too little), ``"preflight"`` (the trial lowering failed), ``"converter"`` (Vela or
            model-converter failed) or ``"verify"`` (measured to be wrong).
        issue: the id of the known issue behind it; empty if there is none.
    """

    text: str
    stage: str
    issue: str = ""


@dataclass(frozen=True)
class QParamsRecord:
    """The quantisation that a quantise or dequantise node applies.

    Attributes:
        dtype: the integer type, such as ``int8``.
        quant_min: the smallest code.
        quant_max: the largest code.
        scale: of the whole tensor; None where each channel has its own, or if it is computed.
        zero_point: likewise.
        axis: the axis of the channels; None for the whole tensor.
    """

    dtype: str
    quant_min: int | None
    quant_max: int | None
    scale: float | None = None
    zero_point: int | None = None
    axis: int | None = None


@dataclass(frozen=True)
class NodeVerdict:
    """The place of one operator of the edge graph: in a delegate or not.

    Attributes:
        name: the node's name.
        op: its operator.
        delegate: the tag of its delegate, None for a fallback.
        reasons: why it is a fallback, the deciding reason first; empty when delegated.
        source: the user's own line, ``file:line  code``; empty if export kept none.
        macs: multiply-accumulates of the node, at the sizes of the example where they are dynamic.
        bytes: the size of its result.
        constant_bytes: the size of the weights and constants it reads.
        value: its result, such as ``int8[1, 4, 8, 8]``; dynamic sizes by their symbol, ``int8[s77, 4, 8, 8]``.
        inputs: names of the operators and model inputs it reads.
        qparams: of a quantise or dequantise node, else None.
        left_float: why the quantiser left it float; empty if it did not.
        graph: the nested graph it is in, empty for the outermost.
        repro: the script that reproduces why it is a fallback; empty if none was written.
        method: the method of the program it is in.
        module: path of the innermost module it was called in, such as ``d1.act``; empty for the model itself.
        written: the layer (``ReLU6``) or exported operator (``aten::silu``) it comes from; empty if that is ``op``.
        earlier_names: its names in the graphs that were exported before, such as the quantised graph, latest first.
        unit: name of its quantised unit in the report's ``accuracy``; empty unless that was requested.
        island: the treatment of the non-fuseable island whose activation it is, ``"propagated"`` or ``"rejected"``;
            empty for other operators.
    """

    name: str
    op: str
    delegate: str | None
    reasons: tuple[Reason, ...] = ()
    source: str = ""
    macs: int = 0
    bytes: int = 0
    constant_bytes: int = 0
    value: str = ""
    inputs: tuple[str, ...] = ()
    qparams: QParamsRecord | None = None
    left_float: str = ""
    graph: str = ""
    repro: str = ""
    method: str = "forward"
    module: str = ""
    written: str = ""
    earlier_names: tuple[str, ...] = ()
    unit: str = ""
    island: Literal["", "propagated", "rejected"] = ""

    @property
    def verdict(self) -> Verdict:
        """``delegated``, ``refused``, ``demoted``, or ``de-tagged`` (removed at a delegate's border)."""
        return (
            "delegated"
            if self.delegate
            else _VERDICT_OF_STAGE.get(self.stage, "refused")
        )

    @property
    def as_written(self) -> str:
        """The operator in the user's words: ``ReLU6 d1.act (aten::hardtanh)``, ``aten::cat in d1``."""
        return shown(self.op, self.written, self.module)

    @property
    def reason(self) -> str:
        """The first reason; empty when delegated."""
        return self.reasons[0].text if self.reasons else ""

    @property
    def issue(self) -> str:
        """The known issue behind the first reason; empty for none."""
        return self.reasons[0].issue if self.reasons else ""

    @property
    def stage(self) -> str:
        """The stage that decided first; empty when delegated."""
        return self.reasons[0].stage if self.reasons else ""

    @property
    def computes(self) -> bool:
        """True if it is more than a quantise, a dequantise or picking an output."""
        return bool(self.op) and not self.op.startswith("quantized_decomposed::")


#: The note of a delegate whose proof was kept from before.
EARLIER = "verified, in an earlier run"


@dataclass(frozen=True)
class Verification:
    """The result of the proof that one delegate computes what its quantised graph computes.

    Attributes:
        delegate: its tag.
        verified: True if it was verified on everything tried.
        reason: why it was not; empty if it was.
        macs: multiply-accumulates of the delegate, per inference.
        worst: the largest difference that an operator's tolerance allowed, in codes.
        tried: how many sets of inputs were run.
        seconds: how long it took.
        note: the inputs it ran on, if not of its own size, and whether that was in an earlier run.
        method: the method of the program that calls it.
        apart_worst: the largest difference of its outputs from the quantised graph's, which rounds ties to even, over
            everything tried, for the output that differs most.
        apart_mean: the mean difference, likewise.
        apart_output: the number of that output.
        apart_unit: their unit: ``"codes"``, ``"integers"`` that are not codes, or ``"relative"``: the part that the
            rounding of real floats does not explain, relative to the largest value.
        ties: names of the operators that took the other of two codes at a tie, such as ``avg_pool2d``.
        tolerated: names of the operators that took another code within their row of the tolerance table.
    """

    delegate: str
    verified: bool
    reason: str
    macs: int
    worst: float
    tried: int
    seconds: float
    note: str = ""
    method: str = "forward"
    apart_worst: float = 0.0
    apart_mean: float = 0.0
    apart_output: int = 0
    apart_unit: Literal["codes", "integers", "relative"] = "codes"
    ties: tuple[str, ...] = ()
    tolerated: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """True if no output differed from the quantised graph's on any input that was tried."""
        return self.verified and not self.apart_worst and self.apart_unit != "relative"


@dataclass(frozen=True)
class Applied:
    """One correction that made a difference in one delegate.

    Attributes:
        correction: its name, one of ``safe_arm.CORRECTIONS``.
        issue: the known issue it corrects.
        delegate: the delegate's tag.
        nodes: names of the affected operators.
    """

    correction: str
    issue: str
    delegate: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Subject:
    """The subject of a partitioning: target, rules and versions.

    Attributes:
        target: ``vgf``, ``tosa`` or an Ethos-U's name.
        profile: the TOSA specification.
        non_fuseable: the policy for non-fuseable islands.
        corrections: names of the corrections that were on.
        versions: of safe_arm and every package behind it; empty for one that is not installed.
        inputs: names of the model's inputs.
        outputs: names of what it returns.
        model: the model's class; empty if export kept none.
    """

    target: str = ""
    profile: str = ""
    non_fuseable: str = ""
    corrections: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    model: str = ""


@dataclass(frozen=True)
class Report:
    """The record of a lowering: every operator's verdict, its reasons, and the proof of each delegate.

    Attributes:
        verdicts: one for each operator node, quantise and dequantise nodes included, in graph order.
        islands_refused: how many islands the checks refused.
        propagate_would_keep: how many of those ``non_fuseable="propagate"`` would delegate.
        trials: how many trial lowerings were made.
        synthetic_weights: whether they had to use made-up weights; their results were then not shipped.
        verifications: one for each delegate, if verification was on.
        applied: the corrections that made a difference, and where.
        subject: what was partitioned.
        cycles: for each delegate, the cycles that Vela estimates for an inference; only for an Ethos-U.
        vela: the rest of Vela's summary of each delegate; only for an Ethos-U.
        footprint: what the lowered program takes on the device, if requested (``footprint.with_footprint``).
        methods: names of the methods it is about, in order; of several, see ``joined`` for what the others hold.
        accuracy: the quantised net compared with the float net, unit by unit, if requested; for one method.
        float_comparisons: the program's outputs compared with the float net's, one record for each method that a safe
            quantiser quantised.
        borders: for each delegate, the cost of its border.
    """

    verdicts: tuple[NodeVerdict, ...]
    islands_refused: int
    propagate_would_keep: int
    trials: int = 0
    synthetic_weights: bool = False
    verifications: tuple[Verification, ...] = ()
    applied: tuple[Applied, ...] = ()
    subject: Subject = Subject()
    cycles: dict[str, int] = field(default_factory=dict)
    methods: tuple[str, ...] = ("forward",)
    vela: tuple[VelaSummary, ...] = ()
    footprint: Footprint | None = None
    accuracy: Accuracy | None = None
    float_comparisons: tuple[FloatComparison, ...] = ()
    borders: dict[str, Border] = field(default_factory=dict)

    def method_prefix(self, method: str) -> str:
        """Return ``method: ``, for a text about one method; empty if the report is about one only."""
        return f"{method}: " if len(self.methods) > 1 else ""

    @property
    def by_method(self) -> dict[str, Report]:
        """The verdicts of each method as a report of its own, with totals; empty if it is about one only."""
        if len(self.methods) < 2:
            return {}
        reports = {}
        for method in self.methods:
            own = tuple(v for v in self.verdicts if v.method == method)
            reports[method] = Report(own, 0, 0, methods=(method,))
        return reports

    def label(self, verdict: NodeVerdict) -> str:
        """Return a node's name, with its method's before it if the report is about several."""
        return (
            verdict.name
            if len(self.methods) == 1
            else f"{verdict.method}:{verdict.name}"
        )

    @property
    def delegates(self) -> tuple[str, ...]:
        """The tags of the delegates, in graph order."""
        return tuple(dict.fromkeys(v.delegate for v in self.verdicts if v.delegate))

    @property
    def compute(self) -> tuple[NodeVerdict, ...]:
        """The verdicts of the nodes that compute: all but quantise, dequantise and picking an output."""
        return tuple(v for v in self.verdicts if v.computes)

    @property
    def fallbacks(self) -> tuple[NodeVerdict, ...]:
        """The computing nodes that are not delegated."""
        return tuple(v for v in self.compute if v.delegate is None)

    @property
    def demoted(self) -> tuple[NodeVerdict, ...]:
        """The computing nodes that left a delegate: their trial lowering failed, or its result was wrong."""
        return tuple(v for v in self.fallbacks if v.verdict == "demoted")

    @property
    def contained(self) -> tuple[NodeVerdict, ...]:
        """The nodes, including quantise and dequantise nodes, on which the stock flow crashes or is wrong."""
        return tuple(
            v for v in self.verdicts if v.stage == "partition" or v.verdict == "demoted"
        )

    @property
    def left_float(self) -> tuple[NodeVerdict, ...]:
        """The nodes that the quantiser left float because quantising them failed, delegated or not."""
        return tuple(v for v in self.verdicts if v.left_float)

    @property
    def macs_delegated(self) -> float:
        """The share of multiply-accumulates that is delegated, 0 to 1; 1 if there are none."""
        total = sum(v.macs for v in self.verdicts)
        return (
            sum(v.macs for v in self.verdicts if v.delegate) / total if total else 1.0
        )

    @property
    def share_delegated(self) -> float:
        """The share that is delegated, 0 to 1: of the multiply-accumulates, or of the operators if there are none."""
        if any(v.macs for v in self.verdicts):
            return self.macs_delegated
        return 1 - len(self.fallbacks) / len(self.compute) if self.compute else 1.0

    @property
    def totals(self) -> Totals:
        """The figures by which reports are compared."""
        computing = len(self.compute)
        fallbacks = len(self.fallbacks)
        demoted = len(self.demoted)
        verified = cycles = None
        if self.verifications:
            verified = sum(each.verified for each in self.verifications)
        if self.cycles:
            cycles = sum(self.cycles.values())
        return Totals(
            delegates=len(self.delegates),
            operators=computing,
            operators_delegated=computing - fallbacks,
            share_delegated=self.share_delegated,
            refused=fallbacks - demoted,
            demoted=demoted,
            verified=verified,
            vela_cycles=cycles,
        )

    def by_reason(self) -> dict[tuple[str, str], list[NodeVerdict]]:
        """Return the fallbacks grouped by (first reason, known issue), both groups and nodes in graph order."""
        groups: dict[tuple[str, str], list[NodeVerdict]] = {}
        for verdict in self.fallbacks:
            groups.setdefault((verdict.reason, verdict.issue), []).append(verdict)
        return groups

    def by_op(self) -> dict[str, Counter[Verdict]]:
        """Return how many computing nodes of each operator got which verdict, operators in graph order."""
        counted: dict[str, Counter[Verdict]] = {}
        for verdict in self.compute:
            counted.setdefault(verdict.op, Counter())[verdict.verdict] += 1
        return counted

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON's own types; ``report.schema.json`` beside this module describes it."""
        nodes = [{**asdict(v), "verdict": v.verdict} for v in self.verdicts]
        rest = asdict(self)
        del rest["verdicts"]
        return {
            "schema_version": SCHEMA_VERSION,
            **rest,
            "nodes": nodes,
            "totals": {
                **asdict(self.totals),
                "macs": sum(v.macs for v in self.verdicts),
                "macs_delegated": sum(v.macs for v in self.verdicts if v.delegate),
                "by_op": {op: dict(counted) for op, counted in self.by_op().items()},
                "by_reason": [
                    {
                        "reason": reason,
                        "issue": issue,
                        "nodes": [self.label(v) for v in verdicts],
                    }
                    for (reason, issue), verdicts in self.by_reason().items()
                ],
            },
        }


def joined(reports: Mapping[str, Report]) -> Report:
    """Return one report for several methods of a program.

    A single report is returned unchanged. For several, the tags of delegates, the names of the models' inputs and
    outputs and the paths of nested graphs start with the method's name and a colon; the outermost graph has the
    method's name.

    Args:
        reports: by method, in order; at least one.
    """
    if len(reports) == 1:
        return next(iter(reports.values()))
    whole, *others = (_of_method(method, report) for method, report in reports.items())
    for other in others:
        ends = {
            name: getattr(whole.subject, name) + getattr(other.subject, name)
            for name in ("inputs", "outputs")
        }
        summed = {name: getattr(whole, name) + getattr(other, name) for name in _SUMMED}
        whole = replace(
            whole,
            **summed,
            subject=replace(whole.subject, **ends),
            cycles=whole.cycles | other.cycles,
            borders=whole.borders | other.borders,
            synthetic_weights=whole.synthetic_weights or other.synthetic_weights,
        )
    return whole


#: What of two reports is added or put one behind the other.
_SUMMED = (
    "verdicts",
    "islands_refused",
    "propagate_would_keep",
    "trials",
    "verifications",
    "applied",
    "methods",
    "vela",
    "float_comparisons",
)


def _of_method(method: str, report: Report) -> Report:
    """Return the report with the method's name wherever another method's may be the same."""
    operators = {(v.graph, v.name) for v in report.verdicts}
    ends = set(report.subject.inputs)

    def named(name: str) -> str:
        return f"{method}:{name}"

    def renamed(records: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(replace(each, delegate=named(each.delegate)) for each in records)

    def moved(v: NodeVerdict) -> NodeVerdict:
        inputs = tuple(
            named(n) if n in ends and (v.graph, n) not in operators else n
            for n in v.inputs
        )
        graph = named(v.graph) if v.graph else method
        delegate = v.delegate and named(v.delegate)
        return replace(v, method=method, delegate=delegate, graph=graph, inputs=inputs)

    subject = report.subject
    return replace(
        report,
        verdicts=tuple(map(moved, report.verdicts)),
        verifications=tuple(
            replace(each, method=method) for each in renamed(report.verifications)
        ),
        applied=renamed(report.applied),
        subject=replace(
            subject,
            inputs=tuple(map(named, subject.inputs)),
            outputs=tuple(map(named, subject.outputs)),
        ),
        cycles={named(tag): cycles for tag, cycles in report.cycles.items()},
        borders={named(tag): border for tag, border in report.borders.items()},
        methods=(method,),
        vela=renamed(report.vela),
        float_comparisons=tuple(
            each.of_method(method) for each in report.float_comparisons
        ),
    )
