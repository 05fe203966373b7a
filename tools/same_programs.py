"""Compare the programs that this checkout makes with those that another revision makes, byte by byte.

python tools/same_programs.py REVISION [--corpus 200] [--cases 400] [--seed 1] [--nets residual-8 unet]

The nets are those of the corpus, cases of the fuzzer, and nets of the benchmarks. Each is quantised and lowered by the
package of either revision, beside each other. Compared are the quantised graph with its numbers, each delegate's
bytes, and the report's verdicts. The exit status is 1 if any net differs. A change that is to move no byte is held by
this; one that is to move some is shown by it.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: What is recorded of a net, beside its name.
FIELDS = ("graph", "delegates", "verdicts", "error")

Record = dict[str, Any]


def main() -> int:
    """Return 1 if a net differs."""
    options = _arguments()
    if options.record:
        _write_records(options)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder, "other")
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "-q", "--detach", other, options.revision], check=True)
        try:
            running = [_started(root, Path(folder, name)) for name, root in (("theirs", other), ("ours", ROOT))]
            ended = [process.wait() for process, _ in running]
            if any(ended):
                sys.exit("a recording ended before its nets did")
            theirs, ours = [_read(path) for _, path in running]
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", other], check=True)
    return compare(theirs, ours)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", help="the revision to compare with")
    parser.add_argument("--corpus", type=int, default=200, help="how many nets of the corpus")
    parser.add_argument("--cases", type=int, default=400, help="how many cases of the fuzzer")
    parser.add_argument("--seed", type=int, default=1, help="which cases")
    parser.add_argument("--nets", nargs="*", default=["residual-8", "unet", "crepe-tiny", "mtcnn-onet", "vit-6"])
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _started(root: Path, path: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """Start to record with the package of a checkout; the nets and all else are of this one."""
    package = path.with_suffix(".package")
    package.mkdir()
    (package / "safe_arm").symlink_to(root / "safe_arm")
    found = os.pathsep.join(map(str, (package, ROOT / "tests" / "support", ROOT)))
    environment = {**os.environ, "PYTHONPATH": found, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}
    environment["PYTHONHASHSEED"] = "0"  # Some of PyTorch's samples depend on it.
    command = [sys.executable, "-W", "ignore", __file__, *sys.argv[1:], "--record", str(path)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL), path


def _read(path: Path) -> dict[str, Record]:
    return {record["net"]: record for record in map(json.loads, path.read_text().splitlines())}


def compare(theirs: dict[str, Record], ours: dict[str, Record]) -> int:
    """Print which nets differ, and return 1 if one does."""
    differ = 0
    for net, record in ours.items():
        fields = [field for field in FIELDS if record[field] != theirs[net][field]]
        if fields:
            differ += 1
            print(f"{net}: another {', '.join(fields)}")
    delegates = sum(len(record["delegates"]) for record in ours.values())
    failed = sum(bool(record["error"]) for record in ours.values())
    print(f"{len(ours)} nets, {delegates} delegates, {failed} nets that raise: {differ} differ")
    return int(differ > 0)


def _write_records(options: argparse.Namespace) -> None:
    import torch

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    with options.record.open("w") as file:
        for name, program in _programs(options):
            torch.manual_seed(0)  # The nets of the benchmarks are random.
            record: Record = {"net": name, "graph": "", "delegates": [], "verdicts": [], "error": ""}
            try:
                record |= program()
            except Exception as error:  # That it raises, and what, is compared as well.
                record["error"] = f"{type(error).__name__}: {error}"[:300]
            file.write(f"{json.dumps(record)}\n")
            file.flush()


def _programs(options: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Record]]]:
    """Yield each net's name and what makes its programs."""
    from benchmarks.nets import NETS
    from tools.fuzz.batches import numbered
    from tools.fuzz.pytorch_samples import EACH, listed
    from tools.fuzz.pytorch_samples import numbered as of_pytorch

    for number in range(options.corpus):
        yield f"corpus {number}", lambda number=number: _of_corpus(number)
    half = options.cases // 2
    for number, case in numbered(options.seed, half):
        yield f"grammar {number}", lambda case=case: _of_case(case)
    step = max(1, len(listed("operators")) * EACH // max(half, 1))
    for start in range(0, half * step, step):
        for number, case in of_pytorch("operators", options.seed, 1, start):
            yield f"operators {number}", lambda case=case: _of_case(case)
    for name in options.nets:
        yield name, lambda name=name: _of_benchmark(*NETS[name]())


def _of_corpus(number: int) -> Record:
    import torch
    from corpus_modes import MODES, mode_of, quantised
    from corpus_nets import corpus_net

    corpus = corpus_net(number)
    mode = mode_of(number)
    profile, _, policy = MODES[mode]
    graph_module = quantised(corpus, mode)
    program = torch.export.export(graph_module, corpus.samples[0])
    return _lowered({"forward": program}, profile, policy)


def _of_case(case: Any) -> Record:
    import torch

    from tools.fuzz import building

    calibration, _ = building.samples(case)
    programs = {}
    for method, net in building.nets(case).items():
        module = building.exported(case, net, calibration[0]).module(check_guards=False)
        with torch.no_grad():
            graph_module, _ = building.quantised(case, module, calibration, _quantizer())
        programs[method] = building.exported(case, graph_module, calibration[0])
    return _lowered(programs, case.config.spec, "reject")


def _of_benchmark(net: Any, inputs: tuple[Any, ...]) -> Record:
    import torch

    from benchmarks.architectures.measure import quantised, quantiser

    graph_module = quantised(quantiser(_quantizer(), "TOSA-1.0+INT"), net, inputs)
    return _lowered({"forward": torch.export.export(graph_module, inputs)}, "TOSA-1.0+INT", "reject")


def _quantizer() -> Any:
    from safe_arm import SafeTOSAQuantizer

    return SafeTOSAQuantizer


def _lowered(programs: dict[str, Any], profile: str, policy: str) -> Record:
    """Lower programs, and return the record of them."""
    from lowering import tosa

    from safe_arm import SafeArmPartitioner
    from tools.fuzz.building import lowered

    graph = hashlib.sha256()
    for program in programs.values():
        graph.update(program.graph_module.code.encode())
        graph.update(_bytes_of(program.state_dict))
        graph.update(_bytes_of(program.constants))
    partitioner = SafeArmPartitioner(tosa(profile), non_fuseable=policy, verify=False)
    manager = lowered(programs, partitioner)
    delegates = []
    for method in programs:
        module = manager.exported_program(method).graph_module
        for name, child in module.named_children():
            if name.startswith("lowered_module"):
                delegates.append(hashlib.sha256(child.processed_bytes).hexdigest())
    verdicts = [f"{each.op}: {each.delegate}: {each.reason}" for each in partitioner.report.verdicts]
    return {"graph": graph.hexdigest(), "delegates": delegates, "verdicts": verdicts}


def _bytes_of(tensors: dict[str, Any]) -> bytes:
    import torch

    data = io.BytesIO()
    for name, tensor in sorted(tensors.items()):
        data.write(name.encode())
        if isinstance(tensor, torch.Tensor):
            data.write(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return data.getvalue()


if __name__ == "__main__":
    sys.exit(main())
