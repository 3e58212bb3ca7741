"""``consume --group``: messages on standard output, as a member of a consumer group."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from raftlog.types import TopicPartition

if TYPE_CHECKING:
    from api.cli.message_format import Render
    from raftlog.client import Client
    from raftlog.client.consumer.faces import Consumer

LOOK = "200ms"  # for messages, before the command looks whether it ends


def print_as_member(
    client: Client,
    consuming: Consumer,
    topics: Sequence[str],
    max_count: int | None,
    follow: bool,
    render: Render,
) -> None:
    """Print messages until the end that the topics have now, so many, or, to ``follow``, a signal comes.

    A message is committed after it was written: a command that is killed prints some messages again. At most
    once, it is committed before, so that one that was not written whole is lost.
    """
    from raftlog.client.worker.run import stopped_by_signals

    ends = {} if follow else _ends(client, topics)
    stopping = threading.Event()
    left = max_count
    with stopped_by_signals(stopping.set, asked=True), consuming as consumer:
        while not stopping.is_set():
            message = consumer.poll(LOOK)  # acknowledges the one before, which is written
            if message is not None:
                sys.stdout.buffer.write(render(message))
                sys.stdout.buffer.flush()
                left = None if left is None else left - 1
                if left == 0:
                    return
            elif not follow and _is_at_end(consumer, ends):
                return


def _ends(client: Client, topics: Sequence[str]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, item.partition): client.partition(topic, item.partition).offset_at("latest")
        for topic in topics
        for item in client.topics.partitions(topic)
    }


def _is_at_end(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    """Whether this member has printed what there was. One without partitions has nothing to print."""
    positions = consumer.positions
    return consumer.is_assigned and all(
        target in positions and positions[target] >= ends.get(target, 0) for target in consumer.assignment
    )
