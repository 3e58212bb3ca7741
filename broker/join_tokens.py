"""Issues and checks the tokens with which new brokers join a cluster.

Decides: how long a token is valid, and which requests prove the secret of the cluster. Leaves to others: the
contents of a token (``raftlog.wire.joining``), ids and addresses (``partitions.metadata.admission``).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from raftlog.errors import JoinRefused
from raftlog.wire.joining import AdmitBroker, JoinToken, is_proven, is_signed, read_token, signed

LIFETIME_MS: Final = 3_600_000
URLS_MAX: Final = 10


class JoinTokens:
    """Issues and checks tokens on one broker; all brokers of a cluster have the same secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def __repr__(self) -> str:
        return "JoinTokens()"

    def issue(
        self, cluster_id: str, urls: Sequence[str], now_ms: int, rng: random.Random
    ) -> tuple[str, JoinToken]:
        """Create a token; return the token as encoded text, and its contents."""
        nonce = f"{rng.getrandbits(128):032x}"
        token = JoinToken(cluster_id, tuple(urls[:URLS_MAX]), now_ms + LIFETIME_MS, nonce)
        return signed(token, self._secret), token

    def check(self, request: AdmitBroker, cluster_id: str, now_ms: int) -> None:
        """Check that a request to join has a valid token and proves the secret.

        Raises ``InvalidRequest`` for a malformed token, and ``JoinRefused`` for a token or proof that is not
        valid.
        """
        token = read_token(request.token)
        if token.cluster_id != cluster_id:
            raise JoinRefused(
                f"token is from cluster {token.cluster_id[:32]!r}, but this is cluster {cluster_id!r}; "
                "request a token from a broker of this cluster"
            )
        if not is_signed(request.token, self._secret):
            raise JoinRefused(
                "token was not made by a broker of this cluster, or was changed; request a new token"
            )
        if not is_proven(request, self._secret):
            raise JoinRefused("proof was not made with the secret of this cluster; copy cluster.secret again")
        if token.expires_at < now_ms:
            raise JoinRefused("token has expired; get a new one with `raftlog cluster token`")
