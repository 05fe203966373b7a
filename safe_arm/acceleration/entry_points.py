"""Where ExecuTorch's part of a lowering begins, made leaner for programs that go to our partitioner alone.

``to_edge_transform_and_lower`` makes a dozen traces before a partitioner sees the program, ``to_backend`` cuts it into
delegates and puts them back. What comes out stays as it is, node by node; what changes nothing on the way becomes cheap
or is left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from executorch.exir.program import _program

from safe_arm.acceleration import decompositions, fake_values, late_code, provenance, signatures


def install(
    ours: Callable[[Any], bool], marked: Callable[[Any], bool], cut: Callable[[Any], Any]
) -> Callable[[], None]:
    """Let ``to_edge_transform_and_lower`` and ``to_backend`` ask whether a program is ours.

    Args:
        ours: whether a partitioner is one of ours, and may be made leaner.
        marked: whether its delegates are ours.
        cut: given a program out of which they were cut, returns the program to go on with.

    Returns:
        What puts the stock functions back.
    """
    generate = _program._gen_edge_manager_for_partitioners
    to_backend = _program.EdgeProgramManager.to_backend

    @functools.wraps(generate)
    def lean_generate(partitioner: Any, *args: Any, **kwargs: Any) -> Any:
        if not _all(ours, (each for of_method in (partitioner or {}).values() for each in of_method)):
            return generate(partitioner, *args, **kwargs)
        with (
            decompositions.merged(),
            fake_values.remembered(),
            late_code.late(),
            provenance.shared(),
            signatures.cached(),
        ):
            return generate(partitioner, *args, **kwargs)

    @functools.wraps(to_backend)
    def lean_to_backend(self: Any, partitioner: Any) -> Any:
        each = partitioner if isinstance(partitioner, dict) else dict.fromkeys(self._edge_programs, partitioner)
        if _all(ours, each.values()):
            with fake_values.remembered(), late_code.late(), signatures.cached():
                manager = to_backend(self, partitioner)
        else:
            manager = to_backend(self, partitioner)
        for method in filter(lambda method: marked(each[method]), each):
            manager._edge_programs[method] = cut(manager._edge_programs[method])
        return manager

    _program._gen_edge_manager_for_partitioners = lean_generate
    _program.EdgeProgramManager.to_backend = lean_to_backend

    def uninstall() -> None:
        _program._gen_edge_manager_for_partitioners = generate
        _program.EdgeProgramManager.to_backend = to_backend

    return uninstall


def _all(ours: Callable[[Any], bool], partitioners: Iterable[Any]) -> bool:
    found = list(partitioners)
    return bool(found) and all(map(ours, found))
