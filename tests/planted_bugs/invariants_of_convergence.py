"""Bugs that keep a healed cluster from working (L1 to L14)."""

from __future__ import annotations

from tests.helpers.planted_bugs import Edit
from tests.planted_bugs.bug import PlantedBug

CONVERGENCE = (
    PlantedBug(
        "an expired batch is dropped without an error",
        "L1",
        "raftlog.client.sender:PartitionSender._take",
        "self._finish(",
        "(lambda *_: None)(",
        seen_by="http:8",
    ),
    PlantedBug(
        "a lost append is never sent again",
        "L10",
        "raftlog.core.leader:Leader.receive_heartbeat_reply",
        "progress.request_probe()",
        "pass",
        seen_by="core:1",
    ),
    PlantedBug(
        "a dead broker's replica is removed and none is added",
        "L11",
        "partitions.metadata.healing:_restored",
        "row = [node for node in partition.target_replicas if node not in leaving]",
        "return tuple(node for node in partition.target_replicas if node not in leaving)",
        seen_by="brokers-healing:0",
    ),
    PlantedBug(
        "a plan never ends",
        "L13",
        "partitions.metadata.plans:next_of_plan",
        "return [EndPlan(image.plan.version)]",
        "return []",
        seen_by="brokers-balancing:0",
    ),
    PlantedBug(
        "processes of removed brokers are let in",
        "L14",
        "partitions.hosting.peer_addresses:PeerAddresses._forget",
        "self._peers.refuse_peer(peer)",
        "pass",
        seen_by="brokers-joining:19",
    ),
    PlantedBug(
        "a joined broker is never made a member",
        "L2",
        "partitions.reassignment.metadata_members:MetadataMembers._prepare",
        "looks.prepared |=",
        "_ =",
        seen_by="brokers-joining:1",
    ),
    PlantedBug(
        "a removed broker stays a member of the metadata group",
        "L3",
        "partitions.reassignment.metadata_members:MetadataMembers._next",
        " - image.forgotten.keys()",
        "",
        seen_by="brokers-joining:19",
    ),
    PlantedBug(
        "entries below the log start are sent",
        "L4",
        "raftlog.core.appends:Appends._replicate",
        "progress.state is SNAPSHOT or previous < snapshot.index",
        "False",
        seen_by="core:0",
    ),
    PlantedBug(
        "a deposed leader leaves its reads unanswered",
        "L5",
        "raftlog.core.leader:Leader.resign",
        "self._reads.refuse_all(leader)",
        "pass",
        seen_by="core:0",
    ),
    PlantedBug(
        "answered calls stay counted",
        "L6",
        "raftlog.node.rpc:Calls._forget",
        "self._running.pop(task)",
        "self._running[task]",
        seen_by="brokers:3",
    ),
    PlantedBug(
        "disconnects are not checked again after a pause",
        "L6",
        "api.http.disconnects:DisconnectWatcher._look",
        "self._timer = loop.call_later(LOOK_EVERY_S, self._look) if self._parked else None",
        "if self._parked:\n        self._timer = loop.call_later(LOOK_EVERY_S, self._look)",
        seen_by="http:0",
    ),
    PlantedBug(
        "a follower that has lost its leader does not campaign",
        "L7",
        "raftlog.core.follower:Follower.peer_unreachable",
        "self._campaign_within(self._ticks_by_rank())",
        "self._campaign_within(1 << 20)",
        seen_by="core:0",
    ),
    PlantedBug(
        "the received part of an incomplete body is stored",
        "L8",
        "api.http.bodies:_read_rest",
        "while body.missing:",
        "if body.missing:",
        seen_by="http:0",
    ),
    PlantedBug(
        "the loss of a peer is unknown to a leader that was elected later",
        "L9",
        "raftlog.core.raft:Raft._unquiesce",
        "self.unreachable.add(peer)",
        "pass",
        seen_by="core:33",
    ),
    PlantedBug(
        "a second process with the id of a broker is let in",
        "L15",
        "raftlog.node.network.handshake:is_second_process",
        'return connected not in (b"", process) and connected == reached',
        "return False",
        seen_by="brokers-hosts:49",
    ),
    PlantedBug(
        "a verdict about another process makes a disk an older copy",
        "I43",
        "raftlog.node.peer_disks:PeerDisks._is_older",
        "return refused_id == self.age.disk.disk_id and not self.age.disk.continues(newer)",
        "return True",
        seen_by="brokers-hosts:49",
    ),
    PlantedBug(
        "verify does not compare the entries of several copies",
        "I44",
        "raftlog.repair.copies:difference",
        "if len({*checksums.values()}) > 1:",
        "if False:",
        seen_by="brokers-hosts:24",
    ),
    PlantedBug(
        "an older copy passes for its original after many starts that nobody has heard",
        "L15",
        "raftlog.storage.disk_age:DiskAge.next_record",
        "if not self.is_named:",
        "if False:",
        seen_by="brokers-hosts:6",
        more=(
            Edit("raftlog.storage.disk_age:DiskAge.next_record", "*runs[: RUNS_MAX - 1]", "*runs[:31]"),
            Edit(
                "raftlog.storage.disk_age:Disk.continues", "return len(self.runs) < RUNS_MAX", "return True"
            ),
        ),
    ),
    PlantedBug(
        "nobody is told where a broker that has joined went",
        "L2",
        "partitions.hosting.peer_addresses:PeerAddresses._pass_on",
        "if self._told.get(sender) != told:",
        "if False:",
        seen_by=(
            "tests/unit/partitions/test_peer_addresses.py::"
            "test_what_a_broker_tells_of_its_move_is_passed_on_to_those_that_it_does_not_reach"
        ),
    ),
    PlantedBug(
        "a leader that the active controller does not hear goes on leading",
        "L11",
        "raftlog.node.room_watch:ControllerWatch.look",
        "return since > 0 and since % LOOKS_MIN == 0",
        "return False",
        seen_by="brokers-hosts:134",
        more=(
            Edit(
                "raftlog.node.room_watch:ControllerWatch.declines",
                "return self._unheard >= self._looks_max",
                "return False",
            ),
        ),
    ),
)
