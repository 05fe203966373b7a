"""The pass manager of safe_arm's delegates: the stock pipeline with corrected passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

from torch.export import ExportedProgram
from torch.fx import GraphModule

from safe_arm._compat.deep_graphs import in_threads
from safe_arm._compat.extraction import leave_unchecked
from safe_arm._compat.upstream import (
    ArmCompileSpec,
    ArmPassManager,
    ExportPass,
    PassResult,
)
from safe_arm.acceleration import provenance, switch
from safe_arm.acceleration.fuse_equal_placeholders import at_once
from safe_arm.acceleration.retrace_in_place import in_place
from safe_arm.acceleration.signatures import cache_tables
from safe_arm.core.errors import one_of
from safe_arm.core.origins import leave_origins
from safe_arm.passes.applied import CORRECTION
from safe_arm.passes.cancel_whole_regions import (
    WHOLE_REGIONS,
    PropagateViewCopyPermuteDownPass,
)
from safe_arm.passes.clamp_to_quant_range import ClampToQuantRangePass
from safe_arm.passes.compare_exactly import CompareExactlyPass
from safe_arm.passes.complete_hardtanh_arguments import CompleteHardtanhArgumentsPass
from safe_arm.passes.count_indices import CountIndicesPass
from safe_arm.passes.decompose_asin_and_acos import DecomposeAsinAndAcosPass
from safe_arm.passes.decompose_cumsum import DecomposeCumsumPass
from safe_arm.passes.decompose_log1p import DecomposeLog1pPass
from safe_arm.passes.define_powers import DefinePowersPass
from safe_arm.passes.fuse_consecutive_rescales import FuseConsecutiveRescalesPass
from safe_arm.passes.fuse_constant_args import FuseConstantArgsPass
from safe_arm.passes.fuse_duplicate_users import FuseDuplicateUsersPass
from safe_arm.passes.fuse_quantized_activation import FuseQuantizedActivationPass
from safe_arm.passes.insert_control_flow_rescales import (
    InsertControlFlowRescalesPass,
)
from safe_arm.passes.insert_early_tables import InsertEarlyTablesPass
from safe_arm.passes.insert_table_ops import InsertTableOpsPass
from safe_arm.passes.invariants import INVARIANTS, Invariant, Watch
from safe_arm.passes.keep_means_float import KeepMeansFloatPass
from safe_arm.passes.leave_dynamic_views import DYNAMIC_VIEWS, on_static_views
from safe_arm.passes.leave_mixed_operators_float import LeaveMixedOperatorsFloatPass
from safe_arm.passes.name_all_dimensions import NameAllDimensionsPass
from safe_arm.passes.order_results import OrderResultsPass
from safe_arm.passes.propagate_activation_qparams import PropagateActivationQParamsPass
from safe_arm.passes.propagate_view_copy_permute_up import (
    PropagateViewCopyPermuteUpPass,
)
from safe_arm.passes.record_element_qparams import RecordElementQParamsPass
from safe_arm.passes.requantise_inputs import RequantiseInputsPass
from safe_arm.passes.rescale_exact_sums import RescaleExactSumsPass
from safe_arm.passes.rescale_wide_sums import RescaleWideSumsPass
from safe_arm.passes.restore_elu_params import RestoreEluParamsPass
from safe_arm.passes.rewrite_conv import RewriteConvPass
from safe_arm.passes.round_to_even import RoundToEvenPass
from safe_arm.passes.split_quantisers import SplitQuantisersPass
from safe_arm.passes.truncate_casts import TruncateCastsPass
from safe_arm.passes.typed_loops import trace_loops_of_codes
from safe_arm.passes.widen_weights import WidenWeightsPass

#: The class of a pass, or a function that makes one from the stock pass that it is anchored to.
MakePass = type[ExportPass] | Callable[[ExportPass], ExportPass]
#: Arguments that the class of a pass may take.
_OF_STOCK = ("compile_spec", "exported_program")


@dataclass(frozen=True)
class Correction:
    """One change to the stock pipeline: passes before, after or instead of the stock pass it is anchored to.

    Attributes:
        name: its name for the user and in the ``.pte``.
        issue: the known issue it corrects.
        anchor: class name of the stock pass.
        before: the pass to insert before it; None inserts none.
        instead: likewise, to the pass that replaces it.
        after: likewise, to the pass to insert after it.
    """

    name: str
    issue: str
    anchor: str
    before: MakePass | None = None
    instead: MakePass | None = None
    after: MakePass | None = None

    def __repr__(self) -> str:
        """Return its name and its place: a correction may have several."""
        return f"<correction {self.name} at {self.anchor}>"


class _Corrections(tuple[Correction, ...]):
    """All corrections. A signature shows the name of the constant instead of each; ``str`` lists them."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "CORRECTIONS"

    def __str__(self) -> str:
        return tuple.__repr__(self)


_FUSION = "FuseQuantizedActivationPass"
_FOLD = "FoldAndAnnotateQParamsPass"
_IN_ORDER = (
    Correction(
        "hardtanh-defaults",
        "H1",
        _FUSION,
        before=CompleteHardtanhArgumentsPass,
    ),
    Correction("honest-fusion", "S1", _FUSION, instead=FuseQuantizedActivationPass),
    # The range clamp looks for a clamp that already owns the domain, so the propagator goes first.
    Correction(
        "qparam-propagator",
        "S1",
        _FOLD,
        after=PropagateActivationQParamsPass,
    ),
    Correction("quant-range", "S17", _FOLD, after=ClampToQuantRangePass),
    Correction("wide-weights", "T57", _FOLD, after=WidenWeightsPass),
    Correction("read-results", "S53", _FOLD, before=OrderResultsPass),
    # The first of these decides which operators are quantised.
    Correction(
        "mixed-operators",
        "S8",
        _FOLD,
        before=LeaveMixedOperatorsFloatPass,
    ),
    # The copies differ in their qparams alone, and one-domain may requantise each.
    Correction("one-quantiser", "S7", _FOLD, before=SplitQuantisersPass),
    # A requantised operator shares its output's domain, so that its elements need no note of their own.
    Correction(
        "one-domain",
        "S6",
        _FOLD,
        before=RequantiseInputsPass,
    ),
    # Folding needs the elements' own qparams, which the stock fold of Q and DQ throws away.
    Correction("constant-folder", "18971", _FOLD, before=RecordElementQParamsPass),
    Correction(
        "all-dimensions",
        "C-mean-over-no-dims",
        "DecomposeMeanDimPass",
        before=NameAllDimensionsPass,
    ),
    Correction(
        "float-mean",
        "S21",
        "DecomposeMeanDimPass",
        before=KeepMeansFloatPass,
    ),
    # DecomposeSqrtPass runs after acosh and the like have become square roots.
    Correction(
        "defined-powers",
        "S23",
        "DecomposeSqrtPass",
        before=DefinePowersPass,
    ),
    Correction(
        "precise-arcsine",
        "S24",
        "DecomposeAsinAndAcosPass",
        instead=DecomposeAsinAndAcosPass,
    ),
    Correction(
        "own-elu",
        "T58",
        "DecomposeEluPass",
        before=RestoreEluParamsPass,
    ),
    Correction(
        "counted-indices",
        "S50",
        "DecomposeIndexTensorToGatherPass",
        before=CountIndicesPass,
    ),
    # After it there are also the roundings of quantisers, whose halves may go either way, and their casts to codes.
    # truncated-casts comes first: it knows rounds, which even-rounding takes apart.
    Correction(
        "truncated-casts",
        "S22",
        "DecomposeQuantNodesPass",
        before=TruncateCastsPass,
    ),
    Correction(
        "even-rounding",
        "S42",
        "DecomposeQuantNodesPass",
        before=RoundToEvenPass,
    ),
    Correction(
        "precise-log1p",
        "S28",
        "DecomposeLog1pPass",
        instead=DecomposeLog1pPass,
    ),
    Correction(
        "summed-codes",
        "C-cumsum-behind-a-table",
        "DecomposeCumsumPass",
        instead=DecomposeCumsumPass,
    ),
    Correction(
        "domains-apart",
        "S25",
        "FuseDuplicateUsersPass",
        instead=FuseDuplicateUsersPass,
    ),
    Correction(
        "constant-folder",
        "18971",
        "FuseConstantArgsPass",
        instead=FuseConstantArgsPass,
    ),
    Correction(
        "early-tables",
        "T72",
        "MatchArgDtypePass",
        before=InsertEarlyTablesPass,
    ),
    Correction(
        "own-operands",
        "S52",
        "InsertControlFlowRescalesPass",
        instead=InsertControlFlowRescalesPass,
    ),
    Correction(
        "exact-comparison",
        "S30",
        "InsertRescaleInt32Pass",
        before=CompareExactlyPass,
    ),
    Correction(
        "exact-sums",
        "S45",
        "InsertRescaleInt32Pass",
        before=RescaleExactSumsPass,
    ),
    Correction(
        "lossless-fusion",
        "S31",
        "FuseConsecutiveRescalesPass",
        instead=FuseConsecutiveRescalesPass,
    ),
    Correction("fine-tables", "S55", "InsertTableOpsPass", instead=InsertTableOpsPass),
    Correction(
        "int16-convolution",
        "S32",
        "RewriteConvPass",
        instead=RewriteConvPass,
    ),
    # Resizes and convolutions are rewritten by then; products come later.
    Correction(
        "wide-sums",
        "S33",
        "RewriteConvPass",
        after=RescaleWideSumsPass,
    ),
    Correction("wide-sums", "S33", "RewriteMatmulPass", after=RescaleWideSumsPass),
    Correction(
        "whole-joins",
        "S44",
        "PropagateViewCopyPermuteUpPass",
        instead=PropagateViewCopyPermuteUpPass,
    ),
    # The pass that moves permutes up keeps regions whole, too: see whole-joins.
    Correction(
        *WHOLE_REGIONS,
        "PropagateViewCopyPermuteDownPass",
        instead=PropagateViewCopyPermuteDownPass,
    ),
    Correction(*DYNAMIC_VIEWS, "FuseViewCopyTransformPass", instead=on_static_views),
    Correction(
        *DYNAMIC_VIEWS,
        "PropagateViewCopyPermuteDownPass",
        instead=on_static_views,
    ),
    Correction(
        *DYNAMIC_VIEWS,
        "PropagateViewCopyPermuteUpPass",
        instead=on_static_views,
    ),
    Correction(
        *DYNAMIC_VIEWS,
        "CanonicalizeViewCopyPermutePass",
        instead=on_static_views,
    ),
)
#: Every correction, in the order applied where two share an anchor.
CORRECTIONS: tuple[Correction, ...] = _Corrections(_IN_ORDER)
#: Changes that make the stock pipeline faster and keep its result, to the byte.
ACCELERATIONS: tuple[Correction, ...] = (
    Correction("one-retrace", "Q1", "PropagateViewCopyPermuteUpPass", instead=in_place),
    Correction(
        "one-retrace", "Q1", "PropagateViewCopyPermuteDownPass", instead=in_place
    ),
    Correction("one-fusion", "Q4", "FuseEqualPlaceholdersPass", instead=at_once),
)
#: In a marker: the delegate keeps the provenance of its nodes.
KEEP_PROVENANCE = provenance.KEEP
#: In a marker: all corrections are on. A list of them would be in each program, and grow with each correction.
ALL = "all"


def names(corrections: Iterable[Correction | str]) -> tuple[str, ...]:
    """Return the corrections' names in pipeline order, each once.

    Args:
        corrections: elements of ``CORRECTIONS``, or their names.

    Raises:
        UsageError: an element is not one of ``CORRECTIONS``, nor the name of one.
    """
    choices = list(dict.fromkeys(choice.name for choice in CORRECTIONS))
    chosen = set()
    for correction in corrections:
        if correction not in CORRECTIONS and correction not in choices:
            raise one_of("correction", correction, choices)
        chosen.add(correction if isinstance(correction, str) else correction.name)
    return tuple(name for name in choices if name in chosen)


def switches(chosen: tuple[str, ...]) -> list[str]:
    """Return what a marker says of the corrections that are on: that all are, or their names."""
    if chosen == names(CORRECTIONS):
        return [ALL]
    return [*chosen]


class SafeArmPassManager(ArmPassManager):
    """The stock pipeline with corrections applied as each stock pass is added.

    ``add_pass`` is the one method through which every ExecuTorch from 1.2 to 1.5 builds its pipelines. A pass that
    replaces a stock pass has its class name, because the pipeline's own constraints go by name.
    """

    invariants: tuple[type[Invariant], ...] = INVARIANTS
    passes: list[Callable[[GraphModule], PassResult | None]]
    _pass_insertions: dict[type, Any]

    def __init__(
        self,
        compile_spec: ArmCompileSpec,
        corrections: tuple[Correction, ...] = CORRECTIONS,
        *,
        keep_provenance: bool = False,
    ) -> None:
        self._corrections = corrections
        self._keep_provenance = keep_provenance
        super().__init__(compile_spec)

    def add_pass(self, pipeline_pass: ExportPass) -> None:
        if type(pipeline_pass) in self._skip_pass_types:
            return
        changes = self._corrections + (ACCELERATIONS if switch.is_on() else ())
        stock = current = pipeline_pass
        before: list[ExportPass] = []
        after: list[ExportPass] = []
        for change in changes:
            if change.anchor != type(stock).__name__:
                continue
            if change.before is not None:
                before.append(_corrective(change, change.before, stock))
            if change.after is not None:
                after.append(_corrective(change, change.after, stock))
            if change.instead is not None:
                # An acceleration gets the pass that a correction has put there.
                current = _corrective(change, change.instead, current)
        for graph_pass in (*before, in_threads(current), *after):
            super().add_pass(graph_pass)

    def transform_to_backend_pipeline(
        self, exported_program: ExportedProgram, graph_module: GraphModule
    ) -> GraphModule:
        """Run the pipeline, and record its result so that a failure can be traced to the user's nodes."""
        leave_unchecked(exported_program)
        cache_tables(exported_program)
        self._watch = Watch(self.invariants, exported_program, graph_module)
        recording: provenance.Recording = nullcontext()
        if switch.is_on() and not self._keep_provenance:
            recording = provenance.dropped(graph_module)
        with recording:
            result = super().transform_to_backend_pipeline(
                exported_program=exported_program, graph_module=graph_module
            )
        cache_tables(exported_program)
        leave_origins(result)
        return result

    def _transform(self, *args: ExportedProgram | GraphModule) -> GraphModule:
        """Run the passes with the invariants checked between them."""
        for graph_pass in self.passes:
            trace_loops_of_codes(graph_pass)
        self.passes = self._watch.watched(self.passes)
        result = super()._transform(*args)
        self._watch.finish(result)
        return result

    def _apply_pass_insertions(self) -> None:
        """Let insertions that name a stock pass find the pass we put in its place (1.3 on)."""
        swapped: dict[type, type] = {}
        for ours in map(type, self.passes):
            for base in ours.__bases__:
                if base.__name__ == ours.__name__:
                    swapped[base] = ours
        self._pass_insertions = {
            swapped.get(target, target): how
            for target, how in self._pass_insertions.items()
        }
        super()._apply_pass_insertions()


def _corrective(
    correction: Correction, make: MakePass, stock: ExportPass
) -> ExportPass:
    """Make a correction's pass, with the correction attached so that the pass can note where it makes a difference."""
    corrective = _made(make, stock)
    # An acceleration's pass bears that of the pass that it copies.
    if not hasattr(corrective, CORRECTION):
        setattr(corrective, CORRECTION, correction)
    return corrective


def _made(make: MakePass, stock: ExportPass) -> ExportPass:
    """Make a pass; a class gets what it takes of the program as the stock pass has it."""
    if not isinstance(make, type):
        return make(stock)
    taken = signature(make).parameters
    return make(
        **{name: getattr(stock, name, None) for name in _OF_STOCK if name in taken}
    )


def manager_of(correction_names: tuple[str, ...]) -> partial[SafeArmPassManager]:
    """Return the maker of a pass manager that applies the named corrections and no others."""
    chosen = CORRECTIONS
    if ALL not in correction_names:
        chosen = tuple(c for c in CORRECTIONS if c.name in correction_names)
    keep_provenance = KEEP_PROVENANCE in correction_names
    return partial(
        SafeArmPassManager, corrections=chosen, keep_provenance=keep_provenance
    )
