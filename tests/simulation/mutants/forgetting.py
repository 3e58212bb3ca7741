"""Bugs in removing brokers for good, and in draining too many."""

from __future__ import annotations

from chaos.simulator.levels import BROKERS_JOINING
from tests.helpers.planted_bugs import Edit, Mutant

RULES = "tests/unit/partitions/metadata/test_forgetting.py"
COMMANDS = "tests/unit/partitions/metadata/test_replica_commands.py"
DRAINS = "tests/unit/partitions/metadata/test_decommissioning.py"
SCENARIOS = "tests/scenarios/partitions/test_forgetting.py"
ADDRESSES = "tests/unit/partitions/test_peer_addresses.py"
HANDSHAKE = "tests/unit/node/test_handshake.py"
TRANSPORTS = "tests/conformance/test_transports.py"
HTTP = "tests/unit/api/test_forgetting.py"
_REFUSAL = "partitions.metadata.forgetting:refusal_to_forget"
_OUT_OF_USE = "partitions.metadata.forgetting:check_out_of_use"
_ADMISSION = "partitions.metadata.admission"
_DRAIN = "partitions.metadata.decommissioning:check_drain"

FORGETTING = (
    Mutant("a broker that is alive is removed", _REFUSAL, "if broker.alive:", "if False:", script=RULES),
    Mutant(
        "a broker that has been started again since is removed",
        _REFUSAL,
        "if broker.incarnation != command.incarnation:",
        "if False:",
        script=RULES,
    ),
    Mutant(
        "a broker to which replicas are on their way is removed",
        _REFUSAL,
        "in partition.possible_replicas",
        "in partition.replicas",
        script=RULES,
    ),
    Mutant(
        "a broker that a move may have reached before it was called off is removed",
        _REFUSAL,
        "in partition.possible_replicas",
        "in partition.all_replicas",
        script=RULES,
    ),
    Mutant(
        "a broker counts as empty although a move that was called off may have reached it",
        "partitions.metadata.image:MetadataImage.replicas_on",
        "possible_replicas",
        "all_replicas",
        script=RULES,
    ),
    Mutant(
        "a report on the way to a target forgets brokers of earlier targets",
        "partitions.metadata.replica_commands:replicas_changed",
        "kept = partition.added if remembers else target",
        "kept = target",
        script=COMMANDS,
    ),
    Mutant(
        "a target that is changed is forgotten",
        "partitions.metadata.replica_commands:set_replicas",
        "earlier = partition.target if image.feature_level >= FORGETTING else ()",
        "earlier = ()",
        script=COMMANDS,
    ),
    Mutant(
        "targets are remembered below their feature level",
        "partitions.metadata.replica_commands:replicas_changed",
        "bool(target) and image.feature_level >= FORGETTING",
        "bool(target)",
        script=COMMANDS,
    ),
    Mutant(
        "a broker with replicas is removed",
        _REFUSAL,
        "if not held:",
        "if True:",
        script=RULES,
    ),
    Mutant("a broker that is heard is removed", _OUT_OF_USE, "if is_heard:", "if False:", script=RULES),
    Mutant(
        "a broker that is down for a moment is removed",
        _OUT_OF_USE,
        "if image.is_in_use(broker_id) and broker_id not in dead:",
        "if False:",
        script=RULES,
    ),
    Mutant(
        "a broker that votes on metadata is removed",
        _OUT_OF_USE,
        "if broker_id in voters:",
        "if False:",
        script=RULES,
    ),
    Mutant(
        "what the metadata do not show is not checked before a removal",
        "partitions.metadata.active:ActiveController._planned",
        "if isinstance(command, ForgetBroker):",
        "if False:",
        script=f"{SCENARIOS}::test_a_broker_that_is_down_for_a_moment_is_not_removed",
    ),
    Mutant(
        "brokers are removed below the feature level",
        "partitions.metadata.forgetting:check_forget",
        "check_feature(image, FORGETTING)",
        "pass",
        script=RULES,
    ),
    Mutant(
        "a committed removal is not checked again",
        "partitions.metadata.broker_commands:forget",
        "if objection is not None:",
        "if False:",
        script=RULES,
    ),
    Mutant(
        "a repeated removal is refused",
        "partitions.metadata.forgetting:check_forget",
        "if request.broker_id in image.forgotten:",
        "if False:",
        script=RULES,
    ),
    Mutant(
        "a repeated removal is not found over HTTP",
        "api.resources.cluster:forget_broker",
        "if broker_id is None or broker_id not in image.forgotten:",
        "if True:",
        script=HTTP,
    ),
    Mutant(
        "the id of a removed broker is given again where none is asked for",
        f"{_ADMISSION}:_lowest_free",
        "number not in image.brokers and number not in image.forgotten",
        "number not in image.brokers",
        script=RULES,
    ),
    Mutant(
        "the id of a removed broker is given again",
        f"{_ADMISSION}:refusal",
        "if broker_id in image.forgotten:",
        "if False:",
        level=BROKERS_JOINING,
    ),
    Mutant(
        "the request that admitted a removed broker admits another",
        f"{_ADMISSION}:refusal",
        "if command.admission_id in image.forgotten.values():",
        "if False:",
        more=(
            Edit(
                f"{_ADMISSION}:check_admission",
                "if request.admission_id and request.admission_id in image.forgotten.values():",
                "if False:",
            ),
        ),
        script=RULES,
    ),
    Mutant(
        "a process of a removed broker registers",
        "partitions.metadata.broker_commands:register",
        "if command.broker_id in image.forgotten:",
        "if False:",
        script=RULES,
    ),
    Mutant(
        "a process of a removed broker is not told so when it registers",
        "partitions.metadata.planner:plan",
        "check_not_removed(image, broker_id)",
        "pass",
        script=RULES,
    ),
    Mutant(
        "a snapshot of the metadata forgets which brokers were removed",
        "partitions.metadata.machine:encode_image",
        "tuple(sorted(image.forgotten.items()))",
        "()",
        script=RULES,
    ),
    Mutant(
        "the clock of a removed broker is needed for a majority",
        "partitions.metadata.image:MetadataImage.is_in_use",
        "return node not in self.forgotten",
        "return True",
        script=RULES,
    ),
    Mutant(
        "a removed broker keeps a vote that it was given meanwhile",
        "partitions.metadata.voters:_is_out_of_use",
        "node in image.forgotten if broker is None else broker.decommissioned",
        "broker is not None and broker.decommissioned",
        script=RULES,
    ),
    Mutant(
        "a removed broker stays a member of the metadata group",
        "partitions.reassignment.metadata_members:MetadataMembers._next",
        " - image.forgotten.keys()",
        "",
        level=BROKERS_JOINING,
    ),
    Mutant(
        "processes of removed brokers are let in",
        "partitions.hosting.peer_addresses:PeerAddresses._forget",
        "self._peers.refuse_peer(peer)",
        "pass",
        level=BROKERS_JOINING,
    ),
    Mutant(
        "a removed broker is told all addresses",
        "partitions.hosting.peer_addresses:PeerAddresses._forget",
        "(self._configured, self._registered, self._dialled)",
        "(self._configured, self._dialled)",
        script=ADDRESSES,
    ),
    Mutant(
        "a broker with old metadata brings a removed one back",
        "partitions.hosting.peer_addresses:PeerAddresses._register",
        "if peer in self._forgotten:",
        "if False:",
        script=ADDRESSES,
    ),
    Mutant(
        "a removed node proves itself and is let in",
        "raftlog.node.network.handshake:ListenerHandshake.receive",
        "if self._is_removed(self.peer):",
        "if False:",
        script=HANDSHAKE,
    ),
    Mutant(
        "whoever listens tells a node that it was removed",
        "raftlog.node.network.handshake:DiallerHandshake.receive",
        "if hmac.compare_digest(message, removed):",
        "if True:",
        script=HANDSHAKE,
    ),
    Mutant(
        "the connections of a removed node stay open",
        "raftlog.node.network.tcp_transport:TcpTransport.refuse_peer",
        "self._inbound.disconnect(peer)",
        "pass",
        script=TRANSPORTS,
    ),
    Mutant(
        "a removed node is dialled on",
        "raftlog.node.network.tcp_transport:TcpTransport.refuse_peer",
        "link.retire()",
        "pass",
        script=TRANSPORTS,
    ),
    Mutant(
        "a removed node is dialled again at a new address",
        "raftlog.node.network.tcp_transport:TcpTransport.set_peer",
        "if peer in self._removed:",
        "if False:",
        script=TRANSPORTS,
    ),
    Mutant(
        "no broker can be drained where all are needed",
        _DRAIN,
        "if out and too_many:",
        "if too_many:",
        script=DRAINS,
    ),
    Mutant(
        "all brokers can be drained",
        _DRAIN,
        "if out and too_many:",
        "if False:",
        script=DRAINS,
    ),
    Mutant(
        "brokers are drained while others are down",
        _DRAIN,
        "(each.draining or not each.alive)",
        "each.draining",
        script=DRAINS,
    ),
    Mutant(
        "a decommissioned broker that is down forbids all drains",
        _DRAIN,
        "image.is_in_use(node) and node != request.broker_id",
        "node != request.broker_id",
        script=DRAINS,
    ),
    Mutant(
        "a repeated drain is refused",
        _DRAIN,
        "if broker.draining or not request.draining:",
        "if not request.draining:",
        script=DRAINS,
    ),
)
