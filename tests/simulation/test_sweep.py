"""Many seeds on the command line."""

from __future__ import annotations

import subprocess
import sys


def test_a_sweep_stops_when_its_time_is_up_and_says_what_was_run() -> None:
    command = [sys.executable, "-m", "chaos.simulator", "--seeds", "100000", "--minutes", "0.02"]
    end = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    *_, stopped, _, _, last = end.stdout.splitlines()
    assert stopped == "stopped after 0.02 minutes, before the last of 100000 seeds"
    assert 1 <= int(last.split()[0].removeprefix("seeds=")) < 100_000
    assert end.returncode == 0
