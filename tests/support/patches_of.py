"""The patches whose wrappers stand in given modules."""

from contextlib import contextmanager

from safe_arm import seams
from safe_arm._compat.patches import Patches


def patches_of(*modules):
    """Return those of ``seams.patches`` that the modules wrap with."""
    names = {module.__name__ for module in modules}
    return tuple(patch for patch in seams.patches() if patch.wrap.__module__ in names)


@contextmanager
def patched(*modules):
    """Install them while the block runs."""
    patches = Patches()
    patches.install(patches_of(*modules))
    try:
        yield
    finally:
        patches.uninstall()
