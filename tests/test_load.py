"""Many exports: in one process, in several at once, and killed at any moment."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import many_exports
import numpy as np
import torch

SUPPORT = Path(many_exports.__file__).parent
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join([str(SUPPORT), *filter(None, sys.path)]),
    "OMP_NUM_THREADS": "1",
}


def test_memory_does_not_grow_with_the_exports():
    script = [sys.executable, str(SUPPORT / "many_exports.py"), "200"]
    sizes = [float(line) for line in subprocess.check_output(script, text=True, env=ENVIRONMENT).split()]
    assert len(sizes) == 200
    assert max(sizes[10:]) <= 1.02 * sizes[9], sizes


def test_eight_processes_at_once_give_the_bytes_of_one_alone():
    script = "import hashlib, many_exports; print(hashlib.sha256(many_exports.export(0)).hexdigest())"
    alone = hashlib.sha256(many_exports.export(0)).hexdigest()
    command = [sys.executable, "-c", script]
    together = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) for _ in range(8)]
    assert [process.communicate()[0].splitlines()[-1] for process in together] == [alone] * 8


def test_a_kill_at_any_moment_leaves_a_whole_file_or_none(tmp_path):
    image = torch.rand(1, 3, 16, 16)
    torch.export.save(torch.export.export(many_exports.net(0), (image,)), tmp_path / "net.pt2")
    np.savez(tmp_path / "data.npz", input=image[None].numpy())
    folder = tmp_path / "out"
    folder.mkdir()
    given = [str(tmp_path / "net.pt2"), "--target=tosa", f"--calibrate={tmp_path / 'data.npz'}"]
    command = [sys.executable, "-m", "safe_arm", "export", *given, f"--output={folder / 'net.pte'}"]
    environment = ENVIRONMENT | {"SAFE_ARM_PROOF_CACHE": str(tmp_path / "proofs")}
    started = time.monotonic()
    subprocess.run(command, check=True, env=environment, capture_output=True)
    duration = time.monotonic() - started
    whole = (folder / "net.pte").read_bytes()
    moments = random.Random(0)
    for _ in range(50):
        (folder / "net.pte").unlink(missing_ok=True)
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(moments.uniform(0, duration))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert {file.name: file.read_bytes() == whole for file in folder.iterdir()} in ({}, {"net.pte": True})
    subprocess.run(command, check=True, env=environment, capture_output=True)
    assert (folder / "net.pte").read_bytes() == whole
