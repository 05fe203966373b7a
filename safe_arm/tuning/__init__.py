"""A measured search for a quantisation that is good enough; recipes, and ``apply``, which puts one into a quantiser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safe_arm.tuning.applying import apply

__all__ = ["apply"]


def __getattr__(name: str) -> Any:
    """Import ``apply`` when it is asked for: a recipe is read without torch."""
    if name not in __all__:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    from safe_arm._compat.installation import executorch_imported

    with executorch_imported():
        from safe_arm.tuning import applying
    return getattr(applying, name)
