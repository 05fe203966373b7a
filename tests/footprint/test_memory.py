"""The footprint of a lowered program, beside Vela's own file, the runtime and the file on disk."""

import csv
import re
from functools import cache
from pathlib import Path

import pytest
import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.exir import to_edge
from executorch.exir._serialize._program import deserialize_pte_binary
from lowering import EDGE, lower, quantize
from small import Lambda, image

from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer, UsageError
from safe_arm.footprint.memory import footprint, with_footprint


def net(module, x):
    return module.conv_b(module.conv(x).i0())


def alone(module, x):
    return module.conv(x)


def lowered(target, function, folder=None):
    """The partitioner and the edge program, with Vela's files kept in a folder if there is one."""
    spec = EthosUCompileSpec(target)
    graph = quantize(Lambda(function), image(), spec, quantizer_class=SafeEthosUQuantizer)
    partitioner = SafeArmPartitioner(spec.dump_intermediate_artifacts_to(str(folder)) if folder else spec, verify=False)
    return partitioner, lower(graph, image(), partitioner)


@cache
def exported(target, function, folder=None):
    """The partitioner's report and the program."""
    partitioner, edge = lowered(target, function, folder)
    return partitioner.report, edge.to_executorch()


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
def test_every_figure_is_that_of_velas_file(target, tmp_path):
    report, _ = exported(target, alone, tmp_path)
    (path,) = tmp_path.rglob("*_summary_*.csv")
    (row,) = csv.DictReader(path.open(newline=""))
    (found,) = report.vela
    assert found.delegate == report.delegates[0]
    assert list(found.figures) == list(row)
    for name, value in found.figures.items():
        assert value == (row[name] if isinstance(value, str) else float(row[name])), name
    texts = {name for name, value in found.figures.items() if isinstance(value, str)}
    assert texts == {
        "experiment", "network", "accelerator_configuration", "system_config", "memory_mode", "weights_storage_area",
        "feature_map_storage_area",
    }  # fmt: skip
    assert found.cycles == report.cycles[found.delegate] == float(row["cycles_total"]) > 0
    assert found.bytes_in("sram") == float(row["sram_memory_used"]) * 1024 > 0
    assert (found.cpu_operators, found.npu_operators) == (0, int(row["passes_after_fusing"]))


def test_sizes_are_those_of_the_delegate_in_the_pte():
    report, manager = exported("ethos-u55-128", alone)
    (found,) = report.vela
    (module,) = (m for n, m in manager.exported_program().graph_module.named_children() if n.startswith("lowered"))
    blocks = blocks_of(module.processed_bytes)
    assert len(blocks["cmd_data"]) == found.commands_bytes
    assert len(blocks["weight_data"]) == found.weights_bytes
    assert int.from_bytes(blocks["scratch_size"], "little") == found.arena_bytes > 0


def blocks_of(stream):
    """The named blocks of what ExecuTorch packs for its Ethos-U backend: a 32-byte header, data padded to 16."""
    blocks, start = {}, 0
    while start < len(stream):
        name = stream[start : start + 16].rstrip(b"\0").decode()
        size = int.from_bytes(stream[start + 16 : start + 20], "little")
        blocks[name] = stream[start + 32 : start + 32 + size]
        start += 32 + size + (-size % 16)
    return blocks


def test_each_delegate_has_its_own():
    report, _ = exported("ethos-u55-128", net)
    assert len(report.delegates) == 2
    assert tuple(each.delegate for each in report.vela) == report.delegates
    assert {each.delegate: each.cycles for each in report.vela} == report.cycles


def test_planned_memory_is_what_the_pte_asks_for():
    programs = {
        "small": torch.export.export(Lambda(lambda module, x: torch.erf(x).sum(1)), image()),
        "large": torch.export.export(Lambda(lambda module, x: torch.erf(x.repeat(1, 8, 1, 1)).sum(1)), image()),
    }
    manager = to_edge(programs, compile_config=EDGE).to_executorch()
    found = footprint(manager)
    assert found.pte_bytes == len(manager.buffer)
    written = deserialize_pte_binary(manager.buffer).program.execution_plan
    for plan in written:
        assert [0, *found.planned_bytes[plan.name]] == plan.non_const_buffer_sizes
    assert found.planned == sum(found.planned_bytes["large"]) > sum(found.planned_bytes["small"]) > 0


def test_it_is_in_the_record_when_asked_for_only():
    report, manager = exported("ethos-u55-128", net)
    assert report.footprint is None
    full = with_footprint(report, manager)
    assert full.footprint == footprint(manager)
    assert [kernel.name for kernel in full.footprint.kernels if not kernel.library] == ["aten::i0.out"]
    assert with_footprint(full, manager) == full


def test_the_script_of_the_docs_runs(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[2] / "docs" / "footprint.md").read_text()
    (script,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    partitioner, edge = lowered("ethos-u55-128", net)
    monkeypatch.chdir(tmp_path)
    exec(script, {"edge": edge, "partitioner": partitioner})
    assert "['aten::i0.out']" in capsys.readouterr().out
    assert "aten::i0.out:" in (tmp_path / "kernels.yaml").read_text()


def test_what_is_not_a_lowered_program_is_refused():
    with pytest.raises(UsageError, match=r"what to_executorch\(\) returned, .* not bytes"):
        footprint(b"ET12")
