"""One planted bug for each promise about topics, logs, messages, producers and consumers."""

from __future__ import annotations

from tests.helpers.planted_bugs import Edit
from tests.planted_bugs.bug import PlantedBug

PROMISES_OF_RECORDS = (
    PlantedBug(
        "an existing topic is created over",
        "T1",
        "partitions.metadata.machine:_create_topic",
        "if exists is not None:",
        "if exists is not None and exists.creation_id == command.creation_id:",
        seen_by=(
            "tests/unit/partitions/metadata/test_machine.py::"
            "test_creating_a_topic_twice_is_a_conflict_and_changes_nothing"
        ),
    ),
    PlantedBug(
        "a broker looks its replicas up by partition alone",
        "T2",
        "partitions.routing.local:LocalReplicas.here",
        "self.replicas.get(key_of(target))",
        "next((each for (_, number), each in self.replicas.items() if number == target.partition), None)",
        seen_by=(
            "tests/scenarios/partitions/test_gateway.py::"
            "test_records_are_in_the_named_topic_and_stay_when_read"
        ),
        more=(
            Edit(
                "partitions.routing.local:LocalReplicas.here",
                "replica.group.group_id != group_id",
                "False",
            ),
        ),
    ),
    PlantedBug(
        "replicas are placed without a look at the load of brokers",
        "T3",
        "partitions.metadata.placement:_by_load",
        "holder.replicas_each",
        "0.0",
        seen_by=(
            "tests/properties/test_placement.py::"
            "test_replicas_and_leaders_are_spread_evenly_after_every_topic"
        ),
    ),
    PlantedBug(
        "a batch overtakes another that takes longer to check",
        "T4",
        "partitions.replica.replica:PartitionReplica._judged",
        "async with self._checking:",
        "if True:",
        seen_by=(
            "tests/scenarios/partitions/test_replica.py::"
            "test_a_batch_that_takes_long_to_check_is_not_overtaken"
        ),
    ),
    PlantedBug(
        "a receipt has the offset of the last record",
        "T5",
        "partitions.replica.replica:PartitionReplica._place",
        "first=Offset(proposal.first)",
        "first=Offset(proposal.last)",
        seen_by="tests/scenarios/partitions/test_replica.py::test_offsets_count_records_from_zero",
    ),
    PlantedBug(
        "the flusher syncs one log in each round",
        "T6",
        "raftlog.node.flusher:Flusher._begin_round",
        "owners, self._dirty = self._dirty, {}",
        "owners = dict([self._dirty.popitem()])",
        seen_by=(
            "tests/scenarios/partitions/test_acks.py::"
            "test_four_partitions_take_more_than_twice_as_many_records"
        ),
    ),
    PlantedBug(
        "a read moves the log start",
        "T7",
        "partitions.replica.reads:Reads._fetched",
        'data = b"" if found is None else found.data',
        'data = b"" if found is None else found.data; self._replicated_start.offset = high_watermark',
        seen_by=(
            "tests/scenarios/partitions/test_gateway.py::"
            "test_records_are_in_the_named_topic_and_stay_when_read"
        ),
    ),
    PlantedBug(
        "a batch of exactly the limit is refused",
        "T8",
        "raftlog.records.batch:validate_produced",
        "len(batch.data) > bytes_max",
        "len(batch.data) >= bytes_max",
        seen_by=(
            "tests/unit/api/test_produce.py::"
            "test_a_record_above_the_topics_limit_is_too_large_and_one_at_it_is_not"
        ),
    ),
    PlantedBug(
        "only the first block of a snappy body is read",
        "T9",
        "raftlog.records.compression:_decompress_snappy",
        'return b"".join(parts)',
        "return parts[0]",
        seen_by="tests/unit/records/test_golden.py::test_what_is_larger_than_a_block_survives_both_ways",
    ),
    PlantedBug(
        "the sign of a hash chooses the partition",
        "K1",
        "raftlog.records.keys:partition_for_key",
        "(murmur2(key) & _WITHOUT_SIGN)",
        "murmur2(key)",
        seen_by="tests/unit/records/test_keys.py::test_a_key_goes_where_another_client_sends_it",
    ),
    PlantedBug(
        "batches without a key always go to the first partition",
        "K2",
        "raftlog.client.partitioners:Router.route",
        "self._rng.choice(self.queues)",
        "self.queues[0]",
        seen_by=(
            "tests/unit/client/test_partitioners.py::"
            "test_without_a_key_a_batch_stays_together_and_batches_spread_evenly"
        ),
    ),
    PlantedBug(
        "the result of a partitioner may be too large",
        "K3",
        "raftlog.client.partitioners:Router._named",
        "not 0 <= partition < len(queues):",
        "not 0 <= partition <= len(queues):",
        seen_by="tests/unit/client/test_partitioners.py::test_a_function_of_the_user_decides_and_is_checked",
    ),
    PlantedBug(
        "text keys are not encoded as UTF-8",
        "K4",
        "raftlog.records.keys:encode_key",
        "str.encode(key)",
        'str.encode(key, "utf-16")',
        seen_by="tests/unit/records/test_keys.py::test_text_is_utf8_and_an_integer_its_decimal_digits",
    ),
    PlantedBug(
        "an integer key is the number of its partition",
        "K5",
        "raftlog.client.partitioners:Router.route",
        "return self._hashed(key) if queue is None else queue",
        "return self.queues[int(key) % len(self.queues)] if key.isdigit() else self._hashed(key)",
        seen_by=(
            "tests/unit/client/test_partitioners.py::"
            "test_keys_are_bytes_text_or_integers_and_values_bytes_text_or_json"
        ),
    ),
    PlantedBug(
        "known keys keep their partition when partitions are added",
        "K6",
        "raftlog.client.partitioners:Router.set_queues",
        "self._by_key = {}",
        "self._by_key = self._by_key if queues else {}",
        seen_by=(
            "tests/unit/client/test_partitioners.py::"
            "test_keys_that_were_sent_before_spread_over_new_partitions_at_once"
        ),
    ),
    PlantedBug(
        "batches go to a segment that was closed",
        "L1",
        "raftlog.storage.segmented_log:SegmentedLog._roll",
        "self._active = segment",
        "pass",
        seen_by=(
            "tests/scenarios/storage/test_segmented_log.py::"
            "test_a_partition_folder_holds_segments_named_by_their_first_offset"
        ),
    ),
    PlantedBug(
        "a segment that is full takes more batches",
        "L2",
        "raftlog.storage.segmented_log:SegmentedLog._append_run",
        "size + len(batches[at].data) > size_max or",
        "",
        seen_by=(
            "tests/scenarios/storage/test_segmented_log.py::"
            "test_a_partition_folder_holds_segments_named_by_their_first_offset"
        ),
    ),
    PlantedBug(
        "the folder of a replica lacks its prefix",
        "L3",
        "partitions.hosting.directories:Folders.of_partition",
        "Partition-{partition}",
        "{partition}",
        seen_by=("tests/scenarios/partitions/test_manager.py::test_replicas_are_in_folders_of_the_topics_id"),
    ),
    PlantedBug(
        "closing a segment overwrites a byte of the oldest one",
        "L4",
        "raftlog.storage.segmented_log:SegmentedLog._roll",
        "self._active.close()",
        'self._active.close()\n    self._segments[0].open_file().write_at(61, b"x")',
        seen_by="tests/scenarios/storage/test_segmented_log.py::test_closed_segments_are_never_written_again",
    ),
    PlantedBug(
        "each batch is a write of its own",
        "L5",
        "raftlog.storage.segmented_log:SegmentedLog._append_run",
        "size + len(data) > size_max and at > start",
        "at > start",
        seen_by=(
            "tests/unit/storage/test_checked_reads.py::"
            "test_batches_that_come_together_are_one_write_at_the_end_of_the_file"
        ),
    ),
    PlantedBug(
        "an index has an entry for the first batch alone",
        "L6",
        "raftlog.storage.sparse_index:SparseIndex.note",
        "position >= self._next_position",
        "not self._offsets",
        seen_by=(
            "tests/unit/storage/test_checked_reads.py::"
            "test_an_offset_is_found_by_a_look_at_one_interval_of_the_index"
        ),
    ),
    PlantedBug(
        "a large fetch is read as a whole before it is sent",
        "L7",
        "raftlog.node.reading:read_batches",
        "in_pieces and",
        "False and",
        seen_by=(
            "tests/scenarios/api/test_large_fetches.py::"
            "test_16_mib_are_the_bytes_of_the_file_and_take_little_memory"
        ),
    ),
    PlantedBug(
        "a leader computes the checksum of every batch again",
        "L8",
        "raftlog.records.batch:stamp",
        "_LEADER_EPOCH.pack_into(stamped, 12, leader_epoch)",
        (
            "_LEADER_EPOCH.pack_into(stamped, 12, leader_epoch)\n    _ATTRIBUTES.pack_into(stamped, 21, "
            "0)\n    _CHECKSUM.pack_into(stamped, 17, checksum(stamped))"
        ),
        seen_by=(
            "tests/unit/records/test_batch.py::"
            "test_stamping_touches_twelve_bytes_and_leaves_the_producers_checksum"
        ),
    ),
    PlantedBug(
        "a batch that is cut short counts as an empty tail",
        "L9",
        "raftlog.storage.batch_walk:is_blank",
        "data.count(0) != len(data)",
        "data[0]",
        seen_by="tests/unit/storage/test_recovery.py::test_a_batch_cut_short_at_any_byte_is_a_torn_tail",
    ),
    PlantedBug(
        "records are kept for one week",
        "RT1",
        "partitions.metadata.topic_config:complete",
        "{**DEFAULTS, **config}",
        '{**DEFAULTS, "retention.ms": 604_800_000, **config}',
        seen_by=(
            "tests/unit/partitions/test_topic_config.py::"
            "test_records_are_kept_for_two_weeks_unless_somebody_says_otherwise"
        ),
    ),
    PlantedBug(
        "a segment goes before its newest record is too old",
        "RT2",
        "raftlog.storage.retention:first_index_to_keep",
        "segment.stored_ms < oldest_ms",
        "segment.stored_ms <= oldest_ms",
        seen_by=(
            "tests/unit/storage/test_compaction.py::test_a_segment_goes_only_when_its_newest_record_is_too_old"
        ),
    ),
    PlantedBug(
        "the size limit of a topic is not kept",
        "RT3",
        "raftlog.storage.retention:first_index_to_keep",
        "not (is_old or is_excess or is_consumed)",
        "not (is_old or is_consumed)",
        seen_by="tests/unit/storage/test_compaction.py::test_the_oldest_segments_go_until_the_log_fits",
    ),
    PlantedBug(
        "a later entry sets the log start back",
        "RT4",
        "partitions.replica.log_start:LogStart.apply",
        "max(self.offset, found)",
        "found",
        seen_by=(
            "tests/unit/partitions/test_log_start.py::"
            "test_a_start_never_falls_and_the_newest_record_is_none_of_the_brokers"
        ),
    ),
    PlantedBug(
        "a deletion is acknowledged before it is committed",
        "RT5",
        "partitions.replica.deletion:Deletion.delete_before",
        "await asyncio.shield(proposal.outcome)",
        "pass",
        seen_by=(
            "tests/scenarios/partitions/test_delete_before.py::"
            "test_every_broker_refuses_deleted_records_and_keeps_the_others"
        ),
    ),
    PlantedBug(
        "the checksum of a record leaves its value out",
        "M1",
        "raftlog.records.record_checksum:record_crc",
        "if value:",
        "if not value:",
        seen_by="tests/unit/api/test_fetch.py::test_every_field_of_a_record_is_shown",
    ),
    PlantedBug(
        "a leader keeps the time of the producer",
        "M2",
        "partitions.replica.replica:PartitionReplica._place",
        "append_time_ms = self._clock.wall_ms() if self._rules.stamps_append_time else None",
        "append_time_ms = None",
        seen_by=(
            "tests/scenarios/partitions/test_replica.py::test_the_leader_stamps_the_append_time_and_only_that"
        ),
    ),
    PlantedBug(
        "a reader gets bytes whose checksum is wrong",
        "M3",
        "raftlog.storage.log_storage:FileRange.read",
        "if damage is not None:",
        "if damage is not None and False:",
        seen_by=(
            "tests/unit/storage/test_checked_reads.py::"
            "test_a_flipped_bit_anywhere_is_found_by_every_read_and_by_the_scrub"
        ),
    ),
    PlantedBug(
        "headers of records are not encoded",
        "M4",
        "raftlog.records.builder:BatchBuilder.extend",
        "pairs = [*headers]",
        "pairs = []",
        seen_by="tests/unit/records/test_golden.py::test_they_read_what_we_built",
    ),
    PlantedBug(
        "the newest time of a batch is that of its first record",
        "M5",
        "raftlog.records.builder:BatchBuilder.extend",
        "if time_ms > max_ms:",
        "if max_ms < 0:",
        seen_by="tests/unit/records/test_golden.py::test_we_build_the_kept_bytes",
    ),
    PlantedBug(
        "each record is a batch of its own",
        "B1",
        "raftlog.client.buffer:Buffer.append",
        "batch is None or batch.size_bytes + size_bytes > self.batch_bytes",
        "True",
        seen_by=(
            "tests/unit/client/test_delivery.py::"
            "test_many_records_go_in_one_request_and_linger_bounds_the_wait"
        ),
    ),
    PlantedBug(
        "a batch does not wait for more records",
        "B2",
        "raftlog.client.buffer:Buffer._open",
        "due=now + self._linger_s",
        "due=now",
        seen_by=(
            "tests/unit/client/test_delivery.py::test_larger_batches_cost_fewer_requests_and_longer_waits"
        ),
    ),
    PlantedBug(
        "a sync completes one write",
        "B3",
        "raftlog.node.group.log_writer:LogWriter.begin_sync",
        "self._syncing += 1",
        "self._syncing += 1\n        break",
        seen_by=(
            "tests/scenarios/partitions/test_acks.py::"
            "test_requests_that_come_during_a_sync_share_the_next_one"
        ),
    ),
    PlantedBug(
        "a long poll ends with the first bytes",
        "B4",
        "partitions.replica.reads:Reads._gathered",
        "counted += len(found.data)",
        "counted += goal",
        seen_by="tests/scenarios/partitions/test_reads.py::test_a_long_poll_gathers_the_bytes_it_asked_for",
    ),
    PlantedBug(
        "a preset has no linger of its own",
        "B5",
        "raftlog.client.options:producer_options",
        "linger = base.linger if linger is None else linger",
        "linger = Preset().linger if linger is None else linger",
        seen_by=(
            "tests/unit/client/test_delivery.py::test_presets_choose_between_few_requests_and_short_waits"
        ),
    ),
    PlantedBug(
        "a client with TLS follows a URL without TLS",
        "X3",
        "raftlog.client.options:usable_url",
        'or (given.startswith("https:") and not advertised.startswith("https://"))',
        "",
        seen_by="tests/unit/client/test_tls.py::test_an_advertised_url_without_tls_is_never_asked",
    ),
    PlantedBug(
        "a consumer's preset is not used",
        "N6",
        "raftlog.client.consumer.options:consumer_options",
        "base = reader_preset(preset,",
        "base = reader_preset(None,",
        seen_by=(
            "tests/unit/client/test_presets.py::"
            "test_presets_choose_between_few_fetches_and_short_waits[member]"
        ),
    ),
    PlantedBug(
        "a batch in flight stays open for records",
        "P1",
        "raftlog.client.buffer:Buffer.take",
        "queue.open = None",
        "pass",
        seen_by="tests/unit/client/test_partitioners.py::test_a_batch_that_was_taken_is_no_longer_open",
    ),
    PlantedBug(
        "a producer asks for the metadata before each batch",
        "P2",
        "raftlog.client.metadata:Metadata.topic",
        "if view is None or view.is_suspect:",
        "if True:",
        seen_by=(
            "tests/unit/client/test_delivery.py::test_producers_come_and_go_without_a_request_of_any_other"
        ),
    ),
    PlantedBug(
        "a producer ignores the leader that a refusal names",
        "P3",
        "raftlog.client.metadata:Metadata.correct",
        "isinstance(error, NotLeader) and",
        "False and",
        seen_by=(
            "tests/unit/client/test_delivery.py::"
            "test_a_stale_cache_is_corrected_by_the_broker_that_does_not_lead"
        ),
    ),
    PlantedBug(
        "a broker forwards no produce",
        "P4",
        "partitions.routing.gateway:Gateway.append",
        "if node == self._node_id:",
        "if node:",
        seen_by="tests/scenarios/partitions/test_gateway.py::test_every_broker_serves_every_partition",
    ),
    PlantedBug(
        "a producer is answered before the commit",
        "P5",
        "partitions.replica.acks:acknowledged",
        "await placed.proposal.ended(deadline)",
        "pass",
        seen_by="tests/scenarios/partitions/test_acks.py::test_quorum_waits_for_a_majority_and_for_no_more",
    ),
    PlantedBug(
        "a failed batch is sent behind later ones",
        "P6",
        "raftlog.client.pipeline:Pipeline.failed",
        "in_flight.failure = error",
        "in_flight.failure = error; self._in_flight.remove(in_flight); self._in_flight.append(in_flight)",
        seen_by=(
            "tests/unit/client/test_delivery.py::"
            "test_records_are_stored_once_and_in_order_whatever_happens_to_answers"
        ),
    ),
    PlantedBug(
        "all producers have one id",
        "P7",
        "raftlog.client.sender:ProducerIdRequests._ask",
        "return producer.producer_id",
        "return min(1, producer.producer_id)",
        seen_by=(
            "tests/unit/client/test_delivery.py::"
            "test_a_producer_that_comes_or_goes_changes_nothing_for_another"
        ),
    ),
    PlantedBug(
        "records before a position in its batch are returned",
        "C1",
        "raftlog.client.messages:_readable",
        "if batch.base_offset < first_offset:",
        "if False:",
        seen_by=(
            "tests/unit/client/test_reading.py::"
            "test_a_read_gives_what_follows_a_position_up_to_a_limit_and_says_where_to_go_on"
        ),
    ),
    PlantedBug(
        "control batches count among the newest N records",
        "C2",
        "partitions.replica.positions:NewestRecords.look",
        "not header.is_control and self._aborted",
        "self._aborted",
        seen_by="tests/scenarios/partitions/test_transactions.py::test_the_newest_records_are_counted_without_markers_and_what_is_hidden",
    ),
    PlantedBug(
        "a long poll waits for the record behind the next one",
        "C3",
        "partitions.replica.reads:Reads._newer",
        "await self.waiters.wait(Index(following))",
        "await self.waiters.wait(Index(following + 1))",
        seen_by="tests/scenarios/partitions/test_reads.py::test_a_long_poll_of_any_kind_returns_as_soon_as_data_is_there",
    ),
    PlantedBug(
        "calls of all classes share one bound at the callee",
        "C4",
        "raftlog.node.rpc:Calls._question",
        "self._served[kind := _class_of(service, head)] >= CALLS_MAX[kind]",
        "self._served.total() >= CALLS_MAX[kind := _class_of(service, head)]",
        seen_by=(
            "tests/unit/node/test_calls.py::test_a_class_whose_calls_all_wait_leaves_the_others_their_own"
        ),
    ),
    PlantedBug(
        "a consumer begins at the first record",
        "C5",
        "raftlog.client.consumer.core:ConsumerCore._assign",
        "for target, offset in committed.items() if target in assignment",
        "for target, offset in committed.items() if target not in assignment",
        seen_by="tests/unit/client/test_consuming.py::test_a_consumer_begins_where_its_group_has_committed",
    ),
    PlantedBug(
        "a consumer commits the last record in place of the next one",
        "C6",
        "raftlog.client.consumer.core:ConsumerCore.acknowledge",
        "message.offset + 1",
        "message.offset",
        seen_by="tests/unit/client/test_consuming.py::test_a_seek_back_outlasts_a_commit_that_is_on_its_way",
    ),
    PlantedBug(
        "records that share a run are selected as if each had the tags of all",
        "A10",
        "raftlog.records.tags:TagSelection.selects",
        "tags.split(BETWEEN_SETS_OF_RUN)",
        "[tags]",
        seen_by="tests/unit/client/test_tags.py::test_combined_tags_give_exactly_the_messages_that_match[0]",
    ),
    PlantedBug(
        "the lines behind a quote that is not closed are lost with it",
        "A12",
        "api.cli.own_values:CsvRows._first_line",
        "self._next += others[::-1]",
        "self._next += []",
        seen_by="tests/unit/cli/test_own_values.py::test_a_row_is_an_object_with_its_key_in_a_column[open-quote]",
    ),
    PlantedBug(
        "a position between two runs of copied records is that of the last record of the first one",
        "A13",
        "api.kafka_import.accounts:Copied.translated",
        "return runs[at + 1].target if at + 1",
        "return runs[at].target_end - 1 if at + 1",
        seen_by="tests/unit/api/test_kafka_accounts.py::test_a_position_is_that_of_the_first_record_not_consumed",
    ),
)
