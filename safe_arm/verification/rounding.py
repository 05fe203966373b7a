"""Bound how far each float of a device may be from the same value in double, before anything is run.

The error of a sum of n products in float32, in any order, is at most (n + few) * u times the sum of their absolute
values, u = 2**-24 (Higham, Accuracy and Stability of Numerical Algorithms, 3.1). The few are roundings that passes add
when they fold factors into a weight. Floats of 16 bits are summed in float32 as well; only the few are of 16 bits. An
error of an input is multiplied as the input is. So the bound of a sum is the same sum of absolute values and errors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.fx import Node
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from safe_arm.core.calls import called
from safe_arm.core.differences import largest
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import DEQUANTIZE, is_marked_quantized, op_name
from safe_arm.core.operators import ElementOrigin, named, operators

#: The largest relative error of one rounding to float32.
_FLOAT32 = 2.0**-24
#: Roundings that passes may add to a product: batch norms and scalars are folded into weights.
_FOLDED = 8
#: Error bound of a function, in roundings of its largest value: passes compute some by polynomials, or in steps.
_FUNCTION = 168
#: The same in 16 bits, in which few steps are rounded.
_NARROW_FUNCTION = 16
#: The same relative to the value in float32; an output that is off by more has its operators checked one by one.
FLOAT = _FUNCTION * _FLOAT32


#: They move values or choose among them: applied to the errors of the input, they give the error of the output.
_MOVES = operators(
    ElementOrigin.VIEW, ElementOrigin.PART, ElementOrigin.JOINED, ElementOrigin.EXTREME
) | named("relu abs neg maximum")
#: Their error is that of their worst input.
_NO_WORSE = named("clamp hardtanh relu6 minimum where")
_FILLED = named("full_like zeros_like ones_like")
_SUMS = named("sum mean avg_pool2d _adaptive_avg_pool2d cumsum")
_PRODUCTS = named("convolution linear mm bmm addmm")
#: Functions of one value that are monotone, but for a few places.
_FUNCTIONS = named(
    "exp sigmoid tanh gelu silu hardswish hardsigmoid erf elu log sqrt rsqrt reciprocal sin cos log_sigmoid softplus "
    "pow leaky_relu expm1 log1p atan celu selu"
)
#: Error bound of functions that passes approximate, relative to the largest value.
_APPROXIMATE = {
    # Four terms of the series below 0.35; 0.35**5 / 120 of -0.295.
    **dict.fromkeys(named("expm1 elu celu selu"), 1.5e-4),
    # A rational function, at most 1.3e-4 off at 1 (decompose_atan_pass.py).
    "aten::atan": 2e-4,
}


@dataclass(frozen=True)
class Arithmetic:
    """One operator on real floats, evaluated in double.

    Attributes:
        node: the operator.
        value: its value; a tuple if it has several results.
        values: the values of its inputs.
        errors: error bounds of their elements, where they are not 0.
        call: the operator, in double.
    """

    node: Node
    value: Any
    values: Mapping[Node, Any]
    errors: Mapping[Node, Any]
    call: Callable[..., Any]

    def error(self) -> Any:
        """Return the error bounds of the value's elements, in its structure; None if it is exact or no float."""
        node = self.node
        name = op_name(self.node)
        if node.target is operator.getitem:
            source, index = node.args
            return self.errors[source][index] if self.inexact else None  # type: ignore[index]
        if name in DEQUANTIZE:
            return None
        if not self.inexact and (name in _MOVES or is_marked_quantized(node)):
            return None
        if not any(map(is_float, tree_leaves(self.value))):
            return None
        for names, rule in _RULES:
            if name in names:
                bound = attempted(rule, self)
                # A rule that does not fit the operator's arguments bounds nothing.
                if bound is not None and not isinstance(bound, Caught):
                    return bound
                break
        return tree_map(self._of_function, self.value)

    @property
    def args(self) -> Any:
        """The operator's arguments."""
        return self.node.args

    @property
    def inexact(self) -> bool:
        """Tell whether an input has an error already."""
        return any(n in self.errors for n in self.node.all_input_nodes)

    @property
    def unit(self) -> float:
        """The largest relative error of one rounding."""
        return unit_of(self.node)

    def argument(self, x: Any) -> Any:
        """Return the value of an argument, which is a node or a constant."""
        return self.values[x] if isinstance(x, Node) else x

    def off(self, x: Any) -> Any:
        """Return the error bound of an argument: 0 for a number, and the value itself for a tensor without floats."""
        value = self.argument(x)
        if isinstance(value, float):
            return 0.0
        if not is_float(value):
            return value
        if x in self.errors:
            return self.errors[x]
        return torch.zeros_like(value, dtype=torch.float64)

    def off_of_any(self, value: object) -> Any:
        """Return the same of an operand; a number is exact."""
        return self.off(value) if isinstance(value, Node) else 0.0

    def size(self, x: Any) -> Any:
        """Return the absolute value of an argument, in double."""
        value = self.argument(x)
        return value.double().abs() if is_float(value) else value

    def of_sum(self, terms: int) -> float:
        """Return the relative error of a sum of that many terms.

        A transposed convolution sums in the dtype of its result (op_tosa_transpose_conv2d.py).
        """
        transposed = op_name(self.node) == "aten::convolution" and self.node.args[6]
        rounding = self.unit if transposed else _FLOAT32
        return terms * rounding + _FOLDED * self.unit

    def summand(self, x: Any, terms: int) -> Any:
        """Return the share of an argument in the error of a sum of that many terms."""
        if not is_float(self.argument(x)):
            return self.argument(x)
        return self.size(x) * self.of_sum(terms) + self.off(x)

    def run(self, change: Callable[[Node], Any]) -> Any:
        """Run the operator on changed inputs and return the result without its sign."""
        return tree_map_only(Tensor, torch.abs, called(self.node, change, self.call))

    def _of_function(self, value: Any) -> Any:
        if not is_float(value):
            return value
        bound = torch.inf if self.inexact else self.floor(value)
        return torch.full_like(value, bound, dtype=torch.float64)

    def floor(self, value: Tensor) -> float:
        """Return the error bound of a function on exact inputs.

        An intermediate value of a pass may be larger than the result: 1 plus an error function that is close to -1.
        """
        relative = max(unknown(self.node), _APPROXIMATE.get(op_name(self.node), 0.0))
        intermediate = 1.0
        for node in self.node.all_input_nodes:
            if is_float(self.values[node]):
                intermediate = max(intermediate, largest(self.values[node]))
        return max(relative * largest(value), _FOLDED * self.unit * intermediate)


def unit_of(node: Node) -> float:
    """Return the largest relative error of one rounding of a node's value."""
    units = [_FLOAT32]
    for value in tree_leaves(node.meta.get("val")):
        if is_float(value):
            units.append(torch.finfo(value.dtype).eps / 2)
    return max(units)


def subnormal(node: Node) -> float:
    """Return how far roundings of values below the smallest normal float of a node's dtype may be off."""
    value = node.meta.get("val")
    info = torch.finfo(value.dtype if is_float(value) else torch.float32)
    return _FOLDED * info.tiny * info.eps


def unknown(node: Node) -> float:
    """Return the relative error that a value may have of which nothing else is known, as of a function."""
    unit = unit_of(node)
    return _FUNCTION * unit if unit == _FLOAT32 else _NARROW_FUNCTION * unit


def is_float(value: object) -> TypeGuard[Tensor]:
    """Return whether a value is a tensor of floats."""
    return isinstance(value, Tensor) and value.is_floating_point()


def _moved(of: Arithmetic) -> Any:
    return of.run(of.off)


def _filled(of: Arithmetic) -> Tensor:
    """Bound a constant in the sizes of a value: it is exact, whatever the value is."""
    return torch.zeros_like(of.value, dtype=torch.float64)


def _cast(of: Arithmetic) -> Tensor | None:
    """Bound a cast of floats by the error of its input and one rounding to the narrower of both dtypes.

    The TOSA reference model does not round a result of 16 bits that the next operator reads.
    """
    source = of.node.all_input_nodes[0]
    if not is_float(of.argument(source)) or not is_float(of.value):
        return None
    of_source = torch.finfo(source.meta["val"].dtype).eps / 2
    unit = max(of.unit, of_source)
    bound: Tensor = of.off(source) + of.size(source) * unit
    return bound


def _no_worse(of: Arithmetic) -> Tensor:
    errors = [torch.zeros_like(of.value, dtype=torch.float64)]
    for node in of.node.all_input_nodes:
        error = of.off(node)
        if is_float(error):
            errors.append(error)
    return torch.stack(torch.broadcast_tensors(*errors)).amax(0)


def _extreme(of: Arithmetic) -> Any:
    """Bound the least or largest along dims by the worst error there; its index is right or wrong."""
    source, *dims = of.args
    worst = of.off(source).amax(*dims, **of.node.kwargs)
    if isinstance(of.value, Tensor):
        return worst
    return worst, torch.zeros_like(of.value[1])


def _padded(of: Arithmetic) -> Tensor:
    source, sides = of.args[:2]
    return of.call(of.off(source), sides)  # type: ignore[no-any-return]


def _summed(of: Arithmetic) -> Any:
    (source,) = of.node.all_input_nodes
    addends = of.values[source]
    if "cumsum" in op_name(of.node):
        terms = max(addends.shape, default=1)
    else:
        terms = addends.numel() // max(1, of.value.numel())
    return of.run(lambda n: of.summand(n, terms))


def _resized(of: Arithmetic) -> Tensor:
    """Bound a sum of four neighbours; a rounding of their places shifts weight from one to the other."""
    (source,) = of.node.all_input_nodes
    image = of.values[source]
    of_places = max(image.shape[-2:]) * of.unit * largest(image)
    return of.run(lambda n: of.summand(n, 4)) + of_places  # type: ignore[no-any-return]


def _added(of: Arithmetic) -> Tensor:
    part = (1 + _FOLDED) * of.unit
    terms: list[Any] = []
    for x in of.args[:2]:
        if isinstance(x, Node):
            terms.append(of.size(x).abs() * part + of.off(x))
        else:
            terms.append(torch.tensor(x, dtype=torch.float64).abs() * part)
    multiple: Any = of.node.kwargs.get("alpha", 1)
    bound: Tensor = terms[0] + terms[1] * abs(multiple)
    return bound.expand(of.value.shape)


def _multiplied(of: Arithmetic) -> Tensor:
    left, right = of.args[:2]
    a = abs(of.size(left))
    b = abs(of.size(right))
    off_a = of.off_of_any(left)
    off_b = of.off_of_any(right)
    rounding = a * ((1 + _FOLDED) * of.unit)
    largest_b = b + off_b
    bound: Tensor = (rounding + off_a) * largest_b + a * off_b
    return bound.expand(of.value.shape)


def _divided(of: Arithmetic) -> Tensor | None:
    """Bound a quotient, which passes compute as a product with a reciprocal."""
    dividend, divisor = of.args
    if of.node.kwargs:  # of integers
        return None
    of_dividend = of.off_of_any(dividend)
    of_divisor = of.off_of_any(divisor)
    size = of.value.abs()
    size_of_divisor = torch.as_tensor(of.size(divisor)).abs()
    least = (size_of_divisor - of_divisor).clamp(min=0)
    bound: Tensor = (of_dividend + size * of_divisor) / least
    bound = bound + size * (_FOLDED * of.unit)
    return bound.nan_to_num(nan=torch.inf, posinf=torch.inf)


def _product(of: Arithmetic) -> Tensor:
    """Bound a convolution or a matrix product: errors of the left times the right, and the other way round."""
    name = op_name(of.node)
    args: list[Any] = list(of.args)
    first = 1 if name == "aten::addmm" else 0
    left = args[first]
    weight = args[first + 1]
    shape = of.values[weight].shape
    if name == "aten::convolution" and args[6]:  # transposed
        terms = shape.numel() // shape[1]
    elif name in ("aten::convolution", "aten::linear"):
        terms = shape.numel() // shape[0]
    else:
        terms = shape[-2]
    bound: Tensor = of.run(
        lambda n: of.size(n) if n is weight else of.summand(n, terms)
    )
    if weight in of.errors:
        largest = of.size(left) + of.off(left)
        of_weight = {left: largest, weight: of.off(weight)}
        bound = bound + of.run(lambda n: of_weight.get(n, 0 * of.size(n)))
    return bound


def _normalised(of: Arithmetic) -> tuple[Tensor, ...]:
    """Bound a batch norm whose statistics are known: an affine map of each channel."""
    x, weight, bias, mean, variance, _, epsilon = of.args
    result = of.value[0]
    channels = [1, -1] + [1] * (result.dim() - 2)
    factor = (of.values[variance].double() + epsilon).rsqrt()
    if isinstance(weight, Node):
        factor = factor * of.size(weight)
    constant = of.size(mean) * factor
    if isinstance(bias, Node):
        constant = constant + of.size(bias)
    part = (2 + _FOLDED) * of.unit
    of_channels = factor.view(channels)
    of_input = (of.size(x) * part + of.off(x)) * of_channels
    of_constant = (constant * part).view(channels)
    bound = of_input + of_constant
    return (bound, *map(torch.zeros_like, of.value[1:]))


def _layer_normalised(of: Arithmetic) -> tuple[Tensor, ...]:
    x, sizes, weight, bias, epsilon = of.args
    leading = of.values[x].shape[: -len(sizes)]
    return _normalised_over(of, leading, (weight, bias), (*sizes,), epsilon)


def _group_normalised(of: Arithmetic) -> tuple[Tensor, ...]:
    x, weight, bias, batch, channels, _, groups, epsilon = of.args
    sizes = (channels, *[1] * (of.values[x].dim() - 2))
    return _normalised_over(of, (batch, groups), (weight, bias), sizes, epsilon)


def _normalised_over(
    of: Arithmetic,
    leading: Sequence[int],
    affine: tuple[Any, Any],
    sizes: Sequence[int],
    epsilon: float,
) -> tuple[Tensor, ...]:
    """Bound a norm with the statistics at hand: a rounding of the mean is large beside values that hardly differ.

    Args:
        of: the norm.
        leading: sizes of its means.
        affine: what its weight and bias are.
        sizes: sizes in which these two are broadcast.
        epsilon: the addend of a variance.
    """
    x = of.args[0]
    values = of.argument(x).double().reshape(*leading, -1)
    terms = values.shape[-1]
    error = of.summand(x, terms).reshape(values.shape)
    error = error + error.mean(-1, True)
    differences = (values - values.mean(-1, True)).abs()
    variance = differences.square().mean(-1, True)
    of_variance = ((2 * differences + error) * error).mean(-1, True)
    of_variance = of_variance + min(of.of_sum(terms), terms * of.unit) * variance
    factor = (variance + epsilon).rsqrt()
    least = (variance + epsilon - of_variance).clamp(min=0)
    of_factor = least.rsqrt() - factor + unknown(of.node) * factor
    bound = error * (factor + of_factor) + differences * of_factor
    weight, bias = affine
    bound = bound.reshape(of.value[0].shape)
    if isinstance(weight, Node):
        bound = bound * of.size(weight).reshape(sizes)
    if isinstance(bias, Node):
        bound = bound + of.size(bias).reshape(sizes) * (_FOLDED * of.unit)
    unbounded = [torch.full_like(each, torch.inf) for each in of.value[1:]]
    return (bound.nan_to_num(nan=torch.inf), *unbounded)


def _of_one(of: Arithmetic) -> Tensor | None:
    """Bound a function of one value by its results at both ends, doubled to cover the few places where it turns."""
    source = of.args[0]
    if len(of.node.all_input_nodes) != 1 or not isinstance(source, Node):
        return None
    more = of.args[1:]
    kwargs = of.node.kwargs
    centre = of.values[source].double()
    off = of.off(source)
    above = of.call(centre + off, *more, **kwargs)
    below = of.call(centre - off, *more, **kwargs)
    above_by = (above - of.value).abs()
    below_by = (below - of.value).abs()
    farthest = torch.maximum(above_by, below_by)
    bound = 2 * farthest.nan_to_num(nan=torch.inf)
    return bound + of.floor(of.value)


def _softmax(of: Arithmetic) -> Tensor:
    worst = of.off(of.args[0])
    if worst.numel():
        worst = worst.amax(of.args[1], keepdim=True)
    bound: Tensor = of.value * torch.expm1(2 * worst)
    return bound + of.floor(of.value)


def _logit(of: Arithmetic) -> Tensor:
    """Bound the logarithm of the odds: where 1 - x is small, a rounding of 1 - eps or of x is large beside it."""
    source, *more = of.args
    eps: Any = more[0] if more else of.node.kwargs.get("eps")
    value = of.values[source].double()
    if eps is not None:
        value = value.clamp(eps, 1 - eps)
    slope = (value * (1 - value)).abs().reciprocal()
    error = of.off(source) + of.unit
    bound: Tensor = (slope * error).nan_to_num(nan=torch.inf)
    return bound + of.floor(of.value)


_RULES: tuple[tuple[frozenset[str], Callable[[Arithmetic], Any]], ...] = (
    (named("amin min max"), _extreme),
    (_MOVES, _moved),
    (_FILLED, _filled),
    (operators(ElementOrigin.CAST), _cast),
    (_NO_WORSE, _no_worse),
    (_SUMS, _summed),
    (named("upsample_bilinear2d"), _resized),
    (_PRODUCTS, _product),
    (_FUNCTIONS, _of_one),
    (named("logit"), _logit),
    (named("add sub"), _added),
    (named("mul"), _multiplied),
    (named("div"), _divided),
    (named("constant_pad_nd"), _padded),
    (named("_softmax"), _softmax),
    (named("_native_batch_norm_legit_no_training"), _normalised),
    (named("native_layer_norm"), _layer_normalised),
    (named("native_group_norm"), _group_normalised),
)
