"""The numbers in the first table of ``docs/limits.md`` are those of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from api.resources.delays import KEYS_BYTES_MAX
from broker.settings import MESSAGE_BYTES_MAX, QUEUE_BYTES_MIN, Limits
from groups.commits import PENDING_MAX
from groups.membership import GROUP_BYTES_MAX
from partitions.metadata.topic_config import check
from raftlog.errors import InvalidRequest
from raftlog.hosting.decisions import RECORDS_PER_BATCH
from raftlog.node.frame_limits import FRAME_LIMITS
from raftlog.node.network.tcp_links import TransportLimits
from raftlog.wire.delays import SHOWN_MAX
from raftlog.wire.limits import KEYED_RECORDS_MAX, OFFSET_METADATA_CHARACTERS_MAX, PARTITIONS_MAX
from transactions.batches import HANDLES_MAX
from transactions.listing import PARTS_MAX

PAGE: Final = (Path(__file__).resolve().parents[2] / "docs" / "limits.md").read_text()
ROW: Final = re.compile(r"^\| (?!what|---)(.+?) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
FIRST_TABLE: Final = ROW.findall(PAGE.partition("\n## ")[0])
NUMBER: Final = re.compile(r"\d[\d,]*(?: [KM]iB)?")


def size(count: int) -> str:
    """Bytes as the page shows them."""
    shift, unit = (20, "MiB") if count >= 1 << 20 else (10, "KiB")
    assert count == count >> shift << shift, f"{count} bytes have no round number in {unit}"
    return f"{count >> shift} {unit}"


FRAME: Final = size(TransportLimits().frame_bytes_max)
PROPOSAL: Final = size(FRAME_LIMITS.batch_bytes_max)
WRITE: Final = size(FRAME_LIMITS.write_bytes_max)
ROWS: Final = f"{RECORDS_PER_BATCH:,}"
NUMBERS: Final = {
    "a frame between brokers": [FRAME, size(QUEUE_BYTES_MIN)],
    "a batch that is proposed to a Raft group": [PROPOSAL, FRAME],
    "a batch of a producer": ["16 MiB", PROPOSAL],
    "several batches in one message to a follower": [size(FRAME_LIMITS.append_bytes_max), FRAME],
    "one request, after decompression": [size(MESSAGE_BYTES_MAX), FRAME],
    "one binary answer": [size(MESSAGE_BYTES_MAX), FRAME],
    "rows that a coordinator stores together": [WRITE, ROWS, PROPOSAL],
    "writes of several requests to a coordinator": [size(FRAME_LIMITS.writes_bytes_max), PROPOSAL],
    "members of a group, their subscriptions and metadata": [size(GROUP_BYTES_MAX), WRITE],
    "assignments of a group": [f"{PARTITIONS_MAX:,}", WRITE],
    "offsets of one commit, and of one transaction in a group": [
        ROWS,
        f"{OFFSET_METADATA_CHARACTERS_MAX:,}",
        WRITE,
        ROWS,
    ],
    "offsets of a group, and its queues": None,  # shares of settings, which the tests of groups hold
    "the decision about a batch of a sink": [size(FRAME_LIMITS.decision_bytes_max), f"{HANDLES_MAX}", WRITE],
    "transactions of one page of a list": [f"{PARTS_MAX:,}", FRAME],
    "delayed messages of one page of a list": [f"{SHOWN_MAX}", size(KEYS_BYTES_MAX)],
    "decisions to abort": [],
    "the answer of one request with an idempotency key": [f"{KEYED_RECORDS_MAX:,}", WRITE],
    "a state machine's snapshot": [size(FRAME_LIMITS.chunk_bytes), FRAME],
    "a part of a log, for a repair": [size(FRAME_LIMITS.repair_bytes_max), FRAME],
    "the answer of a call between brokers": [FRAME],
}


@pytest.mark.parametrize("row", FIRST_TABLE, ids=[row[0] for row in FIRST_TABLE])
def test_the_numbers_of_a_row_are_those_of_the_code(row: tuple[str, ...]) -> None:
    expected = NUMBERS[row[0]]
    if expected is not None:
        assert NUMBER.findall(" ".join((row[1], row[3]))) == expected


def test_every_row_has_its_numbers() -> None:
    assert [row[0] for row in FIRST_TABLE] == [*NUMBERS]


def test_a_batch_of_a_producer_has_the_size_of_the_page() -> None:
    """Written in the check of the topic's configuration."""
    check({"max.message.bytes": 16 << 20}, replication_factor=1)
    with pytest.raises(InvalidRequest, match=r"max\.message\.bytes"):
        check({"max.message.bytes": (16 << 20) + 1}, replication_factor=1)


def test_what_feeds_another_limit_fits_it() -> None:
    frame, limits = TransportLimits().frame_bytes_max, FRAME_LIMITS
    assert frame == limits.frame_bytes_max
    assert limits.write_bytes_max < limits.batch_bytes_max < frame < QUEUE_BYTES_MIN
    assert limits.batch_bytes_max + limits.repair_bytes_max < frame
    assert limits.batch_bytes_max > MESSAGE_BYTES_MAX
    assert limits.decision_bytes_max < limits.write_bytes_max
    assert PENDING_MAX < RECORDS_PER_BATCH, "the offsets of a transaction, and the row that names them"
    settings = Limits()
    assert max(settings.body_bytes_max, settings.fetch_bytes_max) <= MESSAGE_BYTES_MAX
    assert settings.peer_queue_bytes_max >= QUEUE_BYTES_MIN
