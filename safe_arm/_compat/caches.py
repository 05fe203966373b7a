"""Clear caches of torch, torchao and ExecuTorch that never release the programs of earlier exports.

Each caches results by the module or node they were computed for, without bound: a process that exports many models
keeps every one of them. Clearing a cache changes no result; it is only computed again.
"""

from __future__ import annotations

import linecache
from itertools import islice, takewhile

from executorch.exir.backend.utils import is_same_node
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch._subclasses.fake_tensor import FakeTensorMode, _DispatchCacheBypassEntry
from torch.ao.quantization.fx.utils import assert_and_get_unique_device
from torch.fx import graph_module
from torch.fx.experimental import proxy_tensor
from torchao.utils import _assert_and_get_unique_device

#: Functions that cache by module or by pair of nodes.
BY_PROGRAM = (is_same_node, assert_and_get_unique_device, _assert_and_get_unique_device)
#: Number of sources of compiled graphs that are kept for tracebacks: an export makes some 150.
SOURCES = 1000
#: The last key of torch's cache of fake values that was looked at; new ones are behind it.
_last_key: object = None


def forget_programs() -> None:
    """Clear upstream's caches of earlier programs: known issue Q3."""
    for cached in BY_PROGRAM:
        cached.cache_clear()
    getattr(proxy_tensor, "_FAKE_TENSOR_ID_TO_PROXY_MAP_FOR_EXPORT", {}).clear()
    global _last_key
    cache = FakeTensorMode.cache
    new = takewhile(lambda item: item[0] is not _last_key, reversed(cache.items()))
    for key, entry in list(new):
        # Torch notes of each scale of a quantiser that it caches nothing for it.
        is_note = isinstance(entry, _DispatchCacheBypassEntry)
        if is_note or any(isinstance(part, LoweredBackendModule) for part in key.key):
            cache.pop(key, None)
    _last_key = next(reversed(cache), None)
    sources = graph_module._loader.eval_cache
    for name in list(islice(sources, max(len(sources) - SOURCES, 0))):
        sources.pop(name, None)
        linecache.cache.pop(name, None)
