"""Bugs in the archived offset of partitions, and in what waits for it."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_SCENARIO = "tests/scenarios/partitions/test_archived.py"
_UNIT = "tests/unit/partitions/test_archived.py"
_REPORT = "tests/scenarios/archive/test_reporting.py"
_UNLISTED = "tests/scenarios/archive/test_unlisted.py"
_SET = "partitions.replica.archiving:Archiving.set_archived"

ARCHIVED = (
    Mutant(
        "retention deletes what is not archived",
        "raftlog.storage.retention:first_index_to_keep",
        "end = min(end, limits.archived_up_to)",
        "pass",
        script=_SCENARIO,
    ),
    Mutant(
        "retention deletes the first record that is not archived",
        "raftlog.storage.retention:first_index_to_keep",
        "end = min(end, limits.archived_up_to)",
        "end = min(end, limits.archived_up_to + 1)",
        script=_SCENARIO,
    ),
    Mutant(
        "every topic waits for an archive",
        "partitions.hosting.hosted_partition:HostedPartition.retention",
        "if topic_config.requires_archive(config) else None",
        "",
        script=_SCENARIO,
    ),
    Mutant(
        "a later entry sets the archived offset back",
        "partitions.replica.archived:ArchivedUpTo.apply",
        "found.offset if found.may_lower else max(self.offset, found.offset)",
        "found.offset",
        script=_UNIT,
    ),
    Mutant(
        "an operator cannot set the archived offset back",
        "partitions.replica.archived:ArchivedUpTo.apply",
        "found.offset if found.may_lower else max(self.offset, found.offset)",
        "max(self.offset, found.offset)",
        script=_UNIT,
    ),
    Mutant(
        "the archived offset is missing in the state of a partition",
        "partitions.replica.machine:PartitionMachine.restore",
        "self.archived.restore(archived)",
        "self.archived.restore(b'')",
        script=_UNIT,
    ),
    Mutant(
        "an archived offset is acknowledged before it is committed",
        _SET,
        "await asyncio.shield(proposal.outcome)",
        "pass",
        script=_SCENARIO,
    ),
    Mutant(
        "a deposed leader answers with its old archived offset",
        _SET,
        "await serving.confirm()",
        "pass",
        script=_SCENARIO,
    ),
    Mutant(
        "what an open transaction has written counts as archived",
        _SET,
        "end = self._reads.last_stable_offset",
        "end = self._reads.high_watermark",
        script=_SCENARIO,
    ),
    Mutant(
        "a full disk stays full because the archive cannot be reported",
        _SET,
        "frees_room=True",
        "frees_room=False",
        script=_SCENARIO,
    ),
    Mutant(
        "a repeated report writes an entry each time",
        _SET,
        "archived.may_lower and archived.offset < state.offset",
        "archived.may_lower",
        script=_SCENARIO,
    ),
    Mutant(
        "records are deleted on request before they are archived",
        "partitions.replica.deletion:Deletion.delete_before",
        "self._check_archived(offset, config)",
        "pass",
        script=_SCENARIO,
    ),
    Mutant(
        "nobody sees that retention waits for the archive",
        "raftlog.hosting.retention:RetentionManager._first_kept",
        "unarchived = wanted_by(replace(kept.limits, archived_up_to=None))",
        "pass",
        script=_SCENARIO,
    ),
    Mutant(
        "offsets that an archive lacks are reported as archived",
        "spark_io.archive.reporting:reached",
        "if one.start > at and not is_empty(",
        "if False and not is_empty(",
        script=_REPORT,
    ),
    Mutant(
        "an archive reports only when much is new",
        "spark_io.archive.reporting:report",
        "if end > one.archived_up_to and not changes_nothing:",
        "if end > one.archived_up_to + 10 and not changes_nothing:",
        script=_REPORT,
    ),
    Mutant(
        "a batch whose driver was killed after its manifest is not reported",
        "spark_io.archive.sink:ArchiveWriter.commit",
        "manifest = catalogue.manifest_of(storage, query, batchId)",
        "manifest = catalogue.manifest_of(storage, query, batchId) if entries else None",
        script=_REPORT,
    ),
    Mutant(
        "the sink reports nothing",
        "spark_io.archive.sink:ArchiveWriter.commit",
        "if manifest is not None and self._options.servers is not None:",
        "if self._options.servers is None:",
        script=_REPORT,
    ),
    Mutant(
        "workers without the package cannot name the files of an archive",
        "spark_io.archive.entries:_decoded",
        'tuple(map(_entry, msgspec.convert(found.get("files", ()), list[dict[str, Any]])))',
        'tuple(msgspec.convert(found.get("files", ()), list[Entry]))',
        script="tests/scenarios/archive/test_by_value.py",
    ),
    Mutant(
        "files of a replaced generation are removed",
        "spark_io.archive.catalogue:listed",
        "for number in _numbers(storage, GENERATIONS):",
        "for number in _numbers(storage, GENERATIONS)[-1:]:",
        script=_UNLISTED,
    ),
    Mutant(
        "files of manifests that a generation replaces are removed",
        "spark_io.archive.catalogue:listed",
        "for query in _queries(storage):",
        "for query in ():",
        script=_UNLISTED,
    ),
    Mutant(
        "files of a batch that is being archived are removed",
        "spark_io.archive.unlisted:removable",
        "and not _is_missed(one, archived)",
        "",
        script=_UNLISTED,
    ),
    Mutant(
        "young files are removed",
        "spark_io.archive.unlisted:removable",
        "one.age_s > grace_s and",
        "",
        script=_UNLISTED,
    ),
    Mutant(
        "a generation lists files that were removed",
        "spark_io.archive.catalogue:commit_generation",
        "if one.path not in known and not storage.exists(one.path):",
        "if False:",
        script=_UNLISTED,
    ),
)
