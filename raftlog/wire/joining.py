"""The admission of a new broker to a cluster over HTTP: tokens, proofs and bodies.

A token contains the addresses of a cluster, and proves that one of its brokers wrote the token recently::

    token = "raftlog-join." base64url(JSON of JoinToken) "." hex(HMAC-SHA256(secret, "raftlog join token\\0"
            JSON))
    proof = hex(HMAC-SHA256(secret, "raftlog join proof\\0" JSON of AdmitBroker without its proof))

The request contains the token, so a proof is valid for one request and one token. The secret is never sent.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Annotated, Final

import msgspec
from msgspec import structs

from raftlog import errors
from raftlog.errors import InvalidRequest
from raftlog.wire.bodies import Answer, BrokerId, Request, matching
from raftlog.wire.decoding import UNREADABLE
from raftlog.wire.limits import RACK_CHARACTERS_MAX
from raftlog.wire.operation import Leader, Operation

PREFIX: Final = "raftlog-join"
TOKEN_CHARACTERS_MAX: Final = 16_384

_TOKEN: Final = b"raftlog join token\0"
_PROOF: Final = b"raftlog join proof\0"


class JoinToken(msgspec.Struct, frozen=True):
    """The content of a token."""

    cluster_id: str
    urls: tuple[str, ...]  # URLs of brokers
    expires_at: int  # milliseconds since 1970
    nonce: str


class IssuedJoinToken(Answer):
    """Response to ``POST /v1/cluster/join-tokens``."""

    token: str
    expires_at: int


class AdmitBroker(Request):
    """Body of ``POST /v1/brokers``. ``host`` and ``port`` are for other brokers, ``http`` is for clients.

    ``admission_id`` is random for each broker, so that a repeated request admits no second broker. Without
    ``broker_id`` the broker gets the lowest id that was never used.
    """

    token: Annotated[str, msgspec.Meta(max_length=TOKEN_CHARACTERS_MAX)]
    proof: Annotated[str, matching("^[0-9a-f]{64}$")]
    admission_id: Annotated[str, matching("^[0-9a-f]{32}$")]
    host: Annotated[str, matching("^[A-Za-z0-9._:-]{1,253}$")]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    http: Annotated[str, matching(r"^https?://[^/?#\x00-\x20\x7f]{1,512}/?$")]
    broker_id: BrokerId | None = None
    rack: Annotated[str, msgspec.Meta(min_length=1, max_length=RACK_CHARACTERS_MAX)] | None = None
    replace: bool = False


class BrokerAddress(Answer):
    """A broker's address for other brokers."""

    broker_id: int
    host: str
    port: int


class BrokerAdmitted(Answer):
    """Response to ``POST /v1/brokers``: the id of the new broker, and all brokers to connect to."""

    broker_id: int
    cluster_id: str
    peers: list[BrokerAddress]


def signed(token: JoinToken, secret: bytes) -> str:
    """Encode a token as signed text."""
    content = msgspec.json.encode(token)
    text = base64.urlsafe_b64encode(content).decode().rstrip("=")
    return f"{PREFIX}.{text}.{_mac(secret, _TOKEN, content)}"


def read_token(text: str) -> JoinToken:
    """Decode the content of a token; ``is_signed`` verifies it. Raises ``InvalidRequest``."""
    return msgspec.json.decode(_parts(text)[0], type=JoinToken)


def is_signed(text: str, secret: bytes) -> bool:
    """Whether a holder of this secret has signed the token. Raises ``InvalidRequest``."""
    content, mac = _parts(text)
    return hmac.compare_digest(_mac(secret, _TOKEN, content), mac)


def with_proof(request: AdmitBroker, secret: bytes) -> AdmitBroker:
    """The request with a proof of the secret."""
    return structs.replace(request, proof=_proof(request, secret))


def is_proven(request: AdmitBroker, secret: bytes) -> bool:
    """Whether a holder of the secret has signed exactly this request."""
    return hmac.compare_digest(_proof(request, secret), request.proof)


def _proof(request: AdmitBroker, secret: bytes) -> str:
    return _mac(secret, _PROOF, msgspec.json.encode(structs.replace(request, proof="")))


def _parts(text: str) -> tuple[bytes, str]:
    prefix, _, rest = text.strip().partition(".")
    encoded, _, mac = rest.partition(".")
    content = b""
    try:
        content = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        msgspec.json.decode(content, type=JoinToken)
        is_whole = prefix == PREFIX and mac.isascii()
    except (*UNREADABLE, binascii.Error, ValueError):
        is_whole = False
    if not is_whole:
        raise InvalidRequest(
            "token is not a join token; copy the whole line that `raftlog cluster token` prints",
            field="token",
        )
    return content, mac


def _mac(secret: bytes, purpose: bytes, content: bytes) -> str:
    return hmac.digest(secret, purpose + content, "sha256").hex()


ADMIT = Operation(
    name="brokers.admit",
    request="POST /v1/brokers",
    summary="Let a broker join",
    text=(
        "`raftlog cluster join` sends this request. The broker is a member once it has started with the "
        "response in its settings. Safe to repeat with an unchanged `admission_id`."
    ),
    leader=Leader.CONTROLLER,
    body=AdmitBroker,
    answer=BrokerAdmitted,
    success={201: "the broker's id, and the brokers to connect to"},
    headers=("Location",),
    errors=(
        errors.JoinRefused,
        errors.Conflict,
    ),
)

JOIN_TOKEN = Operation(
    name="cluster.join_token",
    request="POST /v1/cluster/join-tokens",
    summary="Create a join token",
    text="For `POST /v1/brokers`, valid for an hour. It gives no access without the cluster's secret.",
    leader=Leader.METADATA,
    answer=IssuedJoinToken,
    success={201: "a token"},
)
