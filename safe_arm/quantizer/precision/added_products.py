"""Keep a product that is only added exact until the sum is rounded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    EdgeOrNode,
    QuantizationSpecBase,
    SharedQuantizationSpec,
)

from safe_arm._compat.annotations import (
    Q_ANNOTATION_KEY,
    annotated_nodes,
    annotation_of,
    place_of,
    spec_at,
    specs_of,
    specs_read,
)
from safe_arm.quantizer.graphs.graph_edits import (
    is_stored,
    stored_tensor,
    tensor_of,
)
from safe_arm.quantizer.precision.exact_products import (
    CODE,
    INT32,
    exact_spec,
    is_annotated,
    is_int8,
    is_matmul,
    is_product,
    matmul_size,
    product_size,
    product_spec,
    step_of,
    wide_spec,
)

_ADDITIONS = (torch.ops.aten.add.Tensor, torch.ops.aten.sub.Tensor)
#: The largest magnitude of a product that is added: the sum of two fits 32 bits.
_MOST = INT32.max // 2
#: A step of what is added to a product in steps of the product, at most: 255 of them leave room for the product.
_FINEST = 2.0**21


def add_products_exactly(
    model: GraphModule, largest: dict[Node, int], only_of_exact: bool = False
) -> None:
    """Add a product of int8 values in 32 bits, in the scale that TOSA multiplies in.

    Stock rounds each product to int8 before it is added: the weight of a norm before its bias, a gate before the rest,
    a product of matrices before what ``baddbmm`` adds. Here only the sum is rounded, by those that read it. The sum
    itself has 32 bits too, because stock's partitioner takes any other for codes (S45).

    Args:
        model: an annotated float graph; changed in place.
        largest: the largest magnitude of what is kept in 32 bits already.
        only_of_exact: only products of such a value, as in norms. By Vela's estimate they cost an Ethos-U55 nothing,
            all others twice the cycles.
    """
    named = _named_domains(model)
    for node in model.graph.nodes:
        if node.target not in _ADDITIONS or node.kwargs or not is_annotated(node):
            continue
        products = _kept_products(node, largest, only_of_exact)
        if products and _is_rounded_by_readers(node, named):
            _keep_products(node, products)
            specs = specs_read(node)
            _round_in_readers(node, next(iter(specs.values())))


def round_products_in_readers(model: GraphModule, roots: Iterable[Node]) -> None:
    """Keep a product of two values of 32 bits, which stock's partitioner takes for codes otherwise (S45), in 32 bits.

    Args:
        model: an annotated float graph; its annotations are changed.
        roots: factors of norms that have 32 bits.
    """
    named = _named_domains(model)
    for root in roots:
        for product in root.users:
            specs = specs_read(product)
            factors = [specs.get(factor) for factor in product.args[:2]]
            is_wide = all(isinstance(spec, DerivedQuantizationSpec) for spec in factors)
            if (
                is_wide
                and is_product(product)
                and _is_rounded_by_readers(product, named)
            ):
                _round_in_readers(product, product_spec(product))


def _kept_products(
    addition: Node, largest: dict[Node, int], only_of_exact: bool
) -> list[Node]:
    """Return the products that stay in 32 bits; none if what is added to them has no domain."""
    products = []
    for term in addition.all_input_nodes:
        if not _is_kept(term, addition, largest):
            continue
        if not only_of_exact or not largest.keys().isdisjoint(term.args):
            products.append(term)
    for other in addition.args[:2]:
        if other in products or _is_constant(other, addition):
            continue
        if not is_observed(other, addition):
            return []
    return products


def _keep_products(addition: Node, products: list[Node]) -> None:
    others = [term for term in addition.all_input_nodes if term not in products]
    factors: list[list[EdgeOrNode]] = []
    for product in products:
        places: list[EdgeOrNode] = [(factor, product) for factor in product.args[:2]]
        annotation_of(product).output_qspec = exact_spec(places)
        factors.append(places)
    observed = [term for term in others if not is_stored(term)]
    constants = [stored_tensor(term) for term in others if is_stored(term)]
    spec = spec_of_products(factors, observed, constants)
    annotation = annotation_of(addition)
    annotation.input_qspec_map = dict.fromkeys(addition.all_input_nodes, spec)
    annotation.allow_implicit_sharing = False


def _named_domains(model: GraphModule) -> set[Node]:
    """Return the nodes whose domain some other node takes over by name."""
    named = set()
    for _, annotation in annotated_nodes(model.graph):
        for spec in specs_of(annotation):
            if isinstance(spec, SharedQuantizationSpec):
                named.add(spec.edge_or_node)
    return named


def _is_rounded_by_readers(addition: Node, named: set[Node]) -> bool:
    """Tell whether all that reads a sum reads 8 bits."""
    if addition in named:
        return False
    for reader in addition.users:
        if Q_ANNOTATION_KEY not in reader.meta or not is_int8(addition, reader):
            return False
    return bool(addition.users)


def _round_in_readers(addition: Node, codes: QuantizationSpecBase) -> None:
    """Give a sum the 32 bits of its terms, and the one domain that it had to its readers."""
    annotation = annotation_of(addition)
    domain = annotation.output_qspec
    annotation.output_qspec = codes
    plain = []
    # A later reader refers to an earlier one: in the other order torchao recurses without end.
    for reader in sorted(addition.users):
        spec = specs_read(reader)[addition]
        place, _ = place_of(spec)
        if place is None:
            plain.append(reader)
        elif not isinstance(place, tuple) or place[0] is not addition:
            # It takes over the domain of something else, and torchao lets the others share it.
            return
    first = plain.pop(0)
    specs_read(first)[addition] = domain
    same = SharedQuantizationSpec((addition, first))
    for reader in plain:
        specs_read(reader)[addition] = same


def _is_kept(term: Node, addition: Node, largest: dict[Node, int]) -> bool:
    """Tell whether a term is a product that is only read here, small enough, and loses something to 8 bits."""
    if list(term.users) != [addition]:
        return False
    if is_matmul(term):
        return matmul_size(term) <= _MOST
    if not is_product(term):
        return False
    if largest.keys().isdisjoint(term.args) and any(map(is_number, term.args)):
        return False
    return 0 < product_size(term, largest) <= _MOST


def is_number(factor: object) -> bool:
    """Tell whether a factor is one constant: 8 bits times a number are 8 bits in another scale."""
    value = tensor_of(factor)
    return is_stored(factor) and value is not None and value.numel() == 1


def _is_constant(term: object, addition: Node) -> TypeGuard[Node]:
    """Tell whether what is added to a product is a constant that is quantised to 8 bits: the bias of a norm."""
    return is_stored(term) and is_int8(term, addition)


def is_observed(term: object, addition: Node) -> TypeGuard[Node]:
    """Tell whether what is added to a product is an int8 tensor with a domain of its own."""
    if not isinstance(term, Node) or not is_int8(term, addition):
        return False
    if spec_at(term) is None:
        return False
    return not any(_shares(reader, term) for reader in term.users)


def _shares(reader: Node, term: Node) -> bool:
    """Tell whether a node reads a term in 32 bits and gives its scale to all that do."""
    annotation = annotation_of(reader)
    if annotation is None or not annotation.allow_implicit_sharing:
        return False
    return isinstance(annotation.input_qspec_map.get(term), DerivedQuantizationSpec)


def spec_of_products(
    factors: list[list[EdgeOrNode]],
    others: list[Node],
    constants: Sequence[Tensor | None] = (),
) -> DerivedQuantizationSpec:
    """Return the specification of integers in the largest scale of some products, or larger for what is added.

    Args:
        factors: for each product, where its two factors are observed.
        others: what is added to them, in 8 bits.
        constants: the constants that are added to them.
    """
    places = [place for each in factors for place in each]
    sizes = [float(each.abs().max()) for each in constants if each is not None]
    least = max(sizes, default=0.0) / CODE / _FINEST
    scale_of = partial(_largest_scale, products=len(factors), least=least)
    return wide_spec([*places, *others], scale_of)


def _largest_scale(
    observers: Sequence[Any], products: int, least: float = 0.0
) -> Tensor:
    """Return the largest of the products' scales, what the others need, and the least there may be."""
    scales = list(map(step_of, observers))
    factors, others = scales[: 2 * products], scales[2 * products :]
    candidates = [
        factors[index] * factors[index + 1] for index in range(0, len(factors), 2)
    ]
    candidates += [scale / _FINEST for scale in others]
    return torch.stack(candidates).amax(0).clamp(min=least)
