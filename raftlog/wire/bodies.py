"""The structs of request and response bodies.

Structs of requests refuse unknown fields, so that misspelt options are not ignored. Structs of responses
ignore unknown fields, since later versions may add fields. Offsets are JSON numbers. Times are milliseconds
since 1970.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from raftlog.wire import limits

Encoding = Literal["utf8", "json", "base64"]
"""The encoding of a value in JSON: a string with its text, JSON, or base64."""


def matching(pattern: str) -> msgspec.Meta:
    """A constraint for msgspec: the whole text matches ``pattern``, from ``^`` to ``$``.

    msgspec searches for a pattern, and in Python ``$`` also matches before a line break at the end of a text.
    So the returned constraint has another end than ``$``. The OpenAPI document has ``$``, which there matches
    only at the end (``api.resources.documentation``).
    """
    assert pattern[0] + pattern[-1] == "^$", pattern
    return msgspec.Meta(pattern=rf"{pattern[:-1]}\Z")


Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=limits.INT64_MAX)]
"""An integer of 64 bits with a sign, the widest that every language and every stored row can hold."""
Count = Annotated[int, msgspec.Meta(ge=0, le=limits.INT64_MAX)]
"""A non-negative signed 64-bit integer, for instance a number of bytes or milliseconds."""
PartitionNumber = Annotated[int, msgspec.Meta(ge=0, le=limits.PARTITIONS_MAX)]
OffsetNumber = Annotated[int, msgspec.Meta(ge=0, le=limits.OFFSET_MAX)]

Brief = Annotated[str, matching(limits.BRIEF_PATTERN)]
"""A short text, such as a duration, a time, a position or a time zone. The handler of the request parses it.
"""
RecordText = Annotated[str, msgspec.Meta(max_length=limits.RECORD_TEXT_CHARACTERS_MAX)]
"""The key of a record, or the name or the value of a header."""
ConfigText = Annotated[str, msgspec.Meta(max_length=limits.CONFIG_TEXT_CHARACTERS_MAX)]
ConfigValue = Int64 | ConfigText | bool | float
"""The value of a topic's setting. A text may include a unit, such as ``10GiB`` or ``14d``."""
SettingValue = int | str | bool | float
"""The value of a topic's setting as a broker shows it: bytes, milliseconds, a number, a text or a boolean."""
PresetName = Literal["latency", "throughput"]
"""A named set of a topic's settings; settings in the same body take precedence."""
Tag = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=limits.TAG_CHARACTERS_MAX),
    matching(limits.TAG_PATTERN),
]
"""One tag. Raw bodies send tags in a header, separated by commas."""
Tags = Annotated[list[Tag], msgspec.Meta(max_length=limits.TAGS_MAX)]
"""The tags of one record."""

BrokerId = Annotated[int, msgspec.Meta(ge=1, le=limits.BROKER_ID_MAX)]


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """Base of all bodies that a client sends."""


class Answer(msgspec.Struct):
    """Base of all bodies that a broker sends."""


# --- topics ---------------------------------------------------------------------------------------


class CreateTopic(Request):
    """Body of ``POST /v1/topics``. The replication factor defaults to 3, or to 1 with one or two brokers."""

    name: Annotated[str, msgspec.Meta(extra_json_schema={"pattern": limits.NAME_PATTERN})]
    partitions: Annotated[int, msgspec.Meta(ge=1, le=limits.PARTITIONS_MAX)] = 1
    replication_factor: (
        Annotated[
            int,
            msgspec.Meta(
                ge=1, le=limits.REPLICAS_MAX, extra_json_schema={"enum": [*limits.REPLICATION_FACTORS]}
            ),
        ]
        | None
    ) = None
    config: Annotated[dict[ConfigText, ConfigValue], msgspec.Meta(max_length=limits.CONFIG_KEYS_MAX)] = {}
    preset: PresetName | None = None


class ChangeTopic(Request):
    """Body of ``PATCH`` of a topic or its config. A setting with the value ``null`` gets its default."""

    config: Annotated[
        dict[ConfigText, ConfigValue | None], msgspec.Meta(max_length=limits.CONFIG_KEYS_MAX)
    ] = {}
    preset: PresetName | None = None


class AddPartitions(Request):
    """Body of ``:add``. ``expected`` is the partition count before the change (default: the present count).

    With ``expected`` the request is safe to repeat: a topic with ``expected + count`` partitions stays as it
    is.
    """

    count: Annotated[int, msgspec.Meta(ge=1, le=limits.PARTITIONS_MAX)]
    expected: Annotated[int, msgspec.Meta(ge=1, le=limits.PARTITIONS_MAX)] | None = None


PartitionNumbers = Annotated[list[PartitionNumber], msgspec.Meta(max_length=limits.PARTITIONS_MAX)]
"""Numbers of partitions of one topic."""


class DecommissionPartitions(Request):
    """Body of ``:decommission``: the last partitions of the topic, by number, or the last ``count``.

    ``expected`` is the number of partitions that took records before the change, by default the present
    number. A request with both ``count`` and ``expected`` is safe to repeat.
    """

    partitions: PartitionNumbers = []
    count: Annotated[int, msgspec.Meta(ge=1, le=limits.PARTITIONS_MAX)] | None = None
    expected: Annotated[int, msgspec.Meta(ge=1, le=limits.PARTITIONS_MAX)] | None = None


class RecommissionPartitions(Request):
    """Body of ``:recommission``: partitions that take records again (default: all decommissioned ones)."""

    partitions: PartitionNumbers = []


class DeleteBefore(Request):
    """Body of ``:delete-before``: deletes all records of the partition below ``offset``."""

    offset: OffsetNumber


class RecordsDeleted(Answer):
    """The log start offset of the partition after a deletion of records."""

    partition: int
    log_start_offset: int


class SetArchived(Request):
    """Body of ``:set-archived``: states that all records below ``offset`` are in an archive.

    An ``offset`` below the stored archived offset changes nothing, unless ``allow_lower`` is true.
    """

    offset: OffsetNumber
    allow_lower: bool = False


class ArchivedUpTo(Answer):
    """The offset below which all records of the partition are archived."""

    partition: int
    archived_up_to: int


class RemovedPartition(Answer):
    """A partition that was decommissioned and removed.

    ``records_end`` is one past its newest record. A later partition of equal number begins at
    ``next_offset``.
    """

    partition: int
    records_end: int
    next_offset: int


class TopicDescription(Answer, omit_defaults=True):
    """One topic. ``config`` is complete, defaults included. ``decommissioned`` partitions take no records.

    ``removed`` has the last removed partition of each number, also if there is a later partition.
    """

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    internal: bool
    config: dict[str, SettingValue]
    metadata_version: int
    decommissioned: list[int] = []
    removed: list[RemovedPartition] = []


class PartitionsAdded(TopicDescription, omit_defaults=False):
    """The topic with its new partitions. ``warnings`` concern records whose keys change their partition."""

    warnings: list[str] = []


class PartitionsDecommissioned(TopicDescription, omit_defaults=False):
    """The changed topic. ``warnings`` concern records with keys, and the removal of the partitions."""

    warnings: list[str] = []


class TopicList(Answer):
    """A page of topics, by name."""

    items: list[TopicDescription]
    next_page_token: str | None = None


class TopicConfig(Answer):
    """``config`` has all settings of a topic, ``overrides`` only the settings given for this topic."""

    config: dict[str, SettingValue]
    overrides: dict[str, SettingValue]
    metadata_version: int


class TopicDeleted(Answer):
    """A deleted topic, and the metadata version that deleted the topic."""

    name: str
    metadata_version: int


# --- partitions -----------------------------------------------------------------------------------


class TransferLeadership(Request):
    """Body of ``:transfer-leadership``. Without ``to`` the most up-to-date replica becomes the leader.

    With ``leader_epoch`` the request is safe to repeat: nothing changes if the partition already has a later
    leader epoch.
    """

    to: BrokerId | None = None
    leader_epoch: Annotated[int, msgspec.Meta(ge=0, le=limits.INT64_MAX)] | None = None


class Leadership(Answer):
    """The leader of a partition."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int


class OneReplica(Request):
    """Body of ``:add-replica`` and ``:remove-replica``."""

    broker_id: BrokerId


class SetReplicas(Request):
    """Body of ``:set-replicas``: all brokers of the partition, the preferred leader first."""

    replicas: Annotated[list[BrokerId], msgspec.Meta(min_length=1, max_length=limits.REPLICAS_MAX)]


class UnsafeRecover(Request):
    """Body of ``:unsafe-recover``. The refusal of a request without ``confirm`` has the phrase to send."""

    confirm: Annotated[str, msgspec.Meta(max_length=limits.CONFIRM_CHARACTERS_MAX)] | None = None


class Reassignment(Answer):
    """A move of replicas: the target, its state, and the progress of the slowest learner."""

    target: list[int]
    state: Literal["preparing", "learning", "changing"]
    caught_up_percent: int | None


class UnsafeRecovery(Answer):
    """A recovery without a majority: the survivor, its ``last_offset``, and the lost brokers."""

    survivor: int
    lost: list[int]
    last_offset: int
    committed_offset: int
    recovered_at: int


class OfflineReplica(Answer):
    """A replica that does not serve, and the reason."""

    broker_id: int
    reason: str


class PartitionDescription(Answer):
    """One partition; ``leader`` is a broker id, ``None`` without a leader.

    ``rejoining`` are voters that have lost files. A rejoining voter counts towards no majority until the
    brokers in ``awaited`` have answered and the voter's log contains the index that the leader names after
    these answers. Without a leader, ``offline`` lists all replicas that do not serve, and ``awaited`` lists
    the brokers of these replicas: an election needs some of these brokers. ``readers_held_ms`` says for how
    long the oldest open transaction has held back readers of committed records; that transaction begins at
    ``last_stable_offset``. Records below ``archived_up_to`` are in an archive; ``awaiting_archive_bytes`` are
    the bytes of expired records that retention keeps only because the topic requires an archive and the
    records are not archived yet. All groups that ``retention.consumed.by`` names have consumed the records
    below ``consumed_up_to`` (-1 if it names none); ``held_back_by`` is the slowest group. ``state`` is
    ``sealing`` until no leader can take records of producers any more, and then ``decommissioned``.
    ``records_end`` is one past the newest record that the partition ever had, -1 if unknown.
    """

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: list[int]
    learners: list[int]
    in_sync: list[int]
    commit_index: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    rejoining: list[int] = []
    awaited: list[int] = []
    offline: list[OfflineReplica] = []
    reassignment: Reassignment | None = None
    unsafe_recoveries: list[UnsafeRecovery] = []
    last_stable_offset: int = -1
    readers_held_ms: int = 0
    archived_up_to: int = 0
    awaiting_archive_bytes: int = 0
    consumed_up_to: int = -1
    held_back_by: str = ""
    state: Literal["active", "sealing", "decommissioned"] = "active"
    records_end: int = -1


class PartitionList(Answer):
    """A page of partitions, by number."""

    items: list[PartitionDescription]
    next_page_token: str | None = None


class FoundOffset(Answer):
    """The offset of a position, and the ``timestamp`` of the record there; ``None`` without a record.

    ``archived_from`` is sent for ``at=earliest``: the first offset in the archive, ``None`` without an
    archive. If the log begins above ``archived_from``, ``offset`` equals ``archived_from``.
    """

    offset: int
    timestamp: int | None = None
    archived_from: int | None = None


# --- produce --------------------------------------------------------------------------------------


class NewRecord(Request):
    """One record to be stored.

    A string is stored as its UTF-8 bytes, ``null`` as a null value, and any other value as compact JSON.
    ``encoding`` says how a string ``value`` is read instead, ``key_encoding`` how ``key`` is read.
    ``timestamp`` is RFC 3339 or milliseconds, and is stored by topics with create times. ``delay``, such as
    ``30m``, or ``deliver_at``, RFC 3339 or milliseconds, delay the delivery of the record. Either every
    record of a request has one of these two fields, or no record has.
    """

    value: msgspec.Raw
    key: RecordText | Int64 | None = None
    encoding: Encoding | None = None
    key_encoding: Literal["utf8", "base64"] = "utf8"
    headers: Annotated[dict[RecordText, RecordText | None], msgspec.Meta(max_length=limits.HEADERS_MAX)] = {}
    headers_raw: Annotated[
        list[tuple[RecordText, RecordText | None]], msgspec.Meta(max_length=limits.HEADERS_MAX)
    ] = []
    tags: Tags = []
    partition: PartitionNumber | None = None
    timestamp: Int64 | Brief | None = None
    delay: Int64 | Brief | None = None
    deliver_at: Int64 | Brief | None = None


class Produce(Request):
    """Body of a produce request in JSON."""

    records: Annotated[
        list[NewRecord], msgspec.Meta(min_length=1, extra_json_schema={"maxItems": limits.RECORDS_MAX})
    ]


class RecordDurability(Answer):
    """The durability of acknowledged records; ``replicas``: the number of replicas that have fsynced them."""

    acks: str
    committed: bool
    fsynced: bool
    replicas: int


class RecordReceipt(Answer, omit_defaults=True):
    """The result for one record: ``partition`` and ``offset``, or if it failed ``status`` and ``problem``.

    A delayed record has ``delayed_id`` and ``deliver_at`` instead of an offset.
    """

    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    timestamp: int | UnsetType | None = UNSET
    status: int | UnsetType = UNSET
    problem: dict[str, int | str | bool | list[str] | None] | UnsetType = UNSET
    delayed_id: str | UnsetType = UNSET
    deliver_at: int | UnsetType = UNSET


class Produced(Answer, omit_defaults=True):
    """A receipt for each record, in the order of the request. Without ``durability`` no record was stored."""

    records: list[RecordReceipt]
    durability: RecordDurability | None = None


class Accepted(Answer):
    """Response to ``acks=0``: the number of accepted records; their outcome is not reported."""

    accepted: int


class BatchesProduced(Answer):
    """Response to a binary produce. ``duplicate``: an earlier request had already stored the batches."""

    partition: int
    base_offset: int
    record_count: int
    durability: RecordDurability
    leader_epoch: int = -1
    timestamp: int | None = None
    duplicate: bool = False


class CreateProducer(Request):
    """Body of ``POST /v1/producers``: an empty object, or no body."""


class ProducerIdentity(Answer):
    """A producer id, by which brokers recognise repeated batches. No id is allocated twice."""

    producer_id: int
    producer_epoch: int


# --- fetch ----------------------------------------------------------------------------------------


class FetchedRecord(Answer, omit_defaults=True):
    """One stored record. ``size_bytes`` is the size of the record in the log.

    ``crc`` is the CRC-32C of its batch, ``record_crc`` the CRC-32C of its own key, value and headers.
    ``headers_raw`` has headers whose name occurs twice or whose value is not UTF-8, as pairs of the name and
    the value in base64.
    """

    offset: int
    timestamp: int
    timestamp_type: Literal["LogAppendTime", "CreateTime"]
    key: str | None
    value: msgspec.Raw
    encoding: Encoding
    headers: dict[str, str | None]
    tags: list[str]
    size_bytes: int
    crc: int
    record_crc: int | UnsetType = UNSET  # a broker of an earlier version does not send it
    key_encoding: Literal["base64"] | UnsetType = UNSET
    headers_raw: list[tuple[str, str | None]] | UnsetType = UNSET


class SkippedRange(Answer):
    """Offsets whose records cannot be decoded: from ``offset`` up to ``next_offset``, exclusive."""

    offset: int
    next_offset: int


class Fetched(Answer, omit_defaults=True):
    """Response to a JSON fetch. Continue at ``next_offset``.

    ``skipped`` is sent only for ``undecodable=skip``. If ``archived`` is true, the records are below the log
    start and come from the archive.
    """

    topic: str
    partition: int
    leader_epoch: int
    log_start_offset: int
    high_watermark: int
    next_offset: int
    up_to_date: bool
    records: list[FetchedRecord]
    skipped: list[SkippedRange] = []
    archived: bool = False


class Message(FetchedRecord, omit_defaults=True, kw_only=True):
    """One record with its topic and partition."""

    topic: str
    partition: int


# --- cluster --------------------------------------------------------------------------------------


class BrokerDescription(Answer):
    """One broker."""

    broker_id: int
    http: str | None
    rack: str | None
    alive: bool
    draining: bool
    decommissioned: bool = False
    replicas: int | None = None  # present and assigned replicas; only in the description of one broker
    metadata_voter: bool = False  # whether it is one of the brokers that elect the controller
    incarnation: str = ""  # of its process; only in the description of one broker


class BrokerForgotten(Answer):
    """A removed broker. The metadata from version ``metadata_version`` on do not list the broker."""

    broker_id: int
    metadata_version: int


class BrokerList(Answer):
    """All brokers, by id."""

    items: list[BrokerDescription]
    next_page_token: str | None = None


class ClusterDescription(Answer):
    """The cluster according to this broker; ``controller`` is a broker id.

    ``metadata_voters`` elect the controller; all other brokers have copies of the metadata.
    """

    cluster_id: str
    controller: int | None
    metadata_version: int
    brokers: int
    version: str
    metadata_voters: list[int] = []
    feature_level: int = 1  # the level that all brokers support


class RefusedReplica(Answer):
    """A new replica that a live broker does not open, and the reason."""

    broker: int
    topic: str
    partition: int
    reason: str


class ControllerDescription(Answer):
    """The active controller, and the replicas that brokers have refused in the last minute.

    ``refused_replicas`` is ``None`` if the controller did not answer in time.
    """

    broker_id: int
    http: str | None
    metadata_version: int
    refused_replicas: list[RefusedReplica] | None = None


class Version(Answer):
    """The version of raftlog."""

    version: str


class BrokerState(Answer):
    """The state of a broker's disk and replicas."""

    takes_records: bool  # the disk has more free space than the reserve, and no log waits for room
    disk_free_bytes: int
    disk_reserve_bytes: int
    failed_replicas: int  # replicas that should serve on this broker and do not


class BrokerHealth(Answer, omit_defaults=True):
    """The health of a broker: ``checks`` says which conditions are met. Only the readiness has ``broker``."""

    status: Literal["ok", "unavailable"]
    checks: dict[str, bool]
    broker: BrokerState | None = None
