"""Sums, differences and products stay in 32 bits as far as the device does not take longer for them."""

from __future__ import annotations

from torch.fx import GraphModule

from safe_arm.quantizer.precision.added_products import (
    add_products_exactly,
    round_products_in_readers,
)
from safe_arm.quantizer.precision.exact_distances import keep_distances_exact
from safe_arm.quantizer.precision.exact_means import keep_means_exact, means_that_fit
from safe_arm.quantizer.precision.exact_products import keep_products_exact
from safe_arm.quantizer.precision.norm_roots import read_roots_apart, sizes_of_roots


def keep_arithmetic_exact(
    model: GraphModule, is_ethos_u: bool = False, is_ethos_u85: bool = False
) -> None:
    """Keep in 32 bits the means, the products, their sums and what they are added to.

    Args:
        model: an annotated float graph; changed in place.
        is_ethos_u: leave out what an Ethos-U takes longer for, by Vela's estimate.
        is_ethos_u85: leave out what an Ethos-U85 takes longer for, too.
    """
    if is_ethos_u85:
        distances = keep_distances_exact(model, from_constants=False)
        keep_products_exact(model, finer=False, roots=distances)
        return
    roots = sizes_of_roots(model)
    means = means_that_fit(model)
    wide = {**roots, **keep_distances_exact(model, between_rows=not is_ethos_u)}
    largest = keep_products_exact(model, roots=wide, from_exact_means=means)
    round_products_in_readers(model, roots)
    keep_means_exact(means)
    read_roots_apart(roots)
    add_products_exactly(model, largest, only_of_exact=is_ethos_u)
