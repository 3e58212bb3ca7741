"""Repairs of damaged replicas from their peers: whole, in doubt, cut short, moved or compacted meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import replace
from itertools import count
from typing import cast

import msgspec
import pytest

from raftlog.core.membership import NOBODY, Membership
from raftlog.core.ready import HardState
from raftlog.errors import ConnectionLost, InvalidRequest, LogCorrupt
from raftlog.node.blocking import RunBlocking
from raftlog.node.frame_limits import FrameLimits
from raftlog.node.rpc import Handler
from raftlog.records.batch import Batch, Codec, stamp
from raftlog.records.builder import Record, build_batch
from raftlog.repair.donor import owed
from raftlog.repair.repairer import FORGOTTEN_TERMS
from raftlog.repair.segment_writer import forget_from, settle
from raftlog.repair.service import Ask, Told
from raftlog.repair.target import CannotRepair, NeedsOperator, RepairTarget
from raftlog.repair.verify import examine
from raftlog.storage.durable_state import DurableState
from raftlog.storage.members import MEMBERS_NAME, load_members
from raftlog.storage.slots import SLOT_BYTES, UNKNOWN_TERMS, DurableEnd
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.log_changes import truncate_prefix
from raftlog.types import EntryId, Index, NodeId, Term
from tests.helpers.compacting import compact, records_in, stored, survivors
from tests.helpers.log_files import BATCH, DIRECTORY, open_log, segment, sync, write_raw
from tests.helpers.repair_cluster import (
    GROUP,
    TERMS,
    Answer,
    Cluster,
    Leader,
    add_membership,
    at_once,
    leads,
    log_of,
    members,
    terms_in,
)
from tests.helpers.storage_batches import storage_batch


# requirement: M3
def test_two_replicas_damaged_at_different_places_repair_one_another() -> None:
    one, two = log_of(*TERMS), log_of(*TERMS)
    one.flip_bit(segment(0), 3 * BATCH + 62)
    two.flip_bit(segment(8), BATCH + 62)
    assert terms_in(Cluster(one, broker_2=two).repair()) == TERMS
    assert terms_in(Cluster(two, broker_2=one).repair()) == TERMS


def test_a_log_that_does_not_hold_the_anchor_gives_nothing_but_its_terms() -> None:
    one, other = log_of(*TERMS), log_of(*[1, 1, 1, 1, 2, 2], *[4] * 6)
    one.flip_bit(segment(8), 62)
    with pytest.raises(CannotRepair, match=r"8\.\.8 are damaged: .*no replica leads"):
        Cluster(one, broker_2=other, broker_3=log_of(1, 1)).repair()
    assert examine(one, DIRECTORY).holes, "it stays damaged, and does not open"
    with pytest.raises(LogCorrupt):
        open_log(one)


def test_what_no_peer_has_is_replaced_by_the_log_of_a_leader_that_is_new_enough() -> None:
    """Entries 6.. of term 2 and 3 were never committed: the others went on without them."""
    one, other = log_of(*TERMS), log_of(*[1, 1, 1, 1, 2, 2], *[4] * 6)
    one.flip_bit(segment(0), 6 * BATCH + 62)
    log = Cluster(one, broker_2=leads(other, 5)).repair()
    assert terms_in(log) == [1, 1, 1, 1, 2, 2, *[4] * 6]
    assert log.restored(NOBODY).hard_state == HardState(Term(5), NodeId(1))


def test_a_leader_of_an_earlier_term_replaces_nothing() -> None:
    one, other = log_of(*TERMS, hard_term=7), log_of(*[1, 1, 1, 1, 2, 2], *[4] * 6)
    one.flip_bit(segment(0), 6 * BATCH + 62)
    with pytest.raises(CannotRepair):
        Cluster(one, broker_2=leads(other, 6)).repair()


@pytest.mark.parametrize("theirs", [[1, 1, 4, 4, 4], [1] * 8])
def test_where_the_logs_part_before_the_damage_the_leader_s_counts(theirs: list[int]) -> None:
    """The second segment would even follow upon eight entries of term 1."""
    one, other = log_of(*[1, 1, 2, 2, 2, 2, 2, 2, 2, 3]), log_of(*theirs)
    one.flip_bit(segment(0), 5 * BATCH + 62)
    assert terms_in(Cluster(one, broker_2=leads(other, 4)).repair()) == theirs


@pytest.mark.parametrize("leader_terms", [[1] * 39 + [2], [1] * 30])
def test_what_was_acknowledged_behind_the_damage_is_taken_from_the_leader_too(
    leader_terms: list[int],
) -> None:
    """Nobody holds the anchor, entry 39 of term 1; the leader's answers are short."""
    one = log_of(*[1] * 40, hard_term=2)
    one.flip_bit(segment(8), 3 * BATCH + 62)
    assert [hole.last for hole in examine(one, DIRECTORY).holes] == [11]
    cluster = Cluster(one, broker_2=leads(log_of(*leader_terms), 2), broker_3=log_of(*[1] * 20))
    cluster.net.frame_limits = FrameLimits(repair_bytes_max=3 * BATCH)
    log = cluster.repair()
    assert terms_in(log) == leader_terms


def test_a_log_that_lacks_what_was_promised_is_not_settled() -> None:
    one = log_of(*[1] * 12)
    seen = examine(one, DIRECTORY)
    forget_from(one, seen, 0, HardState(Term(2), None), 7)
    with pytest.raises(LogCorrupt, match="the log ends at 7, but 10 was durable"):
        settle(one, seen, HardState(Term(2), None), 10)
    assert examine(one, DIRECTORY).holes, "it stays in need of repair"


def test_a_peer_that_falls_silent_is_waited_for() -> None:
    """Broker 2 holds the anchor; that broker 3 leads with another log is no reason to take that one."""
    one, two = log_of(*TERMS), log_of(*TERMS)
    one.flip_bit(segment(0), 6 * BATCH + 62)
    cluster = Cluster(one, broker_2=two, broker_3=leads(log_of(*[1, 1, 1, 1, 2, 2], *[4] * 6), 5))
    answers = cluster.net.services[NodeId(2)]

    async def says_who_it_is(sender: NodeId, head: bytes, payload: memoryview) -> Answer:
        if msgspec.msgpack.decode(head, type=Ask).first == 6:
            raise ConnectionLost("it hangs", sent=True)
        return await answers(sender, head, payload)

    cluster.net.services[NodeId(2)] = says_who_it_is
    with pytest.raises(CannotRepair, match=r"brokers \[2\] no longer answer"):
        cluster.repair()
    cluster.net.services[NodeId(2)] = answers
    assert terms_in(cluster.repair()) == TERMS


def test_a_repair_that_gets_on_outlives_any_number_of_lost_calls() -> None:
    """Every second call fails, and an answer holds one batch."""
    one = log_of(*[1] * 16)
    for at in range(1, 7):
        one.flip_bit(segment(0), at * BATCH + 62)
    cluster = Cluster(one, broker_2=log_of(*[1] * 16), broker_3=log_of(*[1] * 16))
    cluster.net.frame_limits = FrameLimits(repair_bytes_max=BATCH)
    fetches = count()

    def shaky(answers: Handler) -> Handler:
        async def answer(sender: NodeId, head: bytes, payload: memoryview) -> Answer:
            ask = msgspec.msgpack.decode(head, type=Ask)
            if ask.first <= ask.last and next(fetches) % 2 == 0:
                raise ConnectionLost("the network is shaky", sent=True)
            return await answers(sender, head, payload)

        return answer

    for node, handler in cluster.net.services.items():
        cluster.net.services[node] = shaky(handler)
    assert terms_in(cluster.repair()) == [1] * 16
    assert next(fetches) == 6


def test_a_lost_slot_costs_a_question_to_everybody_and_a_vote() -> None:
    one = log_of(*TERMS)
    write_raw(one, f"{DIRECTORY}/hard_state.a", 0, bytes(SLOT_BYTES))
    cluster = Cluster(one, broker_2=log_of(*TERMS, hard_term=9))
    with pytest.raises(CannotRepair, match=r"brokers \[3\] must say which terms they know"):
        cluster.repair()
    log = Cluster(one, broker_2=log_of(*TERMS, hard_term=9), broker_3=log_of(*TERMS)).repair()
    assert log.restored(NOBODY).hard_state == HardState(Term(9), NodeId(1))
    assert terms_in(log) == TERMS


def test_where_others_have_forgotten_their_terms_too_many_are_left_out() -> None:
    logs = [log_of(*TERMS) for _ in range(3)]
    for filesystem in logs:
        for name in ("a", "b"):
            filesystem.overwrite(f"{DIRECTORY}/hard_state.{name}", None)
    log = Cluster(logs[0], broker_2=logs[1], broker_3=logs[2]).repair()
    assert log.restored(NOBODY).hard_state == HardState(Term(3 + FORGOTTEN_TERMS), NodeId(1))
    assert terms_in(log) == TERMS


def test_in_doubt_the_end_of_a_damaged_log_is_what_a_leader_says() -> None:
    one = log_of(*TERMS)
    for name in ("a", "b"):
        one.overwrite(f"{DIRECTORY}/hard_state.{name}", None)
    one.open(segment(8)).truncate(BATCH + 5)
    with pytest.raises(CannotRepair):
        Cluster(one, broker_2=log_of(*TERMS), broker_3=log_of(*TERMS)).repair()
    log = Cluster(one, broker_2=leads(log_of(*TERMS), 4), broker_3=log_of(*TERMS)).repair()
    assert terms_in(log) == TERMS
    assert log.restored(NOBODY).hard_state == HardState(Term(4), NodeId(1))


def test_damage_of_the_only_replica_is_nobody_s_to_repair() -> None:
    one = log_of(*TERMS)
    one.flip_bit(segment(0), 62)
    cluster = Cluster(one)
    cluster.repair_target = RepairTarget(GROUP, DIRECTORY, ())
    with pytest.raises(NeedsOperator, match="there is no other replica"):
        cluster.repair()


def test_what_a_peer_sends_is_checked() -> None:
    one, two = log_of(*TERMS), log_of(*TERMS)
    one.flip_bit(segment(0), 3 * BATCH + 62)
    cluster = Cluster(one, broker_3=two)
    honest = cluster.net.services[NodeId(3)]

    async def garbles(sender: NodeId, head: bytes, payload: memoryview) -> Answer:
        answer, data = await honest(sender, head, payload)
        garbled = bytearray(b"".join(bytes(part) for part in data))
        if garbled:
            garbled[-1] ^= 1
        return answer, [garbled]

    cluster.net.services[NodeId(2)] = garbles
    assert terms_in(cluster.repair()) == TERMS
    told = [ask for peer, ask in cluster.net.asked if peer == 2 and ask.first == 3]
    assert told, "broker 2 was asked, and not believed"


def test_who_took_part_is_said_by_who_is_that_far_only() -> None:
    """Broker 2 has another membership there, and has not heard that it is committed."""
    right, wrong = (Membership(frozenset({NodeId(1), NodeId(2), NodeId(at)})) for at in (3, 4))
    one = log_of(*TERMS)
    log = open_log(one)
    log.store_initial_membership(right)
    log.states.save(EntryId(log.term_at(Index(7)), Index(7)), b"state")
    truncate_prefix(log, Index(8))
    sync(log)
    log.close()
    one.restart()
    start = examine(one, DIRECTORY).state.log_start
    one.flip_bit(f"{DIRECTORY}/{MEMBERS_NAME}", 9)
    behind, knows = leads(log_of(*TERMS), 3), leads(log_of(*TERMS), 3)
    behind.membership, behind.commit_index = wrong, Index(start - 2)
    knows.membership, knows.commit_index = right, Index(start - 1)
    with pytest.raises(CannotRepair, match="knows the members"):
        Cluster(one, broker_2=behind).repair()
    Cluster(one, broker_2=behind, broker_3=knows).repair()
    assert load_members(one, DIRECTORY).base(start) == right


def test_what_was_read_for_one_s_own_repair_answers_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that need one another: reading all files takes longer than a question may."""

    def too_slow(*of: object) -> object:
        raise ConnectionLost("the question has ended before", sent=True)

    monkeypatch.setattr("raftlog.repair.service.examine", too_slow)
    one = log_of(*TERMS)
    one.flip_bit(segment(0), 3 * BATCH + 62)
    cluster = Cluster(one)
    ask = Ask(group_id=GROUP, first=Index(8), last=Index(9), anchor_term=Term(3), anchor_index=Index(11))
    question = cluster.net.services[NodeId(1)](NodeId(2), msgspec.msgpack.encode(ask), memoryview(b""))
    with pytest.raises(CannotRepair):
        cluster.repair()
    told, data = asyncio.run(cast("Coroutine[None, None, Answer]", question))
    assert msgspec.msgpack.decode(told, type=Told).is_held
    assert len(data) == 2


def test_files_that_change_while_they_are_read_are_not_told_of() -> None:
    one = log_of(*TERMS)
    cluster = Cluster(one)
    service = cluster.repairer.service

    async def overtaken(work: object) -> object:
        found = await at_once(work)
        service.forget(DIRECTORY)
        return found

    async def asked() -> Answer:
        return await cluster.net.services[NodeId(1)](NodeId(2), question, memoryview(b""))

    question = msgspec.msgpack.encode(Ask(group_id=GROUP, members_at=Index(-1)))
    service.run_blocking = cast("RunBlocking", overtaken)
    with pytest.raises(InvalidRequest, match="have just changed"):
        asyncio.run(asked())
    service.run_blocking = cast("RunBlocking", at_once)
    told = msgspec.msgpack.decode(asyncio.run(asked())[0], type=Told)
    assert told.is_sure


@pytest.mark.parametrize("where", ["a group", "files", "its own files"])
def test_who_votes_by_the_log_is_asked_for_terms_whatever_the_metadata_say(where: str) -> None:
    """The metadata name brokers 2 and 3; by the log 4 votes in the place of 3, and 5 by the log of 4."""
    one, two, four = (log_of(*TERMS) for _ in range(3))
    write_raw(one, f"{DIRECTORY}/hard_state.a", 0, bytes(SLOT_BYTES))
    leader = leads(four, 9)
    leader.membership = members(1, 2, 4, 5)
    teller: FakeFilesystem | Leader = two
    if where == "a group":
        teller = leads(two, 3)
        teller.membership = members(1, 2, 4)
    else:
        for later, membership in enumerate((members(1, 2, 3), members(1, 2, 4))):
            add_membership(two if where == "files" else one, membership, later)
    others: dict[str, FakeFilesystem | Leader] = {"broker_2": teller, "broker_3": log_of(*TERMS)}
    with pytest.raises(CannotRepair, match=r"brokers \[4\] must say"):
        Cluster(one, **others).repair()
    with pytest.raises(CannotRepair, match=r"brokers \[5\] must say"):
        Cluster(one, **others, broker_4=leader).repair()
    log = Cluster(one, **others, broker_4=leader, broker_5=log_of(*TERMS, hard_term=11)).repair()
    assert log.restored(NOBODY).hard_state == HardState(Term(11), NodeId(1))


def log_whose_newest_slot_is_lost(*terms: int, durable_index: int) -> FakeFilesystem:
    """A log with a batch of each of these terms; the slot that is left promises no more than it says."""
    filesystem = FakeFilesystem()
    log = open_log(filesystem)
    for at, term in enumerate(terms):
        log.save_hard_state(HardState(Term(term), NodeId(1)))
        log.append([storage_batch(at, epoch=term)])
        if at == durable_index:
            sync(log)
    sync(log)
    log.close()
    filesystem.restart()
    write_raw(filesystem, f"{DIRECTORY}/hard_state.b", 0, bytes(SLOT_BYTES))
    return filesystem


# requirement: M3
def test_what_is_lacking_beyond_the_anchor_comes_from_a_leader_only() -> None:
    """Broker 2 holds the anchor, entry 9, and behind it entries that were never committed."""
    one = log_whose_newest_slot_is_lost(*TERMS, durable_index=9)
    for entry in (9, 10):
        one.flip_bit(segment(8), (entry - 8) * BATCH + 62)
    seen = examine(one, DIRECTORY)
    assert (seen.anchor, [(hole.first, hole.last) for hole in seen.holes]) == (
        EntryId(Term(2), Index(9)),
        [(9, 10)],
    )
    committed = [*TERMS[:10], 4, 4]
    others = {"broker_2": log_of(*TERMS[:10], 2, 2), "broker_3": leads(log_of(*committed), 5)}
    assert terms_in(Cluster(one, **others).repair()) == committed


# requirement: M3
def test_who_takes_the_log_of_a_leader_of_its_own_term_has_no_vote_left_in_it() -> None:
    """The slot that is left says that nobody was voted for; the one that is lost may have said otherwise."""
    one = log_of(*TERMS, hard_term=4)
    write_raw(one, f"{DIRECTORY}/hard_state.b", 0, bytes(SLOT_BYTES))
    one.open(segment(8)).truncate(BATCH + 5)
    seen = examine(one, DIRECTORY)
    assert (seen.doubt is None, seen.state.hard_state) == (False, HardState(Term(4), None))
    log = Cluster(one, broker_2=leads(log_of(*TERMS), 4), broker_3=log_of(*TERMS)).repair()
    assert terms_in(log) == TERMS
    assert log.restored(NOBODY).hard_state == HardState(Term(4), NodeId(1))


# requirement: M3
def test_what_is_to_come_is_promised_before_anything_goes() -> None:
    """A power loss has put the slots' promise back; what was sound behind it may have been acknowledged."""
    log = log_of(*[1] * 12)
    state = examine(log, DIRECTORY).state
    lower = replace(state, durable_end=DurableEnd(EntryId(Term(1), Index(3)), UNKNOWN_TERMS))
    DurableState.replace(log, DIRECTORY, lower)
    seen = examine(log, DIRECTORY)
    assert (seen.is_clean, seen.state.durable_index, seen.last) == (True, 3, 11)
    forget_from(log, seen, 0, HardState(Term(2), None), 11)
    log.restart()
    assert [(hole.first, hole.last) for hole in examine(log, DIRECTORY).holes] == [(8, 11)]


# requirement: M3
def test_who_has_a_torn_tail_may_have_acknowledged_what_stood_there() -> None:
    log = log_of(*[1] * 12)
    leader = Told(term=Term(2), is_sure=True, is_leader=True, first=Index(0), last=Index(20))
    assert owed(examine(log, DIRECTORY), leader) == 11
    log.open(segment(8)).append([bytes(30)])
    seen = examine(log, DIRECTORY)
    assert seen.torn
    assert owed(seen, leader) == 20


def with_a_lost_slot() -> FakeFilesystem:
    filesystem = log_of(*TERMS)
    write_raw(filesystem, f"{DIRECTORY}/hard_state.a", 0, bytes(SLOT_BYTES))
    return filesystem


# requirement: M3
def test_a_broker_whose_replica_was_deleted_has_nothing_to_say() -> None:
    others = {"broker_2": log_of(*TERMS, hard_term=4), "broker_3": FakeFilesystem()}
    log = Cluster(with_a_lost_slot(), **others).repair()
    assert log.restored(NOBODY).hard_state == HardState(Term(4), NodeId(1))


def test_a_broker_that_does_not_know_yet_whether_it_has_a_replica_is_waited_for() -> None:
    cluster = Cluster(with_a_lost_slot(), broker_2=log_of(*TERMS), broker_3=None)
    with pytest.raises(CannotRepair, match=r"brokers \[3\] must say which terms they know"):
        cluster.repair()


KEYS = [b"a", b"b", b"c", None]


def batches(seed: int, count: int = 40) -> list[Batch]:
    """Small batches of two terms; few keys, so that much is superseded."""
    rng = random.Random(seed)
    found: list[Batch] = []
    for number in range(count):
        records = [Record(b"value %d" % number, rng.choice(KEYS)) for _ in range(rng.randint(1, 3))]
        data = build_batch(records, codec=Codec.NONE, timestamp_ms=number)
        base = found[-1].last_offset + 1 if found else 0
        term = 1 if number < count // 2 else 2
        found.append(stamp(data, base_offset=base, leader_epoch=term, append_time_ms=number))
    return found


def compacted_log_of(entries: list[Batch], rounds: list[int]) -> FakeFilesystem:
    """A closed log, compacted whenever it had so many batches."""
    filesystem = FakeFilesystem()
    log = open_log(filesystem)
    log.save_hard_state(HardState(Term(2), NodeId(1)))
    for number, batch in enumerate(entries):
        log.append([batch])
        if number in rounds:
            sync(log)
            log.note_commit_index(log.last_index)
            compact(filesystem, log)
    sync(log)
    log.close()
    filesystem.restart()
    return filesystem


@pytest.mark.parametrize("seed", range(30))
def test_every_newest_record_is_there_after_a_repair(seed: int) -> None:
    rng = random.Random(seed)
    entries = batches(seed)

    def some_log() -> FakeFilesystem:
        return compacted_log_of(entries, sorted(rng.sample(range(5, 39), rng.randint(0, 2))))

    one, other = some_log(), some_log()
    names = [name for name in one.list_directory(DIRECTORY) if name.endswith(".log")]
    for name in rng.sample(names, rng.randint(1, len(names))):
        path = f"{DIRECTORY}/{name}"
        if rng.random() < 0.3:
            one.overwrite(path, None)
        else:
            one.flip_bit(path, rng.randrange(len(one.read_file(path))))
    if examine(one, DIRECTORY).is_clean:
        return
    is_led = rng.random() < 0.5
    log = Cluster(one, broker_2=leads(other, 2) if is_led else other).repair()
    found = records_in(stored(log))
    assert [record for record in survivors(entries, entries[-1].last_offset + 1) if record not in found] == []
    assert [record for record in found if record not in records_in(entries)] == []
    assert log.last_index == entries[-1].last_offset
