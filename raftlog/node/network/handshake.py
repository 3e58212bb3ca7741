"""Authentication of a connection between nodes: mutual proof of the cluster's secret, without IO.

A handshake has four messages of fixed size. The dialler proves itself first, so that an unknown node
receives no value that is made with the secret::

    dialler → listener   hello            72 bytes
    listener → dialler   hello            72 bytes
    dialler → listener   proof            32 bytes
    listener → dialler   proof            32 bytes

    hello = magic "RLOG", u16 version, u16 zero, u64 own node id, u64 the other's node id,
            16 bytes of SHA-256 of the cluster id, 8 random bytes of the process, 24 of the connection
    proof = HMAC-SHA256(secret, role of the prover ‖ dialler's hello ‖ listener's hello ‖ cluster id)

A listener may refuse a dialler that has proven itself: because it is a removed node, a second process with a
used id, or because of its disk. The listener then answers with a proof of the role "removed", "in use" or
"disk", so the dialler knows that a node of its cluster refuses it, and with 200 bytes of explaining text.

A proof covers both random numbers, both ids, the version and the role. So it is valid for one connection in
one direction and cannot be replayed or reflected. Leaves to others (the owner of the connection): the time
limit of a handshake, and the log line of a refusal.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from raftlog.types import NodeId

PROTOCOL_VERSION = 1
"""The version of the protocol; both sides of a connection must have equal versions."""

SECRET_BYTES_MIN = 16
"""The minimum length of the secret in bytes: a shorter secret could be guessed from a recorded handshake."""

NONCE_BYTES = 24
"""The number of fresh random bytes that each side contributes to a connection."""

PROCESS_BYTES = 8
"""The number of random bytes that distinguish two processes with one node id."""

_HELLO = struct.Struct(">4sHHQQ16s8s24s")
_DETAIL_BYTES = 200
_MAGIC = b"RLOG"
_PROOF_BYTES = hashlib.sha256().digest_size
_DIALLER = b"raftlog dialler\0"
_LISTENER = b"raftlog listener\0"

REMOVED_NODE = "removed_node"
"""The reason of a refusal, used at both ends: the dialler was removed from the cluster."""

NODE_ID_IN_USE = "node_id_in_use"
"""The reason of a refusal, used at both ends: another process with the dialler's node id is connected."""

DISK_REFUSED = "disk_refused"
"""The reason of a refusal, used at both ends: frames are dropped because of the dialler's disk."""

_REFUSING_ROLES = {
    REMOVED_NODE: b"raftlog removed\0",
    NODE_ID_IN_USE: b"raftlog in use\0",
    DISK_REFUSED: b"raftlog disk\0",
}


def is_second_process(process: bytes, connected: bytes, reached: bytes) -> bool:
    """Whether a dialling process is a second process with its node id, and must be refused.

    ``connected`` is the process on the node's existing connection; empty if there is none. ``reached`` is the
    process that the listener's own link to the node has reached last.
    """
    return connected not in (b"", process) and connected == reached


class HandshakeRefused(Exception):
    """A refusal of the other side. ``reason`` is a short name, free of secrets.

    ``answer`` is sent before the connection is closed: this side's hello, if it lets the other side see the
    mismatch. ``claimed`` is the node id that the other side claimed, without proof. ``detail`` is a sentence
    for people.
    """

    def __init__(self, reason: str, answer: bytes = b"", claimed: int = 0, detail: str = "") -> None:
        super().__init__(reason.replace("_", " "))
        self.reason = reason
        self.answer = answer
        self.claimed = claimed
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Credentials:
    """The id and process of a node, and the cluster id and secret that all nodes of the cluster share."""

    node_id: NodeId
    cluster_id: str
    secret: bytes = field(repr=False)
    process: bytes = field(default_factory=lambda: secrets.token_bytes(PROCESS_BYTES))

    def __post_init__(self) -> None:
        if self.node_id < 1:
            raise ValueError(f"node_id is {self.node_id}: give a number from 1 up")
        if not self.cluster_id:
            raise ValueError("cluster_id is empty: give the same name to all nodes of the cluster")
        if len(self.secret) < SECRET_BYTES_MIN:
            raise ValueError(f"secret is too short: give at least {SECRET_BYTES_MIN} random bytes")

    def hello(self, peer: NodeId, nonce: bytes) -> bytes:
        """The first message of this node to ``peer``."""
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"nonce has {len(nonce)} bytes: give {NONCE_BYTES} fresh random ones")
        digest = self._cluster_digest()
        return _HELLO.pack(_MAGIC, PROTOCOL_VERSION, 0, self.node_id, peer, digest, self.process, nonce)

    def proof(self, role: bytes, dialler_hello: bytes, listener_hello: bytes) -> bytes:
        """The proof for this connection, which only a node with the secret can compute."""
        statement = role + dialler_hello + listener_hello + self.cluster_id.encode()
        return hmac.digest(self.secret, statement, "sha256")

    def check_hello(self, hello: bytes) -> NodeId:
        """The node id that a hello claims. Raises ``HandshakeRefused`` if the hello is not for this node."""
        magic, version, _, sender, receiver, digest, *_ = _HELLO.unpack(hello)
        reasons = (
            (magic != _MAGIC, "not_our_protocol"),
            (version != PROTOCOL_VERSION, "other_protocol_version"),
            (not hmac.compare_digest(digest, self._cluster_digest()), "other_cluster"),
            (sender < 1, "node_id_invalid"),
            (sender == self.node_id, "node_id_is_ours"),
            (receiver != self.node_id, "meant_for_another_node"),
        )
        for is_wrong, reason in reasons:
            if is_wrong:
                raise HandshakeRefused(reason, claimed=sender if magic == _MAGIC else 0)
        return NodeId(sender)

    def _cluster_digest(self) -> bytes:
        return hashlib.sha256(b"raftlog cluster\0" + self.cluster_id.encode()).digest()[:16]


class Handshake(Protocol):
    """One side of a handshake. It is complete when ``bytes_expected`` is 0; ``peer`` is then proven."""

    @property
    def bytes_expected(self) -> int:
        """The exact size of the next message in bytes; 0 once the other side is proven."""

    @property
    def peer(self) -> NodeId:
        """The other side's node id; trustworthy only when the handshake is complete."""

    @property
    def process(self) -> bytes:
        """The random bytes of the other side's process, known after its hello; trustworthy when
        ``peer`` is.
        """

    def greeting(self) -> bytes:
        """The bytes that this side sends first."""

    def receive(self, message: bytes) -> bytes:
        """Handle one whole message; return the bytes to send. Raises ``HandshakeRefused``."""


class DiallerHandshake:
    """The side that opened the connection to a node that it knows."""

    def __init__(self, credentials: Credentials, peer: NodeId, nonce: bytes) -> None:
        self._credentials = credentials
        self.peer = peer
        self._hello = credentials.hello(peer, nonce)
        self._peer_hello = b""
        self._refused_for = ""
        self.bytes_expected = _HELLO.size

    def greeting(self) -> bytes:
        """The dialler's hello, which it sends first."""
        return self._hello

    @property
    def process(self) -> bytes:
        """The random bytes of the listener's process."""
        return _process(self._peer_hello)

    def receive(self, message: bytes) -> bytes:
        """Handle the listener's hello, then its proof; if the proof is a refusal, then the text of the
        reason.
        """
        if self._refused_for:
            detail = message.rstrip(b"\0").decode("ascii", "backslashreplace")
            raise HandshakeRefused(self._refused_for, claimed=self.peer, detail=detail)
        if not self._peer_hello:
            claimed = self._credentials.check_hello(message)
            if claimed != self.peer:
                raise HandshakeRefused("another_node_answered", claimed=claimed)
            self._peer_hello = message
            self.bytes_expected = _PROOF_BYTES
            return self._credentials.proof(_DIALLER, self._hello, message)
        expected = self._credentials.proof(_LISTENER, self._hello, self._peer_hello)
        if hmac.compare_digest(message, expected):
            self.bytes_expected = 0
            return b""
        for reason, role in _REFUSING_ROLES.items():
            refusing = self._credentials.proof(role, self._hello, self._peer_hello)
            if hmac.compare_digest(message, refusing):
                self._refused_for = reason
                self.bytes_expected = _DETAIL_BYTES
                return b""
        raise HandshakeRefused("wrong_secret", claimed=self.peer)


class ListenerHandshake:
    """The side that was dialled; it learns the dialler's id from the hello.

    ``refusal_of`` returns None, or why a node that has proven itself is refused: the reason, and a sentence.
    """

    def __init__(
        self,
        credentials: Credentials,
        nonce: bytes,
        refusal_of: Callable[[NodeId, bytes], tuple[str, str] | None] = lambda peer, process: None,
    ) -> None:
        self._credentials = credentials
        self._nonce = nonce
        self._refusal_of = refusal_of
        self.peer = NodeId(0)
        self._hello = b""
        self._peer_hello = b""
        self.bytes_expected = _HELLO.size

    @property
    def process(self) -> bytes:
        """The random bytes of the dialler's process."""
        return _process(self._peer_hello)

    def greeting(self) -> bytes:
        """No bytes: the dialler sends first."""
        return b""

    def receive(self, message: bytes) -> bytes:
        """Handle the dialler's hello, and then its proof."""
        if not self._peer_hello:
            return self._receive_hello(message)
        expected = self._credentials.proof(_DIALLER, self._peer_hello, self._hello)
        if not hmac.compare_digest(message, expected):
            raise HandshakeRefused("wrong_secret", claimed=self.peer)
        refusal = self._refusal_of(self.peer, self.process)
        if refusal is not None:
            raise self._refused(*refusal)
        self.bytes_expected = 0
        return self._credentials.proof(_LISTENER, self._peer_hello, self._hello)

    def _refused(self, reason: str, detail: str) -> HandshakeRefused:
        proof = self._credentials.proof(_REFUSING_ROLES[reason], self._peer_hello, self._hello)
        text = detail.encode("ascii", "backslashreplace")[:_DETAIL_BYTES]
        return HandshakeRefused(reason, proof + text.ljust(_DETAIL_BYTES, b"\0"), self.peer, detail)

    def _receive_hello(self, message: bytes) -> bytes:
        try:
            self.peer = self._credentials.check_hello(message)
        except HandshakeRefused as refusal:
            if refusal.claimed:
                # The dialler speaks this protocol: a hello lets its log show the mismatch.
                refusal.answer = self._credentials.hello(NodeId(refusal.claimed), self._nonce)
            raise
        self._peer_hello = message
        self._hello = self._credentials.hello(self.peer, self._nonce)
        self.bytes_expected = _PROOF_BYTES
        return self._hello


def _process(hello: bytes) -> bytes:
    return hello[-NONCE_BYTES - PROCESS_BYTES : -NONCE_BYTES]
