"""Chooses the survivor of an unsafe recovery, after the permanent loss of a partition's majority.

Decides: whether a recovery is needed, which log continues, and the confirming phrase. Leaves to others:
asking the replicas and carrying out the recovery (``admin``, ``hosting.opener``). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from partitions.routing.rpc import LogEnd
from raftlog.types import NodeId, TopicPartition
from raftlog.units import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The logs of the replicas of a partition that answered, and the survivor chosen from them."""

    target: TopicPartition
    ends: Mapping[NodeId, LogEnd]  # of replicas that answered and have a membership in their logs
    survivor: NodeId | None  # the replica with the longest log
    lost: tuple[NodeId, ...]  # the voters in the survivor's log that did not answer
    is_needed: bool

    @property
    def phrase(self) -> str:
        """The phrase that confirms a recovery. It names the lost brokers, and changes when they change."""
        return f"recover {self.target} from broker {self.survivor} without {_brokers(self.lost)}"

    @property
    def estimate(self) -> str:
        """A text that describes the recovery and the possible loss of records."""
        if self.survivor is None:
            return (
                f"no replica of {self.target} answers, so the partition cannot be recovered; start a broker"
            )
        end = self.ends[self.survivor]
        return (
            f"broker {self.survivor} would be chosen: its log is the longest, up to offset {end.last.index} "
            f"in term {end.last.term}, and it knows {counted(end.commit_index + 1, 'offset')} to be "
            f"committed. All of its log is kept. Records above offset {end.commit_index} that only "
            f"{_brokers(self.lost)} acknowledged are lost; their number is unknown"
        )

    @property
    def lines(self) -> list[str]:
        """One line of text about the log of each replica that answered."""
        return [
            f"broker {node}: log ends at offset {end.last.index} in term {end.last.term}, "
            f"committed up to {end.commit_index}"
            for node, end in sorted(self.ends.items())
        ]


def survey(target: TopicPartition, replicas: tuple[NodeId, ...], answers: Mapping[NodeId, LogEnd]) -> Survey:
    """Choose the survivor among the replicas that answered.

    ``replicas`` are the voters if no log has a membership.
    """
    ends = {node: end for node, end in answers.items() if any(end.halves)}
    survivor = max(sorted(ends), key=lambda node: (ends[node].last.term, ends[node].last.index), default=None)
    halves = (frozenset(replicas),) if survivor is None else ends[survivor].halves
    voters = frozenset().union(*halves)
    return Survey(
        target=target,
        ends=ends,
        survivor=survivor,
        lost=tuple(sorted(voters - ends.keys())),
        is_needed=any(2 * len(half & ends.keys()) <= len(half) for half in halves),
    )


def _brokers(nodes: tuple[NodeId, ...]) -> str:
    names = ", ".join(str(node) for node in nodes)
    return f"broker {names}" if len(nodes) == 1 else f"brokers {names}"
