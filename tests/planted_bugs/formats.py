"""Bugs that break a format other than that of the log on disk: batches, messages, rows, archives."""

from __future__ import annotations

from tests.planted_bugs.bug import PlantedBug

FORMATS = (
    PlantedBug(
        "data from a peer is not checked",
        "damage and repair",
        "raftlog.repair.segment_writer:SegmentWriter.checked",
        "check_batch(batch)",
        "pass",
        seen_by="tests/scenarios/repair/test_repairer.py::test_what_a_peer_sends_is_checked",
    ),
    PlantedBug(
        "any leader's log replaces a damaged one",
        "damage and repair",
        "raftlog.repair.repairer:Repairer._take_from_leader",
        "term, margin = self._newest_term(repair_target, seen, told)",
        "term, margin = Term(0), 0",
        seen_by=(
            "tests/scenarios/repair/test_repairer.py::test_a_leader_of_an_earlier_term_replaces_nothing"
        ),
    ),
    PlantedBug(
        "a batch of a transaction is stored although nothing can end it",
        "record batch: header",
        "raftlog.records.batch:_refused_field",
        "if is_transactional and not allow_transaction:",
        "if False:",
        seen_by="tests/unit/records/test_batch.py::test_what_is_a_brokers_to_set_is_refused_by_name",
    ),
    PlantedBug(
        "a read does not compare epochs, which a checksum leaves out",
        "record batch: header",
        "raftlog.records.batch:BatchChecks.passed",
        "base != expected or epoch != term or",
        "base != expected or",
        seen_by=(
            "tests/unit/storage/test_checked_reads.py::test_a_flipped_bit_anywhere_is_found_by"
            "_every_read_and_by_the_scrub"
        ),
    ),
    PlantedBug(
        "the bytes that a leader keeps are reset for a repetition",
        "record batch: append time",
        "raftlog.records.batch:unstamped",
        "view, at = memoryview(bytearray(data)), 0",
        "view, at = memoryview(data), 0",
        seen_by=(
            "tests/unit/records/test_batch.py::test_what_can_be_written_to_is_stamped_in_place"
            "_and_unstamped_in_a_copy"
        ),
    ),
    PlantedBug(
        "a part of a batch still says that its tags are listed",
        "record batch: tags",
        "raftlog.records.tag_directory:select",
        "attributes=header.attributes & ~TAGS_KNOWN_BIT",
        "attributes=header.attributes",
        seen_by=(
            "tests/unit/records/test_tag_directory.py::test_the_part_for_a_reader_does_not_say"
            "_that_it_has_no_tags"
        ),
    ),
    PlantedBug(
        "a compacted batch loses the headers of its records",
        "record batch: after compaction",
        "raftlog.records.compaction:retain",
        'parts.append((tag_set(record.headers) or b"", encoded))',
        'parts.append((tag_set(record.headers) or b"", encoded[:-1]))',
        seen_by="tests/unit/storage/test_compaction.py::test_a_compacted_batch_keeps_its_codec",
    ),
    PlantedBug(
        "an aborted transaction hides the next one of its producer",
        "record batch: control batches",
        "raftlog.records.aborted:AbortedRanges.of",
        "at = bisect_left(ranges, header.base_offset, key=_last_offset)",
        "at = 0",
        seen_by=(
            "tests/scenarios/partitions/test_transactions.py::test_an_aborted_transaction_is_never_seen"
        ),
    ),
    PlantedBug(
        "many keys go elsewhere than each of them",
        "record batch: keys",
        "raftlog.records.keys:_murmur2_of_many",
        "if length & 3:",
        "if False:",
        seen_by="tests/unit/records/test_keys.py::test_many_keys_go_where_each_of_them_goes",
    ),
    PlantedBug(
        "a follower treats a membership as data",
        "messages between brokers",
        "raftlog.node.codec:spans_of",
        "if membership is not None:",
        "if False:",
        seen_by=(
            "tests/scenarios/node/test_memberships.py::test_three_members_become_five_and_thre"
            "e_again_under_load"
        ),
    ),
    PlantedBug(
        "the log start is missing in the state of a partition",
        "state of a partition",
        "partitions.replica.machine:PartitionMachine.restoring",
        "zip(own, parts, strict=True)",
        "zip(own, [*parts[:2], b'', *parts[3:]], strict=True)",
        seen_by="tests/unit/partitions/test_log_start.py::test_a_partition_is_restored_with_its_log_start",
    ),
    PlantedBug(
        "a creation repeated after the deletion makes the topic again",
        "metadata",
        "partitions.metadata.machine:_create_topic",
        "if command.creation_id in image.deleted:",
        "if False:",
        seen_by="tests/scenarios/partitions/test_deletion.py::test_a_repeated_creation_restores_no_deleted_topic",
    ),
    PlantedBug(
        "a snapshot of the metadata forgets which creations were deleted",
        "metadata",
        "partitions.metadata.machine:decode_image",
        "deleted=found.deleted,",
        "",
        seen_by=(
            "tests/unit/partitions/metadata/test_machine.py::test_a_creation_repeated_after_th"
            "e_topic_was_deleted_makes_no_topic"
        ),
    ),
    PlantedBug(
        "offsets of a group without members count for the topics that it had only",
        "rows of groups",
        "groups.offsets:GroupOffsets._counts_in",
        "view.group.members and ",
        "",
        seen_by=(
            "tests/unit/groups/test_removed_partitions.py::test_a_broker_that_lags_shows_mem"
            "bers_of_the_new_topic_no_offsets_of_the_old_one"
        ),
    ),
    PlantedBug(
        "a queue forgets which jobs it has handed out",
        "rows of queues",
        "queues.rows:QueueRows.progress",
        "if queue != before:",
        "if before is None:",
        seen_by="tests/unit/queues/test_queues.py::test_what_is_done_stays_done_after_a_fail_over",
    ),
    PlantedBug(
        "a receipt of another queue is accepted",
        "rows of queues",
        "queues.receipts:token_of",
        "check != _CHECK.pack(_sum(topic, group, fields))",
        "False",
        seen_by="tests/unit/api/test_queues_over_http.py::test_what_cannot_hold_is_refused",
    ),
    PlantedBug(
        "a replica of a compacted log does not know how delayed messages left",
        "rows of delayed messages",
        "delayed.state:DelayedState._take",
        "            self._leave(id_)\n",
        "            if id_ not in self.waiting:\n                return\n            self._leave(id_)\n",
        seen_by=(
            "tests/unit/delayed/test_decided_delays.py::test_a_compacted_log_adds_up_to_the_same_messages"
        ),
    ),
    PlantedBug(
        "a snapshot has no schedules",
        "rows of delayed messages",
        "delayed.state:DelayedState.restore",
        "self.schedules = dict(found.schedules)",
        "pass",
        seen_by=(
            "tests/unit/delayed/test_scheduling.py::test_each_instant_has_one_message_whatever_leaders_do"
        ),
    ),
    PlantedBug(
        "the tombstone of a redrive settles the next failure, too",
        "failed records",
        "raftlog.records.failures:FailedRecord.redriven",
        "redrives=self.redrives + 1",
        "redrives=self.redrives",
        seen_by="tests/unit/records/test_failures.py::test_a_record_comes_back_from_both_topics",
    ),
    PlantedBug(
        "a second driver replaces the manifest of a batch",
        "archive",
        "spark_io.archive.storage:DirectoryStorage.create",
        "os.link(temporary, target)",
        "os.replace(temporary, target)",
        seen_by=(
            "tests/scenarios/archive/test_archive.py::test_of_two_drivers_in_one_batch_the_fir"
            "st_manifest_counts"
        ),
    ),
    PlantedBug(
        "a file with another checksum is read",
        "archive",
        "spark_io.archive.files:checked_data",
        "len(data) != entry.bytes or crc32c(data) != entry.crc",
        "len(data) != entry.bytes",
        seen_by="tests/scenarios/archive/test_archive.py::test_damage_is_found_and_never_read",
    ),
    PlantedBug(
        "what a repeated batch has staged holds back readers",
        "Spark",
        "spark_io.commits:commit",
        "_abort(client, key, transactions, run)\n        if newest == sequence and run is None:",
        "if False:",
        seen_by=(
            "tests/unit/spark/test_staging.py::test_a_repeated_batch_changes_nothing_whatever_"
            "its_tasks_are_now"
        ),
    ),
)
