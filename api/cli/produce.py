"""The command ``produce``: sends lines of a file or of standard input as records.

Decides: what is sent, when to stop (at the first failure, because many more may follow), and the summary.
Leaves to others: lines (``lines``), outcomes (``tally``), sending (the client).
"""

from __future__ import annotations

import gc
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, NoReturn

import click

from api.cli.connection import connected
from api.cli.input_options import InputOptions, Lines, Types
from api.cli.output import (
    DEFAULT_SERVER,
    REFUSED,
    REJECTED,
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
from api.stop_signals import interruption_code
from raftlog.acks import acks_word

if TYPE_CHECKING:
    from api.cli.input_formats import InputFormat
    from api.cli.lines import Headers
    from api.cli.rejects import Rejects
    from api.cli.tally import Pending, Tally
    from raftlog.client import Client
    from raftlog.client.blocking_producer import Producer, Transaction
    from raftlog.wire.bodies import SettingValue


Advance = Callable[[int, int], None]  # arguments: bytes read, and number of stored records
GC_THRESHOLD = 50_000  # pending records are not garbage, so collecting often would waste time


@dataclass(frozen=True, slots=True)
class Sending:
    """The options of ``produce`` for the producer."""

    delivery: str | None
    acks: str | None
    compression: str
    preset: str | None
    batch_bytes: str | None
    linger: str | None


@dataclass(frozen=True, slots=True)
class Given:
    """The options of ``produce`` about lines: file, format, common fields of all records, and rejected
    lines.
    """

    file: Path
    format: InputFormat
    headers: Headers
    partition: int | None
    rejects: Path | None
    max_rejects: int | None


@dataclass(frozen=True, slots=True)
class Input:
    """The opened input of ``produce``: its lines and their format, the common fields of all records, and the
    rejected lines.
    """

    source: BufferedReader
    format: InputFormat
    headers: Headers
    partition: int | None
    rejects: Rejects


PathArgument = Annotated[
    Path, Argument(metavar="[FILE|-]", help="The file with the lines; - is standard input.")
]
KeyOption = Annotated[str | None, Option("--key", "-k", help="One key for all records.", takes_bytes=True)]
KeySeparatorOption = Annotated[
    str | None,
    Option(
        "--key-separator",
        "-K",
        help="Lines are key, separator, value; \\t is a tabulator.",
        takes_bytes=True,
    ),
]
LinesOption = Annotated[
    Lines,
    Option(
        "--input",
        "--format",
        help="value: a line is a value. json: a line is a record, "
        'as {"key", "value", "headers", "tags"}. json-values: a line is a JSON value. csv: rows, the first '
        "of which names the columns.",
    ),
]
KeyFieldOption = Annotated[
    str | None,
    Option("--key-field", metavar="NAME", help="With json-values, the field with the key, such as user.id."),
]
KeyColumnOption = Annotated[
    str | None, Option("--key-column", metavar="NAME", help="With csv, the column with the key.")
]
KeyOptionalOption = Annotated[
    bool,
    Option(
        "--key-optional", help="Send lines without a key as records without a key, instead of rejecting them."
    ),
]
ColumnsOption = Annotated[
    str | None,
    Option(
        "--columns", metavar="A,B,C", help="With csv, the names of the columns, if the first line is data."
    ),
]
DelimiterOption = Annotated[
    str | None, Option("--delimiter", help=r"With csv, the character between cells.  [default: ,]")
]
TypesOption = Annotated[
    Types | None,
    Option("--types", help="With csv: cells are text, or json: numbers, true, false, and null if empty."),
]
RejectsOption = Annotated[
    Path | None,
    Option("--rejects", metavar="FILE", help="Skip lines that are no records, and write them to this file."),
]
MaxRejectsOption = Annotated[
    int | None,
    Option(
        "--max-rejects",
        min=0,
        metavar="N",
        help="Stop after more rejected lines.  [default: 0; with --rejects, no limit]",
    ),
]
WholeOption = Annotated[bool, Option("--whole", help="Send the whole input as one record, such as an image.")]
KeepPartitionsOption = Annotated[
    bool, Option("--keep-partitions", help="Send lines of `consume --format json` to their partitions.")
]
HeaderOption = Annotated[
    list[str] | None,
    Option("--header", "-H", metavar="NAME=VALUE", help="A header of every record; repeatable."),
]
PartitionOption = Annotated[
    int | None, Option("--partition", "-p", min=0, help="Send all records to this partition.")
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
        help="at_most_once: send without waiting. at_least_once: retry until it is stored. exactly_once: "
        "send all lines in a transaction of at most 15 minutes, so that all or none are visible.",
    ),
]


AcksOption = Annotated[
    str | None, Option(help="0, 1, quorum (or all, -1; the default), every, or a number of replicas.")
]

LingerOption = Annotated[str | None, Option(help="Longest wait of a batch for more records, such as 5ms.")]


def produce(
    topic: Annotated[str, Argument(help="The topic's name.", completes="topics")],
    file: PathArgument = Path("-"),
    key: KeyOption = None,
    key_separator: KeySeparatorOption = None,
    form: LinesOption = Lines.VALUE,
    as_json: Annotated[bool, Option("--json", help="Short for --format json.")] = False,
    whole: WholeOption = False,
    keep_partitions: KeepPartitionsOption = False,
    header: HeaderOption = None,
    partition: PartitionOption = None,
    delivery: DeliveryOption = None,
    acks: AcksOption = None,
    compression: CompressionOption = "none",
    preset: Annotated[str | None, Option(help="latency or throughput.")] = None,
    batch_bytes: BatchBytesOption = None,
    linger: LingerOption = None,
    key_field: KeyFieldOption = None,
    key_column: KeyColumnOption = None,
    key_optional: KeyOptionalOption = False,
    columns: ColumnsOption = None,
    delimiter: DelimiterOption = None,
    types: TypesOption = None,
    rejects: RejectsOption = None,
    max_rejects: MaxRejectsOption = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Send each line of a file or of standard input as a record.

    Stops at the first record that fails and reports its line; ends with 1 if the record is definitely not
    stored, and with 3 if the outcome is unknown. Ends with 5 if --rejects has the rejected lines and all
    other records are stored. The summary on standard error counts acknowledged records.

    \b
    Examples:
      raftlog produce orders orders.txt --key-separator : --compression zstd
      raftlog produce orders orders.csv --input csv --key-column id --rejects bad.jsonl
      raftlog produce events events.jsonl --input json-values --key-field user.id
      tail -f access.log | raftlog produce requests --preset latency
      echo '{"key": "u1", "value": {"id": 1}, "tags": ["new"]}' | raftlog produce orders --json
      raftlog produce images photo.jpg --whole --key photo.jpg
    """
    keys = (key, key_separator, whole, keep_partitions, key_field, key_column, key_optional)
    own = InputOptions(*keys, columns, delimiter, types)
    sending = Sending(delivery, acks, compression, preset, batch_bytes, linger)
    from api.cli.input_formats import input_format

    made = input_format(Lines.JSON if as_json else form, own)
    given = Given(file, made, _headers(header), partition, rejects, max_rejects)
    with errors_reported(changing=True):
        _produce(topic, server, given, sending)


def _produce(topic: str, server: str, given: Given, sending: Sending) -> NoReturn:
    """Send the lines of the input, and exit. The file for rejected lines is replaced just before sending,
    after all checks.
    """
    from api.cli.rejects import Rejects

    with _source(given.file) as source:
        _check_apart(source, given.rejects)
        with connected(server) as client:
            config = client.topics.describe(topic).config
            producer = _producer(client, topic, sending, config["max.message.bytes"])
            with _replaced(given.rejects) as rejected:
                rejects = Rejects(rejected, given.max_rejects)
                form = _of_topic(given.format, config)
                records = Input(source, form, given.headers, given.partition, rejects)
                raise click.exceptions.Exit(_run(producer, records, sending))


def _source(file: Path) -> BufferedReader:
    is_input = str(file) == "-"
    with errors_reported():  # an error here means that nothing was sent
        return open(0 if is_input else file, "rb", closefd=not is_input)


def _check_apart(source: BufferedReader, rejects: Path | None) -> None:
    if rejects is None or not rejects.exists():
        return
    status = os.fstat(source.fileno())
    if stat.S_ISREG(status.st_mode) and os.path.samestat(status, rejects.stat()):
        wrong_usage(f"--rejects {rejects} is the input file; choose another file")


def _replaced(rejects: Path | None) -> AbstractContextManager[BufferedIOBase | None]:
    if rejects is None:
        return nullcontext()
    with errors_reported():  # an error here means that nothing was sent
        return rejects.open("wb")


def _of_topic(form: InputFormat, config: Mapping[str, SettingValue]) -> InputFormat:
    """Add to the format the checks of single lines that the topic requires; a broker would refuse whole
    batches.
    """
    from api.cli.lines import with_keys

    is_compacted = "compact" in str(config["cleanup.policy"]).split(",")
    return replace(form, parse=with_keys(form.parse)) if is_compacted else form


def _producer(client: Client, topic: str, sending: Sending, bytes_max: SettingValue) -> Producer:
    with options_checked():
        return client.producer(
            topic,
            delivery=sending.delivery,
            acks=sending.acks,
            transactional_id=f"produce~{token_hex(8)}" if sending.delivery == "exactly_once" else None,
            transaction_timeout="15m",
            linger=0 if sending.linger == "0" else sending.linger,
            batch_bytes=_batch_bytes(sending.batch_bytes, sending.preset, bytes_max),
            compression=sending.compression,
            preset=sending.preset,
        )


def _batch_bytes(given: str | None, preset: str | None, bytes_max: SettingValue) -> int:
    """Return the batch size in bytes: from the option, else the lesser of the preset's batch size and the
    topic's maximum.
    """
    from raftlog.client.options import PRESETS, Preset
    from raftlog.units import size_bytes

    if given is None:
        return min(PRESETS.get(preset or "", Preset()).batch_bytes, int(bytes_max))
    found = size_bytes(f"{given}B" if given.isdecimal() else given)
    if found is None:
        raise ValueError(f"batch_bytes is {given!r}; give bytes or a size such as 256KiB")
    return found


def _run(producer: Producer, records: Input, sending: Sending) -> int:
    from api.cli.tally import Tally

    transaction = producer.transaction() if sending.delivery == "exactly_once" else None
    tally = Tally(records.rejects if transaction is None else None)
    thresholds = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD)
    try:
        was_interrupted = _was_interrupted(producer, transaction, records, tally)
    finally:
        gc.set_threshold(*thresholds)
    tally.count()  # the producer is closed, so all records have their outcomes
    says, code = _outcome(transaction)
    is_acknowledged = sending.delivery != "at_most_once" and acks_word(sending.acks or "") != "0"
    if is_json():
        outcome = None if transaction is None else transaction.outcome
        write_json({**tally.totals(), "rejected": records.rejects.count, "outcome": outcome})
    if says or not is_json():
        note((says or tally.summary(acknowledged=is_acknowledged)) + records.rejects.summary())
    for complaint in tally.complaints():
        problem(complaint)
    if was_interrupted and UNKNOWN not in (code, tally.exit_code):
        return interruption_code()
    return tally.exit_code or code or (REJECTED if records.rejects.count else 0)


def _was_interrupted(
    producer: Producer, transaction: Transaction | None, records: Input, tally: Tally
) -> bool:
    """Send the records and wait for their outcomes; return whether Ctrl-C ended the wait."""
    from raftlog.errors import RaftlogError

    try:
        with _progress(records.source) as advance, producer, transaction or nullcontext(producer) as sender:
            _send_all(sender, records, tally, advance)
            if transaction is not None and tally.has_failed:
                tally.wait()  # so that outcomes come before the abort makes records fail
                transaction.abort()
    except KeyboardInterrupt:
        producer.close(0)  # only a second Ctrl-C interrupts this
        return True
    except ExceptionGroup:
        pass  # the tally reports the failed records with their lines
    except RaftlogError as error:
        if transaction is None:
            raise
        tally.count()
        if not tally.has_failed:  # otherwise the tally reports the error of a record
            note(str(error))
    return False


def _outcome(transaction: Transaction | None) -> tuple[str, int]:
    """Return the text that replaces the summary (empty if the summary is printed), and the exit code."""
    if transaction is None or transaction.outcome == "committed":
        return "", 0
    if transaction.outcome == "unknown":
        return "the outcome of the transaction is unknown: all records are visible, or none", UNKNOWN
    return "the transaction is aborted: no record is visible", REFUSED


def _send_all(producer: Producer | Transaction, records: Input, tally: Tally, advance: Advance) -> None:
    """Send records until the end of the source, or until a record fails."""
    from raftlog.errors import RaftlogError

    first_line = 1
    for lines in records.format.blocks(records.source):
        sent = tally.block(first_line, lines)
        try:
            _send_block(producer, records, tally, first_line, lines, sent)
        except RaftlogError as error:
            tally.refuse(first_line + len(sent), error)
        tally.count()
        if tally.has_failed:
            return
        first_line += len(lines)
        advance(sum(map(len, lines)) + len(lines), tally.stored)


def _send_block(
    producer: Producer | Transaction,
    records: Input,
    tally: Tally,
    first_line: int,
    lines: Sequence[bytes],
    sent: Pending,
) -> None:
    from raftlog.errors import InvalidRequest

    parse, partition, headers, send = records.format.parse, records.partition, records.headers, producer.send
    for number, line in enumerate(lines, first_line):
        try:
            parsed = parse(line)
        except InvalidRequest as error:
            if not records.rejects.takes(number, line, error):
                raise
            parsed = None
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


@contextmanager
def _progress(source: BufferedReader) -> Iterator[Advance]:
    """Show a progress bar with the number of records and the rate on a terminal, unless the user types the
    input there.
    """
    if not sys.stderr.isatty() or source.isatty():
        yield lambda read_bytes, stored: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    counted = TextColumn("{task.fields[stored]} records")
    columns = (BarColumn(), counted, DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    status = os.fstat(source.fileno())
    total = status.st_size if stat.S_ISREG(status.st_mode) else None
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, stored=0)
        yield lambda read_bytes, stored: bar.update(task, advance=read_bytes, stored=stored)


def _headers(pairs: list[str] | None) -> Headers:
    found = []
    for pair in pairs or ():
        name, separator, value = pair.partition("=")
        if not separator or not name:
            wrong_usage(f"--header {pair!r} is not NAME=VALUE; write for instance --header source=web")
        found.append((name, value.encode()))
    return tuple(found)
