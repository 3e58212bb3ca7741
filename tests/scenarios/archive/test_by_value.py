"""What travels to tasks of workers that have no package ``spark_io``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark import cloudpickle

import spark_io
from spark_io.archive import catalogue
from spark_io.archive.entries import Generation, Manifest, encoded, generation_in, manifest_in
from spark_io.archive.files import FileWriter
from spark_io.archive.sink import Archived
from spark_io.archive.storage import DirectoryStorage
from tests.helpers.archives import archived, file_of, rows

WORKER = """
import pickle, sys
sys.modules["spark_io"] = None
sys.stdout.buffer.write(pickle.dumps(pickle.load(sys.stdin.buffer)()))
"""


def in_a_worker(function: Callable[[], bool]) -> bool:
    """What it returns in a process that cannot import the package."""
    cloudpickle.register_pickle_by_value(spark_io)  # type: ignore[no-untyped-call]
    try:
        sent = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
    finally:
        cloudpickle.unregister_pickle_by_value(spark_io)  # type: ignore[no-untyped-call]
    done = subprocess.run([sys.executable, "-c", WORKER], input=sent, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2_000:]
    return bool(cloudpickle.loads(done.stdout))


# requirement: A8
def test_a_worker_writes_files_and_reads_manifests(tmp_path: Path) -> None:
    storage, records = DirectoryStorage(tmp_path), rows(range(5))
    archived(storage, 1, (0, 5), (5, 10))
    assert len(catalogue.load(storage).files) == 2, "the driver has read it before"

    def work() -> bool:
        writer = FileWriter(storage)
        writer.add(records)
        message = Archived("q", tuple(writer.close()))
        found = catalogue.load(storage)
        return [one.end for one in found.files] == [5, 10] and message.entries[0].end == 5

    assert in_a_worker(work)


# requirement: A8
def test_a_manifest_is_the_same_in_a_worker(tmp_path: Path) -> None:
    one = file_of(DirectoryStorage(tmp_path), range(3))

    def work() -> bool:
        manifest, generation = Manifest(files=(one,)), Generation(files=(one,), through={"q": 3})
        return (
            manifest_in("m", encoded(manifest)) == manifest
            and generation_in("g", encoded(generation)) == generation
        )

    assert in_a_worker(work)
