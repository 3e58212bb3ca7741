"""One planted bug for each promise about groups, metadata, replication and delivery."""

from __future__ import annotations

from tests.helpers.planted_bugs import Edit
from tests.planted_bugs.bug import PlantedBug

PROMISES_OF_CLUSTERS = (
    PlantedBug(
        "all partitions of a topic share one committed offset",
        "G1",
        "groups.state:GroupsState._take",
        "_set_in(self.offsets, name, (topic, partition), committed)",
        "_set_in(self.offsets, name, (topic, 0), committed)",
        seen_by=(
            "tests/unit/groups/test_committed_offsets.py::test_offsets_are_kept_by_group_topic_and_partition"
        ),
    ),
    PlantedBug(
        "a commit counts for all groups",
        "G2",
        "groups.state:GroupsState._take",
        "_set_in(self.offsets, name, (topic, partition), committed)",
        (
            "for each in {name, *self.groups}:\n                    _set_in(self.offsets, each, (topic, "
            "partition), committed)"
        ),
        seen_by=(
            "tests/unit/groups/test_committed_offsets.py::"
            "test_each_group_reads_all_partitions_from_positions_of_its_own"
        ),
    ),
    PlantedBug(
        "a partition belongs to every member of a group",
        "G3",
        "raftlog.assignors.registry:RangeAssignor.assign",
        "end = start + length + (place < longer)",
        "start, end = 0, partition_counts[topic]",
        seen_by="tests/unit/groups/test_committed_offsets.py::test_each_partition_is_read_by_one_member_of_a_group",
    ),
    PlantedBug(
        "members of earlier generations may commit",
        "G4",
        "groups.membership:Membership._member",
        "generation != group.generation",
        "generation > group.generation",
        seen_by=(
            "tests/unit/groups/test_committed_offsets.py::test_only_members_commit_and_only_what_they_own"
        ),
    ),
    PlantedBug(
        "members beyond the partitions are refused",
        "G5",
        "groups.membership:Membership._check_join",
        "len(offered) >= MEMBERS_MAX",
        "len(offered) >= sum(self._topics.counts[topic] for topic in ask.topics)",
        seen_by="tests/unit/groups/test_rebalances.py::test_more_members_than_partitions_leave_some_idle",
    ),
    PlantedBug(
        "each broker has another coordinator for a group",
        "G6",
        "groups.service:GroupService.ask",
        "partition_for_key(request.group.encode(), count)",
        "(self._node_id + partition_for_key(request.group.encode(), count)) % count",
        seen_by=(
            "tests/scenarios/partitions/test_group_coordinators.py::"
            "test_the_hash_of_its_name_chooses_the_coordinator_of_a_group"
        ),
    ),
    PlantedBug(
        "a commit is acknowledged and not kept",
        "G7",
        "groups.coordination:Coordination._commit",
        "commits.committed_rows(self.state, ask, wall_ms)",
        "()",
        seen_by=(
            "tests/scenarios/partitions/test_group_coordinators.py::"
            "test_the_coordinator_keeps_members_and_offsets_by_heartbeats"
        ),
    ),
    PlantedBug(
        "a group rebalances without waiting for all members",
        "G8",
        "groups.membership:Membership._end_joining_if_all_have",
        "self.group.members.keys() <= joining.joined.keys()",
        "joining.joined.keys()",
        seen_by="tests/unit/groups/test_rebalances.py::test_join_in_the_exact_order",
    ),
    PlantedBug(
        "a leave begins no rebalance",
        "G9",
        "groups.membership:Membership._remove",
        "if self._joining is None:",
        "if self._joining is None and len(gone) > 1:",
        seen_by=(
            "tests/unit/groups/test_rebalances.py::"
            "test_after_a_leave_the_others_are_told_at_their_next_heartbeat"
        ),
    ),
    PlantedBug(
        "a session lasts ten times as long",
        "G10",
        "groups.membership:Membership._touch",
        "now_ms + member.session_timeout_ms",
        "now_ms + 10 * member.session_timeout_ms",
        seen_by="tests/unit/groups/test_rebalances.py::test_a_member_that_is_silent_for_its_session_is_dead",
    ),
    PlantedBug(
        "added partitions begin no rebalance",
        "G11",
        "groups.membership:Membership.look_at_partitions",
        "if reason:",
        "if not reason:",
        seen_by="tests/unit/groups/test_rebalances.py::test_other_partitions_cause_a_rebalance",
    ),
    PlantedBug(
        "the first member leads every generation",
        "G12",
        "groups.generations:next_generation",
        "order[generation % len(order)]",
        "order[0]",
        seen_by="tests/unit/groups/test_rebalances.py::test_a_leader_is_chosen_whenever_the_members_change",
    ),
    PlantedBug(
        "a sync of a follower is answered before there is a plan",
        "G13",
        "groups.membership:Membership.sync",
        "self._waiting[request_id] = _Waiting(_Kind.SYNC, ask.member_id)",
        "self._outputs.answer(request_id, generations.synced(group, ask.member_id))",
        seen_by="tests/unit/groups/test_rebalances.py::test_join_in_the_exact_order",
    ),
    PlantedBug(
        "the turn begins with the first member for each topic",
        "G14",
        "raftlog.assignors.registry:RoundRobinAssignor.assign",
        "turn = places[member] + 1",
        "turn = 0",
        seen_by=(
            "tests/unit/assignors/test_round_robin.py::test_the_example_of_kafka_with_equal_subscriptions"
        ),
    ),
    PlantedBug(
        "all groups of a coordinator share their members",
        "G15",
        "groups.coordination:Coordination._membership",
        "found = self._memberships.get(name)",
        "found = next(iter(self._memberships.values()), None)",
        seen_by="tests/unit/groups/test_rebalances.py::test_a_rebalance_of_one_group_is_unknown_to_another",
    ),
    PlantedBug(
        "the assignment of a generation is not kept",
        "ST1",
        "groups.generations:with_plan",
        "plan.get(member_id, {}).items()",
        "()",
        seen_by=(
            "tests/scenarios/partitions/test_group_coordinators.py::"
            "test_the_next_coordinator_knows_assignments_and_offsets"
        ),
    ),
    PlantedBug(
        "a new coordinator has lost committed offsets",
        "ST2",
        "raftlog.hosting.keyed_records:KeyedState.put",
        "if rows is not None:",
        "if rows is not None and 'Group' in type(key).__name__:",
        seen_by="tests/unit/groups/test_committed_offsets.py::test_offsets_survive_a_fail_over",
    ),
    PlantedBug(
        "a topic is kept without its configuration",
        "ST3",
        "partitions.metadata.machine:_create_topic",
        "config=command.config",
        "config={}",
        seen_by=(
            "tests/unit/partitions/metadata/test_machine.py::"
            "test_a_topic_is_kept_with_its_partitions_configuration_and_replicas"
        ),
    ),
    PlantedBug(
        "a broker is fenced while it is heard",
        "ST4",
        "partitions.metadata.liveness:decide",
        "silent_ms.get(broker_id, 0.0) >= broker_timeout_ms",
        "silent_ms.get(broker_id, 0.0) >= 0",
        seen_by=(
            "tests/unit/partitions/metadata/test_liveness.py::"
            "test_a_broker_is_fenced_once_it_was_silent_for_the_whole_time"
        ),
    ),
    PlantedBug(
        "a controller that is cut off stays active",
        "ST5",
        "raftlog.core.leader:Leader.tick",
        "now >= self._quorum_lost_tick and not self._hears_quorum()",
        "False",
        seen_by=(
            "tests/scenarios/partitions/test_metadata_service.py::"
            "test_another_controller_takes_over_and_knows_all_metadata"
        ),
    ),
    PlantedBug(
        "a topic is planned with one replica too few",
        "ST6",
        "partitions.metadata.planner:_plan_topic",
        "place(brokers, _rows(image), count, factor)",
        "place(brokers, _rows(image), count, max(1, factor - 1))",
        seen_by=(
            "tests/unit/partitions/metadata/test_planner.py::"
            "test_a_wish_becomes_a_topic_with_a_place_for_every_replica"
        ),
    ),
    PlantedBug(
        "a broker holds two replicas of a partition",
        "RP1",
        "partitions.metadata.placement:_place_one",
        "row.extend(_id(broker) for broker in chosen)",
        "row.extend(row[:1] * len(chosen))",
        seen_by=(
            "tests/properties/test_placement.py::"
            "test_replicas_and_leaders_are_spread_evenly_after_every_topic"
        ),
    ),
    PlantedBug(
        "followers take records of producers",
        "RP2",
        "partitions.replica.serving:Serving.check_leads",
        "if not group.is_leader:",
        "if group.leader is None:",
        seen_by="tests/scenarios/partitions/test_replica.py::test_a_follower_refuses_and_names_the_leader",
    ),
    PlantedBug(
        "a replica may lag by one message more",
        "RP3",
        "raftlog.node.group.replica_health:ReplicaHealth.in_sync",
        "behind >= lag_records_max",
        "behind > lag_records_max",
        seen_by=(
            "tests/scenarios/partitions/test_replica.py::test_the_status_shows_a_lagging_replica_out_of_sync"
        ),
    ),
    PlantedBug(
        "records are readable before they are committed",
        "RP4",
        "partitions.replica.reads:Reads._ends",
        "min(group.commit_index, group.log.last_index)",
        "group.log.last_index",
        seen_by="tests/scenarios/partitions/test_reads.py::test_what_is_not_committed_is_not_seen",
    ),
    PlantedBug(
        "acks=every waits for a quorum only",
        "RP5",
        "partitions.replica.acks:acknowledged",
        "in_sync() <= nodes",
        "True",
        seen_by=(
            "tests/scenarios/partitions/test_acks.py::"
            "test_every_waits_for_replicas_in_sync_until_they_are_out_of_sync"
        ),
    ),
    PlantedBug(
        "acks=1 is answered before the leader has synced",
        "RP6",
        "partitions.replica.acks:acknowledged",
        "await group.durable(placed.proposal)",
        "pass",
        seen_by=(
            "tests/scenarios/partitions/test_acks.py::"
            "test_acks_of_the_leader_need_its_disk_and_are_not_committed"
        ),
    ),
    PlantedBug(
        "acks=0 waits for the commit",
        "RP7",
        "partitions.replica.acks:acknowledged",
        "if acks.kind is AcksKind.NONE:",
        "if acks.kind is AcksKind.NONE and placed.proposal is None:",
        seen_by="tests/scenarios/partitions/test_acks.py::test_none_waits_for_nothing",
    ),
    PlantedBug(
        "acks=K is answered by one replica less",
        "RP8",
        "partitions.replica.acks:acknowledged",
        "len(nodes) >= acks.count",
        "len(nodes) >= acks.count - 1",
        seen_by=(
            "tests/scenarios/partitions/test_acks.py::"
            "test_a_count_with_a_dead_follower_is_committed_and_unknown"
        ),
    ),
    PlantedBug(
        "too few replicas in sync take records",
        "RP9",
        "partitions.replica.replica:PartitionReplica._check_health",
        "if healthy < wanted:",
        "if healthy < 1:",
        seen_by=(
            "tests/scenarios/partitions/test_replica.py::test_too_few_replicas_in_sync_refuse_a_produce_early"
        ),
    ),
    PlantedBug(
        "any replica counts as close",
        "RP10",
        "partitions.routing.closest:ClosestReplicas.of",
        "brokers[node].rack == rack",
        "True",
        seen_by=(
            "tests/scenarios/partitions/test_follower_reads.py::test_the_replica_in_the_readers_rack_is_asked"
        ),
    ),
    PlantedBug(
        "replicas are shared among racks by load alone",
        "RP11",
        "partitions.metadata.placement:_share_among_racks",
        "counts[rack.key] < rack.size]",
        "counts[rack.key] < rack.size][:1]",
        seen_by=(
            "tests/properties/test_placement.py::"
            "test_racks_of_any_size_share_a_partition_as_evenly_as_their_sizes_allow"
        ),
    ),
    PlantedBug(
        "a replica is restored on a broker that has one",
        "F1",
        "partitions.metadata.healing:_restored",
        "[node for node in candidates if node not in row]",
        "[*candidates]",
        seen_by="tests/unit/partitions/metadata/test_healing.py::test_the_example_of_four_brokers",
    ),
    PlantedBug(
        "a learner votes before it has caught up",
        "F2",
        "partitions.reassignment.steps:next_step",
        "view.learner_match.get(node, -1) >= view.goal",
        "view.learner_match.get(node, -1) >= -1",
        seen_by="tests/unit/partitions/test_reassignment.py::test_the_next_step_follows_from_what_is_now",
    ),
    PlantedBug(
        "a decommissioned broker keeps its replicas",
        "F3",
        "partitions.metadata.healing:leaving_brokers",
        "if broker.decommissioned",
        "if False",
        seen_by=(
            "tests/unit/partitions/metadata/test_healing.py::"
            "test_a_decommissioned_broker_gives_its_replicas_to_others_while_it_lives"
        ),
    ),
    PlantedBug(
        "added partitions share their groups with other topics",
        "F4",
        "partitions.metadata.machine:_add_partitions",
        "image.next_group_id + len(command.placement)",
        "image.next_group_id",
        seen_by=(
            "tests/unit/partitions/metadata/test_machine.py::"
            "test_added_partitions_are_new_groups_and_the_others_stay_as_they_are"
        ),
    ),
    PlantedBug(
        "the offsets of a removed partition are used again",
        "F5",
        "partitions.metadata.partition_commands:new_partitions",
        "first_offset=before.next_offset, ",
        "",
        seen_by=(
            "tests/unit/partitions/metadata/test_decommissioned_partitions.py::"
            "test_a_later_partition_of_the_number_begins_behind_the_removed_one"
        ),
    ),
    PlantedBug(
        "a replica whose folder is gone passes for a new one",
        "F6",
        "raftlog.hosting.opener:LogOpener.open",
        "is_lost = self.registry.has_held(group_id) and not has_lived(self.filesystem, directory)",
        "is_lost = False",
        seen_by=(
            "tests/unit/hosting/test_opener.py::"
            "test_a_replica_whose_folder_is_gone_rejoins_although_its_progress_was_never_noted"
        ),
    ),
    PlantedBug(
        "a consumer that delivers at most once commits all that it has taken",
        "D1",
        "raftlog.client.consumer.core:ConsumerCore.claim",
        "await self._commit({target: message.offset + 1}",
        "await self._commit({target: self._handed_out[target]}",
        seen_by="tests/unit/client/test_at_most_once.py::test_a_rebalance_loses_and_repeats_nothing",
    ),
    PlantedBug(
        "a segment goes once the fastest of the named groups has consumed it",
        "A11",
        "broker.consumed_positions:slowest_of",
        "min(",
        "max(",
        seen_by="tests/unit/broker/test_consumed_positions.py::test_the_slowest_group_holds_a_partition_back",
    ),
    PlantedBug(
        "an offset expires as soon as nothing is behind it",
        "C7",
        "groups.expiry:_is_meaningless",
        "offset < extent.start or extent.start == extent.end",
        "offset < extent.start or offset == extent.end",
        seen_by=(
            "tests/unit/groups/test_committed_offsets.py::test_an_offset_is_kept_as_long_as_its_record[extent2-True]"
        ),
    ),
    PlantedBug(
        "a worker commits behind a record that is not handled",
        "D2",
        "raftlog.client.worker.core:Progress.handled",
        "while self._begun and self._begun[0].offset in self._handled:",
        "while self._begun and self._begun[0].offset <= offset:",
        seen_by=(
            "tests/unit/client/test_worker.py::test_nothing_is_committed_behind_a_record_that_is_not_handled"
        ),
    ),
    PlantedBug(
        "the results of a batch are committed without its offset",
        "D3",
        "raftlog.client.consumer.batch_transaction:BatchTransactionCore.end",
        "and not await self._add_offset()",
        "and False",
        seen_by="tests/unit/client/test_exactly_once.py::test_results_and_offsets_are_committed_together",
    ),
    PlantedBug(
        "a producer that delivers at most once waits for a majority",
        "D4",
        "raftlog.client.delivery:of_producer",
        'acks or ("0" if delivery == Delivery.AT_MOST_ONCE else "quorum")',
        'acks or "quorum"',
        seen_by="tests/unit/client/test_options.py::test_one_setting_selects_what_belongs_together",
    ),
    PlantedBug(
        "a tag matches every tag that begins with it",
        "A1",
        "raftlog.records.tags:TagSelection.selected_of",
        "needle not in",
        "needle[:-1] not in",
        seen_by="tests/unit/records/test_tag_directory.py::test_exactly_the_matching_records_are_selected",
    ),
    PlantedBug(
        "a reader of tags stays where nothing matched",
        "A2",
        "partitions.replica.reads:Reads._selected",
        "offset, selection.data, selection.next_offset, high",
        "offset, selection.data, selection.next_offset if selection.data else offset, high",
        seen_by=(
            "tests/scenarios/partitions/test_tagged_reads.py::"
            "test_only_matching_records_are_sent_and_the_position_moves_on"
        ),
    ),
    PlantedBug(
        "a new coordinator of delayed messages forgets what is on its way",
        "A3",
        "delayed.lanes:Lanes.__init__",
        "self._move(key, lane)",
        "pass",
        seen_by=(
            "tests/unit/delayed/test_decided_delays.py::test_each_message_arrives_once_whatever_leaders_do[0]"
        ),
    ),
    PlantedBug(
        "a delay may exceed the retention of its topic",
        "A4",
        "delayed.decisions:Decisions._due_ms",
        "if delay_ms_max >= 0 and due_ms - self._draft.wall_ms > delay_ms_max:",
        "if False:",
        seen_by="tests/unit/delayed/test_decided_delays.py::test_no_delay_beyond_the_retention_of_its_topic",
    ),
    PlantedBug(
        "a schedule fires a minute early",
        "A5",
        "delayed.scheduling:Scheduling._fire",
        "first_ms > self._draft.wall_ms",
        "first_ms > self._draft.wall_ms + 60_000",
        seen_by=(
            "tests/unit/delayed/test_scheduling.py::test_a_schedule_fires_at_each_instant_and_not_earlier"
        ),
        more=(
            Edit(
                "delayed.scheduling:Scheduling.collect",
                "self._due.take(self._draft.wall_ms)",
                "self._due.take(self._draft.wall_ms + 60_000)",
            ),
            Edit(
                "delayed.scheduling:Scheduling._instants",
                "wall_ms = self._draft.wall_ms",
                "wall_ms = self._draft.wall_ms + 60_000",
            ),
        ),
    ),
    PlantedBug(
        "a delayed message moves a second early",
        "A6",
        "delayed.lanes:Lanes.collect",
        "self._due.take(self._draft.wall_ms)",
        "self._due.take(self._draft.wall_ms + 1_000)",
        seen_by=(
            "tests/unit/delayed/test_decided_delays.py::"
            "test_an_order_is_checked_half_an_hour_after_it_was_made"
        ),
        more=(
            Edit("delayed.lanes:Lanes._is_due", "one.due_ms <= self._draft.wall_ms", "True"),
            Edit("delayed.lanes:Lanes._start", "one.due_ms > self._draft.wall_ms", "False"),
        ),
    ),
    PlantedBug(
        "a failed record is acknowledged before it is stored",
        "A7",
        "raftlog.client.worker.failures:Failures._store",
        "attempts += 1",
        "return None",
        seen_by=(
            "tests/unit/client/test_worker.py::test_a_failed_record_is_acknowledged_only_when_it_is_stored"
        ),
    ),
    PlantedBug(
        "a file that was archived a moment ago is not looked for before a reader is told to go on behind it",
        "A8",
        "spark_io.archive.fetching:ArchiveReader._files",
        "asked_s if is_missed else asked_s - REFRESH_S",
        "asked_s - REFRESH_S",
        seen_by="tests/scenarios/archive/test_fetching.py::test_a_file_of_a_moment_ago_is_read",
    ),
    PlantedBug(
        "the checksum of a produced batch is not compared",
        "A9",
        "raftlog.records.batch:check_batch",
        "if found != header.crc:",
        "if found < 0:",
        seen_by="tests/unit/api/test_produce.py::test_a_batch_with_a_flipped_bit_is_refused_wherever_it_is",
    ),
    PlantedBug(
        "a preset has no batch size of its own",
        "N1",
        "raftlog.client.options:producer_options",
        "batch_bytes = base.batch_bytes if",
        "batch_bytes = Preset().batch_bytes if",
        seen_by=(
            "tests/unit/client/test_options.py::"
            "test_presets_are_small_and_quick_or_large_and_patient_and_yield_to_what_is_said"
        ),
    ),
    PlantedBug(
        "a refused request counts against the broker's budget",
        "N2",
        "broker.listeners.admission:Budget.take",
        "self._of_client[client] = self.check(client, amount)\n    self.total += amount\n",
        "self.total += amount\n    self._of_client[client] = self.check(client, amount)\n",
        seen_by="tests/unit/api/test_produce.py::test_too_much_in_flight_is_refused_before_it_is_read",
    ),
    PlantedBug(
        "a leader commits what its own disk holds",
        "N3",
        "raftlog.core.quorum:reached_by_quorum",
        "[(len(values) - 1) // 2]",
        "[len(values) - 1]",
        seen_by=(
            "tests/scenarios/partitions/test_acks.py::"
            "test_a_record_is_on_a_majority_of_disks_when_it_is_acknowledged"
        ),
    ),
    PlantedBug(
        "messages are sent before their state is durable",
        "N4",
        "raftlog.core.member:Member.send_when_durable",
        "if not self.writes.hold_back(envelope, index):",
        "if True:",
        seen_by="brokers:0",
    ),
    PlantedBug(
        "a record goes with the next look of retention",
        "N5",
        "raftlog.storage.retention:first_index_to_keep",
        "segment.stored_ms < oldest_ms",
        "segment.stored_ms <= now_ms",
        seen_by=(
            "tests/scenarios/partitions/test_retention.py::"
            "test_records_wait_for_consumers_and_consumers_for_records"
        ),
    ),
    PlantedBug(
        "a repetition of a committed batch is committed again",
        "X1",
        "spark_io.sink:StreamWriter.commit",
        "or staged[0].is_committed",
        "",
        seen_by=(
            "tests/unit/spark/test_staging.py::test_a_run_that_repeats_a_committed_batch_has_nothing_to_write"
        ),
    ),
)
