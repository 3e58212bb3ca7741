"""Tags that a broker sees without opening a record: the directory of a batch, and what it selects."""

from __future__ import annotations

import random
from collections.abc import Collection

import cramjam
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from raftlog.records.batch import (
    CHECKSUM_START,
    HEADER_BYTES,
    TAGS_KNOWN_BIT,
    Batch,
    Codec,
    check_batch,
    encode_batch,
    parse_header,
)
from raftlog.records.builder import Record, build_batch
from raftlog.records.compaction import emptied, retain
from raftlog.records.control import leader_change_batch
from raftlog.records.reader import StoredRecord, check_records, read_records
from raftlog.records.tag_directory import (
    COMPRESSED_RUN_BYTES,
    COMPRESSED_RUNS_MIN,
    RUNS_MAX,
    Run,
    select,
    tagged_body,
)
from raftlog.records.tags import TAG_RECORD_HEADER, TagSelection, listed_bytes, tag_set
from raftlog.types import NodeId
from tests.unit.records.samples import DefaultRecordBatch, one_batch

# requirement: A1, A2, A10

PAID = TagSelection(any=("paid",))


def tagged(value: bytes, *tags: str) -> Record:
    return Record(value, headers=tuple((TAG_RECORD_HEADER, tag.encode()) for tag in tags))


def batch_of(records: list[Record], codec: Codec = Codec.NONE, *, lists_tags: bool = True) -> Batch:
    return one_batch(build_batch(records, codec=codec, timestamp_ms=1, lists_tags=lists_tags))


def runs_in(batch: Batch) -> int:
    """As its directory says."""
    return int.from_bytes(batch.data[HEADER_BYTES + 10 : HEADER_BYTES + 12], "big")


def matching(batch: Batch, wanted: TagSelection) -> list[StoredRecord]:
    return [record for record in read_records(batch) if wanted.matches(record.headers)]


def selected(batch: Batch, wanted: TagSelection = PAID) -> list[StoredRecord]:
    part = select(batch, wanted)
    if part is None:
        return []
    check_batch(part)
    assert (part.base_offset, part.last_offset) == (batch.base_offset, batch.last_offset)
    return read_records(part)


MIXED = [
    tagged(b"a", "new"),
    tagged(b"b", "paid", "vip"),
    Record(b"c", headers=(("trace", b"1"),)),
    tagged(b"d" * 300_000, "paid"),
    tagged(b"e" * 400, "vip"),
    Record(b"f"),
]


@pytest.mark.parametrize("codec", list(Codec))
def test_exactly_the_matching_records_are_selected(codec: Codec) -> None:
    batch = batch_of(MIXED, codec)
    assert [record.offset for record in selected(batch)] == [1, 3]
    assert selected(batch) == matching(batch, PAID)
    assert [record.offset for record in selected(batch, TagSelection(any=("new", "vip")))] == [0, 1, 4]
    assert selected(batch, TagSelection(any=("id", "pai", "paid2"))) == []


@pytest.mark.parametrize("codec", list(Codec))
def test_other_readers_see_an_ordinary_batch_of_zstd(codec: Codec) -> None:
    batch = batch_of(MIXED, codec)
    assert batch.header.codec is Codec.ZSTD
    check_records(batch)
    theirs = [(each.value, list(each.headers)) for each in DefaultRecordBatch(bytes(batch.data))]
    assert theirs == [(record.value, [*record.headers]) for record in MIXED]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_without_tags_has_no_directory_and_is_skipped(codec: Codec) -> None:
    records = [Record(b"a"), Record(b"b", headers=(("trace", b"1"),))]
    batch, plain = batch_of(records, codec), batch_of(records, codec, lists_tags=False)
    assert batch.header.attributes == plain.header.attributes | TAGS_KNOWN_BIT
    assert batch.data[HEADER_BYTES:] == plain.data[HEADER_BYTES:]
    assert select(batch, PAID) is None
    assert select(plain, PAID) is plain  # who knows


def test_the_part_for_a_reader_does_not_say_that_it_has_no_tags() -> None:
    part = select(batch_of(MIXED), PAID)
    assert part is not None
    assert not part.header.attributes & TAGS_KNOWN_BIT
    assert select(part, PAID) is part


def test_a_batch_in_which_all_matches_is_sent_as_it_is() -> None:
    batch = batch_of([tagged(b"a", "paid"), tagged(b"b", "paid", "x")])
    assert select(batch, PAID) is batch


def test_batches_of_other_producers_are_returned_whole() -> None:
    """Also those with a skippable frame that nobody has declared to be a directory."""
    plain = batch_of(MIXED, Codec.GZIP, lists_tags=False)
    assert select(plain, PAID) is plain
    listed = batch_of(MIXED)
    attributes = listed.header.attributes & ~TAGS_KNOWN_BIT
    foreign = one_batch(
        encode_batch(listed.header._replace(attributes=attributes), bytes(listed.data[HEADER_BYTES:]))
    )
    assert select(foreign, PAID) is foreign


def test_the_records_are_not_opened() -> None:
    """The frames may be anything, such as encrypted: their bytes are copied."""
    frames = [b"\x00opaque\xff", b"secret of another run", b"third"]
    runs = [Run(tag_set([(TAG_RECORD_HEADER, name)]) or b"", 2, b"x") for name in (b"new", b"paid", b"new")]
    body = tagged_body(runs, is_compressed=False)
    assert body is not None
    directory = body[: body.index(b"\x28\xb5\x2f\xfd")]
    at = 8 + 4
    lengths = b"".join(len(frame).to_bytes(4, "big") for frame in frames)
    directory = directory[:at] + lengths + directory[at + len(lengths) :]
    header = batch_of([Record(b"x")] * 6).header._replace(attributes=Codec.ZSTD | TAGS_KNOWN_BIT)
    batch = one_batch(encode_batch(header, directory + b"".join(frames)))
    part = select(batch, PAID)
    assert part is not None
    assert bytes(part.data[HEADER_BYTES:]) == frames[1]
    assert part.header.record_count == 2


def test_nothing_is_selected_where_there_is_no_user_record() -> None:
    batch = batch_of(MIXED)
    control = leader_change_batch(base_offset=0, leader_epoch=1, leader=NodeId(1), timestamp_ms=1)
    assert select(emptied(batch), PAID) is None
    assert select(control, PAID) is None


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_compaction_keeps_the_tags_of_what_remains(codec: Codec) -> None:
    kept = retain(batch_of(MIXED, codec), {0, 2, 3, 4})
    assert [record.offset for record in read_records(kept)] == [0, 2, 3, 4]
    assert [record.offset for record in selected(kept)] == [3]
    untagged = retain(batch_of(MIXED, codec), {2, 5})
    assert [record.offset for record in read_records(untagged)] == [2, 5]
    assert select(untagged, PAID) is None
    plain = batch_of(MIXED, codec, lists_tags=False)
    assert select(retain(plain, {0, 3}), PAID) is not None


@pytest.mark.parametrize("value", [None, b"", b"a\x00b", b"a\nb"])
def test_a_tag_that_a_directory_cannot_have_leaves_the_batch_without_one(value: bytes | None) -> None:
    batch = batch_of([tagged(b"a", "paid"), Record(b"b", headers=((TAG_RECORD_HEADER, value),))])
    assert not batch.header.attributes & TAGS_KNOWN_BIT
    assert select(batch, PAID) is batch
    assert len(read_records(batch)) == 2


def test_a_directory_that_would_be_too_long_is_left_out() -> None:
    batch = batch_of([tagged(b"a", *(f"{n}-{'x' * 200}" for n in range(3_000)))])
    assert not batch.header.attributes & TAGS_KNOWN_BIT


def test_very_many_runs_are_joined() -> None:
    count = RUNS_MAX * 2 + 3
    records = [tagged(b"%d" % number, f"t{number % 97}") for number in range(count)]
    batch = batch_of(records)
    found = selected(batch, TagSelection(any=("t5",)))
    assert {record.offset for record in found} >= set(range(5, count, 97))
    assert len(found) <= 3 * len(range(5, count, 97))


def test_compressed_runs_are_not_too_short() -> None:
    """Tags that change with each record would leave nothing to compress."""
    records = [
        tagged(b'{"amount": %d, "currency": "EUR", "open": true}' % n, f"t{n % 97}") for n in range(2_000)
    ]
    plain = batch_of(records, Codec.ZSTD, lists_tags=False)
    batch = batch_of(records, Codec.ZSTD)
    assert len(batch.data) < 4 * len(plain.data)
    found = selected(batch, TagSelection(any=("t5",)))
    assert {record.offset for record in found} >= set(range(5, 2_000, 97))
    rare = [tagged(b"%060d" % n, "rare" if n % 100 == 7 else "often") for n in range(2_000)]
    assert len(selected(batch_of(rare, Codec.ZSTD), TagSelection(any=("rare",)))) < 200


@pytest.mark.parametrize("size_bytes", [60, 250, 2_000])
def test_compressed_records_with_a_rare_tag_share_their_run_with_no_others(size_bytes: int) -> None:
    """One record in a hundred, among twenty other tags at random; a run would have eight of 250 bytes."""
    rng = random.Random(1)
    records = [
        tagged(rng.randbytes(size_bytes // 2).hex().encode(), f"t{rng.randrange(20)}") for _ in range(1_500)
    ]
    for number in range(57, 1_500, 100):
        records[number] = tagged(records[number].value or b"", "paid", "vip")
    batch = batch_of(records, Codec.ZSTD)
    assert [record.offset for record in selected(batch)] == list(range(57, 1_500, 100))
    others = batch_of([one for n, one in enumerate(records) if n % 100 != 57], Codec.ZSTD)
    assert runs_in(batch) <= runs_in(others) + 3 * 15, "two ends of each, and what their bytes pay"


def test_rare_tags_do_not_take_the_runs_of_a_compressed_batch() -> None:
    """Where all tags are equally rare, most of them share runs: else nothing would be left to compress."""
    rng = random.Random(2)
    records = [tagged(b"%0200d" % n, f"t{rng.randrange(100)}") for n in range(2_000)]
    shared = COMPRESSED_RUNS_MIN + len(batch_of(records, lists_tags=False).data) // COMPRESSED_RUN_BYTES
    assert runs_in(batch_of(records, Codec.ZSTD)) <= 1.5 * shared


def test_the_size_of_a_directory_is_bounded_beforehand() -> None:
    rng = random.Random(1)
    for _ in range(50):
        records = [
            tagged(rng.randbytes(rng.randrange(0, 40)), *rng.sample("abcdefghi", rng.randrange(0, 4)))
            for _ in range(rng.randrange(1, 60))
        ]
        bound = sum(40 * len(record.headers) + 24 + listed_bytes(record.headers) for record in records)
        plain = len(batch_of(records, lists_tags=False).data)
        assert len(batch_of(records).data) <= plain + bound


def test_a_damaged_directory_hides_no_record() -> None:
    """Whatever bytes a producer sends: what matches is in the result, or the whole batch is."""
    batch = batch_of([tagged(b"%d" % n, "paid" if n % 3 else "new") for n in range(12)])
    data = bytearray(batch.data)
    size = int.from_bytes(data[HEADER_BYTES + 4 : HEADER_BYTES + 8], "little")
    rng = random.Random(7)
    for at in range(HEADER_BYTES + 8, HEADER_BYTES + 8 + 4 + 8 * 8):
        changed = bytearray(data)
        changed[at] ^= 1 << rng.randrange(8)
        body = bytes(changed[HEADER_BYTES:])
        damaged = one_batch(encode_batch(parse_header(changed), body))
        part = select(damaged, PAID)
        if part is not None:
            check_batch(part)
    for cut in (1, 8, 9, size):
        shortened = one_batch(encode_batch(batch.header, bytes(data[HEADER_BYTES : HEADER_BYTES + cut])))
        select(shortened, PAID)  # raises nothing
    assert batch.data[CHECKSUM_START:] == data[CHECKSUM_START:]


def test_stored_frames_are_readable_at_every_length() -> None:
    for length in (1, 255, 256, 257, 65_791, 65_792, 131_072, 131_073, 300_000):
        content = random.Random(length).randbytes(length)
        body = tagged_body([Run(b"\0a\0", 1, content)], is_compressed=False)
        assert body is not None
        assert bytes(cramjam.zstd.decompress(body)) == content


LISTS = [("any", "paid"), ("all", "paid vip"), ("none", "new"), ("none", "paid vip")]


def as_earlier_releases_list(batch: Batch) -> Batch:
    """The batch with a directory that has one set for each run: the tags of all of its records."""
    body = bytes(batch.data[HEADER_BYTES:])
    size, head = 8 + int.from_bytes(body[4:8], "little"), 8 + 4 + 10 * runs_in(batch)
    names = [sorted({*some.split(b"\0")} - {b""}) for some in body[head:size].split(b"\n")]
    sets = b"\n".join(b"\0%b\0" % b"\0".join(some) if some else b"" for some in names)
    directory = b"\1\0" + body[10:head] + sets  # no flags
    head_of_frame = body[:4] + len(directory).to_bytes(4, "little")
    return one_batch(encode_batch(batch.header, head_of_frame + directory + body[size:]))


def shared_runs(codec: Codec = Codec.ZSTD) -> tuple[list[list[str]], Batch]:
    """The tags of short records, most of which share a run with others, and their batch."""
    tags = [
        [["paid"], ["new"], ["paid", "vip"], [], ["vip"]][number * number % 13 % 5] for number in range(400)
    ]
    return tags, batch_of([tagged(b"%d" % number, *each) for number, each in enumerate(tags)], codec)


@pytest.mark.parametrize(("condition", "names"), LISTS)
def test_neighbours_that_share_a_run_hide_no_record(condition: str, names: str) -> None:
    """None of them has all of the tags of the run, and a tag of one is no tag of the others."""
    tags, batch = shared_runs()
    assert runs_in(batch) < len(tags) / 4
    wanted = TagSelection(**{condition: tuple(names.split())})
    expected = {number for number, each in enumerate(tags) if is_wanted(each, wanted)}
    for each in (batch, as_earlier_releases_list(batch)):
        assert {record.offset for record in selected(each, wanted)} >= expected


def test_a_run_without_a_set_that_is_wanted_is_not_sent() -> None:
    _, batch = shared_runs()
    assert select(batch, TagSelection(all=("new", "paid"))) is None, "many runs have both, but no record"
    _, exact = shared_runs(Codec.NONE)
    assert selected(exact, TagSelection(none=("new",))) == matching(exact, TagSelection(none=("new",)))


def test_records_without_tags_match_none_of_some() -> None:
    batch = batch_of([Record(b"a"), Record(b"b")])
    assert select(batch, TagSelection(none=("paid",))) is batch
    assert select(batch, TagSelection(any=("new",), none=("paid",))) is None
    assert select(batch, TagSelection(all=("new",))) is None


def is_wanted(tags: Collection[str], wanted: TagSelection) -> bool:
    """The rule, in words: any of some, all of some, none of some."""
    if wanted.any and not [tag for tag in tags if tag in wanted.any]:
        return False
    return all(tag in tags for tag in wanted.all) and not [tag for tag in tags if tag in wanted.none]


NAMES = ["paid", "new", "vip", "späť"]
TAGS = st.lists(st.sampled_from(NAMES), max_size=3)
WANTED = st.lists(st.sampled_from([*NAMES, "pai"]), max_size=2)


@given(
    st.lists(TAGS, min_size=1, max_size=60),
    st.sampled_from([Codec.NONE, Codec.ZSTD]),
    st.tuples(WANTED, WANTED, WANTED),
)
def test_selecting_equals_opening_and_looking(
    tags: list[list[str]], codec: Codec, lists: tuple[list[str], list[str], list[str]]
) -> None:
    wanted = TagSelection.of(*lists)
    assume(wanted is not None)
    assert wanted is not None
    batch = batch_of([tagged(b"%d" % number, *each) for number, each in enumerate(tags)], codec)
    expected = [number for number, each in enumerate(tags) if is_wanted(each, wanted)]
    found = selected(batch, wanted)
    assert [record.offset for record in found if wanted.matches(record.headers)] == expected
    if codec is Codec.NONE:
        assert [record.offset for record in found] == expected
