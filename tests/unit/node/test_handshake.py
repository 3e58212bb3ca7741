"""Only holders of the secret, of the same cluster, under their own ids, get in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftlog.node.network.handshake import (
    REMOVED_NODE,
    Credentials,
    DiallerHandshake,
    Handshake,
    HandshakeRefused,
    ListenerHandshake,
)
from raftlog.types import NodeId

ONE = Credentials(NodeId(1), "cluster", b"correct horse battery staple")
TWO = replace(ONE, node_id=NodeId(2))
NONCE_ONE, NONCE_TWO = b"1" * 32, b"2" * 32


def pair(one: Credentials = ONE, two: Credentials = TWO) -> tuple[DiallerHandshake, ListenerHandshake]:
    return DiallerHandshake(one, NodeId(2), NONCE_ONE), ListenerHandshake(two, NONCE_TWO)


def talk(
    dialler: DiallerHandshake, listener: ListenerHandshake, flipped: tuple[int, int] = (-1, 0)
) -> list[bytes]:
    """Let both speak until nobody has anything to say; return all that was said.

    ``flipped``: in which message, and which bit of it, changes on the way.
    """
    said = [dialler.greeting()]
    sides: list[Handshake] = [listener, dialler]
    while said[-1]:
        turn = len(said) - 1
        heard = bytearray(said[-1])
        if turn == flipped[0]:
            heard[flipped[1] // 8] ^= 1 << flipped[1] % 8
        assert sides[turn % 2].bytes_expected == len(heard)
        said.append(sides[turn % 2].receive(bytes(heard)))
    return said[:-1]


def refusal(dialler: DiallerHandshake, listener: ListenerHandshake) -> HandshakeRefused:
    with pytest.raises(HandshakeRefused) as caught:
        talk(dialler, listener)
    return caught.value


def test_two_nodes_of_a_cluster_prove_themselves_to_each_other() -> None:
    dialler, listener = pair()
    said = talk(dialler, listener)
    assert [len(message) for message in said] == [72, 72, 32, 32]
    assert (dialler.bytes_expected, listener.bytes_expected) == (0, 0)
    assert (dialler.peer, listener.peer) == (2, 1)


@pytest.mark.parametrize(
    ("one", "two", "reason"),
    [
        (replace(ONE, secret=b"another secret of enough bytes"), TWO, "wrong_secret"),
        (replace(ONE, cluster_id="another"), TWO, "other_cluster"),
        (replace(ONE, node_id=NodeId(2)), TWO, "node_id_is_ours"),
        (ONE, replace(TWO, node_id=NodeId(3)), "meant_for_another_node"),
    ],
)
def test_who_does_not_belong_here_is_refused_with_the_reason(
    one: Credentials, two: Credentials, reason: str
) -> None:
    assert refusal(*pair(one, two)).reason == reason


def test_a_listener_of_another_cluster_says_hello_so_that_the_dialler_can_log_why() -> None:
    dialler, listener = pair(two=replace(TWO, cluster_id="another"))
    with pytest.raises(HandshakeRefused) as caught:
        listener.receive(dialler.greeting())
    with pytest.raises(HandshakeRefused, match="other cluster"):
        dialler.receive(caught.value.answer)


def test_a_listener_without_the_secret_is_refused_by_the_dialler() -> None:
    dialler, listener = pair()
    dialler.receive(listener.receive(dialler.greeting()))
    with pytest.raises(HandshakeRefused, match="wrong secret"):
        dialler.receive(bytes(32))


def test_a_dialler_that_reaches_another_node_refuses_it() -> None:
    dialler, _ = pair()
    three = replace(ONE, node_id=NodeId(3))
    with pytest.raises(HandshakeRefused, match="another node answered"):
        dialler.receive(three.hello(NodeId(1), NONCE_TWO))


def test_garbage_gets_no_answer() -> None:
    _, listener = pair()
    with pytest.raises(HandshakeRefused, match="not our protocol") as caught:
        listener.receive(b"GET / HTTP/1.1\r\n".ljust(72))
    assert caught.value.answer == b""


def test_another_version_is_refused_with_the_version_of_ours() -> None:
    dialler, listener = pair()
    hello = bytearray(dialler.greeting())
    hello[5] += 1
    with pytest.raises(HandshakeRefused, match="other protocol version") as caught:
        listener.receive(bytes(hello))
    assert caught.value.answer[:6] == dialler.greeting()[:6]


def test_a_proof_that_was_overheard_is_of_no_use_in_another_connection() -> None:
    said = talk(*pair())
    listener = ListenerHandshake(TWO, b"3" * 32)
    listener.receive(said[0])
    with pytest.raises(HandshakeRefused, match="wrong secret"):
        listener.receive(said[2])


def test_a_proof_cannot_be_sent_back_to_who_made_it() -> None:
    dialler, listener = pair()
    proof = dialler.receive(listener.receive(dialler.greeting()))
    with pytest.raises(HandshakeRefused, match="wrong secret"):
        dialler.receive(proof)


def test_any_changed_bit_of_any_message_ends_the_handshake() -> None:
    for turn, message in enumerate(talk(*pair())):
        for bit in range(8 * len(message)):
            with pytest.raises(HandshakeRefused):
                talk(*pair(), flipped=(turn, bit))


def test_the_secret_stands_in_no_text() -> None:
    assert "horse" not in repr(ONE)
    assert "horse" not in repr(pair())
    assert "horse" not in str(refusal(*pair(replace(ONE, secret=b"wrong horse battery staple"))))


@pytest.mark.parametrize(
    ("node_id", "cluster_id", "secret", "message"),
    [
        (0, "cluster", b"x" * 16, "node_id"),
        (1, "", b"x" * 16, "cluster_id"),
        (1, "cluster", b"x" * 15, "secret"),
    ],
)
def test_unusable_credentials_are_named(node_id: int, cluster_id: str, secret: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Credentials(NodeId(node_id), cluster_id, secret)


# requirement: F3
def test_a_removed_node_is_told_so_by_a_node_that_proves_itself() -> None:
    dialler = DiallerHandshake(ONE, NodeId(2), NONCE_ONE)
    listener = ListenerHandshake(TWO, NONCE_TWO, lambda peer: peer == 1)
    hello = listener.receive(dialler.greeting())
    proof = dialler.receive(hello)
    with pytest.raises(HandshakeRefused) as refused:
        listener.receive(proof)
    assert (refused.value.reason, refused.value.claimed) == (REMOVED_NODE, 1)
    assert listener.bytes_expected > 0, "the dialler is not let in"
    with pytest.raises(HandshakeRefused) as told:
        dialler.receive(refused.value.answer)
    assert told.value.reason == REMOVED_NODE


def test_only_a_holder_of_the_secret_says_that_a_node_was_removed() -> None:
    stranger = replace(TWO, secret=b"something else entirely")
    dialler = DiallerHandshake(ONE, NodeId(2), NONCE_ONE)
    listener = ListenerHandshake(stranger, NONCE_TWO, lambda peer: True)
    proof = dialler.receive(listener.receive(dialler.greeting()))
    with pytest.raises(HandshakeRefused, match="wrong secret"):
        listener.receive(proof)
    lie = stranger.proof(b"raftlog removed\0", dialler.greeting(), b"x" * 72)
    with pytest.raises(HandshakeRefused) as told:
        dialler.receive(lie)
    assert told.value.reason == "wrong_secret"


def test_other_nodes_are_let_in_beside_a_removed_one() -> None:
    dialler = DiallerHandshake(ONE, NodeId(2), NONCE_ONE)
    listener = ListenerHandshake(TWO, NONCE_TWO, lambda peer: peer == 3)
    talk(dialler, listener)
    assert (dialler.bytes_expected, listener.bytes_expected) == (0, 0)
