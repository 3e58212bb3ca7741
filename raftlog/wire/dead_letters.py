"""The operations on dead letters of consumer groups, with their bodies."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from raftlog import errors
from raftlog.wire import limits
from raftlog.wire.bodies import Answer, Encoding, RecordText, Request, matching
from raftlog.wire.operation import STORED, Leader, Operation

LetterId = Annotated[str, matching(limits.DEAD_LETTER_ID_PATTERN)]


class LetterOrigin(Answer):
    """The partition and offset where a record first failed."""

    topic: str
    partition: int
    offset: int


class DeadLetterDescription(Answer, omit_defaults=True):
    """One dead letter. ``id`` is its origin as text; ``partition`` and ``offset`` are its own position.

    Key, headers and tags are copied from the failed record, in the form of a fetch. ``value`` is omitted if
    it is larger than 1 MiB, and in responses to redrives and discards. ``size_bytes`` is the size of the dead
    letter.
    """

    id: str
    partition: int
    offset: int
    origin: LetterOrigin
    attempts: int
    reason: str
    failed_at: int
    timestamp: int
    key: str | None
    headers: dict[str, str | None]
    tags: list[str]
    size_bytes: int
    value: Raw | UnsetType = UNSET
    encoding: Encoding | UnsetType = UNSET
    key_encoding: Literal["base64"] | UnsetType = UNSET
    headers_raw: list[tuple[str, str | None]] | UnsetType = UNSET


class DeadLetterList(Answer):
    """A page of open dead letters. The list ends when ``next_page_token`` is null, not with an empty page.

    ``foreign`` counts skipped records of the dead-letter topic that are not dead letters.
    """

    items: list[DeadLetterDescription]
    next_page_token: str | None = None
    foreign: int = 0


class SettleDeadLetters(Request):
    """Body of ``:redrive`` and ``:discard``: a selection of dead letters, or ``all`` open dead letters."""

    ids: Annotated[list[LetterId], msgspec.Meta(min_length=1, max_length=limits.DEAD_LETTERS_MAX)] | None = (
        None
    )
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=limits.CONFIRM_CHARACTERS_MAX)] | None = None
    key: RecordText | None = None
    all: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=limits.DEAD_LETTERS_MAX)] = 100
    dry_run: bool = False
    page_token: Annotated[str, matching(limits.PAGE_TOKEN_PATTERN)] | None = None


class DeadLettersSettled(Answer):
    """The dead letters that were settled, or with ``dry_run`` would be settled.

    To continue, repeat the request with ``next_page_token`` as its ``page_token``. ``left`` counts dead
    letters of a queue that stay open because their records are no longer in the topic.
    """

    items: list[DeadLetterDescription]
    count: int
    dry_run: bool
    next_page_token: str | None = None
    foreign: int = 0
    left: int = 0


LIST = Operation(
    name="dead_letters.list",
    request="GET /v1/dead-letters/{topic}/{group}",
    summary="List the open dead letters of a group",
    text=(
        "Partition by partition, the oldest first. One request reads a limited part of the dead-letter "
        "topic: continue with `next_page_token` as `page_token` until it is null, even after an empty page."
    ),
    leader=Leader.PARTITION,
    answer=DeadLetterList,
    success={200: "a page"},
    errors=(
        errors.TopicNotFound,
        errors.PartitionNotFound,
        errors.Overloaded,
        errors.ConnectionLost,
    ),
)

REDRIVE = Operation(
    name="dead_letters.redrive",
    request="POST /v1/dead-letters/{topic}/{group}:redrive",
    summary="Redrive dead letters",
    text=(
        "Appends each record to the retry topic of the group, then settles its dead letter. If the group "
        "uses the topic as a queue, its jobs are delivered again instead; dead letters whose records "
        "are no longer in the topic, or have other tags than the queue, stay open: `left` counts them. "
        "With `dry_run` nothing changes; the response shows the affected dead letters. "
        "Repeat the request after an unknown outcome (504): settled dead letters are not selected again; a "
        "record that was appended before is tried twice."
    ),
    leader=Leader.PARTITION,
    body=SettleDeadLetters,
    answer=DeadLettersSettled,
    success={200: "the redriven dead letters"},
    errors=(
        *STORED,
        errors.TopicNotFound,
        errors.PartitionNotFound,
        errors.ConnectionLost,
        errors.InvalidRecord,
        errors.OffsetOutOfRange,
        errors.Conflict,
    ),
)

DISCARD = Operation(
    name="dead_letters.discard",
    request="POST /v1/dead-letters/{topic}/{group}:discard",
    summary="Discard dead letters",
    text="Settles dead letters without another attempt. With `dry_run` nothing changes.",
    leader=Leader.PARTITION,
    body=SettleDeadLetters,
    answer=DeadLettersSettled,
    success={200: "the discarded dead letters"},
    errors=(
        *STORED,
        errors.TopicNotFound,
        errors.PartitionNotFound,
        errors.ConnectionLost,
        errors.InvalidRecord,
        errors.OffsetOutOfRange,
    ),
)
