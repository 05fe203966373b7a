import gc
import weakref

import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import PROFILES, lower, quantize, tosa
from small import Lambda, image
from torch._subclasses.fake_tensor import FakeTensorMode, _DispatchCacheBypassEntry

from safe_arm import SafeArmPartitioner
from safe_arm._compat.caches import SOURCES, forget_programs

NET = Lambda(lambda m, x: torch.relu(m.conv(x)))


def held_after(partitioner_class):
    """How many of three quantised modules and programs are still in memory when nobody has a name for them."""
    alive = []
    for _ in range(3):
        graph = quantize(NET, image(), tosa(PROFILES[0]))
        manager = lower(graph, image(), partitioner_class(tosa(PROFILES[0])))
        alive += [weakref.ref(graph), weakref.ref(manager.exported_program())]
        del graph, manager
    gc.collect()
    return sum(each() is not None for each in alive)


def test_stock_keeps_every_program_and_ours_none_but_the_last():
    forget_programs()
    assert held_after(TOSAPartitioner) >= 3
    forget_programs()
    assert held_after(SafeArmPartitioner) <= 2


def test_what_torch_notes_of_each_scale_is_forgotten():
    graph = quantize(NET, image(), tosa(PROFILES[0]))
    lower(graph, image(), TOSAPartitioner(tosa(PROFILES[0])))
    noted = [entry for entry in FakeTensorMode.cache.values() if isinstance(entry, _DispatchCacheBypassEntry)]
    forget_programs()
    kept = [entry for entry in FakeTensorMode.cache.values() if isinstance(entry, _DispatchCacheBypassEntry)]
    assert len(noted) > 4
    assert kept == []


def test_twice_is_once_and_what_runs_goes_on():
    graph = quantize(NET, image(), tosa(PROFILES[0]))
    before = graph(*image())
    forget_programs()
    forget_programs()
    assert torch.equal(graph(*image()), before)


def test_sources_of_compiled_graphs_are_bounded_and_the_last_stay():
    sources = torch.fx.graph_module._loader.eval_cache
    graph = torch.fx.symbolic_trace(torch.nn.ReLU())
    for _ in range(SOURCES):
        graph.recompile()
    last = graph.forward.__code__.co_filename
    forget_programs()
    assert len(sources) == SOURCES
    assert last in sources
    assert torch.equal(graph(torch.tensor([-1.0, 2.0])), torch.tensor([0.0, 2.0]))
