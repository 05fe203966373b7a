"""The table of operators is true of torch's: each origin is checked on values, and beside a quantiser."""

import executorch.exir.passes.dim_order_ops_registry  # noqa: F401
import pytest
import torch
from torch.utils._pytree import tree_leaves

from safe_arm.core.operators import ElementOrigin, named, operators

X = torch.randn(1, 2, 4, 4, generator=torch.Generator().manual_seed(0))
Y = X.flip(0, 1, 2, 3) + 0.01
ROW = torch.tensor([2, 0])
#: Arguments behind the first; an operator that is not listed has none.
MORE = {
    **dict.fromkeys(("view", "view_copy", "_unsafe_view", "reshape"), ([2, 16],)),
    **dict.fromkeys(("permute", "permute_copy"), ([0, 2, 3, 1],)),
    **dict.fromkeys(("transpose", "transpose_copy"), (1, 2)),
    **dict.fromkeys(("unsqueeze", "unsqueeze_copy"), (0,)),
    **dict.fromkeys(("expand", "expand_copy"), ([3, 2, 4, 4],)),
    **dict.fromkeys(("slice", "slice_copy"), (2, 1, 3)),
    **dict.fromkeys(("select", "select_copy"), (2, 1)),
    **dict.fromkeys(("amax", "amin"), ([2],)),
    **dict.fromkeys(("max_pool2d", "max_pool2d_with_indices", "avg_pool2d"), ([2, 2],)),
    **dict.fromkeys(("clamp", "hardtanh"), (-0.5, 0.5)),
    "constant_pad_nd": ([1, 1], 0.5),
    **dict.fromkeys(("split_copy", "split"), (1, 1)),
    **dict.fromkeys(("split_with_sizes_copy", "split_with_sizes"), ([1, 3], 2)),
    **dict.fromkeys(("unbind_copy", "unbind"), (1,)),
    **dict.fromkeys(("unfold_copy", "unfold"), (2, 2, 1)),
    **dict.fromkeys(("narrow", "narrow_copy"), (2, 1, 2)),
    **dict.fromkeys(("chunk", "tensor_split"), (2, 2)),
    **dict.fromkeys(("hsplit", "vsplit"), (2,)),
    **dict.fromkeys(("movedim", "moveaxis", "swapaxes", "swapdims"), (1, 3)),
    **dict.fromkeys(("pixel_shuffle", "pixel_unshuffle", "channel_shuffle"), (2,)),
    **dict.fromkeys(("view_as", "reshape_as", "expand_as"), (X,)),
    **dict.fromkeys(("diagonal", "diagonal_copy"), (1, 2, 3)),
    **dict.fromkeys(("upsample_nearest1d", "_upsample_nearest_exact1d"), ([8],)),
    "unflatten": (2, [2, 2]),
    "broadcast_to": ([3, 2, 4, 4],),
    "rot90": (1, [2, 3]),
    "roll": ([1], [2]),
    "tile": ([1, 2, 1, 1],),
    "take": (ROW,),
    "take_along_dim": (ROW.expand(1, 2, 4, 2), 3),
    "max_pool1d": ([2],),
    "max_pool3d": ([2, 2, 2],),
    "as_strided_copy": ([2, 3], [4, 1]),
    "index": ([None, None, ROW],),
    "index_select": (2, ROW),
    "gather": (2, ROW.expand(1, 2, 4, 2)),
    "flip": ([2],),
    "repeat": ([1, 2, 1, 1],),
    **dict.fromkeys(("upsample_nearest2d", "_upsample_nearest_exact2d"), ([8, 8],)),
    "upsample_bilinear2d": ([8, 8], False),
    "pad": ([1, 1], "constant", 0.5),
    "masked_fill": (X > 0, 0.5),
    "index_put": ([None, None, ROW], Y[:, :, :2]),
    "scatter": (2, ROW.expand(1, 2, 4, 2), Y),
    "slice_scatter": (Y[:, :, 1:3], 2, 1, 3),
    "select_scatter": (Y[:, :, 1], 2, 1),
}
#: The first argument of an operator that takes no four dimensions, or none but a certain number of channels.
FIRST = {
    **dict.fromkeys(("t", "t_copy", "numpy_T", "fliplr"), X[0, 0]),
    **dict.fromkeys(("upsample_nearest1d", "_upsample_nearest_exact1d", "max_pool1d"), X[0]),
    "pixel_shuffle": X.reshape(1, 4, 2, 4),
    "vsplit": X[0],
}
CONSTANTS = {ElementOrigin.BOUNDED: (-0.5, 0.0, 0.5), ElementOrigin.PADDED: (0.0, 0.5), ElementOrigin.MERGED: (0.5,)}
ROWS = [(kind, name) for kind in ElementOrigin for name in sorted(operators(kind)) if not name.startswith("tosa::")]


def quantised(value):
    """A tensor of floats in steps of 1/8, as a quantiser leaves it; bounds and constants are among the steps."""
    floats = isinstance(value, torch.Tensor) and value.is_floating_point()
    return torch.fake_quantize_per_tensor_affine(value, 0.125, 0, -128, 127) if floats else value


def operands(origin, name):
    if origin is ElementOrigin.JOINED:
        return ([X, Y],)
    if name == "where":
        return (X > 0, X, Y)
    return (FIRST.get(name, X), *MORE.get(name, ()))


def floats(values):
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]


def elements(values):
    return set(torch.cat([leaf.flatten() for leaf in floats(values)]).tolist())


@pytest.mark.parametrize(("origin", "name"), ROWS, ids=[name for _, name in ROWS])
def test_elements_come_from_where_the_table_says(origin, name):
    namespace, _, short = name.partition("::")
    operator = getattr(getattr(torch.ops, namespace), short)
    arguments = operands(origin, short)
    keywords = {"dtype": torch.float64} if origin is ElementOrigin.CAST else {}
    result = operator(*arguments, **keywords)
    first = arguments[0]
    if origin is ElementOrigin.CAST:
        assert torch.equal(result, first.double())
        return
    if origin is ElementOrigin.AVERAGE:
        assert first.min() <= result.min()
        assert result.max() <= first.max()
        return
    if origin is ElementOrigin.VIEW:
        assert elements(result) == elements(first)
    sources = arguments if origin is ElementOrigin.MERGED else first
    assert elements(result) <= elements(sources) | set(CONSTANTS.get(origin, ()))
    of_quantised = operator(*torch.utils._pytree.tree_map(quantised, arguments))
    for codes, value in zip(floats(of_quantised), floats(result), strict=True):
        assert torch.equal(codes, quantised(value))


def test_no_operator_has_two_origins():
    assert sum(len(operators(origin)) for origin in ElementOrigin) == len(operators(*ElementOrigin))


def test_names_without_a_namespace_are_aten_s():
    assert named("relu tosa::CLAMP") == {"aten::relu", "tosa::CLAMP"}
