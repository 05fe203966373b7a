"""The script of a repro imports what it uses, makes inputs of the right kind and loads its weights."""

import ast

import pytest
import torch
import torch.nn as nn
from executorch.exir import to_edge
from lowering import EDGE, edge_program, spec_list, tosa
from small import image

from safe_arm._compat.compile_specs import spec_source
from safe_arm.core.island import call_functions
from safe_arm.repro.script import TAKEN, script
from safe_arm.repro.source_code import source_of
from safe_arm.repro.writer import Origin, _constants

SPEC = spec_source("TOSABackend", spec_list(tosa("TOSA-1.0+FP")))


def written(program, *, beside=False, nodes=None):
    nodes = nodes or list(call_functions(program.graph_module))
    return script(
        source_of(nodes, _constants(Origin(program, program.state_dict, None)), TAKEN), SPEC, "E", beside=beside
    )


def inputs_of(text):
    """The example inputs a script makes and its dynamic shapes, None for none."""
    main = next(node for node in ast.parse(text).body if getattr(node, "name", "") == "main")
    examples = next(node.value for node in main.body if isinstance(node, ast.Assign))
    dynamic = [k.value for k in ast.walk(main) if isinstance(k, ast.keyword) and k.arg == "dynamic_shapes"]
    return eval(ast.unparse(examples), {"torch": torch}), eval(
        ast.unparse(dynamic[0]), {"torch": torch}
    ) if dynamic else None


class Mixed(nn.Module):
    def forward(self, x, mask, codes):
        return torch.where(mask, x, codes.float())


def test_inputs_have_shape_dtype_and_strides():
    given = (
        image()[0].to(memory_format=torch.channels_last),
        torch.ones(8, 8).bool(),
        torch.zeros(8, dtype=torch.int8),
    )
    examples, dynamic = inputs_of(written(edge_program(Mixed(), given)))
    assert dynamic is None
    kinds = {(t.shape, t.dtype, t.stride()) for t in examples}
    assert kinds == {(t.shape, t.dtype, t.stride()) for t in given}


def test_dynamic_sizes_stay_dynamic():
    sizes = ({0: torch.export.Dim("batch", min=2, max=8)},)
    exported = torch.export.export(nn.Conv2d(4, 4, 3), (torch.rand(3, 4, 8, 8),), dynamic_shapes=sizes)
    text = written(to_edge(exported, compile_config=EDGE).exported_program())
    examples, dynamic = inputs_of(text)
    assert examples[0].shape == (3, 4, 8, 8)
    assert dynamic == ({0: torch.export.Dim.AUTO},)


def test_a_script_adds_no_guard_to_the_program():
    sizes = (dict.fromkeys(range(4), torch.export.Dim.AUTO),)
    net, inputs = nn.Upsample(scale_factor=2), (torch.rand(3, 4, 6, 8).to(memory_format=torch.channels_last),)
    program = to_edge(torch.export.export(net, inputs, dynamic_shapes=sizes), compile_config=EDGE).exported_program()
    environment = program.graph.find_nodes(op="placeholder")[0].meta["val"].fake_mode.shape_env
    before = [str(guard.expr) for guard in environment.guards]
    written(program)
    assert [str(guard.expr) for guard in environment.guards] == before


def test_a_part_takes_what_the_rest_would_give_it():
    program = edge_program(nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)), image())
    nodes = list(call_functions(program.graph_module))
    text = written(program, nodes=nodes[1:])
    examples, _ = inputs_of(text)
    assert [tuple(t.shape) for t in examples] == [(1, 4, 6, 6)]
    assert "def forward(self, convolution):" in text


@pytest.mark.parametrize("beside", [False, True])
def test_weights_are_the_real_ones(beside, tmp_path, monkeypatch):
    program = edge_program(nn.Conv2d(4, 4, 3), image())
    text = written(program, beside=beside)
    path = tmp_path / "conv.py"
    if beside:
        torch.save(dict(program.state_dict), path.with_suffix(".pt"))
    scope = {"__name__": "script", "__file__": str(path)}
    exec(text, scope)
    module = scope["Unit"]()
    held = dict(module.named_parameters())
    assert set(held) == {"weight", "bias"}
    assert all(torch.equal(held[name], program.state_dict[name]) for name in held)


@pytest.mark.parametrize("beside", [False, True])
def test_it_imports_what_it_uses_and_nothing_else(beside):
    text = written(edge_program(nn.Conv2d(4, 4, 3), image()), beside=beside)
    tree = ast.parse(text)
    imported = {
        (alias.asname or alias.name).split(".")[0]
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert imported == imported & used
    assert "safe_arm" not in text
