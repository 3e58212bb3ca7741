"""Bugs in what a stream makes of removed partitions, and in sending many records at once."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_REMOVED = "tests/unit/spark/test_removed_partitions.py"
_MANY = "tests/unit/client/test_many_records.py"

SPARK_REMOVED = (
    Mutant(
        "a stream fails where it has read a partition to its end, and that is removed",
        "spark_io.partition_ends:is_over",
        "removed.records_end <= at",
        "removed.records_end < 0",
        script=_REMOVED,
    ),
    Mutant(
        "a partition that is removed before it was read is left out without an error",
        "spark_io.partition_ends:is_over",
        "removed.records_end <= at",
        "True",
        script=_REMOVED,
    ),
    Mutant(
        "a stream fails where the number of a removed partition is used again",
        "spark_io.partition_ends:is_over",
        "(found is None or at < removed.next_offset)",
        "found is None",
        script=_REMOVED,
    ),
    Mutant(
        "lost records of a later partition count as those of the removed one",
        "spark_io.partition_ends:is_over",
        "(found is None or at < removed.next_offset)",
        "True",
        script=_REMOVED,
    ),
    Mutant(
        "the seal of a decommissioned partition counts as a lost record",
        "spark_io.partition_ends:is_lossless",
        "0 <= found.records_end <= at",
        "False",
        script=_REMOVED,
    ),
    Mutant(
        "nothing is lost where nobody knows the newest record",
        "spark_io.partition_ends:is_lossless",
        "0 <= found.records_end <= at",
        "found.records_end <= at",
        script="tests/unit/spark/test_discovery.py",
    ),
    Mutant(
        "no broker tells where the records of a partition end",
        "partitions.replica.replica:PartitionReplica.status",
        "NO_RECORD if newest < 0 else Offset(newest + 1)",
        "NO_RECORD",
        script=_REMOVED,
    ),
    Mutant(
        "a Delta table waits for the records of a removed partition",
        "spark_io.archive.reporting:is_gone",
        "if found is None:\n        return True",
        "if found is None:\n        return False",
        script=_REMOVED,
    ),
    Mutant(
        "records for which the buffer has no room are dropped",
        "raftlog.client.bulk:append_all",
        "return [*left, *islice(records, at, None)]",
        "return []",
        script=_MANY,
    ),
    Mutant(
        "many keys go elsewhere than each of them",
        "raftlog.records.keys:_murmur2_of_many",
        "if length & 3:",
        "if False:",
        script="tests/unit/records/test_keys.py",
    ),
    Mutant(
        "rows with a partition overtake those that their key has put there",
        "spark_io.rows:_grouped",
        "if 0 < by_key < len(targets):",
        "if False:",
        script="tests/unit/spark/test_rows.py",
    ),
)
