"""A disk that loses its power: what was synced survives, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from chaos.harness import power, power_cycles
from chaos.harness.controls import lying_fsync
from chaos.harness.power import PowerDisk
from chaos.history import Outcome
from tests.helpers.real_cluster import eventually, next_line

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module", autouse=True)
def _powered() -> None:
    if reason := power.missing():
        pytest.skip(reason)


@pytest.fixture
def disk(directory: Path) -> Iterator[PowerDisk]:
    with PowerDisk(directory / "disk", size_mb=16) as disk:
        yield disk


def write(path: Path, data: bytes, *, sync: bool) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(data)
        if sync:
            os.fsync(file.fileno())


def test_synced_bytes_survive_and_others_do_not(disk: PowerDisk) -> None:
    write(disk.directory / "a", b"synced", sync=True)
    write(disk.directory / "a", b" and not synced", sync=False)
    write(disk.directory / "b", b"never synced", sync=False)
    disk.lose_power()
    lost = disk.restore()
    assert (disk.directory / "a").read_bytes() == b"synced"
    assert not (disk.directory / "b").exists()
    assert lost == {
        disk.directory / "a": len(b" and not synced"),
        disk.directory / "b": len(b"never synced"),
    }


def test_a_disk_without_power_refuses_writes(disk: PowerDisk) -> None:
    disk.lose_power()
    with pytest.raises(OSError, match="Input/output error"):
        write(disk.directory / "a", b"late", sync=True)
    assert disk.restore() == {}


def test_a_killed_harness_leaves_no_mounted_disk(directory: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from chaos.harness.power import PowerDisk\n"
        "with PowerDisk(Path(sys.argv[1]), size_mb=16): print('mounted', flush=True); time.sleep(1000)"
    )
    where = str(directory / "disk")
    command = [sys.executable, "-c", program, where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as harness:
        assert next_line(harness) == "mounted"
        assert where in Path("/proc/mounts").read_text()
        harness.kill()
    eventually(lambda: where not in Path("/proc/mounts").read_text(), what="it is unmounted")


def test_power_is_lost_many_times(disk: PowerDisk) -> None:
    for number in range(5):
        write(disk.directory / "a", bytes([number]), sync=True)
        write(disk.directory / "a", b"x", sync=False)
        disk.lose_power()
        assert disk.restore() == {disk.directory / "a": 1}
    assert (disk.directory / "a").read_bytes() == bytes(range(5))


def lose_power_and_fail(disk: PowerDisk) -> None:
    with disk:
        disk.lose_power()
        raise ZeroDivisionError


def test_nothing_is_left_after_a_failure(directory: Path) -> None:
    disk = PowerDisk(directory / "disk", size_mb=16)
    with pytest.raises(ZeroDivisionError):
        lose_power_and_fail(disk)
    assert not os.path.ismount(disk.directory)
    assert not disk.directory.with_name("disk.ext4").exists()
    assert str(directory) not in Path("/proc/mounts").read_text()


def test_the_harness_finds_what_a_lying_sync_loses(directory: Path) -> None:
    if reason := lying_fsync.missing():
        pytest.skip(reason)
    result = lying_fsync.run(7, directory)
    assert result.is_guilty, result
    assert result.lost > 0


@pytest.mark.slow
def test_the_harness_finds_nothing_without_the_lie(directory: Path) -> None:
    if reason := lying_fsync.missing():
        pytest.skip(reason)
    result = lying_fsync.run(7, directory, is_honest=True)
    assert (result.is_guilty, result.lost) == (False, 0), result


def test_brokers_under_load_survive_power_losses(directory: Path) -> None:
    lines: list[str] = []
    tally, history = power_cycles.run(2, 7, directory, lines.append)
    assert not tally.is_broken, tally
    assert tally.losses >= tally.cycles == len(lines) == 2
    assert tally.acknowledged == history.count(Outcome.ACKNOWLEDGED) > 50


def test_a_broker_that_does_not_start_is_reported(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_power = power_cycles.PoweredCluster.lose_power

    def lose_power_for_good(powered: power_cycles.PoweredCluster, brokers: Sequence[int]) -> int:
        monkeypatch.setattr(Cluster, "is_ready", lambda cluster, broker: False)
        return lose_power(powered, brokers)

    monkeypatch.setattr(power_cycles.PoweredCluster, "lose_power", lose_power_for_good)
    monkeypatch.setattr(power_cycles, "READY_S", 0.0)
    tally, _ = power_cycles.run(2, 7, directory, lambda line: None)
    assert tally.cycles == 1
    assert "is not ready" in tally.unbootable[0]
    assert len(list((directory / "kept").glob("broker-*/raftlog.json"))) == 3
