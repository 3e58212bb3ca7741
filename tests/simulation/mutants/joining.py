"""Bugs in letting brokers join, and in the members of the metadata group."""

from __future__ import annotations

from chaos.simulator.levels import BROKERS_JOINING
from tests.helpers.planted_bugs import Edit, Mutant

VOTERS = "tests/unit/partitions/metadata/test_voters.py"
ADMISSION = "tests/unit/partitions/metadata/test_admission.py"
STEPS = "tests/unit/partitions/test_reassignment.py"
ADDRESSES = "tests/unit/partitions/test_peer_addresses.py"
FIRST_START = "tests/unit/partitions/test_first_start.py"
TOKENS = "tests/unit/wire/test_joining.py"
HTTP = "tests/unit/api/test_joining.py"
COMMAND = "tests/unit/cli/test_cluster_join.py"
SESSION = "tests/unit/client/test_session.py"
WANTED = "partitions.metadata.voters:wanted_voters"

JOINING = (
    Mutant(
        "a decommissioned broker keeps its vote on metadata",
        WANTED,
        "if not _is_out_of_use(image, node)",
        "if True",
        script=VOTERS,
    ),
    Mutant(
        "a dead voter leaves the metadata group without another in its place",
        WANTED,
        "for node in sorted(set(staying) - wanted):",
        "for node in ():",
        script=VOTERS,
    ),
    Mutant(
        "the metadata group never grows",
        WANTED,
        "max(_size_for(len(in_use)), len(staying))",
        "len(staying)",
        script=VOTERS,
    ),
    Mutant(
        "a healthy voter loses its vote to a dead one",
        WANTED,
        "wanted = {*healthy}",
        "wanted = {node for node in staying if node in dead}",
        script=VOTERS,
    ),
    Mutant(
        "a broker that is not heard becomes a voter",
        WANTED,
        "and each.broker_id in heard",
        "",
        script=VOTERS,
    ),
    Mutant(
        "a fenced broker becomes a voter",
        "partitions.metadata.voters:_is_able",
        "broker.alive and ",
        "",
        script=VOTERS,
    ),
    Mutant(
        "a broker without room becomes a voter",
        "partitions.metadata.voters:_is_able",
        " and broker.broker_id not in without_room",
        "",
        script=VOTERS,
    ),
    Mutant(
        "brokers that never started make the metadata group larger",
        "partitions.metadata.image:MetadataImage.is_in_use",
        "bool(broker.incarnation) and ",
        "",
        script=VOTERS,
    ),
    Mutant(
        "the clocks of removed brokers are needed for a majority",
        "raftlog.node.group_host:GroupHost._watch_peers",
        "sum(map(self._is_in_use, peers))",
        "len(peers)",
        script="tests/scenarios/partitions/test_joining.py::test_brokers_that_were_removed_have_no_say_about_the_time",
    ),
    Mutant(
        "voters are chosen without a look at racks",
        WANTED,
        'key=lambda each: (racks[each.rack or ""], each.broker_id)',
        "key=lambda each: each.broker_id",
        script=VOTERS,
    ),
    Mutant(
        "the id of a live broker is given away",
        "partitions.metadata.admission:refusal",
        "if before is not None and before.alive:",
        "if False:",
        script=ADMISSION,
    ),
    Mutant(
        "the id of a dead broker is given away unasked",
        "partitions.metadata.admission:refusal",
        "if before is not None and not command.replaces:",
        "if False:",
        script=ADMISSION,
    ),
    Mutant(
        "two live brokers share an address",
        "partitions.metadata.admission:refusal",
        "_share_an_address(other, command)",
        "False",
        script=ADMISSION,
    ),
    Mutant(
        "a repeated request lets another broker join",
        "partitions.metadata.broker_commands:admit",
        "if known is not None:",
        "if False:",
        script=ADMISSION,
    ),
    Mutant(
        "a committed admission is not checked again",
        "partitions.metadata.broker_commands:admit",
        "if refused is not None:",
        "if False:",
        script=ADMISSION,
    ),
    Mutant(
        "the process whose id was given away goes on",
        "partitions.metadata.broker_commands:admit",
        'incarnation="",',
        'incarnation="" if before is None else before.incarnation,',
        script=ADMISSION,
    ),
    Mutant(
        "a new disk under an old id is not noticed",
        "partitions.metadata.broker_commands:admit",
        'disk_id="" if before is None else before.disk_id,',
        'disk_id="",',
        script=ADMISSION,
    ),
    Mutant(
        "a broker counts as alive before it has registered",
        "partitions.metadata.liveness:decide",
        "broker.incarnation and ",
        "",
        script=ADMISSION,
    ),
    Mutant(
        "a voter that leaves gets no more metadata",
        "partitions.reassignment.steps:next_step",
        "Membership(view.target, membership.members & view.observers)",
        "Membership(view.target)",
        script=STEPS,
    ),
    Mutant(
        "a learner that is down holds up the voters",
        "partitions.reassignment.steps:next_step",
        "if new <= learners and all(",
        "if not strangers and all(",
        script=STEPS,
    ),
    Mutant(
        "voters change although no majority of the new ones counts",
        "partitions.reassignment.steps:can_commit",
        "2 * len(membership.voters.intersection(able))",
        "2 * len(able)",
        script=STEPS,
    ),
    Mutant(
        "brokers that join are not dialled",
        "partitions.hosting.peer_addresses:PeerAddresses._register",
        "self._dial(peer, (host, port))",
        "pass",
        script=ADDRESSES,
    ),
    Mutant(
        "the address in the metadata is given up while a broker is heard",
        "partitions.hosting.peer_addresses:PeerAddresses.try_others",
        " and self._is_unheard(peer)",
        "",
        script=ADDRESSES,
    ),
    Mutant(
        "a broker that knows old metadata only is not told of new brokers",
        "partitions.hosting.peer_addresses:PeerAddresses.tell",
        "if self._is_unheard(peer)",
        "if False",
        level=BROKERS_JOINING,
    ),
    Mutant(
        "addresses of old metadata replace newer ones",
        "partitions.hosting.peer_addresses:PeerAddresses._register",
        "if addresses.version < self._newest.version:",
        "if False:",
        script=ADDRESSES,
    ),
    Mutant(
        "the metadata leads past a pinned address",
        "partitions.hosting.peer_addresses:PeerAddresses._register",
        "if peer in self._pinned:",
        "if False:",
        script=ADDRESSES,
    ),
    Mutant(
        "a process whose id was given away is dialled",
        "partitions.hosting.peer_addresses:PeerAddresses.image_changed",
        "if broker.admission_id:",
        "if False:",
        script=ADDRESSES,
    ),
    Mutant(
        "a joined broker without its disk begins a cluster",
        "partitions.hosting.first_start:FirstStart.is_over",
        "if self._has_joined:",
        "if False:",
        script=FIRST_START,
    ),
    Mutant(
        "the first brokers begin again although an admitted one is heard",
        "partitions.hosting.first_start:FirstStart._others_know",
        "any(answers) or self._hears_an_admitted_broker()",
        "any(answers)",
        more=(
            Edit(
                "partitions.hosting.first_start:FirstStart._others_know",
                "return self._hears_an_admitted_broker()",
                "return False",
            ),
        ),
        script=FIRST_START,
    ),
    Mutant(
        "the only first broker begins again before others can connect",
        "partitions.hosting.first_start:FirstStart._others_know",
        "unheard or self._host.clock.monotonic() - began < self._listens_s",
        "unheard",
        script=FIRST_START,
    ),
    Mutant(
        "a proof fits any request",
        "raftlog.wire.joining:_proof",
        'msgspec.json.encode(structs.replace(request, proof=""))',
        'b""',
        script=TOKENS,
    ),
    Mutant(
        "whoever has a token may join",
        "api.http.join_tokens:JoinTokens.check",
        "if not is_proven(request, self._secret):",
        "if False:",
        script=HTTP,
    ),
    Mutant(
        "anybody makes tokens",
        "api.http.join_tokens:JoinTokens.check",
        "if not is_signed(request.token, self._secret):",
        "if False:",
        script=HTTP,
    ),
    Mutant(
        "a token never expires",
        "api.http.join_tokens:JoinTokens.check",
        "if token.expires_at < now_ms:",
        "if False:",
        script=HTTP,
    ),
    Mutant(
        "a joined broker takes itself for one of the first",
        "api.broker:Broker._controller",
        "NOBODY if self.settings.joined else ",
        "",
        level=BROKERS_JOINING,
    ),
    Mutant(
        "a joined broker is never made a member",
        "partitions.reassignment.metadata_members:MetadataMembers._prepare",
        "looks.prepared |=",
        "_ =",
        level=BROKERS_JOINING,
    ),
    Mutant(
        "voters of the metadata group change without a joint membership",
        "raftlog.core.membership:Membership.enter_joint",
        "if target.voters == self.voters:",
        "if True:",
        level=BROKERS_JOINING,
    ),
    Mutant(
        "a repeated join lets another broker join",
        "api.cli.joining:_admission_id",
        "hashlib.sha256(msgspec.json.encode(request)).hexdigest()[:32]",
        "__import__('os').urandom(16).hex()",
        script=COMMAND,
    ),
    Mutant(
        "a join of another machine repeats that of the first",
        "api.cli.joining:_admission_id",
        "msgspec.json.encode(request)",
        "request.token.encode()",
        script=COMMAND,
    ),
    Mutant(
        "a late refusal hides an attempt that may have changed something",
        "raftlog.client.session:Session.ask_any",
        "if doubt is not None:",
        "if False:",
        script=SESSION,
    ),
)
