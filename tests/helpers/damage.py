"""Damage to the files of real brokers."""

from __future__ import annotations

from pathlib import Path

from chaos.cluster import Cluster
from raftlog.testing.segment_content import content_of


def flip_a_byte(path: Path, position: int) -> None:
    """Damage a closed file."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))


def logs_of(cluster: Cluster, topic: str) -> set[bytes]:
    """The bytes of partition 0 on each broker."""
    return {
        b"".join(content_of(path.read_bytes()) for path in sorted(directory.glob("*.log")))
        for broker in cluster.brokers
        for directory in cluster.data_directory(broker).glob(f"{topic}-*/Partition-0")
    }
