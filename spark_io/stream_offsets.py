"""Encodes the offset of a stream for the checkpoint: JSON such as ``{"v":1,"topics":{"t":{"0":12}}}``.

The offset before the first batch has a mark, and no partitions. The first batch has no records: its end is
the start of the stream, which is then in the checkpoint. If the start were looked up again after a crash,
``latest`` would be a later offset, and the records between would be lost. A new partition is handled in the
same way: the batch that adds it has its first offset and none of its records, and the next batch reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raftlog.types import TopicPartition
from spark_io.errors import InvalidOption

VERSION: Final = 1
BEFORE_FIRST: Final[dict[str, object]] = {"v": VERSION, "initial": True, "topics": {}}


def is_before_first(offset: Mapping[str, object]) -> bool:
    """Whether this is the offset before the first batch of a query."""
    return offset.get("initial") is True


def written(offsets: Mapping[TopicPartition, int]) -> dict[str, object]:
    """Convert offsets to a JSON object in sorted order, so that equal offsets are equal texts."""
    topics: dict[str, dict[str, int]] = {}
    for target in sorted(offsets):
        topics.setdefault(target.topic, {})[str(target.partition)] = offsets[target]
    return {"v": VERSION, "topics": topics}


def parsed(offset: Mapping[str, object]) -> dict[TopicPartition, int]:
    """Convert a JSON object to offsets. Raises ``InvalidOption`` for the format of another version."""
    topics = offset.get("topics")
    if offset.get("v") != VERSION or not isinstance(topics, dict):
        raise InvalidOption(
            f"the checkpoint has the offset {str(offset)[:200]}, which this version cannot read; use the "
            "version that wrote it, or another checkpointLocation"
        )
    return {
        TopicPartition(topic, int(number)): int(at)
        for topic, numbers in topics.items()
        for number, at in numbers.items()
    }
