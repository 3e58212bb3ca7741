"""Bugs that break an invariant of groups, delayed messages, queues or transactions."""

from __future__ import annotations

from tests.helpers.planted_bugs import Edit
from tests.planted_bugs.bug import PlantedBug

COORDINATORS = (
    PlantedBug(
        "a request that is decided is refused as not done",
        "T6",
        "raftlog.hosting.coordinator:Coordinator._end",
        "waiting.first_round >= undone_from or self.reads_only(waiting.request)",
        "True",
        "tests/unit/hosting/test_refused_appends.py"
        "::test_a_commit_that_is_decided_is_never_refused_as_not_done[overload]",
    ),
    PlantedBug(
        "a marker of a leader with a lower log start sets it back",
        "T5",
        "partitions.replica.transaction_table:TransactionTable._end",
        "max(self.known_from, marker.log_start)",
        "marker.log_start",
        seen_by=(
            "tests/properties/test_restored_machines.py::test_a_restored_machine_goes_on_as_the_on"
            "e_that_was_snapshotted[partition]"
        ),
    ),
    PlantedBug(
        "whole brokers: a new coordinator does not know who has a job",
        "J1",
        "queues.open_jobs:OpenJobs.take_over",
        'now_ms + left_ms if left_ms or each.job.state == "leased" else None',
        "None",
        seen_by="brokers-queue:2",
    ),
    PlantedBug(
        "whole brokers: how far a queue has come is not stored",
        "J2",
        "queues.rows:QueueRows.progress",
        "if queue != before:",
        "if before is None:",
        seen_by="brokers-queue:2",
    ),
    PlantedBug(
        "whole brokers: the number of deliveries of a job begins again at one",
        "J3",
        "queues.job_steps:leased",
        "deliveries=job.deliveries + 1,",
        "deliveries=1,",
        seen_by="brokers-queue:2",
    ),
    PlantedBug(
        "whole brokers: a record is stepped over in the topic",
        "J4",
        "queues.look_ahead:LookAhead.looked",
        "for each in result.found if is_new(each.offset)",
        "for each in result.found[1:] if is_new(each.offset)",
        seen_by="brokers-queue:0",
    ),
    PlantedBug(
        "a snapshot orders open transactions by producer",
        "I21",
        "partitions.replica.transaction_table:TransactionTable.snapshot",
        "[*self._open.values()]",
        "sorted(self._open.values())",
        seen_by=(
            "tests/properties/test_restored_machines.py::test_a_restored_machine_goes_on_as_the_on"
            "e_that_was_snapshotted[partition]"
        ),
    ),
    PlantedBug(
        "decisions begin before the newest append is known",
        "T1",
        "raftlog.hosting.coordinator:_is_known",
        "return is_refused or (error is None and not append.cancelled())",
        "return True",
        seen_by=(
            "tests/properties/test_coordinator_restarts.py::test_decisions_begin_with_all_that_is_stored"
        ),
    ),
    PlantedBug(
        "whole brokers: jobs are delivered before their leases are stored",
        "J5",
        "raftlog.hosting.coordinator:Coordinator.carry_out",
        "is None or wanted.is_settled",
        "is None or isinstance(wanted, Answer)",
        seen_by="brokers-queue:0",
    ),
    PlantedBug(
        "whole brokers: a new coordinator delivers a redriven job before others of its key",
        "J6",
        "queues.open_jobs:_by_turn",
        "not job.deliveries, job.redrives, job.offset",
        "not job.deliveries, job.offset",
        seen_by="brokers-queue:31",
    ),
    PlantedBug(
        "whole brokers: a new coordinator leaves out dead letters on their way",
        "J7",
        "queues.work_queue:WorkQueue.take_over",
        "for place in self._jobs.dead():",
        "for place in ():",
        seen_by="brokers-queue:19",
    ),
    PlantedBug(
        "a coordinator decides in the state that its log has not reached",
        "T1",
        "transactions.state:TransactionsState.copy",
        "dict(self.transactions)",
        "self.transactions",
        seen_by="brokers-transactions:2",
    ),
    PlantedBug(
        "a group is not told how a transaction ended",
        "T10",
        "transactions.coordinator:TransactionCoordinator._send",
        "gather(*partitions, *groups)",
        "gather(*partitions)",
        seen_by="brokers-transactions:1",
    ),
    PlantedBug(
        "a run is told that the next batch is committed",
        "T11",
        "transactions.sinks:is_committed",
        "ask.sequence <= before.sequence",
        "ask.sequence <= before.sequence + 1",
        seen_by="brokers-transactions:0",
    ),
    PlantedBug(
        "a marker is acknowledged before it is committed",
        "T2",
        "partitions.replica.replica:PartitionReplica.mark",
        "await asyncio.shield(proposal.outcome)",
        "pass",
        seen_by="brokers-transactions:0",
    ),
    PlantedBug(
        "a marker does not fence before it is committed",
        "T3",
        "partitions.replica.producers:InFlight.add_marker",
        "_Pending(epoch + 1, batch, handle)",
        "_Pending(epoch, batch, handle)",
        seen_by="brokers-transactions:2",
    ),
    PlantedBug(
        "a follower shows the records of open and aborted transactions",
        "T4",
        "partitions.replica.reads:Reads._ends",
        "if committed_only",
        "if committed_only and self._serving.group.is_leader",
        seen_by="brokers-followers:4",
    ),
    PlantedBug(
        "an empty batch is committed again when its request arrives again",
        "T7",
        "transactions.sinks:is_new_batch",
        "return ask.sequence > before.sequence",
        "return ask.sequence >= before.sequence",
        seen_by="tests/unit/transactions/test_prepared.py::"
        "test_a_handle_is_committed_once_however_often_its_batch_is_sent",
    ),
    PlantedBug(
        "a partition is removed while delayed messages are on their way there",
        "delayed D1",
        "partitions.reassignment.removal:PartitionRemover._look",
        "if ends is not None and await self._is_awaited(topic.name, partition.partition, ASK_TIMEOUT_MS)",
        "if False",
        seen_by="tests/scenarios/partitions/test_decommissioned_partitions.py::"
        "test_a_partition_stays_while_the_outcome_of_an_append_to_it_is_awaited",
    ),
    PlantedBug(
        "whole brokers: a repeated request adds its delayed messages again",
        "delayed D1",
        "delayed.decisions:Decisions._add",
        "state.waiting.find(message.id) or state.recent.get(message.id)",
        "state.waiting.find(message.id)",
        seen_by="brokers-delayed:3",
    ),
    PlantedBug(
        "whole brokers: a delayed message moves a second early",
        "delayed D2",
        "delayed.lanes:Lanes.collect",
        "self._due.take(self._draft.wall_ms)",
        "self._due.take(self._draft.wall_ms + 1_000)",
        seen_by="brokers-delayed:3",
        more=(
            Edit(
                "delayed.lanes:Lanes._is_due",
                "one.due_ms <= self._draft.wall_ms",
                "True",
            ),
            Edit(
                "delayed.lanes:Lanes._start",
                "one.due_ms > self._draft.wall_ms",
                "False",
            ),
        ),
    ),
    PlantedBug(
        "whole brokers: the sequence of a lane stays after a delivery",
        "delayed D4",
        "delayed.lanes:Lanes.delivered",
        "following = (move.batch.sequence + len(move.batch.ids)) & SEQUENCE_MAX",
        "following = move.batch.sequence",
        seen_by="brokers-delayed:0",
    ),
    PlantedBug(
        "a sweep removes a lane that is used",
        "delayed D5",
        "delayed.lanes:Lanes.gone",
        "self._state.lanes.get(key) is sweep.lanes[key]",
        "key in self._state.lanes",
        seen_by=(
            "tests/properties/test_delayed_lanes.py::test_each_delayed_message_arrives_once_while_"
            "topics_come_and_go"
        ),
    ),
    PlantedBug(
        "whole brokers: another time of a message is answered and not stored",
        "delayed D6",
        "delayed.decisions:Decisions._reschedule",
        "self._draft.write(Row(ChangeKey(request.id), change))",
        "pass",
        seen_by="brokers-delayed:6",
    ),
    PlantedBug(
        "whole brokers: a batch of delayed messages is sent before its assignment is stored",
        "delayed D7",
        "delayed.lanes:Lanes._start",
        "        self._draft.write(Row(key, lane))\n        self._move(key, lane)\n",
        "        self._move(key, lane)\n        self._draft.write(Row(key, lane))\n",
        seen_by="brokers-delayed:0",
        more=(
            Edit(
                "raftlog.hosting.coordinator:Coordinator.carry_out",
                "is None or wanted.is_settled",
                "is None or not isinstance(wanted, Answer) or wanted.is_settled",
            ),
            Edit(
                "delayed.coordinator:DelayedCoordinator._carry",
                "waiting = [self.state.waiting[id_] for id_ in move.batch.ids]",
                "waiting = [self.state.waiting[id_] for id_ in move.batch.ids if id_ in self.state.waiting]",
            ),
        ),
    ),
    PlantedBug(
        "each added partition renews the time of an open transaction",
        "T8",
        "transactions.decisions:Decisions._schedule",
        "if transaction.state is State.ONGOING and name in self._due:",
        "if False:",
        seen_by=(
            "tests/properties/test_transaction_decisions.py::test_each_transaction_has_one_outcome"
            "_in_all_of_its_partitions"
        ),
    ),
    PlantedBug(
        "a generation begins again with the number of the last",
        "group C2",
        "groups.generations:next_generation",
        "generation = before.generation + 1",
        "generation = before.generation or 1",
        seen_by="groups:0",
    ),
    PlantedBug(
        "a member commits in an earlier generation of its group",
        "group C3",
        "groups.membership:Membership._member",
        "if generation != group.generation:",
        "if generation > group.generation:",
        seen_by="groups:155",
    ),
    PlantedBug(
        "a late commit takes an offset back",
        "group C4",
        "groups.commits:_is_below",
        "and commit.offset < before.offset",
        "and False",
        seen_by="groups:38",
    ),
    PlantedBug(
        "partitions that change during a rebalance are missed",
        "group C7",
        "groups.membership:Membership._set_plan",
        "self.look_at_partitions(now_ms)",
        "pass",
        seen_by="groups:65",
    ),
    PlantedBug(
        "a cooperative plan gives away what its owner may still read",
        "group C1",
        "groups.generations:problem_of_plan",
        "if problem is not None or group.strategy != COOPERATIVE:",
        "if True:",
        seen_by=(
            "tests/unit/groups/test_rebalances.py::test_a_cooperative_plan_takes_nothing_from_"
            "a_member_that_may_still_read_it"
        ),
    ),
    PlantedBug(
        "a snapshot of groups lacks the offsets",
        "group C5",
        "raftlog.hosting.keyed_records:KeyedState.put",
        "if rows is not None:",
        "if rows is not None and 'Group' in type(key).__name__:",
        seen_by="tests/unit/groups/test_committed_offsets.py::test_offsets_survive_a_fail_over",
    ),
    PlantedBug(
        "a plan is taken as it comes",
        "group C6",
        "groups.plans:planned",
        "if problem is not None:",
        "if False:",
        seen_by="tests/unit/groups/test_rebalances.py::test_plans_that_do_not_fit_are_refused",
    ),
    PlantedBug(
        "a new coordinator lets a message on its way be cancelled",
        "delayed D3",
        "delayed.lanes:Lanes.__init__",
        "self._moving = {id_ for lane in self._state.lanes.values() for id_ in lane.ids}",
        "self._moving = set()",
        seen_by=(
            "tests/unit/delayed/test_decided_delays.py::test_each_message_arrives_once_whatever_leaders_do"
        ),
    ),
    PlantedBug(
        "the last stable offset does not wait for open transactions",
        "T5",
        "partitions.replica.transaction_table:TransactionTable.last_stable_offset",
        "return high_watermark if oldest is None else min(oldest.first_offset, high_watermark)",
        "return high_watermark",
        seen_by=(
            "tests/unit/partitions/test_participant.py::test_the_oldest_open_transaction"
            "_holds_the_last_stable_offset"
        ),
    ),
    PlantedBug(
        "a committed transaction is shown as aborted",
        "T9",
        "partitions.replica.transaction_table:TransactionTable._end",
        "if not marker.is_commit:",
        "if marker.is_commit:",
        seen_by=(
            "tests/scenarios/partitions/test_transactions.py::"
            "test_a_reader_of_committed_records_sees_committed_transactions"
        ),
    ),
    PlantedBug(
        "whole brokers: a commit of an offset that is not answered in time is refused as not done",
        "group C5",
        "groups.coordinator:GroupCoordinator.too_late",
        "return CommitUnknown(",
        "return Overloaded(",
        seen_by="brokers-group:25",
    ),
    PlantedBug(
        "whole brokers: a receive whose coordinator did not answer is refused as not done",
        "J5",
        "raftlog.hosting.coordinator_service:CoordinatorService.ask",
        "raise CommitUnknown(lost) from failure",
        "raise NoLeader(lost) from failure",
        seen_by="brokers-queue:28",
    ),
    PlantedBug(
        "whole brokers: a request whose records are under way is refused as not done",
        "delayed D6",
        "raftlog.hosting.coordinator:Coordinator._end",
        "unknown = CommitUnknown(",
        "unknown = Overloaded(",
        seen_by="brokers-delayed:23",
    ),
    PlantedBug(
        "whole brokers: how old a group is follows from its members alone",
        "group C10",
        "groups.coordination:Coordination._used_ms",
        "max(newest_ms, group.changed_ms, self.queues.used_ms(name))",
        "max(group.changed_ms, self.queues.used_ms(name))",
        seen_by="brokers-group:2",
    ),
    PlantedBug(
        "ids, sinks and answers are forgotten by a clock that nobody trusts",
        "T12",
        "transactions.decisions:Decisions._forget_some",
        "too_old(self.state, self._trusted_ms,",
        "too_old(self.state, self._wall_ms,",
        seen_by="brokers-transactions:21",
    ),
    PlantedBug(
        "whole brokers: decisions are not split by bytes",
        "T13",
        "raftlog.hosting.coordinator:Coordinator._batches",
        "size_bytes + more_bytes > bytes_max",
        "False",
        seen_by="brokers-transactions:399",
    ),
    PlantedBug(
        "whole brokers: a leader takes a batch that no frame carries",
        "T13",
        "raftlog.node.group.raft_group:RaftGroup.propose",
        "if len(batch.data) > bytes_max:",
        "if False:",
        seen_by="brokers-transactions:399",
    ),
)
