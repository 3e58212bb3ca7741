"""``produce``: lines of a file or of standard input become records.

Decides: what is sent, when to stop (at the first failure, since a million more may follow), and
the summary. Leaves to others: lines (``lines``), outcomes (``tally``), sending (the client).
"""

from __future__ import annotations

import enum
import gc
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated

import click

from api.cli.connection import connected
from api.cli.output import (
    DEFAULT_SERVER,
    REFUSED,
    UNKNOWN,
    ServerOption,
    errors_reported,
    is_json,
    note,
    options_checked,
    problem,
    write_json,
    wrong_usage,
)
from api.cli.parameters import Argument, Option
from api.cli.text import unescaped
from api.stop_signals import interruption_code
from raftlog.acks import acks_word

if TYPE_CHECKING:
    from api.cli.lines import Headers, Parse
    from api.cli.tally import Tally
    from raftlog.client.blocking_producer import Producer, Transaction


class Lines(enum.StrEnum):
    """The format of a line of the input."""

    VALUE = "value"
    JSON = "json"


GC_THRESHOLD = 50_000  # pending records are not garbage, and collecting them repeatedly takes long


@dataclass(frozen=True, slots=True)
class Input:
    """The lines of a source, in blocks, and their format."""

    source: BufferedReader
    blocks: Iterator[list[bytes]]
    parse: Parse
    headers: Headers
    partition: int | None


PathArgument = Annotated[
    Path, Argument(metavar="[FILE|-]", help="The file with the lines; - is standard input.")
]
KeyOption = Annotated[str | None, Option("--key", "-k", help="One key for all records.")]
KeySeparatorOption = Annotated[
    str | None,
    Option("--key-separator", "-K", help="Lines are key, separator, value; \\t is a tabulator."),
]
LinesOption = Annotated[
    Lines,
    Option("--format", help='Format of a line: a value, or {"key", "value", "headers", "tags"}.'),
]
WholeOption = Annotated[bool, Option("--whole", help="All of the input is one record, such as an image.")]
KeepPartitionsOption = Annotated[
    bool, Option("--keep-partitions", help="Send lines of `consume --format json` to their partitions.")
]
HeaderOption = Annotated[
    list[str] | None,
    Option("--header", "-H", metavar="NAME=VALUE", help="A header of every record; repeatable."),
]
PartitionOption = Annotated[
    int | None, Option("--partition", "-p", min=0, help="Send all to this partition.")
]
CompressionOption = Annotated[str, Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd.")]
BatchBytesOption = Annotated[
    str | None,
    Option(metavar="SIZE", help="Maximum size of a batch, in bytes or such as 256KiB."),
]


DeliveryOption = Annotated[
    str | None,
    Option(
        metavar="HOW",
        help="at_most_once: send without waiting. at_least_once: repeat until it is stored. exactly_once: "
        "all lines in a transaction of at most 15 minutes, so that all are visible, or none.",
    ),
]


AcksOption = Annotated[
    str | None, Option(help="0, 1, quorum (or all, -1; the default), every, or a number of replicas.")
]

LingerOption = Annotated[str | None, Option(help="How long a batch waits for more records, such as 5ms.")]


def produce(
    topic: Annotated[str, Argument(help="The topic's name.", completes="topics")],
    file: PathArgument = Path("-"),
    key: KeyOption = None,
    key_separator: KeySeparatorOption = None,
    form: LinesOption = Lines.VALUE,
    as_json: Annotated[bool, Option("--json", help="The same as --format json.")] = False,
    is_whole: WholeOption = False,
    keep_partitions: KeepPartitionsOption = False,
    header: HeaderOption = None,
    partition: PartitionOption = None,
    delivery: DeliveryOption = None,
    acks: AcksOption = None,
    compression: CompressionOption = "none",
    preset: Annotated[str | None, Option(help="latency or throughput.")] = None,
    batch_bytes: BatchBytesOption = None,
    linger: LingerOption = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Send each line of a file or of standard input as a record.

    Stops at the first record that fails and reports its line; ends with 1 when it is definitely
    not stored, with 3 when that is unknown. The summary on standard error counts acknowledged records.

    \b
    Examples:
      raftlog produce orders orders.txt --key-separator : --compression zstd
      raftlog produce orders orders.txt --delivery exactly_once
      tail -f access.log | raftlog produce requests --preset latency
      echo '{"key": "u1", "value": {"id": 1}, "tags": ["new"]}' | raftlog produce orders --json
      raftlog produce images photo.jpg --whole --key photo.jpg
    """
    from api.cli.lines import blocks_of_lines, whole

    headers = _headers(header)
    as_json |= form is Lines.JSON
    if is_whole and (as_json or key_separator is not None):
        wrong_usage("--whole is for one record; omit the options for lines (--key-separator, JSON)")
    parse = _parser(key, key_separator, as_json, keep_partitions)
    with errors_reported(changing=True), ExitStack() as opened:
        is_input = str(file) == "-"
        source = opened.enter_context(open(0 if is_input else file, "rb", closefd=not is_input))
        client = opened.enter_context(connected(server))
        bytes_max = client.topics.describe(topic).config["max.message.bytes"]
        with options_checked():
            producer = client.producer(
                topic,
                delivery=delivery,
                acks=acks,
                transactional_id=f"produce~{token_hex(8)}" if delivery == "exactly_once" else None,
                transaction_timeout="15m",
                linger=0 if linger == "0" else linger,
                batch_bytes=_batch_bytes(batch_bytes, preset, bytes_max),
                compression=compression,
                preset=preset,
            )
        records = Input(source, (whole if is_whole else blocks_of_lines)(source), parse, headers, partition)
        code = _run(producer, records, delivery, acks)
        raise click.exceptions.Exit(code)


def _batch_bytes(given: str | None, preset: str | None, bytes_max: int | str) -> int:
    """The option; else the preset's, or the topic's maximum if that is less."""
    from raftlog.client.options import PRESETS, Preset
    from raftlog.units import size_bytes

    if given is None:
        return min(PRESETS.get(preset or "", Preset()).batch_bytes, int(bytes_max))
    found = size_bytes(f"{given}B" if given.isdecimal() else given)
    if found is None:
        raise ValueError(f"batch_bytes is {given!r}; give bytes or a size such as 256KiB")
    return found


def _run(producer: Producer, records: Input, delivery: str | None, acks: str | None) -> int:
    from api.cli.tally import Tally

    tally = Tally()
    transaction = producer.transaction() if delivery == "exactly_once" else None
    thresholds = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD)
    try:
        was_interrupted = _was_interrupted(producer, transaction, records, tally)
    finally:
        gc.set_threshold(*thresholds)
    tally.count()  # the producer is closed, so every record has its outcome
    says, code = _outcome(transaction)
    is_acknowledged = delivery != "at_most_once" and acks_word(acks or "") != "0"
    if is_json():
        write_json({**tally.totals(), "outcome": None if transaction is None else transaction.outcome})
    if says or not is_json():
        note(says or tally.summary(acknowledged=is_acknowledged))
    for complaint in tally.complaints():
        problem(complaint)
    if was_interrupted and UNKNOWN not in (code, tally.exit_code):
        return interruption_code()
    return tally.exit_code or code


def _was_interrupted(
    producer: Producer, transaction: Transaction | None, records: Input, tally: Tally
) -> bool:
    """Send, and wait for the outcomes. Whether Ctrl-C ended the wait."""
    from raftlog.errors import RaftlogError

    try:
        with _progress(records.source) as advance, producer, transaction or nullcontext(producer) as sender:
            _send_all(sender, records, tally, advance)
            if transaction is not None and tally.has_failed:
                transaction.abort()
    except KeyboardInterrupt:
        producer.close(0)  # at a second Ctrl-C, which ends the wait for outcomes
        return True
    except ExceptionGroup:
        pass  # the producer's errors for failed records: the tally reports them with lines
    except RaftlogError as error:
        if transaction is None:
            raise
        tally.count()
        if not tally.has_failed:  # else it has the error of a record
            note(str(error))
    return False


def _outcome(transaction: Transaction | None) -> tuple[str, int]:
    """The line that replaces the summary, empty for none, and the exit code."""
    if transaction is None or transaction.outcome == "committed":
        return "", 0
    if transaction.outcome == "unknown":
        return "the outcome of the transaction is unknown: all records are visible, or none", UNKNOWN
    return "the transaction is aborted: no record is visible", REFUSED


def _send_all(
    producer: Producer | Transaction, records: Input, tally: Tally, advance: Callable[[int], None]
) -> None:
    """Send until the end of the source or the first failure."""
    from api.cli.lines import LINE_BYTES_MAX
    from raftlog.errors import RaftlogError, RecordTooLarge

    parse, partition, headers, send = records.parse, records.partition, records.headers, producer.send
    first_line = 1
    for lines in records.blocks:
        sent = tally.block(first_line, lines)
        try:
            if len(lines[0]) > LINE_BYTES_MAX:  # no other line of a block can be long
                raise RecordTooLarge(
                    f"it has more than {LINE_BYTES_MAX} bytes, which exceeds any max.message.bytes; send "
                    f"smaller records"
                )
            for number, parsed in enumerate(map(parse, lines), first_line):
                if parsed is None:
                    sent.append(None)
                    continue
                value, key, own_headers, timestamp_ms, own_partition = parsed
                pending = send(
                    value,
                    key=key,
                    partition=partition if own_partition is None else own_partition,
                    headers=headers + own_headers,
                    timestamp=timestamp_ms,
                    on_ack=tally.timer(number),
                )
                sent.append(pending)
        except RaftlogError as error:
            tally.refuse(first_line + len(sent), error)
        tally.count()
        if tally.has_failed:
            return
        first_line += len(lines)
        advance(sum(map(len, lines)) + len(lines))


@contextmanager
def _progress(source: BufferedReader) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, unless the lines are typed there."""
    if not sys.stderr.isatty() or source.isatty():
        yield lambda read_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    status = os.fstat(source.fileno())
    total = status.st_size if stat.S_ISREG(status.st_mode) else None
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda read_bytes: bar.advance(task, read_bytes)


def _parser(key: str | None, key_separator: str | None, as_json: bool, keep_partitions: bool) -> Parse:
    if (key is not None) + (key_separator is not None) + as_json > 1:
        wrong_usage("--key, --key-separator and JSON lines exclude each other; choose one")
    if keep_partitions and not as_json:
        wrong_usage("--keep-partitions is for lines with a partition; add --format json")
    from api.cli.lines import Json, Keyed, Plain

    if as_json:
        return Json(keep_partitions)
    if key_separator is None:
        return Plain(None if key is None else os.fsencode(key))  # the bytes that were typed
    separator = unescaped("--key-separator", key_separator)
    if not separator:
        wrong_usage("--key-separator is empty; give the text between key and value, such as :")
    return Keyed(separator)


def _headers(pairs: list[str] | None) -> Headers:
    found = []
    for pair in pairs or ():
        name, separator, value = pair.partition("=")
        if not separator or not name:
            wrong_usage(f"--header {pair!r} is not NAME=VALUE; write for instance --header source=web")
        found.append((name, value.encode()))
    return tuple(found)
