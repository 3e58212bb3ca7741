"""The orders of the testing kit to the process that runs its brokers: one JSON object a line, in order."""

from __future__ import annotations

import msgspec


class Create(msgspec.Struct, frozen=True, tag=True):
    """Make a cluster and start its brokers. Answered once all are ready."""

    brokers: int


class Destroy(msgspec.Struct, frozen=True, tag=True):
    """End all brokers of a cluster and delete its files."""

    cluster: int


class Start(msgspec.Struct, frozen=True, tag=True):
    """Start brokers that do not run, and wait until they are ready; none: all of them."""

    cluster: int
    brokers: tuple[int, ...]


class Kill(msgspec.Struct, frozen=True, tag=True):
    """``kill -9``. The page cache survives."""

    cluster: int
    broker: int


class KillLeader(msgspec.Struct, frozen=True, tag=True):
    """``kill -9`` for the broker that leads a partition."""

    cluster: int
    topic: str
    partition: int


class LosePower(msgspec.Struct, frozen=True, tag=True):
    """End a broker; of what it had not synced, its disk keeps a part that follows from the seed."""

    cluster: int
    broker: int
    seed: int


class SetClock(msgspec.Struct, frozen=True, tag=True):
    """The clocks of all brokers are ahead of the machine's by this much."""

    cluster: int
    shift_ms: int  # of the wall clock
    passed_ms: int  # of the monotonic clock; never falls


class SlowDisk(msgspec.Struct, frozen=True, tag=True):
    """Each operation of a broker that waits for its disk takes this much longer."""

    cluster: int
    broker: int
    delay_ms: int


class Describe(msgspec.Struct, frozen=True, tag=True):
    """The state of each broker of a cluster, as text."""

    cluster: int


class Partition(msgspec.Struct, frozen=True, tag=True):
    """Brokers of different sides cannot reach each other; no sides: all can."""

    cluster: int
    sides: tuple[tuple[int, ...], ...]


Order = Create | Destroy | Start | Kill | KillLeader | LosePower | SetClock | SlowDisk | Describe | Partition


class Done(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The order was carried out."""

    cluster: int = 0  # that was made
    urls: tuple[str, ...] = ()  # of its brokers
    broker: int = 0  # that was killed
    text: str = ""  # that describes a cluster


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The order was not carried out."""

    why: str


Outcome = Done | Failed
