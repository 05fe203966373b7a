"""What the jobs of tests do in their processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def act(arguments):
    """Do what the first argument says."""
    action, *more = arguments
    if action == "print":
        print(json.dumps({"pid": os.getpid(), "folder": os.getcwd(), "threads": os.environ["OMP_NUM_THREADS"]}))
    elif action == "refuse":
        print("Error: bad input", file=sys.stderr)
        sys.exit(2)
    elif action == "die once" and not Path(more[0]).exists():
        Path(more[0]).touch()
        os.kill(os.getpid(), signal.SIGSEGV)
    elif action == "die once":
        print("second")
    elif action == "die":
        subprocess.Popen(["sleep", "60"])
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "raise":
        print(1 / 0)
    elif action == "sleep":
        child = subprocess.Popen(["sleep", "60"])
        Path(more[0]).write_text(f"{os.getpid()} {child.pid}")
        child.wait()
    elif action == "count":
        names = Path(more[0])
        own = names / more[1]
        own.touch()
        time.sleep(0.1)
        print(len(list(names.iterdir())))
        own.unlink()
