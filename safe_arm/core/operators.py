"""Facts about operators: where the elements of their results come from."""

from __future__ import annotations

from enum import Enum


class ElementOrigin(Enum):
    """The origin of the elements of a result, and the operators of each; without a namespace they are ATen's.

    All but the averages and the casts commute with a quantiser: codes are moved, joined and compared as values are.
    """

    #: All elements of the first argument, as torch's views and copies have them.
    VIEW = (
        "view view_copy _unsafe_view reshape contiguous squeeze squeeze_copy unsqueeze unsqueeze_copy permute "
        "permute_copy transpose transpose_copy t t_copy expand expand_copy clone alias alias_copy detach_copy "
        "flatten unflatten ravel view_as reshape_as expand_as broadcast_to movedim moveaxis swapaxes swapdims "
        "mT numpy_T pixel_shuffle pixel_unshuffle channel_shuffle "
        "dim_order_ops::_clone_dim_order tosa::RESHAPE tosa::TRANSPOSE tosa::IDENTITY"
    )
    #: Elements of the first argument, chosen by their places.
    PART = (
        "slice slice_copy select select_copy split_copy split_with_sizes_copy unbind_copy unfold_copy as_strided_copy "
        "chunk split split_with_sizes unbind tensor_split hsplit vsplit narrow narrow_copy unfold diagonal "
        "diagonal_copy index index_select gather take take_along_dim flip fliplr flipud rot90 roll repeat tile "
        "upsample_nearest1d upsample_nearest2d _upsample_nearest_exact1d _upsample_nearest_exact2d "
        "tosa::SLICE tosa::REVERSE tosa::TILE tosa::GATHER"
    )
    #: Elements of the first argument, chosen by their values.
    EXTREME = (
        "amax amin max_pool1d max_pool2d max_pool2d_with_indices max_pool3d "
        "tosa::MAX_POOL2D tosa::REDUCE_MAX tosa::REDUCE_MIN"
    )
    #: Elements of the first argument, or a bound where they are beyond it.
    BOUNDED = "clamp hardtanh relu tosa::CLAMP"
    #: Elements of the first argument, and a constant.
    PADDED = "constant_pad_nd pad tril tosa::PAD"
    #: Elements of the tensors in a list, which is the first argument.
    JOINED = "cat stack tosa::CONCAT"
    #: Elements of several arguments.
    MERGED = "where masked_fill index_put scatter slice_scatter select_scatter"
    #: Weighted means of elements of the first argument, in its domain: the backend rescales none of them.
    AVERAGE = "avg_pool2d upsample_bilinear2d"
    #: Elements of the first argument, in another dtype.
    CAST = "to _to_copy dim_order_ops::_to_dim_order_copy"


def named(names: str) -> frozenset[str]:
    """Return the schema names of operators; those without a namespace are ATen's."""
    schema_names = set()
    for name in names.split():
        schema_names.add(name if "::" in name else f"aten::{name}")
    return frozenset(schema_names)


def operators(*origins: ElementOrigin) -> frozenset[str]:
    """Return the schema names of the operators whose results have one of those origins."""
    return named(" ".join(origin.value for origin in origins))


#: Operators that move or rename values and never compute with them.
VIEWS = operators(ElementOrigin.VIEW)
#: Operators that give a tensor of the same elements in the same order.
RESHAPES = named("view view_copy reshape _unsafe_view contiguous flatten unflatten")
#: The same, and those that add or leave out dimensions of size 1.
IN_ORDER = RESHAPES | named("squeeze unsqueeze squeeze_copy unsqueeze_copy")
