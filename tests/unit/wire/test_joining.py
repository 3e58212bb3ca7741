"""Tokens and proofs of brokers that join."""

from __future__ import annotations

import base64

import msgspec
import pytest
from msgspec import structs

from raftlog.errors import InvalidRequest
from raftlog.wire.joining import (
    AdmitBroker,
    JoinToken,
    is_proven,
    is_signed,
    read_token,
    signed,
    with_proof,
)

SECRET, OTHER = b"s" * 32, b"t" * 32
TOKEN = JoinToken("c" * 32, ("http://log1.example:7070",), 1_700_000_000_000, "n" * 32)

NESTED = b'{"cluster_id":"a","urls":[],"expires_at":1,"nonce":"x","z":' + b"[" * 5_000 + b"]" * 5_000 + b"}"


def request(token: str) -> AdmitBroker:
    return AdmitBroker(
        token=token, proof="", admission_id="a" * 32, host="log4", port=7170, http="http://log4.example:7070"
    )


def test_a_token_says_where_the_cluster_is_and_who_made_it() -> None:
    text = signed(TOKEN, SECRET)
    assert read_token(f"{text}\n") == TOKEN
    assert is_signed(text, SECRET)
    assert not is_signed(text, OTHER)
    assert SECRET.hex() not in text


def test_a_changed_token_is_not_signed() -> None:
    prefix, _, mac = signed(TOKEN, SECRET).split(".")
    later = msgspec.json.encode(structs.replace(TOKEN, expires_at=1 << 60))
    forged = f"{prefix}.{base64.urlsafe_b64encode(later).decode().rstrip('=')}.{mac}"
    assert read_token(forged).expires_at == 1 << 60
    assert not is_signed(forged, SECRET)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "raftlog-join",
        "raftlog-join..",
        "raftlog-join.e30.00",
        "other." + "e30.00",
        "raftlog-join.%%%.00",
        "ü.ü.ü",
        f"raftlog-join.{base64.urlsafe_b64encode(NESTED).decode().rstrip('=')}.00",
    ],
)
def test_what_is_no_token_is_refused_with_the_remedy(text: str) -> None:
    for read in (read_token, lambda text: is_signed(text, SECRET)):
        with pytest.raises(InvalidRequest, match="raftlog cluster token"):
            read(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"host": "evil"},
        {"port": 1},
        {"http": "http://evil:1"},
        {"broker_id": 3},
        {"replace": True},
        {"admission_id": "b" * 32},
        {"token": "another"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_proof_fits_one_request_only(changes: dict[str, object]) -> None:
    proven = with_proof(request(signed(TOKEN, SECRET)), SECRET)
    assert is_proven(proven, SECRET)
    assert not is_proven(proven, OTHER)
    assert not is_proven(structs.replace(proven, **changes), SECRET)
