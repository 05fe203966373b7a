"""Observers that survive values they cannot take: the operators they watch stay float instead."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.observer import ObserverBase

from safe_arm._compat.annotations import unmark_quantized
from safe_arm.acceleration import histogram_search
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import (
    QUANTIZE,
    gives_float,
    is_dequantize,
    is_marked_quantized,
    op_name,
)
from safe_arm.quantizer.annotation.left_float import Ledger
from safe_arm.quantizer.calibration.calibration_watch import CalibrationWatch
from safe_arm.quantizer.calibration.narrow_values import NarrowValue, narrow_value
from safe_arm.quantizer.calibration.range_ends import keep_ends_of_ranges
from safe_arm.quantizer.calibration.short_factors import shorten_factors
from safe_arm.quantizer.calibration.small_steps import allow_small_steps
from safe_arm.quantizer.calibration.summed_sizes import summed_dims
from safe_arm.quantizer.calibration.texture_ranges import widen_textures
from safe_arm.quantizer.calibration.weighted_means import keep_weighted_means
from safe_arm.quantizer.calibration.whole_numbers import keep_whole_numbers
from safe_arm.quantizer.domains.extreme_domains import leave_masks_out
from safe_arm.quantizer.domains.filled_domains import leave_fills_out
from safe_arm.quantizer.domains.joined_ranges import JoinedValue, joined_values
from safe_arm.quantizer.domains.parted_domains import (
    JoinedEdge,
    PartedDomain,
    part_domains,
)
from safe_arm.quantizer.domains.positive_values import keep_positive
from safe_arm.quantizer.domains.saturated_domains import end_where_readers_saturate
from safe_arm.quantizer.domains.thresholds import round_thresholds
from safe_arm.quantizer.graphs.graph_edits import replace_node, static_sizes
from safe_arm.quantizer.graphs.own_names import own_name
from safe_arm.quantizer.graphs.stand_ins import (
    Observer,
    Observers,
    least_known,
    shown,
    value_of,
)
from safe_arm.quantizer.training.trained_domains import cover_each_value
from safe_arm.quantizer.training.trained_weights import follow_weights

#: Batches that the watch is shown of an input while a net is trained; to look at each costs a fifth of a small net.
_LOOKS_IN_TRAINING = 64
#: Maximum number of steps of a quantiser that are few for what it has to tell apart.
_MOST_STEPS = 1 << 16


def guard_observers(
    observers: Observers,
    ledger: Ledger,
    watch: CalibrationWatch | None = None,
) -> None:
    """Put a guarded observer in the place of every observer that torchao is about to insert; works in place.

    Args:
        observers: the observer of each annotated value and edge. One may watch several values that share a domain; each
            of these values gets a guard of its own.
        ledger: where an observer that fails notes which operators stay float.
        watch: is shown what reaches the inputs.
    """
    guarded: dict[tuple[int, Node], GuardedObserver] = {}
    looking: dict[Node, tuple[int, Node]] = {}
    joined = joined_values(observers)
    attempted(allow_small_steps, observers)
    attempted(keep_ends_of_ranges, observers)
    attempted(keep_whole_numbers, observers)
    attempted(keep_weighted_means, observers)
    attempted(part_domains, observers)
    attempted(leave_fills_out, observers)
    attempted(follow_weights, observers)
    attempted(cover_each_value, observers)
    attempted(leave_masks_out, observers)
    attempted(end_where_readers_saturate, observers)
    attempted(keep_positive, observers)
    attempted(round_thresholds, observers)
    attempted(shorten_factors, observers)
    attempted(widen_textures, observers)
    for place, observer in observers.items():
        if observer is None:
            continue
        value = value_of(place)
        key = (id(observer), value)
        if key not in guarded:
            guarded[key] = GuardedObserver(observer, ledger)
            if not isinstance(observer, PartedDomain):
                guarded[key].joined = joined.get(value)
            if watch is not None and not guarded[key].is_trained:
                guarded[key].narrow = narrow_value(value)
        observers[place] = guarded[key]
        guarded[key].watch = watch
        if value.op == "placeholder":
            guarded[key].input_name = str(value.target)
            if looking.setdefault(value, key) != key:
                # Each sample reaches all observers of an input, and is one.
                guarded[key].looks_left = 0
            if watch is not None:
                watch.expect(str(value.target), static_sizes(value))
                watch.expect_sums(str(value.target), summed_dims(value))
    for (_, value), guard in guarded.items():
        if isinstance(guard.observer, JoinedEdge):
            guard.source = guarded.get((id(guard.observer.own), value))


class GuardedObserver(ObserverBase):
    """Watches one value through a stock observer or fake-quantise module, and does not raise on what it is shown.

    The stock module forgets a value that it raised on, and goes on watching others of the same domain. All that is
    asked of the guard and that it does not have itself is the stock module's.
    """

    def __init__(self, observer: Observer, ledger: Ledger) -> None:
        super().__init__(observer.dtype, getattr(observer, "is_dynamic", False))
        self.observer = observer
        self.ledger = ledger
        self.watch: CalibrationWatch | None = None
        self.input_name = ""
        self.joined: JoinedValue | None = None
        self.narrow: NarrowValue | None = None
        self.was_shown = False
        #: The guard of the value that this one requantises.
        self.source: GuardedObserver | None = None
        self.failure = ""
        self.is_trained = hasattr(observer, "fake_quant_enabled")
        self.looks_left = _LOOKS_IN_TRAINING if self.is_trained else math.inf

    def __getattr__(self, name: str) -> Any:
        # torchao lets an observer that has this attribute convert itself.
        if name == "convert":
            if self.watch is not None:
                self.watch.take_all_branches()
            why = self._why_float()
            if why:
                return partial(leave_float, why=why, ledger=self.ledger)
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("observer"), name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the stock module makes of a value of any shape; the value itself where that fails."""
        if isinstance(x, FakeTensor) or torch.compiler.is_exporting():
            return shown(self.observer, x)
        self.was_shown = True
        if self.watch is not None and not self.watch.was_shown:
            self.watch.was_shown = True
            self.watch.was_loaded = _has_range(self.observer) is True
        if torch.compiler.is_compiling():
            # The compiled code notes that a sample came, and looks at no value.
            return shown(self.observer, x)
        self._look(x)
        before = _copies_of_buffers(self.observer)
        result = attempted(shown, self.observer, x)
        if isinstance(result, Caught):
            missing = _missing_in(x)
            self.failure = f"failed: {result.reason}"
        else:
            missing = _not_a_number(self.observer)
            if not missing:
                if self.is_trained:
                    # A batch of infinities is over; the user restores what it left in the parameters.
                    self.failure = ""
                elif self.watch is not None and self.input_name:
                    attempted(self.watch.pass_over_infinity, self.input_name)
                return result
        if missing:
            self.failure = f"failed: its values include {missing}"
            if self.watch is not None and self.input_name:
                attempted(self.watch.miss_number, self.input_name, missing)
        for module, buffers in before:
            module._buffers.update(buffers)
        return x

    def _look(self, x: torch.Tensor) -> None:
        """Show a value to what watches calibration; one that it cannot look into is for the observer to take."""
        if self.watch is not None and self.input_name and self.looks_left > 0:
            self.looks_left -= 1
            attempted(self.watch.show, self.input_name, x)
        if self.joined is not None:
            attempted(self.joined.show, x)
        if self.narrow is not None:
            attempted(self.narrow.show, x)

    def _why_float(self) -> str:
        """Return why the operators on either side stay float; empty if they do not."""
        if self.failure:
            return self.failure
        if self.source is not None:
            return self.source._why_float()
        if self._was_passed_over():
            return "saw no calibration sample: give one for each branch of a condition"
        return ""

    def _was_passed_over(self) -> bool:
        """Tell whether samples reached other observers of the net, and neither this one nor what it was loaded from."""
        if self.was_shown or self.watch is None or not self.watch.was_shown:
            return False
        return not _has_range(self.observer)

    def _look_for_calibration(self) -> None:
        """Warn if no sample reached any observer of the net, and this one was loaded from none that was."""
        if self.was_shown or self.watch is None or self.watch.was_shown:
            return
        if _has_range(self.observer) is False:
            self.watch.miss()

    def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return scales and zero points as the stock module does; the calibration is over then."""
        if self.watch is not None and self.input_name:
            self.watch.warn()
        self._look_for_calibration()
        with histogram_search.on_floats(self.observer):
            scale, zero_point = self.observer.calculate_qparams()
        low = getattr(self.observer, "quant_min", None)
        high = getattr(self.observer, "quant_max", None)
        if scale.numel() == 1 and low is not None and high is not None:
            self._judge(float(scale), int(high) - int(low))
        return scale, zero_point

    def _judge(self, step: float, steps: int) -> None:
        """Warn of what few steps cost; in 32 bits they are whole numbers or fine enough for a sum, and cost nothing."""
        if steps > _MOST_STEPS:
            return
        is_doubted = False
        if self.watch is not None and self.input_name:
            is_doubted = self.watch.judge(self.input_name, step, steps)
        if self.joined is not None:
            self.joined.judge(step, steps)
        if self.narrow is not None and not is_doubted:
            self.narrow.judge(step, steps)


def _copies_of_buffers(
    observer: torch.nn.Module,
) -> list[tuple[torch.nn.Module, dict[str, torch.Tensor | None]]]:
    """Return copies of the buffers of an observer, by the module that has them."""
    copies = []
    for module in observer.modules():
        buffers = {}
        for name, value in module._buffers.items():
            buffers[name] = value if value is None else value.clone()
        copies.append((module, buffers))
    return copies


def _has_range(observer: Observer) -> bool | None:
    """Tell whether an observer has a range; None if it keeps none."""
    # A domain that is parted from a join's has its range.
    low = least_known(getattr(observer, "shared", observer))
    return None if low is None else not bool(low.isposinf().all())


def _missing_in(x: torch.Tensor) -> str:
    """Return what a value holds besides numbers; empty if it holds nothing else."""
    if bool(x.isnan().any()):
        return "NaN"
    return "infinity" if bool(x.isinf().any()) else ""


def _not_a_number(observer: Observer) -> str:
    """Return what an observer was shown that no scale reaches; empty if it was shown nothing of the kind."""
    observer = getattr(observer, "activation_post_process", observer)
    for name, unseen in (("min_val", math.inf), ("max_val", -math.inf)):
        bound = getattr(observer, name, None)
        if not isinstance(bound, torch.Tensor):
            continue
        if bound.numel() == 1 and math.isfinite(bound):
            continue
        if bool(bound.isnan().any()):
            return "NaN"
        if bool((bound == -unseen).any()):
            return "infinity"
    return ""


def leave_float(
    model: GraphModule,
    node: Node,
    why: str,
    ledger: Ledger,
) -> None:
    """Take a failed observer out of a graph that torchao is converting, and leave the operators on either side float.

    Whole units stay float, their weights and biases too. Values that they share with quantised operators keep their
    quantisation: a float operator reads what the accelerator wrote.
    """
    value = node.all_input_nodes[0]
    users = list(node.users)
    replace_node(node, value)
    members: dict[Node, None] = {}
    for end in (value, *users):
        members.update(dict.fromkeys(_unit(end)))
    reason = f"the observer of {own_name(value)} {why}"
    for member in members:
        unmark_quantized(member)
        ledger.add("observe", reason, member)
        for source in member.all_input_nodes:
            _read_constant_itself(member, source)
    ledger.warn()


def _unit(node: Node) -> list[Node]:
    """Return a quantised operator and those fused with it: no observer stands between, and each has one consumer."""
    unit: list[Node] = []
    frontier = [node]
    while frontier:
        member = frontier.pop()
        if member in unit or not is_marked_quantized(member):
            continue
        unit.append(member)
        frontier += filter(_is_read_once_as_float, member.all_input_nodes)
        if _is_read_once_as_float(member):
            frontier += member.users
    return unit


def _is_read_once_as_float(node: Node) -> bool:
    return gives_float(node) and len(node.users) == 1


def _read_constant_itself(member: Node, source: Node) -> None:
    """Let a float operator read its weight or bias instead of the observed or quantised copy of it."""
    origin = source
    while origin.args:
        quantises = op_name(origin) == QUANTIZE or is_dequantize(origin)
        if origin.op != "call_module" and not quantises:
            break
        origin = origin.args[0]  # type: ignore[assignment]
    if origin is not source and origin.op == "get_attr":
        member.replace_input_with(source, origin)
