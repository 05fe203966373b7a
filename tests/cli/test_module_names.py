"""What ``--keep-float`` names is looked up in the program, before torch is loaded."""

import re
import zipfile

import pytest

from safe_arm.cli.module_names import modules_of, paths_of
from safe_arm.core.errors import UsageError

MODULES = {
    "": "nets.Net",
    "blocks.0": "nets.Block",
    "blocks.0.conv": "torch.nn.modules.conv.Conv2d",
    "blocks.1": "nets.Block",
    "blocks.1.conv": "torch.nn.modules.conv.Conv2d",
    "head": "torch.nn.modules.linear.Linear",
}


def test_the_modules_of_a_saved_program(conv_relu_cat):
    kinds = {path: kind.rpartition(".")[2] for path, kind in modules_of(conv_relu_cat[0]).items()}
    assert kinds == {"": "ConvReluCat", "first": "Conv2d", "last": "Conv2d"}


@pytest.mark.parametrize("stack", ["broken", "", ";;", "a,b", r"\\ud800,x,y"])
def test_a_damaged_entry_is_left_to_torch(conv_relu_cat, tmp_path, stack):
    with zipfile.ZipFile(conv_relu_cat[0]) as old, zipfile.ZipFile(tmp_path / "net.pt2", "w") as new:
        for name in old.namelist():
            text = old.read(name)
            if name.endswith("models/model.json"):
                text = re.sub(rb'"nn_module_stack": "[^"]*"', f'"nn_module_stack": "{stack}"'.encode(), text)
            new.writestr(name, text)
    assert "first" not in modules_of(tmp_path / "net.pt2")


@pytest.mark.parametrize(
    ("names", "paths"),
    [
        (["blocks.0.conv"], ["blocks.0.conv"]),
        (["blocks.1", "head"], ["blocks.1", "head"]),
        (["Conv2d"], ["blocks.0.conv", "blocks.1.conv"]),
        (["torch.nn.modules.conv.Conv2d"], ["blocks.0.conv", "blocks.1.conv"]),
        (["Block", "blocks.0"], ["blocks.0", "blocks.1"]),
        (["Net"], [""]),
    ],
    ids=["path", "two paths", "type", "type with packages", "both, once", "all"],
)
def test_names(names, paths):
    assert list(paths_of(names, MODULES)) == paths


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "blocks.0.cnv",
            "--keep-float 'blocks.0.cnv' is no module or module type of the model; similar: blocks.0.conv",
        ),
        ("conv2d", "similar: Conv2d"),
        ("zzz", "it has modules blocks.0, blocks.0.conv, blocks.1, blocks.1.conv, head and types Net, Block, Conv2d"),
        ("", "--keep-float '' is no module or module type"),
    ],
    ids=["path", "case", "like none", "empty"],
)
def test_an_unknown_name_lists_the_near_ones(name, says):
    with pytest.raises(UsageError) as raised:
        paths_of([name], MODULES)
    assert says in str(raised.value)


def test_a_long_list_is_cut():
    with pytest.raises(UsageError, match=r"layer11 and 88 more and types Layer"):
        paths_of(["zzz"], {f"layer{index}": "nets.Layer" for index in range(100)})
