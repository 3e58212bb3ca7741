"""Bugs in decommissioning, removing and adding again the partitions of a topic."""

from __future__ import annotations

from tests.helpers.planted_bugs import Edit, Mutant

PLANS = "tests/unit/partitions/metadata/test_decommissioned_partitions.py"
BROKERS = "tests/scenarios/partitions/test_decommissioned_partitions.py"
PRODUCER = "tests/unit/client/test_decommissioned_partitions.py"
OFFSETS = "tests/unit/groups/test_removed_partitions.py"
DELAYS = "tests/unit/delayed/test_redirected.py"

DECOMMISSIONED_PARTITIONS = (
    Mutant(
        "a broker with old metadata gives up the log of a partition that was added again",
        "partitions.hosting.replica_manager:ReplicaManager._release_gone",
        "await self._release(hosted)  # the opener knows whose log the folder has",
        "await self._release(hosted); "
        'await self._folders.give_up(self._folders.of_partition(topic, hosted.key[1]), "removed")',
        script="tests/scenarios/partitions/test_sweep.py",
    ),
    Mutant(
        "a late request decommissions partitions that were recommissioned",
        "partitions.metadata.partition_commands:decommission",
        "if (writable, topic.shape_version) != (command.expected, command.expected_shape):",
        "if writable != command.expected:",
        script=PLANS,
    ),
    Mutant(
        "all partitions of a topic are decommissioned",
        "partitions.metadata.shrink_planner:_fewer",
        "if wanted == set(range(now)):",
        "if False:",
        script=PLANS,
    ),
    Mutant(
        "a partition in the middle is decommissioned",
        "partitions.metadata.shrink_planner:_fewer",
        "if wanted != set(range(first, now)):",
        "if False:",
        script=PLANS,
    ),
    Mutant(
        "partitions of internal topics are decommissioned",
        "partitions.metadata.shrink_planner:plan_shrink",
        "if topic.is_internal:",
        "if False:",
        script=PLANS,
    ),
    Mutant(
        "a removal counts although the partition was recommissioned meanwhile",
        "partitions.metadata.partition_commands:remove",
        "found != (command.partition, command.group_id, command.decommission_version)",
        "found[:2] != (command.partition, command.group_id)",
        script=PLANS,
    ),
    Mutant(
        "partitions are added behind decommissioned ones",
        "partitions.metadata.machine:_add_partitions",
        " or found.writable_partitions < count",
        "",
        script=PLANS,
    ),
    Mutant(
        "a late addition is repeated after the partition was removed",
        "partitions.metadata.machine:_add_partitions",
        "command.expected_shape not in (None, found.shape_version)",
        "False",
        script=PLANS,
    ),
    Mutant(
        "the offsets of a removed partition are used again",
        "partitions.metadata.partition_commands:new_partitions",
        "first_offset=before.next_offset, ",
        "",
        script=PLANS,
    ),
    Mutant(
        "the log of a later partition begins at 0",
        "partitions.hosting.opener:ReplicaOpener.open",
        "if log.last_index < before_first and partition.is_initial(self.node_id):",
        "if False:",
        script=f"{BROKERS}::test_a_partition_that_is_added_again_is_empty_and_continues_the_offsets",
    ),
    Mutant(
        "a later partition is taken for the removed one",
        "partitions.metadata.partition_commands:new_partitions",
        ", earlier_logs=before.logs",
        "",
        script=PLANS,
    ),
    Mutant(
        "a leader refuses before the seal is committed",
        "partitions.replica.sealing:Sealing.settle",
        "while self.is_due or self._is_being_written:",
        "while False:",
        script=f"{BROKERS}::test_no_later_leader_takes_a_record_whatever_metadata_it_has",
    ),
    Mutant(
        "a leader with old metadata ends a seal",
        "partitions.replica.sealing:Sealing._is_newer",
        "self._wanted.version > self._state.newest.version",
        "True",
        script=f"{BROKERS}::test_no_later_leader_takes_a_record_whatever_metadata_it_has",
    ),
    Mutant(
        "a batch that was stored before the seal is refused",
        "partitions.replica.replica:PartitionReplica._place",
        "known = self._in_flight.check(headers)",
        "self._sealing.check_open()\n    known = self._in_flight.check(headers)",
        script=f"{BROKERS}::test_a_batch_that_was_stored_before_is_recognised_and_a_new_one_is_refused",
    ),
    Mutant(
        "a partition with records is removed",
        "partitions.replica.replica:PartitionReplica.spent_at",
        "if is_held or not machine.sealed.newest.is_sealed:",
        "if not machine.sealed.newest.is_sealed:",
        more=(
            Edit(
                "partitions.replica.replica:PartitionReplica.spent_at",
                "if any(not batch.header.is_control for batch in split_batches(found.data)):",
                "if False:",
            ),
        ),
        script=f"{BROKERS}::test_a_partition_is_removed_once_its_retention_has_passed_and_not_before",
    ),
    Mutant(
        "the newest record of a sealed partition stays for ever",
        "partitions.hosting.hosted_partition:HostedPartition.retention",
        "kept_from = None if is_sealed else newest",
        "kept_from = newest",
        script=f"{BROKERS}::test_a_partition_is_removed_once_its_retention_has_passed_and_not_before",
    ),
    Mutant(
        "the active segment of a sealed partition stays for ever",
        "raftlog.hosting.retention:_close_idle_segment",
        "kept.log.roll_up_to(kept.limits.closed_up_to)",
        "pass",
        script=f"{BROKERS}::test_a_partition_is_removed_once_its_retention_has_passed_and_not_before",
    ),
    Mutant(
        "the folder of a removed partition stays",
        "partitions.hosting.replica_manager:ReplicaManager._release_gone",
        'await self._folders.give_up(self._folders.of_partition(topic, hosted.key[1]), "removed")',
        "pass",
        script=f"{BROKERS}::test_a_partition_is_removed_once_its_retention_has_passed_and_not_before",
    ),
    Mutant(
        "a producer fails records of a decommissioned partition",
        "raftlog.client.pipeline:Pipeline.settle",
        "if self._in_flight and self._is_turned_away(self._in_flight[0]):",
        "if False:",
        script=PRODUCER,
    ),
    Mutant(
        "records that move to another partition lose their keys' order",
        "raftlog.client.narrowing:Narrowing.handed_over",
        "for batch in batches or ()",
        "for batch in reversed(batches or ())",
        script=PRODUCER,
    ),
    Mutant(
        "a record moves although its sender has named the partition",
        "raftlog.client.narrowing:Narrowing._place",
        "if index in batch.named:",
        "if False:",
        script=PRODUCER,
    ),
    Mutant(
        "a partition that is used again begins its sequences again",
        "raftlog.client.producer:AsyncProducer._widen",
        "queues = router.known[:partition_count]",
        "queues = router.queues[:partition_count]",
        script=PRODUCER,
    ),
    Mutant(
        "committed offsets of a removed partition stay",
        "groups.coordination:Coordination.partitions_changed",
        "self._drop_offsets_of_removed()",
        "pass",
        script=OFFSETS,
    ),
    Mutant(
        "a group reads a later partition from the offset of the removed one",
        "groups.commits:starts_of_added",
        " or committed.offset < start",
        "",
        script=OFFSETS,
    ),
    Mutant(
        "an offset in a later partition of the number is taken for one in the removed one",
        "groups.commits:offsets_of_removed",
        "committed.offset < topics.beginnings.get((committed.topic_id, partition), 0)",
        "(committed.topic_id, partition) in topics.beginnings",
        script=OFFSETS,
    ),
    Mutant(
        "a redirected message forgets its target when it gets another time",
        "delayed.draft:Draft.change_of",
        "Change(one.due_ms, failed, one.partition)",
        "Change(one.due_ms, failed)",
        script=DELAYS,
    ),
)
