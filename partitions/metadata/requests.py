"""Requests to the active controller and its answers, as bytes. Nothing is decided here."""

from __future__ import annotations

from typing import Final

import msgspec

from partitions.metadata.balancing import PlanProposal
from partitions.metadata.commands import (
    AdmitBroker,
    AllocateProducerIds,
    AlterTopicConfig,
    DecommissionBroker,
    DeleteTopic,
    DrainBroker,
    EndPlan,
    ForgetBroker,
    RecoveredUnsafely,
    RegisterBroker,
    RemovePartition,
    ReplicasChanged,
    StartPlan,
)
from partitions.metadata.image import TopicInfo
from partitions.metadata.move_planner import MoveReplicas
from partitions.metadata.planner import NewPartitions, NewTopic
from partitions.metadata.refusals import MoveStuck, Refused
from partitions.metadata.shrink_planner import ShrinkTopic
from raftlog.errors import InvalidRequest
from raftlog.node.rpc_classes import CallClass, Service

SERVICE: Final = Service("controller", CallClass.METADATA)


class CurrentVersion(msgspec.Struct, frozen=True, array_like=True, tag="current_version"):
    """Ask for the metadata version that holds all changes acknowledged before this question."""


class ProposePlan(msgspec.Struct, frozen=True, array_like=True, tag="propose_plan"):
    """Which moves would make all brokers carry alike?"""


Request = (
    NewTopic
    | NewPartitions
    | ShrinkTopic
    | RemovePartition
    | DeleteTopic
    | AlterTopicConfig
    | AllocateProducerIds
    | RegisterBroker
    | DrainBroker
    | DecommissionBroker
    | AdmitBroker
    | ForgetBroker
    | MoveReplicas
    | ReplicasChanged
    | RecoveredUnsafely
    | MoveStuck
    | ProposePlan
    | StartPlan
    | EndPlan
    | CurrentVersion
)


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The result of a request. Metadata of ``version`` holds it; other fields are set where they apply."""

    version: int
    topic: TopicInfo | None = None
    ids: tuple[int, int] = (0, 0)
    refused: Refused = ()  # with ``CurrentVersion``: what the controller knows of moves without progress
    proposal: PlanProposal | None = None  # with ``ProposePlan``


class Question(msgspec.Struct, frozen=True, array_like=True):
    """A request, the milliseconds left, and the metadata version that it must find, ``None`` for any."""

    timeout_ms: int
    request: Request
    version: int | None = None


_QUESTION: Final = msgspec.msgpack.Decoder(Question)
_ANSWER: Final = msgspec.msgpack.Decoder(Answer)


def encode_question(question: Question) -> bytes:
    """The head of a call."""
    return msgspec.msgpack.encode(question)


def decode_question(head: bytes) -> Question:
    """Raises ``InvalidRequest`` for a request that this broker does not understand."""
    try:
        return _QUESTION.decode(head)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the controller does not understand this request: {error}") from None


def encode_answer(answer: Answer) -> bytes:
    """The head of an answer."""
    return msgspec.msgpack.encode(answer)


def decode_answer(head: bytes) -> Answer:
    """Raises ``InvalidRequest`` when the peer speaks another version."""
    try:
        return _ANSWER.decode(head)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the controller's answer is not understood: {error}") from None
