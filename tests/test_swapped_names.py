"""ExecuTorch's own scripts and notebooks run with two names swapped, and the tool that runs them sees what is wrong."""

import json

import pytest
import swapped_names

#: Stands in for ExecuTorch's, which takes seconds to import.
SAVES = """
save_pte_program = lambda data: open('a.pte', 'wb').write(data)
def never():
    from executorch.backends.arm.vgf import VgfPartitioner
"""
SCENARIOS = swapped_names.scenarios()


def notebook(folder, *cells):
    path = folder / "export.ipynb"
    written = [{"cell_type": kind, "source": text.splitlines(keepends=True)} for kind, text in cells]
    path.write_text(json.dumps({"cells": written}))
    return path


def test_the_wheel_has_scenarios_for_both_targets():
    names = " ".join(path.name for path in SCENARIOS)
    assert "vgf" in names
    assert "ethosu" in names


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_executorch_s_own_scenario_is_exported_by_ours(path, tmp_path):
    assert swapped_names.run(path, tmp_path) == ""


def test_only_the_names_and_their_imports_are_swapped():
    source = "from executorch.backends.arm.quantizer import VgfQuantizer, other\nuse = VgfQuantizer(VgfCompileSpec())"
    assert swapped_names.swapped(source) == (
        "from safe_arm import SafeVgfQuantizer\nfrom executorch.backends.arm.quantizer import other\n"
        "use = SafeVgfQuantizer(VgfCompileSpec())"
    )
    assert swapped_names.swapped("from executorch.backends.arm.vgf import VgfPartitioner as P\nP()") == (
        "from safe_arm import SafeArmPartitioner as P\nP()"
    )


def test_a_notebook_is_run_up_to_the_cell_that_saves(tmp_path):
    cells = (
        ("markdown", "# Not code"),
        ("code", SAVES),
        ("code", "%%bash\nfalse"),
        ("code", "save_pte_program(b'safe_arm')"),
        ("code", "raise SystemExit('runs it on a device')"),
    )
    assert swapped_names.run(notebook(tmp_path, *cells), tmp_path) == ""


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        pytest.param(SAVES + "save_pte_program(b'ET12')", "has a delegate that is not ours", id="stock's delegate"),
        pytest.param(SAVES, "wrote no .pte", id="no program"),
        pytest.param(SAVES + "save_pte_program(None)", "ended with status 1:", id="an error"),
        pytest.param("import torch", "has none of VgfPartitioner, ", id="nothing to swap"),
    ],
)
def test_what_is_wrong_is_told(code, wrong, tmp_path, capsys):
    path = notebook(tmp_path, ("code", code))
    assert swapped_names.main([str(path)]) == 1
    assert wrong in capsys.readouterr().out
