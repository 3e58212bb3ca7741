"""Bugs where calls were saved, and in the layout of several brokers on one machine."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_INIT = "tests/unit/cli/test_cluster_init.py"
_LONG_LIVED = "tests/unit/api/test_long_lived.py"

SPEED = (
    Mutant(
        "brokers of one machine have no common rack",
        "api.cli.local:_init_machines",
        "if per_host > 1 and not labels:",
        "if per_host > len(given) and not labels:",
        script=_INIT,
    ),
    Mutant(
        "the port between brokers is the same for all of a machine",
        "api.addresses:_machine",
        'http = (http_port if parts["port"] is None else int(parts["port"])) + step',
        'http = http_port if parts["port"] is None else int(parts["port"])',
        script=_INIT,
    ),
    Mutant(
        "what follows a record with headers is listed with its tags",
        "raftlog.records.builder:_record_ends",
        "at += twice_length >> 1",
        "at += (twice_length >> 1) - 1",
        script="tests/unit/records",
    ),
    Mutant(
        "a first record without a time shifts the times of the others",
        "raftlog.records.builder:BatchBuilder.extend",
        "encode(count, time_ms - base_ms, record.key, record.value, pairs)",
        "encode(count, time_ms, record.key, record.value, pairs)",
        script="tests/properties/test_records_fuzz.py",
    ),
    Mutant(
        "a disk error within the core's work ends the process",
        "raftlog.node.group.raft_group:RaftGroup._broke",
        "case OSError() | LogCorrupt():",
        "case LogCorrupt():",
        script="tests/unit/node/test_broken_invariants.py",
    ),
    Mutant(
        "nobody hears of replicas that a produce waits for",
        "raftlog.node.group.pending_requests:Waits.until_replicated",
        "self.counts_replicas = True",
        "pass",
        script="tests/unit/node/test_proposals.py",
    ),
    Mutant(
        "garbage collections search the objects of open replicas",
        "api.long_lived:LongLived.look",
        "opened - self._opened >= OPENED_MIN",
        "False",
        script=_LONG_LIVED,
    ),
    Mutant(
        "garbage is kept with the objects of new replicas",
        "api.long_lived:LongLived.look",
        "gc.collect(1)",
        "pass",
        script=_LONG_LIVED,
    ),
    Mutant(
        "the objects of closed replicas are never freed",
        "api.long_lived:LongLived.look",
        "gc.unfreeze()",
        "pass",
        script=_LONG_LIVED,
    ),
    Mutant(
        "everything is searched for a few closed replicas among many",
        "api.long_lived:LongLived.look",
        "max(CLOSED_MIN, here // 2)",
        "CLOSED_MIN",
        script=_LONG_LIVED,
    ),
)
