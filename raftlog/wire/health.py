"""What a broker says of itself: its version, its checks, its disk and its replicas."""

from __future__ import annotations

from typing import Literal

from raftlog.wire.bodies import Answer


class VersionBody(Answer):
    """The version of raftlog."""

    version: str


class BrokerStateBody(Answer):
    """What a broker says of its disk and its replicas."""

    takes_records: bool  # its disk has more than the reserve left, and no log waits for room
    disk_free_bytes: int
    disk_reserve_bytes: int
    failed_replicas: int  # that should serve here and do not


class HealthBody(Answer, omit_defaults=True):
    """``checks`` names each condition and whether it is met; ``broker`` is there for readiness alone."""

    status: Literal["ok", "unavailable"]
    checks: dict[str, bool]
    broker: BrokerStateBody | None = None
