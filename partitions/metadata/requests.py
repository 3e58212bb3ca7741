"""Requests to the active controller and its answers: types, encoding and decoding."""

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
    """Ask for a metadata version that includes all changes acknowledged before this request."""


class ProposePlan(msgspec.Struct, frozen=True, array_like=True, tag="propose_plan"):
    """Ask for the moves that would balance the brokers."""


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
    """The answer to a request.

    Metadata of ``version`` has the request's effect; other fields depend on the request.
    """

    version: int
    topic: TopicInfo | None = None
    ids: tuple[int, int] = (0, 0)
    refused: Refused = ()  # with ``CurrentVersion``: the reported moves without progress
    proposal: PlanProposal | None = None  # with ``ProposePlan``


class Question(msgspec.Struct, frozen=True, array_like=True):
    """A request, its time limit in milliseconds, and the metadata version that it requires (None: any)."""

    timeout_ms: int
    request: Request
    version: int | None = None


_QUESTION: Final = msgspec.msgpack.Decoder(Question)
_ANSWER: Final = msgspec.msgpack.Decoder(Answer)


def encode_question(question: Question) -> bytes:
    """Encode a question as the head of a call."""
    return msgspec.msgpack.encode(question)


def decode_question(head: bytes) -> Question:
    """Decode the question in the head of a call.

    Raises ``InvalidRequest`` for a request unknown to this broker.
    """
    try:
        return _QUESTION.decode(head)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the controller does not know this request: {error}") from None


def encode_answer(answer: Answer) -> bytes:
    """Encode an answer as the head of a response."""
    return msgspec.msgpack.encode(answer)


def decode_answer(head: bytes) -> Answer:
    """Decode the answer in the head of a response.

    Raises ``InvalidRequest`` if the peer uses another version.
    """
    try:
        return _ANSWER.decode(head)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"cannot decode the answer of the controller: {error}") from None
