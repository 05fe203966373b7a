"""The recipe as a file, and all that can be wrong with one."""

import json

import pytest
from schemas import check_document

from safe_arm import UsageError
from safe_arm.tuning.quantisation_choice import Choice
from safe_arm.tuning.recipe_file import Recipe, read_recipe

MEASURED = {
    "metric": "SQNR in dB", "value": 34.5, "at_least": 30.0, "reached": True, "sqnr_db": 34.5, "cost": 100,
    "cost_unit": "cycles", "proven": True,
}  # fmt: skip
RECIPE = Recipe(
    Choice(8, False, "minmax", {"conv2d": "int16", "softmax": "float"}),
    7, "0" * 64, "vgf", "TOSA-1.0+INT+FP", {"conv2d": "first"}, MEASURED, {"executorch": "1.5.1"},
)  # fmt: skip


def test_it_is_read_as_it_was_written(tmp_path):
    RECIPE.save(tmp_path / "r.json")
    assert read_recipe(tmp_path / "r.json") == RECIPE


@pytest.mark.parametrize("recipe", [RECIPE, Recipe(Choice(), 1, "a" * 64, "tosa", "TOSA-1.0+INT")])
def test_the_schema_describes_it(recipe):
    check_document(json.loads(json.dumps(recipe.to_dict())), "tuning/recipe")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema_version": 2}, "has schema 2, and this safe-arm reads 1; write one with safe-arm tune"),
        ({"schema_version": None}, "is no recipe: it has no schema_version"),
        ({"operators": {"conv2d": "int4"}}, "operator 'conv2d' is 'int4'; accepted: int16, float"),
        ({"default": {"activations": 12, "per_channel": True, "observer": "minmax"}}, "activations is 12"),
        ({"default": {"activations": 8, "per_channel": 1, "observer": "minmax"}}, "per_channel is 1"),
        ({"default": {"activations": 8, "per_channel": True}}, "it has no 'observer'"),
        ({"operators": 3}, "is damaged"),
        ({"model": []}, "is damaged"),
    ],
)
def test_what_is_no_recipe(tmp_path, change, says):
    (tmp_path / "r.json").write_text(json.dumps(RECIPE.to_dict() | change))
    with pytest.raises(UsageError, match="recipe") as error:
        read_recipe(tmp_path / "r.json")
    assert says in str(error.value)
    assert "safe-arm tune" in str(error.value)


@pytest.mark.parametrize("content", [None, b"{", b"\xff", b"[]", b"3"])
def test_what_is_no_json_object(tmp_path, content):
    if content is not None:
        (tmp_path / "r.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"r\.json" if content else "cannot be read: No such file"):
        read_recipe(tmp_path / "r.json")
