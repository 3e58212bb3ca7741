"""Tokens with which new brokers join, and the proofs of the cluster's secret.

Decides: how long a token counts, and which requests prove the secret. Leaves to others: what is in a token
(``raftlog.wire.joining``), ids and addresses (``partitions.metadata.admission``).
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
    """One broker's; all brokers of a cluster have the same secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def __repr__(self) -> str:
        return "JoinTokens()"

    def issue(
        self, cluster_id: str, urls: Sequence[str], now_ms: int, rng: random.Random
    ) -> tuple[str, JoinToken]:
        """A token, and what it says."""
        nonce = f"{rng.getrandbits(128):032x}"
        token = JoinToken(cluster_id, tuple(urls[:URLS_MAX]), now_ms + LIFETIME_MS, nonce)
        return signed(token, self._secret), token

    def check(self, request: AdmitBroker, cluster_id: str, now_ms: int) -> None:
        """Raises ``InvalidRequest`` for what is no token, and ``JoinRefused``."""
        token = read_token(request.token)
        if token.cluster_id != cluster_id:
            raise JoinRefused(
                f"token is of cluster {token.cluster_id[:32]!r}, and this is cluster {cluster_id!r}; ask a "
                "broker of this cluster for a token"
            )
        if not is_signed(request.token, self._secret):
            raise JoinRefused(
                "token was not made by a broker of this cluster, or was changed; ask for another"
            )
        if not is_proven(request, self._secret):
            raise JoinRefused("proof is not made with the secret of this cluster; copy cluster.secret again")
        if token.expires_at < now_ms:
            raise JoinRefused("token has expired; ask for another with `raftlog cluster token`")
