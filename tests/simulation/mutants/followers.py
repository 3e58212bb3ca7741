"""Bugs in reads that any replica may serve, and in racks."""

from __future__ import annotations

from chaos.simulator.levels import BROKERS_FOLLOWERS
from tests.helpers.planted_bugs import Edit, Mutant

READS = "tests/scenarios/partitions/test_follower_reads.py"
CLIENT = "tests/unit/client/test_closest.py"
HTTP = "tests/unit/api/test_closest.py"
PLACEMENT = "tests/properties/test_placement.py"
_FRESHNESS = "partitions.replica.bounded_reads:Freshness"
_CHECK_AGE = "partitions.replica.bounded_reads:_Leader._check_age"
_READS = "partitions.replica.bounded_reads:BoundedReads"
_CLOSEST = "partitions.routing.closest:ClosestReplicas"
_CLIENT = "raftlog.client.closest:ClosestReplica"

FOLLOWERS = (
    Mutant(
        "a follower counts its knowledge from when the proof came",
        f"{_FRESHNESS}._proved",
        "self._as_of_s = max(self._as_of_s, asked_s)",
        "self._as_of_s = asyncio.get_running_loop().time()",
        script=f"{READS}::test_the_age_of_knowledge_counts_from_the_question_not_from_the_answer",
    ),
    Mutant(
        "a follower serves as soon as it has a read index, before it has applied it",
        f"{_FRESHNESS}._proved",
        "while self._serving.group.applied_index < index:",
        "while False:",
        level=BROKERS_FOLLOWERS,
    ),
    Mutant(
        "a leader gives a read index without proof that it leads",
        "partitions.replica.replica:PartitionReplica.read_index",
        "return await self._serving.confirm()",
        "return self.group.commit_index",
        script=f"{READS}::test_a_deposed_leader_that_does_not_know_it_proves_nothing",
    ),
    Mutant(
        "a follower never finds its knowledge too old",
        f"{_FRESHNESS}.ensure",
        "if self.age_s < age_max_s:",
        "if self._as_of_s > -math.inf:",
        more=(
            Edit(f"{_FRESHNESS}.ensure", "if self.age_s >= age_max_s:", "if False:"),
            Edit(_CHECK_AGE, "if self._freshness.age_s > self._age_max_s:", "if False:"),
        ),
        script=f"{READS}::test_a_follower_that_is_cut_off_serves_until_its_knowledge_is_too_old",
    ),
    Mutant(
        "a poll that waits at a follower does not look at its age",
        _CHECK_AGE,
        "if self._freshness.age_s > self._age_max_s:",
        "if False:",
        more=(
            Edit(
                f"{_READS}.fetch",
                "fresh_until = loop.time() + age_max_s - self.freshness.age_s",
                "fresh_until = math.inf",
            ),
        ),
        script=f"{READS}::test_a_poll_that_waits_at_a_follower_ends_when_its_knowledge_is_too_old",
    ),
    Mutant(
        "a follower shows all that is in its log",
        "partitions.replica.reads:Reads._ends",
        "newest = min(group.commit_index, group.log.last_index)",
        "newest = min(group.commit_index if group.is_leader else group.last_index, group.log.last_index)",
        level=BROKERS_FOLLOWERS,
    ),
    Mutant(
        "a follower calls an offset out of range that it does not know",
        f"{_READS}._read",
        "except (OffsetOutOfRange, NotLeader) as error:",
        "except NotLeader as error:",
        script=f"{READS}::test_deleted_records_are_not_served_and_the_leader_says_so",
    ),
    Mutant(
        "a follower does not look at min_offset",
        f"{_READS}._read",
        "if request.min_offset > reads.high_watermark:",
        "if False:",
        more=(
            Edit(
                f"{_READS}._read",
                "return await reads.fetch(request)",
                "return await reads.fetch(replace(request, min_offset=0))",
            ),
            Edit(f"{_READS}.fetch", "result.end < request.min_offset", "False"),
        ),
        level=BROKERS_FOLLOWERS,
    ),
    Mutant(
        "a leader does not look at min_offset",
        "partitions.replica.reads:Reads.fetch",
        "if request.min_offset and request.min_offset > self.high_watermark:",
        "if False:",
        script=f"{READS}::test_min_offset_beyond_the_end_is_refused_in_time",
    ),
    Mutant(
        "min_offset counts the records of open transactions",
        f"{_READS}.fetch",
        "result.end < request.min_offset",
        "result.high_watermark < request.min_offset",
        script=f"{READS}::test_a_follower_shows_no_record_of_an_open_or_aborted_transaction",
    ),
    Mutant(
        "a follower shows the records of open and aborted transactions",
        "partitions.replica.reads:Reads._ends",
        "if committed_only",
        "if committed_only and self._serving.group.is_leader",
        level=BROKERS_FOLLOWERS,
    ),
    Mutant(
        "each reader of a follower asks the leader itself",
        f"{_FRESHNESS}._prove",
        "if proof is None:",
        "if True:",
        script=f"{READS}::test_many_readers_share_one_proof",
    ),
    Mutant(
        "a reader of tags at a follower looks at all of the log at once",
        f"{_READS}.fetch",
        "bool(request.tags) and result.next_offset < result.end",
        "False",
        script=f"{READS}::test_a_reader_of_tags_waits_at_a_follower_and_looks_at_a_bounded_part_of_the_log",
    ),
    Mutant(
        "a broker asks the follower again that could not serve",
        f"{_CLOSEST}.refused",
        "self._avoided[target, node] = now + AVOIDED_S",
        "pass",
        script=f"{READS}::test_a_replica_that_cannot_serve_is_avoided_for_a_while_and_preferred_again",
    ),
    Mutant(
        "a broker never asks a follower again that could not serve once",
        f"{_CLOSEST}.refused",
        "now + AVOIDED_S",
        "now + 1e9",
        script=f"{READS}::test_a_replica_that_cannot_serve_is_avoided_for_a_while_and_preferred_again",
    ),
    Mutant(
        "any replica counts as close",
        f"{_CLOSEST}.of",
        "brokers[node].rack == rack",
        "True",
        script=f"{READS}::test_the_replica_in_the_readers_rack_is_asked_and_else_the_leader",
    ),
    Mutant(
        "a rack that no broker has is taken",
        f"{_CLOSEST}.of",
        "not any(broker.rack == rack for broker in brokers.values())",
        "False",
        script=f"{READS}::test_the_replica_in_the_readers_rack_is_asked_and_else_the_leader",
    ),
    Mutant(
        "a client alternates between a replica that cannot serve and the leader",
        f"{_CLIENT}._refused",
        "self._avoided_until_s = self._session.clock.monotonic() + self._avoided_s",
        "pass",
        script=f"{CLIENT}::test_a_replica_that_cannot_serve_is_avoided_ever_longer_and_then_preferred_again",
    ),
    Mutant(
        "a client raises what a replica refuses",
        f"{_CLIENT}.ask",
        "self._refused(url, error)\n",
        "raise\n",
        script=f"{CLIENT}::test_whatever_a_replica_refuses_the_leader_serves",
    ),
    Mutant(
        "a client asks a replica that is not in sync",
        "raftlog.client.metadata:_by_rack",
        " and broker.broker_id in partition.in_sync",
        " and broker.broker_id in partition.replicas",
        script=f"{CLIENT}::test_a_replica_that_is_not_in_sync_is_not_asked",
    ),
    Mutant(
        "a long poll at a replica ends with its first piece",
        f"{_CLIENT}.ask",
        "is_over = clock.monotonic() >= ends_at",
        "is_over = True",
        script=f"{CLIENT}::test_a_long_poll_at_a_replica_waits_as_long_as_it_is_told",
    ),
    Mutant(
        "min_offset is lost on its way to the broker",
        "raftlog.client.partition:AsyncPartition._fetch",
        "if min_offset:",
        "if False:",
        script=f"{CLIENT}::test_the_replica_in_the_rack_is_read_with_the_bound_of_the_client",
    ),
    Mutant(
        "max_staleness is taken without from=closest",
        "api.resources.closest:with_closest",
        "if name in query:",
        "if False:",
        script=f"{HTTP}::test_wrong_parameters_are_refused_by_name",
    ),
    Mutant(
        "replicas are shared among racks by load alone",
        "partitions.metadata.placement:_share_among_racks",
        "counts[rack.key] < rack.size]",
        "counts[rack.key] < rack.size][:1]",
        script=f"{PLACEMENT}::test_racks_of_any_size_share_a_partition_as_evenly_as_their_sizes_allow",
    ),
)
