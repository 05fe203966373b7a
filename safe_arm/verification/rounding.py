"""How far a device's floats may be from the same in double: a bound for each element, known before anything is run.

A sum of n products in float32, in whatever order, is within (n + few) * u of what its products amount to, u = 2**-24
(Higham, Accuracy and Stability of Numerical Algorithms, 3.1); the few are what passes fold into a weight. What an input
may be off already is multiplied as the input is. So the bound of a sum is that same sum, of absolute values and errors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.utils._pytree import tree_leaves, tree_map

from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import (
    DEQUANTIZE,
    PASS_THROUGH,
    QUANTIZE,
    is_marked_quantized,
    op_name,
)

#: How many roundings passes may add to a product: batch norms and scalars are folded into weights.
_FOLDED = 8
#: What a function may be off, in roundings of its largest value: passes compute some by polynomials, or in steps.
_FUNCTION = 168
#: That of float32; also what an output may be off before the operators are looked at one by one.
FLOAT = _FUNCTION * 2.0**-24


def _ops(names: str) -> frozenset[str]:
    return frozenset(f"aten::{name}" for name in names.split())


#: These move values or choose among them: run on errors, they give the error.
_MOVES = PASS_THROUGH | _ops(
    "slice_copy select_copy split_copy split_with_sizes_copy unbind_copy index_select index gather cat stack flip "
    "repeat relu abs neg amax maximum max_pool2d max_pool2d_with_indices upsample_nearest2d"
)
#: The error of their worse input.
_NO_WORSE = _ops("clamp hardtanh relu6 minimum where")
_SUMS = _ops("sum mean avg_pool2d _adaptive_avg_pool2d cumsum")
_PRODUCTS = _ops("convolution linear mm bmm addmm")
#: Functions of one value that are monotone, but for a few places.
_FUNCTIONS = _ops(
    "exp sigmoid tanh gelu silu hardswish hardsigmoid erf elu log sqrt rsqrt reciprocal sin cos log_sigmoid softplus "
    "pow leaky_relu expm1 log1p atan celu selu"
)
#: What passes make of some functions is an approximation: how far off it may be, relative to the largest value.
_APPROXIMATE = {
    # Four terms of the series below 0.35; 0.35**5 / 120 of -0.295.
    **dict.fromkeys(_ops("expm1 elu celu selu"), 1.5e-4),
    # A rational function, at most 1.3e-4 off at 1 (decompose_atan_pass.py).
    "aten::atan": 2e-4,
}


@dataclass(frozen=True)
class Arithmetic:
    """One operator on real floats, evaluated in double.

    Attributes:
        node: the operator.
        value: what it evaluated to; a tuple if it has several results.
        values: what its inputs evaluated to.
        errors: what each element of those may be off, where that is not 0.
        call: the operator, in double.
    """

    node: Node
    value: Any
    values: Mapping[Node, Any]
    errors: Mapping[Node, Any]
    call: Callable[..., Any]

    def error(self) -> Any:
        """Return what each element of the value may be off, in its structure; None if it is not off, or no float."""
        node, name = self.node, op_name(self.node)
        if node.target is operator.getitem:
            source, index = node.args
            return self.errors[source][index] if self.known else None  # type: ignore[index]
        exact = not self.known and (name in _MOVES or is_marked_quantized(node))
        if (
            exact
            or name in (QUANTIZE, *DEQUANTIZE)
            or not any(
                isinstance(v, Tensor) and v.is_floating_point()
                for v in tree_leaves(self.value)
            )
        ):
            return None
        rule = next((rule for names, rule in _RULES if name in names), None)
        bound = None if rule is None else attempted(rule, self)
        # A rule that does not fit the operator's arguments bounds nothing.
        return (
            tree_map(self._of_function, self.value)
            if bound is None or isinstance(bound, Caught)
            else bound
        )

    @property
    def known(self) -> bool:
        """Whether an input may be off already."""
        return any(n in self.errors for n in self.node.all_input_nodes)

    @property
    def unit(self) -> float:
        """How much one rounding is, relative."""
        values = (
            v.dtype
            for v in tree_leaves(self.node.meta.get("val"))
            if isinstance(v, Tensor)
        )
        return max(
            torch.finfo(dtype if dtype.is_floating_point else torch.float32).eps / 2
            for dtype in values
        )

    def off(self, x: Any) -> Any:
        """Return what an argument may be off; numbers are exact, and what is no float stays as it is."""
        given = self.values[x] if isinstance(x, Node) else x
        if not isinstance(given, Tensor):
            return 0.0 if isinstance(given, float) else given
        if not given.is_floating_point():
            return given
        return (
            self.errors[x]
            if x in self.errors
            else torch.zeros_like(given, dtype=torch.float64)
        )

    def size(self, x: Any) -> Any:
        """Return the absolute value of an argument, in double."""
        given = self.values[x] if isinstance(x, Node) else x
        return (
            given.double().abs()
            if isinstance(given, Tensor) and given.is_floating_point()
            else given
        )

    def summand(self, x: Any, terms: int) -> Any:
        """Return what an argument adds to the error of a sum of so many terms."""
        given = self.values[x] if isinstance(x, Node) else x
        if isinstance(given, Tensor) and given.is_floating_point():
            return self.size(x) * ((terms + _FOLDED) * self.unit) + self.off(x)
        return given

    def run(self, change: Callable[[Node], Any]) -> Any:
        """Run the operator on changed inputs; what it gives is an error, without a sign."""
        args, kwargs = torch.fx.node.map_arg((self.node.args, self.node.kwargs), change)
        return tree_map(
            lambda v: v.abs() if isinstance(v, Tensor) else v,
            self.call(*args, **kwargs),
        )

    def _of_function(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        return torch.full_like(
            value, torch.inf if self.known else self.floor(value), dtype=torch.float64
        )

    def floor(self, value: Tensor) -> float:
        """Return what a function of such values may be off on exact inputs.

        What passes compute in between may be larger than the value: 1 plus an error function, next to nothing.
        """
        relative = max(_FUNCTION * self.unit, _APPROXIMATE.get(op_name(self.node), 0.0))
        given = [
            v
            for n in self.node.all_input_nodes
            if isinstance(v := self.values[n], Tensor) and v.is_floating_point()
        ]
        return max(
            relative * largest(value),
            _FOLDED * self.unit * max(1.0, *map(largest, given), 0.0),
        )


def largest(value: Tensor) -> float:
    """Return the largest finite magnitude of a tensor; 0 if there is none."""
    return (
        float(value.double().abs().nan_to_num(0.0, 0.0, 0.0).max())
        if value.numel()
        else 0.0
    )


def _moved(of: Arithmetic) -> Any:
    return of.run(of.off)


def _no_worse(of: Arithmetic) -> Tensor:
    floats = (of.off(n) for n in of.node.all_input_nodes)
    errors = [e for e in floats if isinstance(e, Tensor) and e.is_floating_point()]
    return torch.stack(
        torch.broadcast_tensors(
            *errors, torch.zeros_like(of.value, dtype=torch.float64)
        )
    ).amax(0)


def _extreme(of: Arithmetic) -> Any:
    """Bound the least or largest along dims by the worst error there; its index is right or wrong."""
    worst = of.off(of.node.args[0]).amax(*of.node.args[1:], **of.node.kwargs)
    return (
        worst
        if isinstance(of.value, Tensor)
        else (worst, torch.zeros_like(of.value[1]))
    )


def _padded(of: Arithmetic) -> Tensor:
    return of.call(of.off(of.node.args[0]), of.node.args[1])  # type: ignore[no-any-return]


def _summed(of: Arithmetic) -> Any:
    (source,) = of.node.all_input_nodes
    given = of.values[source]
    terms = (
        max(given.shape, default=1)
        if "cumsum" in op_name(of.node)
        else given.numel() // max(1, of.value.numel())
    )
    return of.run(lambda n: of.summand(n, terms))


def _resized(of: Arithmetic) -> Tensor:
    """Bound a sum of four neighbours; what is rounded of their places moves it from one to the other."""
    (source,) = of.node.all_input_nodes
    given = of.values[source]
    of_places = max(given.shape[-2:]) * of.unit * largest(given)
    return of.run(lambda n: of.summand(n, 4)) + of_places  # type: ignore[no-any-return]


def _added(of: Arithmetic) -> Tensor:
    a, b = (
        x if isinstance(x, Node) else torch.tensor(x, dtype=torch.float64)
        for x in of.node.args[:2]
    )
    part = (1 + _FOLDED) * of.unit
    terms = [of.size(x).abs() * part + of.off(x) * isinstance(x, Node) for x in (a, b)]
    multiple: Any = of.node.kwargs.get("alpha", 1)
    return (terms[0] + terms[1] * abs(multiple)).expand(of.value.shape)


def _multiplied(of: Arithmetic) -> Tensor:
    (a, off_a), (b, off_b) = (
        (of.size(x), of.off(x) * isinstance(x, Node)) for x in of.node.args[:2]
    )
    return (
        (abs(a) * ((1 + _FOLDED) * of.unit) + off_a) * (abs(b) + off_b) + abs(a) * off_b
    ).expand(of.value.shape)  # type: ignore


def _product(of: Arithmetic) -> Tensor:
    """Bound a convolution or a matrix product: errors of the left times the right, and the other way round."""
    args: list[Any] = list(of.node.args)
    left = 1 if op_name(of.node) == "aten::addmm" else 0
    weight = args[left + 1]
    shape = of.values[weight].shape
    transposed = op_name(of.node) == "aten::convolution" and args[6]
    if op_name(of.node) in ("aten::convolution", "aten::linear"):
        terms = (
            shape.numel() // shape[0] if not transposed else shape.numel() // shape[1]
        )
    else:
        terms = shape[-2]
    bound = of.run(lambda n: of.size(n) if n is weight else of.summand(n, terms))
    if weight in of.errors:
        of_weight = {
            args[left]: of.size(args[left]) + of.off(args[left]),
            weight: of.off(weight),
        }
        bound = bound + of.run(lambda n: of_weight.get(n, 0 * of.size(n)))
    return bound  # type: ignore[no-any-return]


def _normalised(of: Arithmetic) -> tuple[Tensor, ...]:
    """Bound a batch norm whose statistics are known: an affine map of each channel."""
    x, weight, bias, mean, variance, _, epsilon = list[Any](of.node.args)
    channels = (1, -1) + (1,) * (of.value[0].dim() - 2)
    factor = (of.values[variance].double() + epsilon).rsqrt()
    factor = factor * (of.size(weight) if isinstance(weight, Node) else 1)
    constant = of.size(mean) * factor + (of.size(bias) if isinstance(bias, Node) else 0)
    part = (2 + _FOLDED) * of.unit
    bound = (of.size(x) * part + of.off(x)) * factor.view(channels) + (
        constant * part
    ).view(channels)
    return (bound, *map(torch.zeros_like, of.value[1:]))


def _of_one(of: Arithmetic) -> Tensor | None:
    """Bound a function of one value by what it gives at both ends, doubled for the few places where it turns."""
    if len(of.node.all_input_nodes) != 1 or not isinstance(of.node.args[0], Node):
        return None
    centre, off = of.values[of.node.args[0]].double(), of.off(of.node.args[0])
    more, *kwargs = of.node.args[1:], of.node.kwargs
    moved = [
        (of.call(centre + sign * off, *more, **kwargs[0]) - of.value).abs()
        for sign in (1, -1)
    ]
    return 2 * torch.maximum(*moved).nan_to_num(nan=torch.inf) + of.floor(of.value)


def _softmax(of: Arithmetic) -> Tensor:
    worst = of.off(of.node.args[0])
    worst = worst.amax(of.node.args[1], keepdim=True) if worst.numel() else worst
    return of.value * torch.expm1(2 * worst) + of.floor(of.value)  # type: ignore[no-any-return]


def _logit(of: Arithmetic) -> Tensor:
    """Bound the logarithm of the odds: a rounding of 1 - eps or of the argument is much where 1 less that is little."""
    source = of.node.args[0]
    eps = of.node.args[1] if len(of.node.args) > 1 else of.node.kwargs.get("eps")
    given = of.values[source].double()  # type: ignore[index]
    held = given if eps is None else given.clamp(eps, 1 - eps)  # type: ignore[operator, call-overload]
    slope = (held * (1 - held)).abs().reciprocal()
    return (slope * (of.off(source) + of.unit)).nan_to_num(nan=torch.inf) + of.floor(
        of.value
    )


_RULES: tuple[tuple[frozenset[str], Callable[[Arithmetic], Any]], ...] = (
    (_MOVES, _moved),
    (_NO_WORSE, _no_worse),
    (_ops("amin min max"), _extreme),
    (_SUMS, _summed),
    (_ops("upsample_bilinear2d"), _resized),
    (_PRODUCTS, _product),
    (_FUNCTIONS, _of_one),
    (_ops("logit"), _logit),
    (_ops("add sub"), _added),
    (_ops("mul"), _multiplied),
    (_ops("constant_pad_nd"), _padded),
    (_ops("_softmax"), _softmax),
    (_ops("_native_batch_norm_legit_no_training"), _normalised),
)
