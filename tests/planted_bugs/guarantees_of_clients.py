"""Second bugs of promises to users, in the client and the assignors."""

from __future__ import annotations

from tests.planted_bugs.bug import PlantedBug

GUARANTEES_OF_CLIENTS = (
    PlantedBug(
        "a batch gets another number when it is sent again",
        "D3",
        "raftlog.client.pipeline:Pipeline.next_to_send",
        "if in_flight.sequence == UNNUMBERED:",
        "if True:",
        seen_by=(
            "tests/unit/client/test_timing.py::test_at_the_deadline_the_outcome_is_unknown_and"
            "_what_follows_is_neither_lost_nor_doubled"
        ),
    ),
    PlantedBug(
        "a failed batch goes to the end of the line",
        "D3",
        "raftlog.client.pipeline:Pipeline.failed",
        "in_flight.failure = error",
        "in_flight.failure = error; self._in_flight.remove(in_flight); self._in_flight.append(in_flight)",
        seen_by=(
            "tests/unit/client/test_delivery.py::test_records_are_stored_once_and_in_order_wha"
            "tever_happens_to_answers"
        ),
    ),
    PlantedBug(
        "a possibly written batch is sent again in a new epoch",
        "D3",
        "raftlog.client.pipeline:Pipeline._begin_epoch",
        "if in_flight.may_be_written:",
        "if False:",
        seen_by=(
            "tests/unit/client/test_pipeline.py::test_one_that_may_be_written_is_unknown_at_it"
            "s_deadline_and_so_are_those_sent_behind_it"
        ),
    ),
    PlantedBug(
        "the next transaction begins before the outcome of the one before is known",
        "D3",
        "raftlog.client.incarnation:Incarnation.begin",
        "await self.settle()",
        "pass",
        seen_by=(
            "tests/unit/client/test_transactions.py::test_the_next_transaction_ends_the_one_be"
            "fore_as_it_was_to_end"
        ),
    ),
    PlantedBug(
        "the records of a cancelled poll are lost",
        "D2",
        "raftlog.client.consumer.handing:Takes.next",
        "if self._task is not None:",
        "if False and self._task is not None:",
        seen_by=(
            "tests/unit/client/test_consuming.py::test_the_records_of_a_cancelled_poll_come_with_the_next_one"
        ),
    ),
    PlantedBug(
        "a consumer commits over a record that is being handled",
        "D2",
        "raftlog.client.consumer.core:ConsumerCore._over_skipped",
        "acknowledged >= self._handed_out.get(target, -1) and position > reached",
        "position > reached",
        seen_by="tests/unit/client/test_tags.py::test_offsets_are_committed_over_what_was_skipped",
    ),
    PlantedBug(
        "acks=0 is sent again",
        "D1",
        "raftlog.client.pipeline:Pipeline._must_be_given_up",
        "or not self._retries",
        "",
        seen_by="tests/unit/client/test_delivery.py::test_with_acks_0_nothing_is_repeated",
    ),
    PlantedBug(
        "a lost answer counts as not written",
        "P6",
        "raftlog.client.pipeline:Pipeline.failed",
        "in_flight.may_be_written |= not error.is_definite",
        "pass",
        seen_by=(
            "tests/unit/client/test_pipeline.py::test_one_that_may_be_written_is_unknown_at_it"
            "s_deadline_and_so_are_those_sent_behind_it"
        ),
    ),
    PlantedBug(
        "a refusal does not update the leader",
        "P3",
        "raftlog.client.metadata:Metadata.correct",
        "elif isinstance(error, _DOUBTFUL):",
        "elif False:",
        seen_by=(
            "tests/unit/client/test_delivery.py::test_a_leader_that_dies_is_replaced_by_the_ne"
            "xt_one_and_nothing_is_lost"
        ),
    ),
    PlantedBug(
        "a member that was removed still owns its partitions",
        "G4",
        "raftlog.client.consumer.core:ConsumerCore._lose",
        "self._member.owned = frozenset()",
        "pass",
        seen_by=(
            "tests/unit/client/test_membership.py::test_a_cooperative_member_says_what_it_has_"
            "until_it_is_removed"
        ),
    ),
    PlantedBug(
        "a limited read skips the omitted records",
        "C1",
        "raftlog.client.messages:read_messages",
        "return Found(messages, some[-1].offset + 1,",
        "return Found(messages, next_offset,",
        seen_by=(
            "tests/unit/client/test_reading.py::test_a_read_gives_what_follows_a_position_up_t"
            "o_a_limit_and_says_where_to_go_on"
        ),
    ),
    PlantedBug(
        "a seek drops the records of all partitions",
        "C5",
        "raftlog.client.consumer.core:ConsumerCore._continue_at",
        "self._seeks[target] = self._seeks.get(target, 0) + 1",
        "self.epoch += 1",
        seen_by="tests/unit/client/test_consuming.py::test_a_seek_leaves_the_records_of_other_partitions",
    ),
    PlantedBug(
        "keys are hashed over one partition less",
        "K1",
        "raftlog.client.partitioners:Router._hashed",
        "partition_for_key(key, len(queues))",
        "partition_for_key(key, max(1, len(queues) - 1))",
        seen_by="tests/unit/client/test_partitioners.py::test_a_key_goes_where_every_kafka_client_sends_it",
    ),
    PlantedBug(
        "a reader gets nothing of a batch before its damage",
        "M3",
        "raftlog.client.messages:_readable",
        "return found, damage",
        "return [], damage",
        seen_by="tests/unit/client/test_reading.py::test_a_chunk_ends_before_an_undecodable_batch",
    ),
    PlantedBug(
        "a client delivers all messages of a batch whose tags are not listed",
        "A2",
        "raftlog.client.messages:read_messages",
        "if tags.matches(message.headers)",
        "",
        seen_by="tests/unit/client/test_tags.py::test_a_read_gives_exactly_the_messages_with_a_tag",
    ),
    PlantedBug(
        "two records of a key are handled at a time",
        "A7",
        "raftlog.client.worker.lanes:Lanes.begin",
        "self._busy.add(lane)",
        "self._ready.append(lane) if waiting else None",
        seen_by="tests/unit/client/test_worker.py::test_a_lane_runs_one_item_at_a_time_and_in_order",
    ),
    PlantedBug(
        "an open batch overtakes full ones",
        "B1",
        "raftlog.client.buffer:Buffer.take",
        "if queue.closed:",
        "if queue.closed and (queue.open is None or queue.open.due > now):",
        seen_by=(
            "tests/unit/client/test_timing.py::test_after_a_silence_in_which_brokers_forget_a_"
            "producer_its_order_stays"
        ),
    ),
    PlantedBug(
        "min_offset is lost on its way to the broker",
        "RP10",
        "raftlog.client.partition:AsyncPartition._fetch",
        "if min_offset:",
        "if False:",
        seen_by=(
            "tests/unit/client/test_closest.py::test_the_replica_in_the_rack_is_read_with_the_"
            "bound_of_the_client"
        ),
    ),
)
