"""Bugs in how links between brokers end and begin."""

from __future__ import annotations

from tests.helpers.planted_bugs import Edit, Mutant

CALLS = "tests/unit/node/test_calls.py"
WATCH = "tests/unit/node/test_peer_watch.py"
HALF_OPEN = "tests/scenarios/network/test_half_open_links.py"
TRANSPORT = "tests/scenarios/network/test_tcp_transport.py"

_INBOUND = "raftlog.node.network.tcp_links:InboundConnections"

NETWORK = (
    Mutant(
        "the end of a peer's connection does not close the one to it",
        "raftlog.node.network.tcp_transport:TcpTransport._peer_ended",
        "self._links[peer].disconnect()",
        "self._links[peer].dial_now()",
        script="tests/scenarios/network/test_tcp_transport.py",
    ),
    Mutant(
        "an invalid address ends dialling permanently",
        "raftlog.node.network.tcp_links:OutboundLink._dial_for_ever",
        "(OSError, TimeoutError, UnicodeError)",
        "(OSError, TimeoutError)",
        script="tests/scenarios/network/test_tcp_transport.py",
    ),
    Mutant(
        "a silent link is never ended",
        "raftlog.node.group_host:GroupHost._watch_peers",
        "self._transport.disconnect(peer)",
        "pass",
    ),
    Mutant(
        "a peer that was never heard does not count as silent",
        "raftlog.node.peer_watch:PeerWatch.is_silent",
        "self._connected.get(peer, self.ticks)",
        "self.ticks",
        script=HALF_OPEN,
    ),
    Mutant(
        "a partly received frame counts as silence",
        "raftlog.node.peer_watch:PeerWatch.is_silent",
        "and self._seconds_since_heard(peer) > limit * self._tick_s",
        "",
        script=HALF_OPEN,
    ),
    Mutant(
        "a slow peer counts as silent as soon as others",
        "raftlog.node.peer_watch:PeerWatch.is_silent",
        "SILENCE_GAPS * gap",
        "0",
        script=WATCH,
    ),
    Mutant(
        "a slow peer never counts as silent",
        "raftlog.node.peer_watch:PeerWatch.is_silent",
        "SILENCE_MAX * self._silence_ticks",
        "1_000 * self._silence_ticks",
        script=WATCH,
    ),
    Mutant(
        "a peer that was slow once counts as slow for ever",
        "raftlog.node.peer_watch:PeerWatch.tick",
        "self._gaps, self._gaps_before = {}, self._gaps",
        "pass",
        script=WATCH,
    ),
    Mutant(
        "the pace of a peer is forgotten at once",
        "raftlog.node.peer_watch:PeerWatch.tick",
        "self._gaps, self._gaps_before = {}, self._gaps",
        "self._gaps = {}",
        script=WATCH,
    ),
    Mutant(
        "the time without a link counts as a gap between frames",
        "raftlog.node.peer_watch:PeerWatch.lost",
        "self._heard.pop(peer, None)",
        "pass",
        script=WATCH,
    ),
    Mutant(
        "the end of a peer's connection keeps the one to it",
        "raftlog.node.network.tcp_transport:TcpTransport._peer_ended",
        "self._links[peer].disconnect()",
        "pass",
        script="tests/conformance/test_transports.py",
    ),
    Mutant(
        "a newer connection of a peer keeps the old one to it",
        f"{_INBOUND}.connection_proven",
        "self._ended(peer)",
        "self._context.receiver.peer_lost(peer)",
        script=TRANSPORT,
    ),
    Mutant(
        "the silence for which a link is ended is no gap",
        "raftlog.node.group_host:GroupHost._watch_peers",
        "self._watch.fell_silent(peer)",
        "pass",
        script="tests/scenarios/node/test_slow_brokers.py",
    ),
    Mutant(
        "a reminder may be taken for a late echo",
        "raftlog.core.leader:Leader.is_late",
        "NO_ROUND < message.round",
        "message.round",
        script="tests/unit/core/test_quiescence.py",
    ),
    Mutant(
        "a replica that lost its log does not tell a quiescent leader",
        "raftlog.core.follower:Follower._wait_to_be_told",
        "if member.rejoining:",
        "if False:",
        script="tests/scenarios/node/test_slow_brokers.py",
    ),
    Mutant(
        "a dial has no time-out",
        "raftlog.node.network.tcp_links:OutboundLink._new_connection",
        "limits.dial_ms_max",
        "limits.handshake_ms_max",
        script=HALF_OPEN,
    ),
    Mutant(
        "the kernel may retransmit for a quarter of an hour",
        "raftlog.node.network.tcp_connection:Connection.connection_made",
        '_end_unless_acknowledged(transport.get_extra_info("socket"), self._unacknowledged_limit_ms)',
        "pass",
        script=HALF_OPEN,
    ),
    Mutant(
        "calls of all classes share one bound at the callee",
        "raftlog.node.rpc:Calls._question",
        "self._served[kind] >=",
        "self._served.total() >=",
        script=CALLS,
    ),
    Mutant(
        "calls of all classes share one bound at the caller",
        "raftlog.node.rpc:Calls.call",
        "self._asked[service.kind] >=",
        "self._asked.total() >=",
        script=CALLS,
    ),
    Mutant(
        "outgoing calls are not bounded",
        "raftlog.node.rpc:Calls.call",
        "raise _overloaded(service.kind)",
        "pass",
        script=CALLS,
    ),
    Mutant(
        "incoming calls are not bounded",
        "raftlog.node.rpc:Calls._question",
        "refusal = _overloaded(kind)",
        "pass",
        more=(Edit("raftlog.node.rpc:Calls._question", ">= CALLS_MAX[kind]", "< 0"),),
        script=CALLS,
    ),
    Mutant(
        "an ended call stays counted at the caller",
        "raftlog.node.rpc:Calls.call",
        "self._asked[service.kind] -= 1",
        "pass",
        script=CALLS,
    ),
    Mutant(
        "an ended call stays counted at the callee",
        "raftlog.node.rpc:Calls._forget",
        "self._served[kind] -= 1",
        "pass",
        script=CALLS,
    ),
    Mutant(
        "the end of a connection that was replaced ends the newer one",
        f"{_INBOUND}.connection_closed",
        "self._by_peer.get(connection.peer) is connection",
        "connection.peer in self._by_peer",
        script=TRANSPORT,
    ),
    Mutant(
        "a newer connection does not report lost frames of the older one",
        f"{_INBOUND}.connection_proven",
        "self._ended(peer)",
        "pass",
        script=TRANSPORT,
    ),
    Mutant(
        "connections of brokers are closed for unauthenticated ones",
        f"{_INBOUND}.connection_proven",
        "self._unproven.pop(connection, None)",
        "pass",
        script=TRANSPORT,
    ),
    Mutant(
        "a dial with lost packets lasts as long as the kernel retransmits",
        "raftlog.node.network.tcp_links:OutboundLink._dial_for_ever",
        "asyncio.timeout(limits.dial_ms_max / 1000)",
        "asyncio.timeout(None)",
        script="tests/scenarios/network/test_tcp_links.py",
    ),
    Mutant(
        "bytes beyond half a write stay counted in a peer's queue",
        "raftlog.node.network.tcp_connection:OutboundConnection._next_buffers",
        "self._queue_bytes -= taken_bytes",
        "self._queue_bytes -= min(taken_bytes, WRITE_BYTES // 2)",
        script=TRANSPORT,
    ),
    Mutant(
        "a call on a lost link counts as never sent",
        "raftlog.node.rpc:Calls.peer_lost",
        'before it answered", sent=True)',
        'before it answered", sent=False)',
        script=HALF_OPEN,
    ),
    Mutant(
        "a response that cannot be sent is dropped",
        "raftlog.node.rpc:Calls._deliver",
        "await asyncio.sleep(ANSWER_AGAIN_S)",
        "return",
        script=CALLS,
    ),
)
