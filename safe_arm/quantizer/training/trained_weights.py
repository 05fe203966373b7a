"""The range of weights that are trained is that of the weights at hand.

A fake-quantise module remembers the largest weights that it was ever shown, or averages over time. Weights that shrink,
as by weight decay or by a batch norm whose variance grows from 1, are rounded in ever fewer codes; those that grow are
clipped. But weights are known as they are, whenever they are read.
"""

from __future__ import annotations

from torch import Tensor
from torchao.quantization.pt2e.fake_quantize import FakeQuantize
from torchao.quantization.pt2e.quantizer import EdgeOrNode

from safe_arm.core.operators import VIEWS
from safe_arm.quantizer.graphs.graph_edits import depends_on_input, moved_from
from safe_arm.quantizer.graphs.stand_ins import (
    Observers,
    StandIn,
    shown_alone,
    value_of,
)


class CurrentRange(StandIn):
    """Fake-quantises weights in the range that they have."""

    def forward(self, x: Tensor) -> Tensor:
        """Return weights of any shape rounded."""
        if bool(self.observer.observer_enabled):
            return shown_alone(self.observer, x)
        rounded: Tensor = self.observer(x)
        return rounded


def follow_weights(observers: Observers) -> None:
    """Let the range of each tensor that is computed of parameters alone follow it while they are trained.

    Args:
        observers: the observer or fake-quantise module of each annotated place; changed in place. Observers, and
            modules that a value shares which depends on an input, are left alone.
    """
    places: dict[int, list[EdgeOrNode]] = {}
    for place, observer in observers.items():
        if isinstance(observer, FakeQuantize) and _has_bounds(observer):
            places.setdefault(id(observer), []).append(place)
    for shared in places.values():
        sources = {moved_from(value_of(place), VIEWS) for place in shared}
        if len(sources) == 1 and not depends_on_input(*sources):
            module = CurrentRange(observers[shared[0]])
            for place in shared:
                observers[place] = module


def _has_bounds(observer: FakeQuantize) -> bool:
    known = observer.activation_post_process
    bounds = (getattr(known, "min_val", None), getattr(known, "max_val", None))
    return all(isinstance(bound, Tensor) for bound in bounds)
