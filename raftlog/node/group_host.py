"""All Raft groups of one broker: one tick loop, one flusher, one transport.

Decides: which groups get ticks (groups that are not quiescent). Leaves to others: everything about a single
group (``raft_group``), when a peer counts as silent (``peer_watch``), which heartbeats share a frame
(``heartbeats``), and which groups elect another leader next (``leaderless_groups``).

A group without work is quiescent: it costs no tick and no message. Quiescent groups are safe because brokers
watch each other: each broker sends each peer a frame per heartbeat interval, and groups learn which of their
peers are unreachable. The connections of a silent peer are closed and dialled again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, ParamSpec, TypeVar, cast

from raftlog.clock import Clock
from raftlog.core.membership import Membership
from raftlog.core.messages import Heartbeat, HeartbeatReply, Message, TimeoutNow
from raftlog.core.raft import Raft, RaftSettings
from raftlog.core.settings import ELECTION_TICKS, HEARTBEAT_TICKS, QUIESCE_TICKS
from raftlog.errors import InvariantViolated, LogCorrupt, MachineFailed
from raftlog.exhaustion import exhaustion
from raftlog.node.backlogs import Backlogs
from raftlog.node.catch_up import CatchUpRate
from raftlog.node.cluster_time import CLOCK_BOUNDS, ClockBounds, ClusterTime
from raftlog.node.codec import (
    FrameKind,
    decode_heartbeat_replies,
    decode_heartbeats,
    decode_message,
    decode_sender,
    encode_message,
    split_frame,
)
from raftlog.node.duties import Duties
from raftlog.node.flusher import Flushed, Flusher, RunSyncs
from raftlog.node.frame_limits import FRAME_LIMITS, FrameLimits
from raftlog.node.group.applier import Restored, restore_kept
from raftlog.node.group.pending_requests import UncommittedBytes
from raftlog.node.group.ports import Elections, GroupListener
from raftlog.node.group.raft_group import RaftGroup
from raftlog.node.group.snapshot_transfer import SnapshotService
from raftlog.node.heartbeats import Heartbeats
from raftlog.node.leaderless_groups import LeaderlessGroups
from raftlog.node.network.transport import Transport
from raftlog.node.peer_disks import PeerDisks
from raftlog.node.peer_watch import PeerWatch
from raftlog.node.reading import READ_THREADS
from raftlog.node.room_watch import ControllerWatch, RoomWatch
from raftlog.node.rpc import Calls
from raftlog.records.batch import Batch
from raftlog.state_machine import StateMachine
from raftlog.storage.filesystem import Buffer
from raftlog.storage.log_storage import LogStorage
from raftlog.types import METADATA_GROUP, GroupId, Index, NodeId

_log = logging.getLogger("raftlog.node")

Reply = TypeVar("Reply")
Arguments = ParamSpec("Arguments")

TICK_MS: Final = 50
INTERNAL_SHARE: Final = 4  # internal topics may use this fraction of the bound for user records
SAY_AGAIN_TICKS: Final = 200  # ticks between two log lines about a replica that rejoins


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """Times and limits of a broker's groups. Every broker of a cluster should use the same."""

    tick_ms: int = TICK_MS
    heartbeat_ticks: int = HEARTBEAT_TICKS  # 100 ms
    election_ticks: int = ELECTION_TICKS  # 450 to 900 ms, drawn for every election
    quiesce_ticks: int = QUIESCE_TICKS  # a group with nothing outstanding becomes quiescent after 2 s
    transfer_s: float = 3.0  # the time for which a stop waits for other leaders
    catch_up_bytes_per_s: int = 100 << 20  # to members that are far behind; 0: no limit
    uncommitted_bytes_max: int = 256 << 20  # of all groups; each group also has its own bound
    clock_bounds: ClockBounds = CLOCK_BOUNDS
    broker_timeout_ms: int = 3000  # the active controller counts a broker as dead after so much silence
    frame_limits: FrameLimits = FRAME_LIMITS


class GroupHost:
    """One broker's groups. All methods belong to the event loop's thread.

    ``on_fatal`` is called with a broken invariant and must end the process; first, ``note_broken`` is called
    if the group of the invariant is known. ``has_room``: whether the disk has more free space than its
    reserve. ``is_drained``: whether an operator wants this broker to lead no group. ``is_in_use``: which
    peers count for the majority that agrees on the time. Without ``disks`` disk identities are ignored.
    """

    def __init__(
        self,
        node_id: NodeId,
        transport: Transport,
        clock: Clock,
        rng: random.Random,
        run_syncs: RunSyncs,
        *,
        on_fatal: Callable[[BaseException], None],
        note_broken: Callable[[GroupId, BaseException], None] = lambda group, error: None,
        has_room: Callable[[], bool] = lambda: True,
        is_drained: Callable[[], bool] = lambda: False,
        is_in_use: Callable[[NodeId], bool] = lambda peer: True,
        disks: PeerDisks | None = None,
        settings: HostSettings | None = None,
    ) -> None:
        self.node_id = node_id
        self.settings = settings or HostSettings()
        self.clock = ClusterTime(clock, self.settings.clock_bounds)
        self.uncommitted = UncommittedBytes(self.settings.uncommitted_bytes_max)
        self.uncommitted_internal = UncommittedBytes(self.settings.uncommitted_bytes_max // INTERNAL_SHARE)
        self.read_places = asyncio.Semaphore(READ_THREADS)
        self.catch_up = CatchUpRate(clock, self.settings.catch_up_bytes_per_s)
        self.flusher = Flusher(run_syncs, self.fail)
        self.calls = Calls(transport, first_id=rng.getrandbits(48), frame_limits=self.settings.frame_limits)
        self.has_room = has_room
        self._is_drained = is_drained
        self._is_in_use = is_in_use
        self._disks = disks
        self._refused = frozenset[NodeId]() if disks is None else disks.refused
        self.elections = Elections()
        self.damaged_logs = 0  # replicas that stopped because a read or a scrub found damage
        self.on_peer_connected: Callable[[NodeId], None] = lambda peer: None
        self.on_replica_failed: Callable[[GroupId, BaseException], None] = lambda group, error: None
        self._transport = transport
        self._watch = PeerWatch(
            self.settings.election_ticks, self.settings.tick_ms, transport.seconds_since_heard
        )
        self._rng = rng
        self._on_fatal = on_fatal
        self._note_broken = note_broken
        self._groups: dict[GroupId, RaftGroup[object]] = {}
        self.groups_opened = 0  # since the start
        self._awake: dict[GroupId, None] = {}
        self._scheduled: dict[GroupId, None] = {}
        self._unwritten: dict[GroupId, None] = {}
        self._backlogs = Backlogs(self._apply_more)
        SnapshotService(self.calls, lambda: self._groups)
        self._is_drain_due = False
        self._tick_handle: asyncio.TimerHandle | None = None
        self._leaderless = LeaderlessGroups(self._groups, self.is_reachable)
        self._room = RoomWatch()
        look_ms = self.settings.tick_ms * self.settings.heartbeat_ticks
        self._controller = ControllerWatch(2 * self.settings.broker_timeout_ms // look_ms)
        self._heartbeats = Heartbeats(transport)
        self._fatal = False
        self.duties = Duties(lambda: self._fatal)
        self.is_refused = False  # whether a peer says that this broker was removed from the cluster
        self._is_stopping = False  # it accepts no leadership
        self._has_stopped = False  # it accepts no message

    @property
    def tick_ms(self) -> int:
        """The length of a tick, in milliseconds."""
        return self.settings.tick_ms

    @property
    def groups(self) -> Mapping[GroupId, RaftGroup[object]]:
        """The groups that have a member on this broker."""
        return self._groups

    def is_reachable(self, peer: NodeId) -> bool:
        """Whether the peer has answered, and has since neither lost its link nor become silent."""
        return peer == self.node_id or self._watch.is_reachable(peer)

    def is_linked(self, peer: NodeId) -> bool:
        """Whether this node's own link to the peer is connected."""
        return self._watch.is_linked(peer)

    @property
    def reachable_peers(self) -> frozenset[NodeId]:
        """All peers for which ``is_reachable`` is True, also peers without a group in common."""
        return self._watch.reachable

    def declines(self, broker: NodeId) -> bool:
        """Whether a broker wants no leadership because it is stopping, drained, or lacks room."""
        if broker == self.node_id:
            return self._is_stopping or self._room.declines or self._controller.declines
        return self._watch.declines(broker)

    @property
    def takes_records(self) -> bool:
        """Whether the disk has more free space than its reserve, and no log waits for room.

        Quiescent groups are not asked: they never wait for room.
        """
        groups = (self._groups.get(group_id) for group_id in self._awake)
        return self.has_room() and not any(group is not None and group.waits_for_room for group in groups)

    def wall_ms(self) -> int:
        """Cluster time, for timestamps of control records."""
        return self.clock.wall_ms()

    # Opening and closing groups.

    def open_group(
        self,
        group_id: GroupId,
        log: LogStorage,
        machine: StateMachine[Batch, Reply],
        membership: Membership,
        listener: GroupListener,
        *,
        campaign_first: bool = False,
        announces_commits: bool = False,
        is_internal: bool = False,
        restored: Restored | None = None,
    ) -> RaftGroup[Reply]:
        """Open this broker's member of a group.

        Raises ``LogCorrupt`` if its committed entries cannot be applied. ``membership`` is the group's first
        membership, or ``NOBODY`` for a replica that is added to it; the log keeps the membership of its first
        opening. ``campaign_first``: hold an election at once, if the log is as young as the group.
        ``announces_commits``: a leader sends each commit index to followers at once, not with the next
        heartbeat; for groups where requests wait for a commit on every broker. An ``is_internal`` group
        continues while user records wait: its uncommitted bytes have their own bound. Without ``restored``
        the machine gets the newest state of the log here, which blocks the event loop.
        """
        with self.blames(group_id):
            restored = restored or restore_kept(machine, log.load_checkpoint())
            core = self._core_on(log, membership, group_id, announces_commits, restored.index)
            bound = self._uncommitted_of(group_id, is_internal)
            group: RaftGroup[Reply] = RaftGroup(group_id, core, log, machine, listener, self, bound, restored)
        # The host never reads a machine's replies, so it treats all groups alike.
        self._groups[group_id] = cast("RaftGroup[object]", group)
        self.groups_opened += 1
        self._awake[group_id] = None
        self.watch_peers(group.membership.members)
        self._leaderless.opened(self._groups[group_id])
        if campaign_first and group.term == 0:
            group.campaign()
        return group

    def _uncommitted_of(self, group_id: GroupId, is_internal: bool) -> UncommittedBytes | None:
        if group_id == METADATA_GROUP:
            return None
        return self.uncommitted_internal if is_internal else self.uncommitted

    def _core_on(
        self,
        log: LogStorage,
        first: Membership,
        group_id: GroupId,
        announces_commits: bool,
        applied_index: Index,
    ) -> Raft:
        log.store_initial_membership(first)
        restored = log.restored(first)
        if applied_index > restored.commit_hint:
            restored = replace(restored, commit_hint=applied_index)
        return Raft(
            RaftSettings(
                node_id=self.node_id,
                election_ticks=self.settings.election_ticks,
                heartbeat_ticks=self.settings.heartbeat_ticks,
                quiesce_ticks=self.settings.quiesce_ticks,
                announces_commits=announces_commits,
                campaign_rank_offset=group_id,
            ),
            restored,
            random.Random(self._rng.getrandbits(64)),
        )

    async def close_group(self, group_id: GroupId) -> None:
        """Leave a group at once, and close its files; do nothing if it is not open here.

        A cancelled call still waits for the files: the next caller may remove or open them.
        """
        group = self._groups.pop(group_id, None)
        self._awake.pop(group_id, None)
        if group is None:
            return
        closed, is_cancelled = group.close(), False
        while not closed.done():
            try:
                await asyncio.wait([closed])
            except asyncio.CancelledError:
                is_cancelled = True
        if is_cancelled:
            raise asyncio.CancelledError

    # Start and stop.

    async def start(self) -> None:
        """Listen, dial the peers and begin to tick."""
        await self._transport.start(self)
        self._tick_handle = asyncio.get_running_loop().call_later(self.settings.tick_ms / 1000, self._tick)

    async def transfer_leaderships(self) -> None:
        """Transfer every leadership to the most advanced peer; wait at most ``transfer_s`` for the transfers.

        From now on this broker accepts no leadership, and its heartbeats say so: otherwise peers that stop,
        too, would transfer theirs to it, and get them back.
        """
        self._is_stopping = True
        self._watch_peers()
        deadline = self.clock.monotonic() + self.settings.transfer_s
        while self.clock.monotonic() < deadline:
            if not self._hand_over():
                return
            await asyncio.sleep(self.settings.tick_ms / 1000)

    def _hand_over(self) -> bool:
        """Transfer every leadership that has a successor; return whether there was such a leadership."""
        led = [group for group in self._groups.values() if group.is_leader]
        targets = [(group, group.successor(self._watch.successors)) for group in led]
        for group, target in targets:
            if target is not None:
                group.transfer_leadership(target)
        return any(target is not None for _, target in targets)

    async def stop(self) -> None:
        """Close all groups, then the connections. Call ``transfer_leaderships`` before, if time allows."""
        self._has_stopped = True
        if self._tick_handle is not None:
            self._tick_handle.cancel()
        await self.calls.stop()
        for group in self._groups.values():
            group.leave()
        await self.flusher.idle()
        await asyncio.gather(*map(self.close_group, list(self._groups)))
        await self._transport.stop()

    # The environment of groups.

    def schedule(self, group: GroupId) -> None:
        """Carry out the work of this group at the end of this loop turn, and give it ticks again."""
        if group not in self._groups:
            return
        self._awake[group] = self._scheduled[group] = None
        if not self._is_drain_due:
            self._drain_soon()

    def apply_later(self, group: GroupId) -> None:
        """Queue this group to apply more committed entries; one group applies entries in each loop turn."""
        self._backlogs.add(group)

    def append_soon(self, group: GroupId) -> None:
        """Make this group append its written batches once the frames that are queued now were sent."""
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._append_unwritten)
        self._unwritten[group] = None

    def request_sync(self, group: Flushed) -> None:
        """Make the flusher sync this group's log, or carry out its next change."""
        if not self._fatal:
            self.flusher.request(group)

    def send(self, group: GroupId, to: NodeId, message: Message, payload: Sequence[Buffer] = ()) -> bool:
        """Queue a message; heartbeats are collected until the end of the loop turn."""
        if self._fatal:
            return False
        if type(message) is Heartbeat:
            self._heartbeats.add(group, to, message)
            return True
        if type(message) is HeartbeatReply:
            self._heartbeats.add_reply(group, to, message)
            return True
        try:
            return self._transport.send(to, encode_message(group, message, payload))
        except ValueError as error:  # a retry could not help, and no other group is affected
            _log.error("group %d: %s for broker %d is dropped: %s", group, type(message).__name__, to, error)
            return False

    def watch_peers(self, peers: frozenset[NodeId]) -> None:
        """Watch these peers, and send them heartbeats of this broker."""
        self._watch.watch_peers(peers - {self.node_id})

    def refuse_peer(self, peer: NodeId) -> None:
        """Refuse a peer that was removed from the cluster; its next attempt to connect gets that reason."""
        self._transport.refuse_peer(peer)
        self._watch.forget(peer)

    def begin(self, work: Coroutine[None, None, None], group: GroupId | None = None) -> asyncio.Task[None]:
        """Run ``work`` as a task, which the caller must keep. Its error, of ``group``, ends the process."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self.fail(error, group)

        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(ended)
        return task

    def begin_duty(
        self,
        duty: Callable[Arguments, Coroutine[None, None, None]],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> asyncio.Task[None]:
        """Run a duty as a task; the duty restarts after an unexpected error (``duties``)."""
        return self.begin(self.duties.keep(duty, *args, **kwargs))

    @contextlib.contextmanager
    def blames(self, group: GroupId) -> Iterator[None]:
        """Attribute a broken invariant to a group. Passes errors on; an exhaustion becomes an ``OSError``."""
        try:
            yield
        except (LogCorrupt, MachineFailed, OSError):
            raise
        except (Exception, InvariantViolated) as error:
            if (lack := exhaustion(error)) is not None:
                raise lack from error
            self.fail(error, group)
            raise

    def replica_failed(self, group: GroupId, error: BaseException) -> None:
        """Note that this broker's replica of a group has ended because of ``error``."""
        self.damaged_logs += isinstance(error, LogCorrupt)
        self.on_replica_failed(group, error)

    def fail(self, error: BaseException, group: GroupId | None = None) -> None:
        """Stop all sending and end the process: an invariant is broken. The group of the first one is noted.

        If a group has run out of memory or of another resource, only its replica stops; it is opened again.
        """
        lack, found = exhaustion(error), None if group is None else self._groups.get(group)
        if lack is not None and found is not None:
            found.stop(lack)
            return
        is_first, self._fatal = not self._fatal, True
        if is_first and group is not None and lack is None:
            self._note_broken(group, error)
        self._on_fatal(error)

    # Reports of the transport.

    def frame_received(self, sender: NodeId, frame: memoryview) -> None:
        """Handle one frame. Raises ``MalformedFrame``, which ends the sender's connection."""
        if self._fatal or self._has_stopped:
            return
        kind, head, payload = split_frame(frame)
        if kind is FrameKind.DISK and self._disks is not None:
            self._disks.received(sender, head)
        if sender in self._refused:
            return
        if self._watch.heard(sender):
            self._leaderless.peer_reachable(sender, self._awake)
        if kind is FrameKind.RAFT:
            group_id, message, batches = decode_message(head, payload)
            group = self._groups.get(group_id)
            if group is not None and not (self._is_stopping and isinstance(message, TimeoutNow)):
                group.receive(sender, message, batches)
        elif kind is FrameKind.HEARTBEATS:
            clock, declines_leadership = decode_sender(head)
            self.clock.heard(sender, clock)
            self._watch.said(sender, declines_leadership=declines_leadership)
            self._receive_all(sender, decode_heartbeats(payload))
        elif kind is FrameKind.HEARTBEAT_REPLIES:
            self._receive_all(sender, decode_heartbeat_replies(payload))
        elif kind is not FrameKind.DISK:
            self.calls.frame_received(sender, kind, head, payload)

    def peer_connected(self, peer: NodeId) -> None:
        """Note that this broker's link to a peer is connected; from now on a silence of the peer counts."""
        if self._disks is not None:
            self._disks.connected(peer)
        self._watch.connected(peer)
        self.on_peer_connected(peer)

    def peer_lost(self, peer: NodeId) -> None:
        """Note that the link to or from a peer broke: messages in flight may be lost."""
        if self._disks is not None:
            self._disks.lost(peer)
        self._watch.lost(peer)
        self.calls.peer_lost(peer)
        self._leaderless.peer_lost(peer, self._awake)

    def peer_refused(self, peer: NodeId) -> None:
        """Note a peer's refusal of this broker as removed from the cluster: it no longer takes part."""
        if not self.is_refused:
            _log.error(
                "broker %d refuses this broker, %d: it was removed from the cluster permanently; stop it",
                peer,
                self.node_id,
            )
        self.is_refused = True

    # Work in turns of the loop.

    def _receive_all(
        self,
        sender: NodeId,
        messages: Iterable[tuple[GroupId, Heartbeat]] | Iterable[tuple[GroupId, HeartbeatReply]],
    ) -> None:
        groups = self._groups
        for group_id, message in messages:
            group = groups.get(group_id)
            if group is not None:
                group.receive(sender, message, ())

    def _tick(self) -> None:
        self._tick_handle = asyncio.get_running_loop().call_later(self.settings.tick_ms / 1000, self._tick)
        self._watch.tick()
        quiescent = []
        for group_id in list(self._awake):
            group = self._groups.get(group_id)
            if group is None or group.is_quiescent:
                quiescent.append(group_id)
            else:
                group.tick()
        for group_id in quiescent:
            self._awake.pop(group_id, None)
        if self._leaderless:
            self._leaderless.elect_some()
        if self._watch.ticks % self.settings.heartbeat_ticks == 0:
            self._look_for_room()
            self._look_for_controller()
            self._watch_peers()
        if self._watch.ticks % SAY_AGAIN_TICKS == 0:
            self._tell_who_rejoins()

    def _tell_who_rejoins(self) -> None:
        for group_id, group in self._groups.items():
            if group.is_rejoining and group.stopped is None:
                _log.warning(
                    "%s on broker %d rejoins: it does not vote until it holds its leader's log; %s",
                    "the metadata group" if group_id == METADATA_GROUP else f"group {group_id}",
                    *(self.node_id, self.leader_known(group_id)),
                )

    def leader_known(self, group_id: GroupId) -> str:
        """A sentence that names the leader of a group, and the voters that are unreachable."""
        group = self._groups.get(group_id)
        if group is None:
            return "its log is not open here"
        leader = "there is no leader" if group.leader is None else f"broker {group.leader} leads"
        missing = sorted(p for p in group.membership.all_voters if not self.is_reachable(p))
        return f"{leader}; start brokers {missing}, which are unreachable" if missing else leader

    def _look_for_controller(self) -> None:
        """Transfer leaderships to other brokers while this broker does not hear the active controller."""
        group = self._groups.get(METADATA_GROUP)
        leader = None if group is None else group.leader
        is_heard = group is None or (leader is not None and self.is_reachable(leader))
        if self._controller.look(is_heard) and self._hand_over():
            _log.warning(
                "broker %d does not hear the active controller and hands its leaderships over; %s",
                *(self.node_id, self.leader_known(METADATA_GROUP)),
            )

    def _look_for_room(self) -> None:
        """Transfer leaderships to other brokers while this broker is drained or lacks room."""
        is_drained = self._is_drained()
        self._room.look(self.takes_records and not is_drained)
        if self._room.hands_over and self._hand_over() and not is_drained:
            _log.warning(
                "broker %d has no room for logs and hands its leaderships over to brokers with room; free "
                "space, or raise the limit of open files",
                self.node_id,
            )

    def _watch_peers(self) -> None:
        peers = self._watch.known
        self.clock.look(1 + sum(map(self._is_in_use, peers)))
        self._heartbeats.greet(peers)
        for peer in peers:
            if self._watch.is_silent(peer):
                self._watch.fell_silent(peer)
                self.peer_lost(peer)
                self._transport.disconnect(peer)
        self._drain_soon()

    def _apply_more(self, group_id: GroupId) -> None:
        group = self._groups.get(group_id)
        if group is not None and not self._fatal:
            group.apply_more()

    def _append_unwritten(self) -> None:
        unwritten, self._unwritten = self._unwritten, {}
        for group_id in unwritten:
            group = self._groups.get(group_id)
            if group is not None and not self._fatal:
                group.append_written()

    def _drain_soon(self) -> None:
        if not self._is_drain_due:
            self._is_drain_due = True
            asyncio.get_running_loop().call_soon(self._drain)

    def _drain(self) -> None:
        while self._scheduled and not self._fatal:
            scheduled, self._scheduled = self._scheduled, {}
            for group_id in scheduled:
                group = self._groups.get(group_id)
                if group is not None:
                    group.drain()
        if self._heartbeats.are_due and not self._fatal:
            self._heartbeats.send(self.clock.reading, declines_leadership=self.declines(self.node_id))
        self._is_drain_due = False
