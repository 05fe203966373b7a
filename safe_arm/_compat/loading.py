"""Load delegates of other backends in the runtime of the ExecuTorch wheel, and return its message on a failure."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator

from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.fx import GraphModule

#: The backends whose delegates this machine's runtime can load: they run on every CPU.
LOADABLE = frozenset(("XnnpackBackend",))


def delegates(graph_module: GraphModule) -> Iterator[tuple[str, LoweredBackendModule]]:
    """Yield the names and modules of the delegates of a graph, then those of its branches, as stock lowers them."""
    branches = []
    for node in graph_module.graph.find_nodes(op="get_attr"):
        module = getattr(graph_module, str(node.target), None)
        if isinstance(module, LoweredBackendModule):
            yield str(node.target), module
        elif isinstance(module, GraphModule):
            branches.append(module)
    for branch in branches:
        yield from delegates(branch)


def delegate_name(name: str, module: LoweredBackendModule) -> str:
    """Return a delegate's name in reports: an Arm delegate's tag, which the operators it was cut from still have.

    Another backend's tags may be the same, so its delegates have the names of their modules.

    Args:
        name: the name of its module.
        module: the delegate.
    """
    if module.backend_id in LOADABLE:
        return name
    for node in module.original_module.graph_module.graph.nodes:
        tag = node.meta.get("delegation_tag")
        if isinstance(tag, str):
            return tag
    return name


def why_it_does_not_load(module: LoweredBackendModule) -> str:
    """Return the runtime's message if it refuses to load a delegate; empty if it loads, or if there is no runtime."""
    try:
        from executorch.runtime import Runtime

        runtime = Runtime.get()
    except ImportError:
        return ""
    if not runtime.backend_registry.is_available(module.backend_id):
        return ""
    buffer = module.buffer()
    printed = io.StringIO()
    try:
        # The bindings send the output of C++ to stderr.
        with contextlib.redirect_stderr(printed):
            runtime.load_program(buffer).load_method("forward")
    except RuntimeError as error:
        status = re.search(r"\b\w+_status_\w+", printed.getvalue())
        return status[0] if status else str(error)
    return ""
