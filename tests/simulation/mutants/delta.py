"""Bugs in archives that are Delta tables, or in HDFS."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_TESTS = "tests/scenarios/archive/test_delta.py"
_DELTA = "spark_io.archive.delta:"


def _mutant(name: str, place: str, text: str, planted: str, script: str = _TESTS) -> Mutant:
    return Mutant(name, place, text, planted, script=script)


DELTA = (
    _mutant(
        "a repeated batch is added to a Delta table again",
        _DELTA + "DeltaArchive.add",
        "batch <= newest",
        "batch < newest",
    ),
    _mutant(
        "offsets that a Delta table has are added again",
        _DELTA + "_joined",
        "if one.start < extent.end:",
        "if False:",
    ),
    _mutant(
        "a Delta table leaves out records between two batches",
        _DELTA + "_joined",
        "one.start > extent.end and",
        "False and",
    ),
    _mutant(
        "the first offset of a Delta table moves with each batch",
        _DELTA + "following",
        "extent = before.get(target, Range",
        "extent = {}.get(target, Range",
    ),
    _mutant(
        "a driver that loses a race for a Delta table gives up",
        _DELTA + "DeltaArchive.add",
        "except CommitFailedError:",
        "except KeyError:",
    ),
    _mutant(
        "brokers are not told what a Delta table has",
        "spark_io.archive.sink:ArchiveWriter._commit_delta",
        "report(client, table, {one.topic for one in entries})",
        "pass",
    ),
    _mutant(
        "records that are deleted in the log are a gap of a Delta table for ever",
        "spark_io.archive.reporting:is_gone",
        "max(gap.start, found.log_start_offset)",
        "gap.start",
    ),
    _mutant(
        "an archive with manifests is begun in a Delta table",
        "spark_io.archive.catalogue:load",
        "storage.names(DELTA_LOG)",
        "False",
    ),
    _mutant(
        "two drivers create the same file in HDFS",
        "spark_io.archive.storage:HdfsStorage.create",
        "raise FileExistsError(target)",
        "pass",
        "tests/scenarios/archive/test_hdfs.py",
    ),
)
