"""Planted bugs: each must be seen by the simulator's judge, or the judge is blind to its family."""

from __future__ import annotations

from tests.simulation.mutants.accuracy import ACCURACY
from tests.simulation.mutants.adapter import ADAPTER
from tests.simulation.mutants.added_partitions import ADDED_PARTITIONS
from tests.simulation.mutants.admins import CONTROLLER, GIVEN_UP
from tests.simulation.mutants.archive import ARCHIVE
from tests.simulation.mutants.archived import ARCHIVED
from tests.simulation.mutants.assignors import ASSIGNORS
from tests.simulation.mutants.backlogs import BACKLOGS
from tests.simulation.mutants.balancing import BALANCING
from tests.simulation.mutants.broken import BROKEN
from tests.simulation.mutants.changes import CHANGES
from tests.simulation.mutants.clients import CLIENTS
from tests.simulation.mutants.clocks import CLOCKS
from tests.simulation.mutants.compaction import COMPACTION
from tests.simulation.mutants.consumers import CONSUMERS
from tests.simulation.mutants.core import CORE
from tests.simulation.mutants.dead_letters import DEAD_LETTERS
from tests.simulation.mutants.decommission import DECOMMISSION
from tests.simulation.mutants.decommissioned_partitions import DECOMMISSIONED_PARTITIONS
from tests.simulation.mutants.delayed import DELAYED
from tests.simulation.mutants.delayed_seeds import DELAYED_SEEDS
from tests.simulation.mutants.delta import DELTA
from tests.simulation.mutants.driver import DRIVER
from tests.simulation.mutants.filled import FILLED
from tests.simulation.mutants.followers import FOLLOWERS
from tests.simulation.mutants.forgetting import FORGETTING
from tests.simulation.mutants.given_away import GIVEN_AWAY
from tests.simulation.mutants.groups import GROUPS
from tests.simulation.mutants.healing import HEALING
from tests.simulation.mutants.healing_seeds import HEALING_SEEDS
from tests.simulation.mutants.http import HTTP
from tests.simulation.mutants.joining import JOINING
from tests.simulation.mutants.kernel_syncs import KERNEL_SYNCS
from tests.simulation.mutants.later import LATER
from tests.simulation.mutants.log_starts import LOG_STARTS
from tests.simulation.mutants.logs import LOGS
from tests.simulation.mutants.members import MEMBERS
from tests.simulation.mutants.moves import MOVES, STALE
from tests.simulation.mutants.network import NETWORK
from tests.simulation.mutants.older_copies import OLDER_COPIES
from tests.simulation.mutants.one_shot import ONE_SHOT
from tests.simulation.mutants.partitions import METADATA, PARTITIONS
from tests.simulation.mutants.producers import PRODUCERS
from tests.simulation.mutants.queue_seeds import QUEUE_SEEDS
from tests.simulation.mutants.queues import QUEUES
from tests.simulation.mutants.quiescence import QUIESCENCE
from tests.simulation.mutants.rejoin import REJOIN
from tests.simulation.mutants.repair import REPAIR
from tests.simulation.mutants.room import ROOM
from tests.simulation.mutants.schedules import SCHEDULED
from tests.simulation.mutants.shared_events import SHARED_EVENTS
from tests.simulation.mutants.sink_seeds import SINK_SEEDS
from tests.simulation.mutants.sinks import SINKS
from tests.simulation.mutants.spark import SPARK
from tests.simulation.mutants.spark_input import SPARK_INPUT
from tests.simulation.mutants.spark_removed import SPARK_REMOVED
from tests.simulation.mutants.speed import SPEED
from tests.simulation.mutants.storage import STORAGE
from tests.simulation.mutants.stuck_moves import STUCK_MOVES
from tests.simulation.mutants.tags import TAGS
from tests.simulation.mutants.transaction_client import TRANSACTION_CLIENT
from tests.simulation.mutants.transaction_compaction import TRANSACTION_COMPACTION
from tests.simulation.mutants.transaction_offsets import TRANSACTION_OFFSETS
from tests.simulation.mutants.transaction_seeds import TRANSACTION_SEEDS
from tests.simulation.mutants.transactions import TRANSACTIONS
from tests.simulation.mutants.workers import WORKERS

MUTANTS = (
    *CORE,
    *QUIESCENCE,
    *REJOIN,
    *CHANGES,
    *MEMBERS,
    *STORAGE,
    *COMPACTION,
    *ADAPTER,
    *KERNEL_SYNCS,
    *FILLED,
    *GIVEN_AWAY,
    *LOGS,
    *LOG_STARTS,
    *REPAIR,
    *DRIVER,
    *BACKLOGS,
    *ROOM,
    *NETWORK,
    *BROKEN,
    *PARTITIONS,
    *CLOCKS,
    *MOVES,
    *STALE,
    *METADATA,
    *CONTROLLER,
    *GIVEN_UP,
    *ADDED_PARTITIONS,
    *HEALING,
    *DECOMMISSION,
    *DECOMMISSIONED_PARTITIONS,
    *HEALING_SEEDS,
    *STUCK_MOVES,
    *BALANCING,
    *JOINING,
    *FORGETTING,
    *CLIENTS,
    *CONSUMERS,
    *PRODUCERS,
    *HTTP,
    *GROUPS,
    *DEAD_LETTERS,
    *TAGS,
    *DELAYED,
    *QUEUES,
    *QUEUE_SEEDS,
    *LATER,
    *SCHEDULED,
    *DELAYED_SEEDS,
    *ASSIGNORS,
    *WORKERS,
    *TRANSACTIONS,
    *SINKS,
    *TRANSACTION_OFFSETS,
    *TRANSACTION_CLIENT,
    *TRANSACTION_COMPACTION,
    *OLDER_COPIES,
    *ONE_SHOT,
    *TRANSACTION_SEEDS,
    *SINK_SEEDS,
    *SPARK,
    *SPARK_INPUT,
    *SPARK_REMOVED,
    *ARCHIVE,
    *ARCHIVED,
    *SPEED,
    *SHARED_EVENTS,
    *FOLLOWERS,
    *DELTA,
    *ACCURACY,
)
