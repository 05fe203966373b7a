"""The script of a repro imports what it uses, makes inputs of the right kind and loads its weights."""

import ast

import pytest
import torch
import torch.nn as nn
from dynamic import guards
from executorch.exir import to_edge
from lowering import EDGE, edge_program
from small import Built, image

from safe_arm.core.island import call_functions


def inputs_of(text):
    """The example inputs a script makes and its dynamic shapes, None for none."""
    main = next(node for node in ast.parse(text).body if getattr(node, "name", "") == "main")
    examples = next(node.value for node in main.body if isinstance(node, ast.Assign))
    dynamic = [k.value for k in ast.walk(main) if isinstance(k, ast.keyword) and k.arg == "dynamic_shapes"]
    values = [eval(ast.unparse(each), {"torch": torch}) for each in (examples, *dynamic)]
    return values if dynamic else [*values, None]


def test_inputs_have_shape_dtype_and_strides(written):
    x = image()[0].to(memory_format=torch.channels_last)
    given = x, torch.ones(8, 8).bool(), torch.zeros(8, dtype=torch.int8)
    mixed = Built(lambda m, x, mask, codes: torch.where(mask, x, codes.float()))
    examples, dynamic = inputs_of(written(edge_program(mixed, given))[0])
    assert dynamic is None
    kinds = {(t.shape, t.dtype, t.stride()) for t in examples}
    assert kinds == {(t.shape, t.dtype, t.stride()) for t in given}


def test_dynamic_sizes_stay_dynamic(written):
    sizes = ({0: torch.export.Dim("batch", min=2, max=8)},)
    exported = torch.export.export(nn.Conv2d(4, 4, 3), (torch.rand(3, 4, 8, 8),), dynamic_shapes=sizes)
    examples, dynamic = inputs_of(written(to_edge(exported, compile_config=EDGE).exported_program())[0])
    assert examples[0].shape == (3, 4, 8, 8)
    assert dynamic == ({0: torch.export.Dim.AUTO},)


def test_a_script_adds_no_guard_to_the_program(written):
    sizes = (dict.fromkeys(range(4), torch.export.Dim.AUTO),)
    net, inputs = nn.Upsample(scale_factor=2), (torch.rand(3, 4, 6, 8).to(memory_format=torch.channels_last),)
    program = to_edge(torch.export.export(net, inputs, dynamic_shapes=sizes), compile_config=EDGE).exported_program()
    before = guards(program)
    written(program)
    assert guards(program) == before


def test_a_part_takes_what_the_rest_would_give_it(written):
    program = edge_program(nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)), image())
    nodes = list(call_functions(program.graph_module))
    text, _ = written(program, nodes[1:])
    examples, _ = inputs_of(text)
    assert [tuple(t.shape) for t in examples] == [(1, 4, 6, 6)]
    assert "def forward(self, convolution):" in text


@pytest.mark.parametrize("beside", [False, True])
def test_weights_are_the_real_ones_and_it_imports_what_it_uses_and_nothing_else(written, beside, tmp_path):
    program = edge_program(nn.Conv2d(4, 4, 3), image())
    text, _ = written(program, expected="E", beside=beside)
    path = tmp_path / "conv.py"
    if beside:
        torch.save(dict(program.state_dict), path.with_suffix(".pt"))
    scope = {"__name__": "script", "__file__": str(path)}
    exec(text, scope)
    held = dict(scope["Unit"]().named_parameters())
    assert set(held) == {"weight", "bias"}
    assert all(torch.equal(held[name], program.state_dict[name]) for name in held)
    tree = ast.parse(text)
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    imported = {(alias.asname or alias.name).split(".")[0] for node in imports for alias in node.names}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert imported == imported & used
    assert "safe_arm" not in text
