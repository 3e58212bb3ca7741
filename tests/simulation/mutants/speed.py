"""Bugs where calls were saved, and in the layout of several brokers on one machine."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_INIT = "tests/unit/cli/test_cluster_init.py"

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
)
