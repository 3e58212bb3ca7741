"""Ids of delayed messages as texts."""

from __future__ import annotations

import pytest

from delayed.records import ID_BYTES
from delayed.service import MessageId
from raftlog.errors import DelayedNotFound

ID = bytes(range(ID_BYTES))


@pytest.mark.parametrize("partition", [0, 1, 255, 256, 65_535])
def test_an_id_of_any_partition_is_read_from_its_text(partition: int) -> None:
    assert MessageId.parse(str(MessageId(partition, ID))) == MessageId(partition, ID)


@pytest.mark.parametrize("text", ["", "x", "0000", str(MessageId(1, ID)).upper(), f"{MessageId(1, ID)}00"])
def test_other_texts_are_no_ids(text: str) -> None:
    with pytest.raises(DelayedNotFound, match="is not the id of a delayed message"):
        MessageId.parse(text)
