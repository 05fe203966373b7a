"""The steps that the safe quantisers take, in order; each changes a graph in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import GraphModule

from safe_arm.quantizer.domains.bounded_domains import observe_between_bounds
from safe_arm.quantizer.domains.cast_domains import part_from_casts
from safe_arm.quantizer.domains.clamp_domains import give_clamps_domains
from safe_arm.quantizer.domains.mean_domains import (
    leave_room_for_means,
    leave_room_for_softmaxes,
)
from safe_arm.quantizer.domains.mirrored_domains import mirror_domains
from safe_arm.quantizer.domains.moved_domains import keep_moved_domains
from safe_arm.quantizer.domains.softmax_domains import share_softmax_domains
from safe_arm.quantizer.graphs.branch_constants import (
    drop_copies_in_branches,
    fill_branches,
    pass_tensors_in,
)
from safe_arm.quantizer.graphs.branch_names import own_branches
from safe_arm.quantizer.graphs.cast_counters import cast_counters
from safe_arm.quantizer.graphs.conditions_in_loops import choose_in_loops
from safe_arm.quantizer.graphs.dropped_guards import drop_guards
from safe_arm.quantizer.graphs.folded_constants import compute_constants
from safe_arm.quantizer.graphs.functional_writes import write_functionally
from safe_arm.quantizer.graphs.index_dtypes import widen_indices
from safe_arm.quantizer.graphs.item_places import place_by_tensors
from safe_arm.quantizer.graphs.loop_counters import carry_counters
from safe_arm.quantizer.graphs.named_sizes import name_sizes
from safe_arm.quantizer.graphs.plain_scopes import (
    write_inner_scopes_out,
    write_scopes_out,
)
from safe_arm.quantizer.graphs.returned_results import return_results
from safe_arm.quantizer.graphs.sized_fills import store_fills
from safe_arm.quantizer.graphs.uninitialised import fill_with_zeros
from safe_arm.quantizer.graphs.wide_floats import compute_in_float32
from safe_arm.quantizer.masks.dynamic_attention import spell_out_dynamic_attention
from safe_arm.quantizer.masks.dynamic_triangles import spell_out_dynamic_triangles
from safe_arm.quantizer.masks.finite_scores import name_plain_softmaxes
from safe_arm.quantizer.masks.log_softmax import spell_out_log_softmax
from safe_arm.quantizer.masks.masked_exponentials import mask_exponentials
from safe_arm.quantizer.masks.masked_softmax import mask_probabilities
from safe_arm.quantizer.masks.moved_masks import mask_behind_moves
from safe_arm.quantizer.masks.near_masks import bring_masks_near
from safe_arm.quantizer.masks.normalised_logits import name_normalised_logits
from safe_arm.quantizer.masks.runtime_masks import mask_at_run_time
from safe_arm.quantizer.masks.spelled_masks import spell_out_masks
from safe_arm.quantizer.precision.bell_curves import write_bell_curves
from safe_arm.quantizer.precision.bounds_behind import (
    bound_lengths_behind,
    bound_logs_behind,
)
from safe_arm.quantizer.precision.fine_inverse_lengths import (
    keep_inverse_lengths_fine,
    refine_inverse_lengths,
)
from safe_arm.quantizer.precision.fine_lengths import refine_lengths, refine_magnitudes
from safe_arm.quantizer.precision.fine_logs import keep_logs_fine, refine_logs
from safe_arm.quantizer.precision.fine_reciprocals import refine_reciprocals
from safe_arm.quantizer.precision.fine_roots import keep_roots_fine
from safe_arm.quantizer.precision.fine_scans import keep_scans_fine
from safe_arm.quantizer.precision.int16_differences import keep_int16_differences
from safe_arm.quantizer.precision.int16_lengths import keep_int16_lengths
from safe_arm.quantizer.precision.int16_powers import multiply_int16_powers
from safe_arm.quantizer.precision.int16_reciprocals import keep_int16_reciprocals
from safe_arm.quantizer.precision.int16_roots import keep_int16_roots
from safe_arm.quantizer.precision.inverse_roots import (
    keep_bounds,
    write_bounded_lengths,
    write_inverse_roots,
)
from safe_arm.quantizer.precision.mean_squares import write_mean_squares
from safe_arm.quantizer.precision.norm_domains import limit_norm_factors
from safe_arm.quantizer.precision.norm_roots import keep_norm_roots, write_norm_roots
from safe_arm.quantizer.precision.pooled_squares import sum_pooled_squares
from safe_arm.quantizer.precision.reciprocal_lengths import share_first_steps
from safe_arm.quantizer.precision.similarities import (
    keep_similarities,
    write_similarities,
)
from safe_arm.quantizer.precision.sums_by_rows import sum_by_rows
from safe_arm.quantizer.proof.noted_values import note_computed_values
from safe_arm.quantizer.spellings.absorbed_numbers import leave_out_absorbed
from safe_arm.quantizer.spellings.activations import spell_out_activations
from safe_arm.quantizer.spellings.chosen_numbers import choose_numbers
from safe_arm.quantizer.spellings.compared_indices import compare_in_32_bits
from safe_arm.quantizer.spellings.complex_pairs import write_complex_pairs
from safe_arm.quantizer.spellings.composites import take_composites_apart
from safe_arm.quantizer.spellings.constant_factors import fold_constant_factors
from safe_arm.quantizer.spellings.constant_spellings import spell_out_with_constants
from safe_arm.quantizer.spellings.equal_choices import drop_equal_choices
from safe_arm.quantizer.spellings.extreme_indices import name_extreme_indices
from safe_arm.quantizer.spellings.given_batches import give_batches
from safe_arm.quantizer.spellings.high_ranks import lower_ranks
from safe_arm.quantizer.spellings.infinite_numbers import open_infinite_bounds
from safe_arm.quantizer.spellings.joined_parts import read_joined_parts
from safe_arm.quantizer.spellings.layers_at_once import apply_layers_at_once
from safe_arm.quantizer.spellings.limited_pieces import limit_pieces
from safe_arm.quantizer.spellings.narrow_indices import narrow_indices
from safe_arm.quantizer.spellings.parted_layers import part_layers
from safe_arm.quantizer.spellings.plain_broadcasts import broadcast_plainly
from safe_arm.quantizer.spellings.reversed_differences import multiply_subtrahends
from safe_arm.quantizer.spellings.run_time_gathers import gather_at_run_time
from safe_arm.quantizer.spellings.run_time_indices import select_at_run_time
from safe_arm.quantizer.spellings.run_time_scatters import scatter_at_run_time
from safe_arm.quantizer.spellings.scalar_fills import fill_from_tensors
from safe_arm.quantizer.spellings.scalar_ranks import keep_scalar_ranks
from safe_arm.quantizer.spellings.similarity_dims import name_similarity_dims
from safe_arm.quantizer.spellings.spelled_orders import write_orders
from safe_arm.quantizer.spellings.spelled_powers import spell_out_powers
from safe_arm.quantizer.spellings.spelled_unpools import write_unpools
from safe_arm.quantizer.spellings.spellings import spell_out_operators
from safe_arm.quantizer.spellings.whole_operands import read_whole_operands
from safe_arm.quantizer.training.trained_norms import keep_statistics

#: Our steps before and after stock's passes, in order; each changes a graph in place and may be left out.
BEFORE_PASSES: tuple[Callable[[GraphModule], Any], ...] = (
    own_branches,
    drop_guards,
    fill_with_zeros,
    note_computed_values,
    write_scopes_out,
    write_inner_scopes_out,
    choose_in_loops,
    carry_counters,
    place_by_tensors,
    return_results,
    write_functionally,
    read_joined_parts,
    take_composites_apart,
    compute_in_float32,
    write_complex_pairs,
    spell_out_activations,
    write_unpools,
    write_orders,
    give_batches,
    spell_out_dynamic_triangles,
    spell_out_operators,
    spell_out_with_constants,
    spell_out_powers,
    broadcast_plainly,
    lower_ranks,
    open_infinite_bounds,
    name_similarity_dims,
    write_similarities,
    multiply_subtrahends,
    keep_scalar_ranks,
    name_extreme_indices,
    compare_in_32_bits,
    narrow_indices,
    limit_pieces,
    fold_constant_factors,
    compute_constants,
    part_layers,
    read_whole_operands,
    select_at_run_time,
    gather_at_run_time,
    scatter_at_run_time,
    spell_out_dynamic_attention,
    leave_out_absorbed,
    spell_out_masks,
    name_normalised_logits,
    mask_behind_moves,
    mask_probabilities,
    mask_at_run_time,
    bring_masks_near,
    name_plain_softmaxes,
    spell_out_log_softmax,
    mask_exponentials,
    choose_numbers,
    fill_from_tensors,
    drop_equal_choices,
    pass_tensors_in,
    drop_copies_in_branches,
)
#: Steps that are left out where the profile has float: what they would write anew is delegated as it is, and int8 costs
#: it decibels.
COSTLY_STEPS = (
    write_scopes_out,
    name_plain_softmaxes,
    choose_numbers,
    spell_out_powers,
)
AFTER_PASSES: tuple[Callable[[GraphModule], Any], ...] = (
    store_fills,
    compute_constants,
    cast_counters,
    apply_layers_at_once,
    write_inverse_roots,
    write_bounded_lengths,
    write_norm_roots,
    sum_pooled_squares,
    bound_lengths_behind,
    bound_logs_behind,
    refine_lengths,
    refine_magnitudes,
    share_first_steps,
    refine_inverse_lengths,
    refine_logs,
    write_bell_curves,
    write_mean_squares,
    refine_reciprocals,
    widen_indices,
    name_sizes,
    fill_branches,
)
#: Steps that take an Ethos-U longer, by Vela's estimate, and such as take an Ethos-U85 longer: norms 44 % for a vision
#: transformer.
SLOW_ON_ETHOS_U = (
    write_bounded_lengths,
    sum_pooled_squares,
    bound_lengths_behind,
    bound_logs_behind,
    refine_magnitudes,
    refine_logs,
    write_bell_curves,
    refine_inverse_lengths,
)
SLOW_ON_ETHOS_U85 = (write_similarities, write_norm_roots, write_mean_squares)
#: Slow steps without which a function of 16 bits is read from a table that is too coarse for it.
NEEDED_BY_INT16 = (write_norm_roots,)
#: Steps whose results have 8 bits, all of them: a function of 16 bits is finer by itself.
OF_INT8_ALONE = (
    bound_logs_behind,
    share_first_steps,
    refine_inverse_lengths,
)
#: Steps that make one operator of several, which may have configs of their own.
OF_ONE_CONFIG = (fold_constant_factors,)
#: Steps for operators that no Ethos-U55 has.
NOT_ON_ETHOS_U55 = (
    write_orders,
    narrow_indices,
    select_at_run_time,
    gather_at_run_time,
    scatter_at_run_time,
)
#: Steps whose result has no finite gradient, or has not been trained.
NOT_TRAINED = (
    compute_in_float32,
    fold_constant_factors,
    bound_logs_behind,
    refine_logs,
    write_norm_roots,
)
KEPT_IN_16_BITS = (
    keep_int16_reciprocals,
    keep_int16_roots,
    keep_int16_differences,
    keep_int16_lengths,
)
KEPT_FINE = (
    sum_by_rows,
    keep_norm_roots,
    keep_inverse_lengths_fine,
    keep_roots_fine,
    keep_logs_fine,
    keep_bounds,
    keep_similarities,
    keep_scans_fine,
    multiply_int16_powers,
)
#: Our steps behind stock's annotators, in order; each changes a graph and its annotations in place.
AFTER_ANNOTATION: tuple[Callable[[GraphModule], Any], ...] = (
    part_from_casts,
    give_clamps_domains,
    observe_between_bounds,
    keep_moved_domains,
    mirror_domains,
    share_softmax_domains,
    limit_norm_factors,
    leave_room_for_means,
    leave_room_for_softmaxes,
    keep_statistics,
)
