"""The drop-in quantisers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from inspect import Signature, signature
from typing import Any

import torch
from torch.fx import GraphModule
from torchao.quantization.pt2e import ObserverOrFakeQuantize
from torchao.quantization.pt2e.quantizer import EdgeOrNode

from safe_arm._compat.annotation_passes import watched_passes
from safe_arm._compat.annotations import forget_annotations
from safe_arm._compat.batch_norms import guard_folds, take_over_trained_norms
from safe_arm._compat.prepared_models import watch_models
from safe_arm._compat.untested import warn_if_untested
from safe_arm._compat.upstream import EthosUQuantizer, VgfQuantizer
from safe_arm.acceleration import switch, wrappers
from safe_arm.acceleration.late_code import generated_once
from safe_arm.core.doubts import in_training_mode
from safe_arm.core.errors import DoubtfulInputWarning, InternalError, warn_of_doubt
from safe_arm.core.island import call_functions
from safe_arm.quantizer import ordered_steps
from safe_arm.quantizer.annotation import contained_annotation, contained_transform
from safe_arm.quantizer.annotation.checked_settings import CheckedSettings
from safe_arm.quantizer.annotation.float_graphs import check_is_float
from safe_arm.quantizer.annotation.integer_views import annotate_integer_views
from safe_arm.quantizer.annotation.left_float import Ledger, LeftFloat
from safe_arm.quantizer.annotation.nodes_apart import nodes_apart
from safe_arm.quantizer.annotation.position_angles import angles_left_alone
from safe_arm.quantizer.annotation.states_apart import with_states_apart
from safe_arm.quantizer.annotation.unset_configs import doubts_of_unset
from safe_arm.quantizer.calibration.branch_observers import share_domains_of_branches
from safe_arm.quantizer.calibration.calibration_watch import (
    CalibrationWatch,
    doubt_of_config,
    doubts_of,
)
from safe_arm.quantizer.calibration.guarded_observers import guard_observers
from safe_arm.quantizer.domains.branch_domains import free_branch_domains
from safe_arm.quantizer.domains.factors_apart import copy_scaled_weights
from safe_arm.quantizer.domains.pool_domains import convolve_pools
from safe_arm.quantizer.graphs.branch_names import name_branches, names_of_branches
from safe_arm.quantizer.graphs.constant_sizes import sizes_of_constants_kept
from safe_arm.quantizer.graphs.factory_operators import factories_left_alone
from safe_arm.quantizer.graphs.functional_writes import LOST_WRITE, write_functionally
from safe_arm.quantizer.graphs.named_operators import complete_names, record_names
from safe_arm.quantizer.graphs.numbers_apart import numbers_apart
from safe_arm.quantizer.graphs.own_names import name_weights
from safe_arm.quantizer.precision.exact_arithmetic import keep_arithmetic_exact
from safe_arm.quantizer.precision.fine_gates import refine_gates
from safe_arm.quantizer.precision.fine_lengths import keep_lengths_fine
from safe_arm.quantizer.precision.fine_reciprocals import keep_reciprocals_fine
from safe_arm.quantizer.precision.fine_scores import keep_scores_fine
from safe_arm.quantizer.precision.reciprocal_lengths import keep_reciprocal_lengths
from safe_arm.quantizer.proof import float_run
from safe_arm.quantizer.proof.fitting_samples import misfits_named, samples_for
from safe_arm.quantizer.proof.float_net import calibration_calls, copy_with_own_state
from safe_arm.quantizer.proof.float_proof import Without, proven
from safe_arm.quantizer.proof.float_run import DiffersError, FloatRun, run_of
from safe_arm.quantizer.proof.kept_outputs import restore_outputs, values_of_outputs
from safe_arm.quantizer.spellings.activations import spell_out_activations
from safe_arm.quantizer.spellings.sampled_grids import samplers_left_alone
from safe_arm.quantizer.spellings.spelled_powers import spell_out_powers
from safe_arm.quantizer.spellings.spellings import spell_out_operators
from safe_arm.quantizer.training.state_at_rest import state_at_rest
from safe_arm.quantizer.training.trained_constants import (
    UNTRAINED,
    is_for_training,
    store_trained_values,
)
from safe_arm.quantizer.training.trained_folds import fold_trained_norms, write_folds
from safe_arm.quantizer.training.trained_modes import switch_training
from safe_arm.quantizer.training.trained_names import give_names_back, names_of_norms
from safe_arm.quantizer.training.trained_norms import (
    counted_once,
    counters_kept,
    give_norms_layers,
    join_norms,
)

#: Calibration samples on which the transforms are tried, and how often quantising starts again with another one.
_TRIED_SAMPLES = 2
_RESTARTS = 3


class _SafeRules(CheckedSettings):
    """The rules that the safe quantisers add to the stock class that comes next.

    Attributes:
        keep_reference: set to True to keep the float graph that is calibrated; it has the operators of the quantised
            graph.
        prefers_accuracy: set to True to use, on an Ethos-U as well, computations that gain accuracy and cost more than
            5 % of the cycles of some net, by Vela's estimate. Other targets always use them.
        reference: that graph, which shares its parameters; None before preparing and unless ``keep_reference`` is set.
    """

    keep_reference: bool = False
    prefers_accuracy: bool = False
    reference: GraphModule | None = None
    _is_ethos_u = False
    _has_texture_unit = False
    #: The parameters of the stock class, which differ by release; ``help`` shows them.
    __signature__: Signature

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        stock = cls.__mro__[cls.__mro__.index(CheckedSettings) + 1]
        cls.__signature__ = signature(stock)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warn_if_untested()
        self._ledger = Ledger()
        self._watch = CalibrationWatch()
        self._training = ""
        self._trains = False
        self._warned_of: set[str] = set()
        guard_folds(_is_safe, float_run.begun_and_folded)
        take_over_trained_norms(
            _has_written_folds, float_run.is_ours, fold_trained_norms, switch_training
        )
        watch_models(_seen)
        super().__init__(*args, **kwargs)

    @property
    def left_float(self) -> tuple[LeftFloat, ...]:
        """The operators that stay float because quantising them failed, over all graphs of this quantiser.

        Operators whose observer failed during calibration appear once the graph is converted.
        """
        return tuple(self._ledger)

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Prepare a float graph for annotation as the stock class does, and check that it still computes the same.

        A node on which a pass raises, or whose result a pass changes, is held out of the passes and stays float.

        Raises:
            InternalError: a pass wrote into one of the user's tensors.
            UsageError: the graph is prepared already.
        """
        check_is_float(model)
        wrappers.install()
        return generated_once(self._transform_proven, model)

    def _transform_proven(self, model: GraphModule) -> GraphModule:
        run = run_of(model, folds=False)
        config = self.training_config or self.global_config
        self._trains = is_for_training(config) and not run.net.folds
        self._look_for_doubts(model)
        steps = [
            step.__name__
            for step in (*ordered_steps.BEFORE_PASSES, *ordered_steps.AFTER_PASSES)
        ]
        with counters_kept(model):
            transformed = proven(
                model, self._transform, run.net, run.trials, steps, self._ledger
            )
        if self._trains:
            join_norms(transformed)
        written = ", ".join(map(repr, run.written_to()))
        if written:
            raise InternalError(
                f"quantising wrote into {written}; load the weights again before you go on"
            )
        run.transformed(transformed)
        return transformed

    def _transform(
        self, model: GraphModule, without: Without, ledger: Ledger
    ) -> GraphModule:
        """Run stock's passes and our own steps around them.

        Args:
            model: the float graph; changed in place.
            without: what to leave out.
            ledger: where to note what a pass raises on.
        """
        is_named = self.is_set_by_name or self.keep_reference
        names = record_names(model) if is_named else {}
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        norms = names_of_norms(model)
        config = self.training_config or self.global_config
        stored = store_trained_values(model, config)
        if self._trains:
            give_norms_layers(model)
        exported = set(call_functions(model))
        self._prepare(model, without, is_for_training(config))
        if names:
            complete_names(model, names, exported)
        # Our steps have written views of parameters, which stock folds.
        written = store_trained_values(model, config, only_views=True)
        self._tell(UNTRAINED, (*stored.shared, *written.shared))
        outputs = values_of_outputs(model)
        branches = names_of_branches(model)
        apart = {**nodes_apart(model, self.tosa_spec), **without.held_out}
        passes: AbstractContextManager[None] = nullcontext()
        if without.passes:
            passes = watched_passes(left_out=without.passes)
        stock = self._stock_transform
        with passes:
            model = contained_transform.transform(model, stock, ledger, apart)
        if names:
            complete_names(model, names)
        name_branches(model, branches)
        name_weights(model, {**tensors, **stored.values, **written.values})
        give_names_back(model, tensors, norms, config)
        decomposed = set(call_functions(model))
        for step in ordered_steps.AFTER_PASSES:
            if not self._is_left_out(step, without):
                step(model)
        if names:
            complete_names(model, names, decomposed)
        restore_outputs(model, outputs)
        return model

    def _prepare(self, model: GraphModule, without: Without, is_trained: bool) -> None:
        """Take our own steps before stock's passes."""
        for step in ordered_steps.BEFORE_PASSES:
            if self._is_left_out(step, without):
                continue
            # An exponent that is a parameter is trained.
            if step is spell_out_powers and is_trained:
                continue
            if step is write_functionally:
                self._tell(LOST_WRITE, write_functionally(model))
            elif step is spell_out_operators:
                spell_out_operators(
                    model,
                    keeps_costly=self.tosa_spec.support_float(),
                    keeps_norms=self._trains,
                    in_groups=self._trains and self._is_ethos_u85(),
                )
            else:
                step(model)

    def _is_left_out(self, step: Callable[..., Any], without: Without) -> bool:
        """Tell whether a step is not taken for this target, for training, or because it changed what is computed."""
        if step.__name__ in without.steps:
            return True
        if step in ordered_steps.COSTLY_STEPS and self.tosa_spec.support_float():
            return True
        if step in ordered_steps.NOT_ON_ETHOS_U55 and self.tosa_spec.is_U55_subset:
            return True
        if step in ordered_steps.SLOW_ON_ETHOS_U and self._spares_cycles():
            return True
        if step in ordered_steps.SLOW_ON_ETHOS_U85 and self._spares_cycles_of_u85():
            is_needed = step in ordered_steps.NEEDED_BY_INT16
            return not (is_needed and self.is_set_to_int16)
        if step in ordered_steps.OF_ONE_CONFIG and self.is_set_in_part:
            return True
        if step in ordered_steps.OF_INT8_ALONE:
            return self.is_set_to_int16
        return step in ordered_steps.NOT_TRAINED and self._trains

    def _tell(self, text: str, names: Iterable[str]) -> None:
        """Warn once of each name."""
        for name in names:
            if name not in self._warned_of:
                self._warned_of.add(name)
                warnings.warn(text.format(name), DoubtfulInputWarning, stacklevel=8)

    def _look_for_doubts(self, model: GraphModule) -> None:
        """Warn about what makes the quantisation of a float graph poor."""
        self._training = in_training_mode(model)
        for doubt in (*doubts_of(model), *doubts_of_unset(self)):
            warn_of_doubt(doubt)

    def annotate(self, model: GraphModule) -> GraphModule:
        """Annotate as the stock class does, but leave factory operators alone.

        A node on which an annotator raises, or whose values no observer can take, stays float. ``left_float`` and one
        warning list these nodes.
        """
        return generated_once(self._annotate, model)

    def _annotate(self, model: GraphModule) -> GraphModule:
        self._named.warn_of_missed(model)
        contained_annotation.change(model, (spell_out_activations,), self._ledger)
        model = contained_annotation.annotate(model, self._stock_annotate, self._ledger)
        changes = [
            self._convolve_pools,
            *ordered_steps.KEPT_IN_16_BITS,
            self._keep_reciprocals_fine,
            keep_lengths_fine,
            self._keep_reciprocal_lengths,
            *ordered_steps.KEPT_FINE,
        ]
        if not self._spares_cycles():  # Up to twice as long, by Vela's estimate.
            changes.insert(1, refine_gates)
        contained_annotation.change(model, changes, self._ledger)
        steps = [
            self._free_branch_domains,
            *ordered_steps.AFTER_ANNOTATION,
            self._keep_exact,
        ]
        # Scores in 32 bits take an Ethos-U longer, and an Ethos-U55 has no maximum of them.
        if not self._is_ethos_u:
            steps.insert(-1, keep_scores_fine)
        contained_annotation.refine(model, steps, self._ledger)
        if self._trains:
            write_folds(model)
        self._ledger.warn()
        return model

    def _convolve_pools(self, model: GraphModule) -> None:
        convolve_pools(model, is_ethos_u=self._is_ethos_u)

    def _keep_reciprocals_fine(self, model: GraphModule) -> None:
        keep_reciprocals_fine(
            model,
            of_softmaxes=not self._spares_cycles_of_u85(),
            of_short_ones=not (self._spares_cycles() or self._trains),
            of_lengths=not self._spares_cycles(),
        )

    def _keep_reciprocal_lengths(self, model: GraphModule) -> None:
        keep_reciprocal_lengths(model, in_two_steps=not self._spares_cycles())

    def _free_branch_domains(self, model: GraphModule) -> None:
        free_branch_domains(model, self.tosa_spec.support_extension("cf"))

    def _is_ethos_u85(self) -> bool:
        return self._is_ethos_u and not self.tosa_spec.is_U55_subset

    def _spares_cycles(self) -> bool:
        return self._is_ethos_u and not self.prefers_accuracy

    def _spares_cycles_of_u85(self) -> bool:
        return self._is_ethos_u85() and not self.prefers_accuracy

    def _keep_exact(self, model: GraphModule) -> None:
        keep_arithmetic_exact(
            model, self._spares_cycles(), self._spares_cycles_of_u85()
        )

    def prepare_obs_or_fq_callback(
        self,
        model: GraphModule,
        edge_or_node_to_obs_or_fq: dict[EdgeOrNode, ObserverOrFakeQuantize],
    ) -> None:
        """Adjust observers as the stock class does, and guard each: operators whose observer fails stay float."""
        if self.keep_reference and self.reference is None:  # nested graphs come later
            self.reference = GraphModule(model, deepcopy(model.graph))
        is_calibrated = float_run.annotated(model)
        super().prepare_obs_or_fq_callback(model, edge_or_node_to_obs_or_fq)
        observers = edge_or_node_to_obs_or_fq.values()
        doubt = doubt_of_config(observers, self._training, is_calibrated)
        if doubt:
            warn_of_doubt(doubt)
        self._training = ""
        if self._watch.over:
            self._watch = CalibrationWatch()
        guard_observers(edge_or_node_to_obs_or_fq, self._ledger, self._watch)

    def validate(self, model: GraphModule) -> None:
        """Check as the stock class does that no operator reads tensors of two devices; numbers have no device."""
        with numbers_apart(model):
            super().validate(model)

    def _stock_transform(self, model: GraphModule) -> GraphModule:
        # Stock scales the weights of an attempt that it raises on, too: each has copies of the user's.
        copy_scaled_weights(model, keeps_shared=self._trains)
        try:
            # A buffer that is written to is traced as a leaf that requires gradients (T11).
            with (
                counted_once(model),
                sizes_of_constants_kept(model),
                switch.running_passes(),
                torch.no_grad(),
            ):
                return with_states_apart(model, super().transform_for_annotation)
        except Exception:
            forget_annotations(self)
            raise

    def _stock_annotate(self, model: GraphModule) -> GraphModule:
        forget_annotations(self)
        annotate_integer_views(model)
        samplers = samplers_left_alone(model, self._has_texture_unit)
        with factories_left_alone(model), angles_left_alone(model), samplers:
            return super().annotate(model)

    def quantize_with_submodules(
        self,
        model: GraphModule,
        calibration_samples: list[tuple[Any, ...]],
        is_qat: bool = False,
    ) -> GraphModule:
        """Prepare, calibrate and convert a graph with its control-flow branches, on every ExecuTorch version.

        Args:
            model: the exported float graph module.
            calibration_samples: tuples of inputs, at least one for each path through the branches.
            is_qat: prepare for quantisation-aware training.

        Returns:
            The quantised graph module, with the state of the float net.
        """
        # Public until 1.2, private from 1.3 on.
        stock = (
            getattr(super(), "_quantize_with_submodules", None)
            or super().quantize_with_submodules
        )
        return self._quantised(stock, model, calibration_samples, is_qat)

    def _quantize_with_submodules(
        self,
        model: GraphModule,
        calibration_samples: list[tuple[Any, ...]],
        is_qat: bool = False,
        *more: Any,
        **options: Any,
    ) -> GraphModule:
        """Do the same under the name that scripts for 1.3 and later use; stock's further arguments are handed on."""
        stock = super()._quantize_with_submodules

        def quantise(
            model: GraphModule, samples: list[tuple[Any, ...]], is_qat: bool
        ) -> GraphModule:
            return stock(model, samples, is_qat, *more, **options)

        return self._quantised(quantise, model, calibration_samples, is_qat)

    def _quantised(
        self,
        stock: Callable[..., GraphModule],
        model: GraphModule,
        samples: Sequence[tuple[Any, ...]],
        is_qat: bool,
    ) -> GraphModule:
        """Quantise a copy, and compare what comes of it with the net.

        Where the graph that is calibrated differs from the net on a sample, all is done once more with that sample
        among those on which the transforms are tried.
        """
        samples = samples_for(model, samples)
        self._named.find(model)
        first = calibration_calls(samples[:_TRIED_SAMPLES])
        with misfits_named(model, samples):
            for attempt in range(_RESTARTS + 1):
                own = copy_with_own_state(model)
                run = FloatRun(
                    own,
                    first,
                    folds=not is_qat,
                    restarts=attempt < _RESTARTS,
                    closes=False,
                )
                self.reference = None
                try:
                    # For a gradient torch traces a condition's branches, whose observers cannot be traced (T10).
                    with torch.no_grad(), state_at_rest(own) as quantised:
                        quantised.append(generated_once(stock, own, samples, is_qat))
                except DiffersError as error:
                    first.append(error.call)
                    continue
                run.compare(quantised[0])
                return quantised[0]
        raise InternalError("the last attempt to quantise does not end")


class SafeTOSAQuantizer(_SafeRules):
    """Drop-in ``TOSAQuantizer`` whose quantised graph computes the float net, up to rounding."""


class SafeVgfQuantizer(_SafeRules, VgfQuantizer):
    """Drop-in ``VgfQuantizer`` whose quantised graph computes the float net, up to rounding."""

    _has_texture_unit = True


class SafeEthosUQuantizer(_SafeRules, EthosUQuantizer):
    """Drop-in ``EthosUQuantizer`` whose quantised graph computes the float net, up to rounding."""

    _is_ethos_u = True


def _seen(model: GraphModule) -> None:
    """Take note of a model that torchao is about to return, if it is one of ours."""
    float_run.seen(model)
    if float_run.is_ours(model):
        share_domains_of_branches(model)


def _is_safe(quantizer: object) -> bool:
    """Return whether a quantiser is one of these, or composed of one."""
    quantizers = (quantizer, *getattr(quantizer, "quantizers", ()))
    return any(isinstance(part, _SafeRules) for part in quantizers)


def _has_written_folds(quantizer: object) -> bool:
    """Return whether a quantiser, or one that it is composed of, has written how norms are folded after training."""
    quantizers = (quantizer, *getattr(quantizer, "quantizers", ()))
    return any(getattr(part, "_trains", False) is True for part in quantizers)
