"""Orders of the testing kit to the process of its brokers: one JSON object per line, in order."""

from __future__ import annotations

import msgspec


class Create(msgspec.Struct, frozen=True, tag=True):
    """Create a cluster and start its brokers. The answer comes once all brokers are ready."""

    brokers: int


class Destroy(msgspec.Struct, frozen=True, tag=True):
    """End all brokers of a cluster and delete its files."""

    cluster: int


class Start(msgspec.Struct, frozen=True, tag=True):
    """Start stopped brokers, all of them if ``brokers`` is empty, and wait until they are ready."""

    cluster: int
    brokers: tuple[int, ...]


class Kill(msgspec.Struct, frozen=True, tag=True):
    """Kill a broker as ``kill -9`` does. The page cache survives."""

    cluster: int
    broker: int


class KillLeader(msgspec.Struct, frozen=True, tag=True):
    """Kill the broker that leads a partition, as ``kill -9`` does."""

    cluster: int
    topic: str
    partition: int


class LosePower(msgspec.Struct, frozen=True, tag=True):
    """End a broker; the seed decides which part of its unsynced writes the disk keeps."""

    cluster: int
    broker: int
    seed: int


class SetClock(msgspec.Struct, frozen=True, tag=True):
    """Set by how much the clocks of all brokers are ahead of the machine's clock."""

    cluster: int
    shift_ms: int  # of the wall clock
    passed_ms: int  # of the monotonic clock; never falls


class SlowDisk(msgspec.Struct, frozen=True, tag=True):
    """Delay each operation of a broker that waits for its disk."""

    cluster: int
    broker: int
    delay_ms: int


class Describe(msgspec.Struct, frozen=True, tag=True):
    """Describe the state of each broker of a cluster, as text."""

    cluster: int


class Partition(msgspec.Struct, frozen=True, tag=True):
    """Cut the network between brokers of different sides; without ``sides`` restore the network."""

    cluster: int
    sides: tuple[tuple[int, ...], ...]


Order = Create | Destroy | Start | Kill | KillLeader | LosePower | SetClock | SlowDisk | Describe | Partition


class Done(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The order was carried out."""

    cluster: int = 0  # the new cluster
    urls: tuple[str, ...] = ()  # the addresses of its brokers
    broker: int = 0  # the killed broker
    text: str = ""  # the description of a cluster


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The order was not carried out."""

    why: str


Outcome = Done | Failed
