"""The patches whose wrappers stand in given modules."""

from safe_arm import seams


def patches_of(*modules):
    """Return those of ``seams.patches`` that the modules wrap with."""
    names = {module.__name__ for module in modules}
    return tuple(patch for patch in seams.patches() if patch.wrap.__module__ in names)
