"""Faults that damage or lose files of one broker, whose data the other brokers must restore.

The faults have ``is_damage``, so they never overlap: the cluster is healthy before each of these faults.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from chaos.harness.arena import Arena, Draw, NoTarget
from chaos.harness.faults.steps import Steps, until_effective
from raftlog.testing.segment_content import content_of

DISK_ID: Final = "disk_id"
METADATA: Final = "__cluster_metadata"
DISK_AGE: Final = "raftlog_disk_age"
AGES_MIN: Final = 6  # the newest ages may not have reached all other brokers
UNHEARD: Final = (3, 10, 40)  # starts
UNHEARD_S: Final = (0.5, 2.0)  # time from a start to its end
REFUSED_COPY: Final = "another process runs as node"


def flip_bits(arena: Arena, draw: Draw) -> Steps:
    """Bits of a file of a running broker change."""
    broker = draw.broker()
    path = draw.rng.choice(_data_files(arena, draw, broker))
    flipped = draw.rng.randint(1, 8)
    with path.open("r+b") as file:
        for _ in range(flipped):
            at = draw.rng.randrange(_content_bytes(path))
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << draw.rng.randrange(8)]))
            file.flush()
    yield f"broker {broker}: {_name(arena, broker, path)}"
    return flipped


def truncate_file(arena: Arena, draw: Draw) -> Steps:
    """A broker is killed, and a file of it has lost its end when it starts again."""

    def cut(directory: Path) -> str:
        path = draw.rng.choice(_data_files(arena, draw, broker))
        size = _content_bytes(path)
        with path.open("r+b") as file:
            file.truncate(draw.rng.choice((0, draw.rng.randrange(size), size - 1)))
        return _name(arena, broker, path)

    broker = draw.broker()
    return (yield from _while_down(arena, broker, cut))


def forget_partition(arena: Arena, draw: Draw) -> Steps:
    """A broker is killed and starts again without the folder of a partition."""

    def forget(directory: Path) -> str:
        folders = sorted(directory.glob("[!_]*-*/Partition-*"))
        if not folders:
            raise NoTarget(f"broker {broker} has no partition")
        folder = draw.rng.choice(folders)
        shutil.rmtree(folder)
        return f"{folder.parent.name}/{folder.name}" + _without_disk_id(draw, directory)

    broker = draw.broker()
    return (yield from _while_down(arena, broker, forget))


def forget_metadata(arena: Arena, draw: Draw) -> Steps:
    """A broker is killed and starts again without its log of the metadata."""

    def forget(directory: Path) -> str:
        shutil.rmtree(directory / METADATA)
        return METADATA + _without_disk_id(draw, directory)

    broker = draw.broker()
    return (yield from _while_down(arena, broker, forget))


def forget_everything(arena: Arena, draw: Draw) -> Steps:
    """A broker is killed and starts again with an empty data directory, as on a new machine."""

    def forget(directory: Path) -> str:
        for path in directory.iterdir():
            _remove(path)
        return "the whole data directory"

    broker = draw.broker()
    return (yield from _while_down(arena, broker, forget))


def restore_copy(arena: Arena, draw: Draw) -> Steps:
    """A broker is killed and starts again with the copy of its data that was made at the beginning."""
    return (yield from _restored(arena, draw.broker(), unheard=lambda broker: 1))


def unheard_starts(arena: Arena, draw: Draw) -> Steps:
    """A broker starts on an older copy of its data repeatedly before another broker can hear it."""
    count, links = draw.rng.choice(UNHEARD), arena.links
    assert links is not None, "a fault that needs proxies was begun without them"

    def start_unheard(broker: int) -> int:
        cut = links.between({broker}, {*arena.cluster.brokers} - {broker})
        links.cut(cut)
        try:
            for _ in range(count):
                arena.processes.launch(broker)
                time.sleep(draw.rng.uniform(*UNHEARD_S))
                arena.processes.kill(broker)
        finally:
            links.restore(cut)
        return count

    return (yield from _restored(arena, draw.broker(), start_unheard))


def copy_beside(arena: Arena, draw: Draw) -> Steps:
    """A copy of a broker's data is started beside the broker, with its id and other ports."""
    broker = draw.broker()
    with arena.hold(broker), tempfile.TemporaryDirectory(dir=arena.processes.directory) as folder:
        data = Path(folder) / "copy"
        arena.processes.kill(broker)
        shutil.copytree(arena.processes.data_directory(broker), data)
        arena.processes.launch(broker)
        if not until_effective(lambda: arena.cluster.is_ready(broker)):
            raise NoTarget(f"other faults keep broker {broker} from getting ready")
        process, log = arena.processes.start_copy(broker, data)
        try:
            yield f"broker {broker}"
            return until_effective(lambda: log.read_text(errors="replace").count(REFUSED_COPY))
        finally:
            process.kill()
            process.wait()


def _restored(arena: Arena, broker: int, unheard: Callable[[int], int]) -> Steps:
    """Restore an older copy of a broker's data and start the broker; ``unheard`` runs before this start."""
    with arena.hold(broker), tempfile.TemporaryDirectory(dir=arena.processes.directory) as folder:
        directory, copy = arena.processes.data_directory(broker), Path(folder) / "copy"
        copied_age = _disk_age(arena, broker)
        if not copied_age:
            raise NoTarget(f"broker {broker} does not respond")
        arena.processes.kill(broker)
        shutil.copytree(directory, copy)
        arena.processes.launch(broker)
        yield f"broker {broker}"
        if not until_effective(lambda: _disk_age(arena, broker) >= copied_age + AGES_MIN):
            return 0  # no other broker could tell the copy from the disk
        arena.processes.kill(broker)
        for path in directory.iterdir():
            _remove(path)
        _copy_back(copy, directory)
        count = unheard(broker)
        arena.processes.launch(broker)
    return count


def restore_folder(arena: Arena, draw: Draw) -> Steps:
    """A broker is stopped and starts again with a replica's folder as it was at the beginning."""
    broker = draw.broker()
    with arena.hold(broker), tempfile.TemporaryDirectory(dir=arena.processes.directory) as parent:
        directory, copy = arena.processes.data_directory(broker), Path(parent) / "copy"
        folders = sorted(directory.glob("*/Partition-*"))
        if not folders:
            raise NoTarget(f"broker {broker} has no partition")
        folder = draw.rng.choice(folders)
        arena.processes.kill(broker)
        shutil.copytree(folder, copy)
        arena.processes.launch(broker)
        yield f"broker {broker}: {folder.parent.name}/{folder.name}"
        arena.processes.stop(broker)
        shutil.rmtree(folder, ignore_errors=True)  # its topic may be deleted
        _copy_back(copy, folder)
        arena.processes.launch(broker)
    return 1


def _copy_back(copy: Path, directory: Path) -> None:
    """Restore a copy of files and sync them, because the next power loss may come within seconds."""
    shutil.copytree(copy, directory, dirs_exist_ok=True)
    subprocess.run(["sync", "--file-system", str(directory)], check=True)


def _disk_age(arena: Arena, broker: int) -> float:
    """Return the age of the broker's disk; 0 if the broker does not respond."""
    try:
        return arena.processes.metric(DISK_AGE, broker=broker)
    except OSError:
        return 0.0


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _while_down(arena: Arena, broker: int, change: Callable[[Path], str]) -> Steps:
    with arena.hold(broker):
        arena.processes.kill(broker)
        try:
            changed = change(arena.processes.data_directory(broker))
        except BaseException:
            arena.processes.launch(broker)
            raise
        yield f"broker {broker}: {changed}"
        arena.processes.launch(broker)
    return 1


def _without_disk_id(draw: Draw, directory: Path) -> str:
    """Delete the disk id, too, in half of the cases; return a text that says whether it was deleted."""
    if draw.rng.random() < 0.5:
        return ""
    for path in directory.glob(f"{DISK_ID}*"):
        path.unlink()
    return " and its disk id"


def _data_files(arena: Arena, draw: Draw, broker: int) -> list[Path]:
    """Return files of replicas that are not empty, all of one kind.

    The kind is drawn first, because there are more segments than other files.
    """
    directory = arena.processes.data_directory(broker)
    kinds = (
        "*/Partition-*/*.log",
        "*/Partition-*/*.index",
        "*/Partition-*/hard_state.?",
        "*/Partition-*/*.state",
    )
    for kind in draw.rng.sample(kinds, len(kinds)):
        found = [path for path in sorted(directory.glob(kind)) if _content_bytes(path)]
        if found:
            return found
    raise NoTarget(f"broker {broker} has no files yet")


def _content_bytes(path: Path) -> int:
    """Return the size of a file in bytes, without the zeros with which a segment may be filled ahead."""
    return len(content_of(path.read_bytes())) if path.suffix == ".log" else path.stat().st_size


def _name(arena: Arena, broker: int, path: Path) -> str:
    return str(path.relative_to(arena.processes.data_directory(broker)))
