"""Bugs in what wall clocks may do, and in what is remembered of producers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.helpers.planted_bugs import Mutant

if TYPE_CHECKING:
    from chaos.simulator.odds import Odds

_CLOCK_TESTS = "tests/unit/node/test_cluster_time.py"
_TABLE_TESTS = "tests/unit/partitions/test_producers.py"
_ADMISSION_TESTS = "tests/scenarios/partitions/test_producer_admission.py"


def _deletes_by_age(odds: Odds) -> bool:
    return odds.retention_ms >= 0


CLOCKS = (
    Mutant(
        "segments are dated by the earlier clock",
        "raftlog.hosting.retention:RetentionManager._look_at",
        "max(cluster_ms, clock.wall_ms())",
        "cluster_ms",
        script="tests/scenarios/partitions/test_retention.py",
    ),
    Mutant(
        "records are deleted by the leader's wall clock alone",
        "raftlog.hosting.retention:RetentionManager._first_kept",
        "now_ms=self._host.clock.trusted_ms()",
        "now_ms=self._host.clock.reading().wall_ms",
        needs=_deletes_by_age,
    ),
    Mutant(
        "a leader stamps what its wall clock shows",
        "raftlog.node.cluster_time:ClusterTime.wall_ms",
        "return expected_ms",
        "return wall_ms",
        needs=lambda odds: "wall clock" in odds.timed,
    ),
    Mutant(
        "records are deleted by the times that producers give them",
        "raftlog.storage.sparse_index:stored_by",
        "now_ms if stamped_ms is None else stamped_ms",
        "header.max_timestamp",
        needs=_deletes_by_age,
    ),
    Mutant(
        "a wall clock is trusted without a majority",
        "raftlog.node.cluster_time:ClusterTime._note_agreement",
        "if 2 * agreeing <= brokers:",
        "if False:",
        script=_CLOCK_TESTS,
    ),
    Mutant(
        "half of the brokers count as a majority for the time",
        "raftlog.node.cluster_time:ClusterTime._note_agreement",
        "if 2 * agreeing <= brokers:",
        "if 2 * agreeing < brokers:",
        script=_CLOCK_TESTS,
    ),
    Mutant(
        "records are deleted by a wall clock that is ahead of cluster time",
        "raftlog.node.cluster_time:ClusterTime.trusted_ms",
        "return min(wall_ms, _advanced(self._median_ms, self._own.at_s, self._clock.monotonic()))",
        "return wall_ms",
        script=_CLOCK_TESTS,
    ),
    Mutant(
        "a clock jump does not pause deletion",
        "raftlog.node.cluster_time:ClusterTime._note_agreement",
        "elif jumped or self._agree_since_s is None:",
        "elif self._agree_since_s is None:",
        script=_CLOCK_TESTS,
    ),
    Mutant(
        "an arrival is dated by an untrusted clock",
        "raftlog.storage.segmented_log:SegmentedLog._append_run",
        "if self._clock.is_known else NOT_DATED",
        "if True else NOT_DATED",
        script="tests/scenarios/storage/test_segmented_log.py",
    ),
    Mutant(
        "one stamp far ahead expires producers",
        "partitions.replica.producer_table:ProducerTable._advance",
        "if step_ms > self._jump_ms:",
        "if False:",
        script=_TABLE_TESTS,
    ),
    Mutant(
        "the first stamp expires earlier producers",
        "partitions.replica.producer_table:ProducerTable._advance",
        "self._first_ms = self._newest_ms = stamped_ms",
        "self._newest_ms = 0",
        script=_TABLE_TESTS,
    ),
    Mutant(
        "times of producers keep producers from expiring",
        "partitions.replica.producer_table:ProducerTable.apply",
        "head = _ROW.pack(producer_id, epoch, self._newest_ms,",
        "head = _ROW.pack(producer_id, epoch, header.max_timestamp,",
        script=_TABLE_TESTS,
    ),
    Mutant(
        "an id that was never allocated is taken",
        "partitions.replica.producer_admission:ProducerAdmission.admit",
        "if newest >= image.next_producer_id:",
        "if False:",
        script=_ADMISSION_TESTS,
    ),
    Mutant(
        "an id is the producer's number",
        "partitions.metadata.producer_ids:ProducerIdCipher._mixed",
        'return int.from_bytes(digest, "big") & _HALF_MASK',
        "return 0",
        script="tests/unit/partitions/test_producer_ids.py",
    ),
    Mutant(
        "metadata that is behind refuses a producer",
        "partitions.replica.producer_admission:ProducerAdmission.admit",
        "image = await self._metadata.current_image(max(1, int(timeout_ms)))",
        "image = self._metadata.image",
        script=_ADMISSION_TESTS,
    ),
    Mutant(
        "a broker with a wrong clock stays as late as the first reading was",
        "raftlog.node.cluster_time:ClusterTime.look",
        "max(own_ms, median_ms)",
        "own_ms",
        script=_CLOCK_TESTS,
    ),
    Mutant(
        "time slows down where readings are late",
        "raftlog.node.cluster_time:ClusterTime.look",
        "max(own_ms, median_ms)",
        "median_ms",
        script=_CLOCK_TESTS,
    ),
    Mutant(
        "producers of a broker are not bounded",
        "partitions.replica.producer_admission:ProducerAdmission.admit",
        "if self._count + len(producer_ids) > self._producers_max:",
        "if False:",
        script=_ADMISSION_TESTS,
    ),
    Mutant(
        "a state counts at any entry",
        "raftlog.storage.log_reads:LogReads.holds",
        "self.term_at(entry.index) == entry.term",
        "True",
        script="tests/unit/storage/test_snapshots.py",
    ),
    Mutant(
        "a state that is ahead of its log stays",
        "raftlog.storage.state_files:StateFiles.drop_unless",
        "if not holds(_peek(self._filesystem, path))",
        "if False",
    ),
)
