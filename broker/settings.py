"""Reads a broker's settings: one TOML file, overridden by environment variables, validated before the start.

Decides: names, defaults, units and bounds of every setting. Environment variables are named
``RAFTLOG_BROKER__`` plus the setting, with two underscores before a nested setting:
``RAFTLOG_BROKER__HTTP__PORT``. Unknown settings are refused, so that misspelt settings are not ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from broker.addresses import PORT_MAX, http_url, is_loopback, is_unspecified
from broker.process.memory import LEAST, part_of_memory
from broker.setting_names import NESTED, PREFIX, described, refuse_unknown_variables
from partitions.metadata.features import FIRST, NEWEST
from raftlog.core.settings import ELECTION_TICKS, HEARTBEAT_TICKS, QUIESCE_TICKS
from raftlog.errors import InvalidRequest
from raftlog.node.group_host import TICK_MS
from raftlog.node.peer_disks import AGES_MS
from raftlog.wire.limits import BROKER_ID_MAX, RACK_CHARACTERS_MAX

RESTORE_AFTER_MS_MAX = 30 * 86_400_000

Port = Annotated[int, Field(ge=0, le=PORT_MAX)]

_NAME_AND_PORT = r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?"
_HOST = re.compile(rf"\*|{_NAME_AND_PORT}")
_ORIGIN = re.compile(rf"\*|[A-Za-z][A-Za-z0-9+.-]*://{_NAME_AND_PORT}")
_URL = re.compile(rf"https?://{_NAME_AND_PORT}/?")


class Listener(BaseModel):
    """An address on which a broker listens: host and port."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: Port = 0

    @property
    def url(self) -> str:
        """The URL of this address."""
        return http_url(self.host, self.port)


class ClientListener(Listener):
    """The address for HTTP clients of one scheme."""

    scheme: ClassVar[str] = "http"

    advertised_url: str | None = None  # the URL for clients; default: the URL of host and port

    @field_validator("advertised_url")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not _URL.fullmatch(value) or (cls.scheme == "https" and urlsplit(value).scheme != "https"):
            raise ValueError(f'{value!r} is not a URL such as "{cls.scheme}://log.example:7070"')
        if is_unspecified(urlsplit(value).hostname or ""):
            raise ValueError(f"{value!r} is not the address of a machine; use one that clients can reach")
        return value

    @property
    def url(self) -> str:
        """The URL of this address."""
        return http_url(self.host, self.port, self.scheme)

    @property
    def url_for_clients(self) -> str:
        """The advertised URL, or the URL of this address."""
        return self.advertised_url or self.url


class HttpSettings(ClientListener):
    """The address for HTTP clients without TLS, and the host names that clients may use."""

    enabled: bool = True  # False: clients need [https]
    allowed_hosts: tuple[str, ...] = ()  # besides the broker's own names; names, or name:port; "*" for all

    @field_validator("allowed_hosts")
    @classmethod
    def _are_names(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not _HOST.fullmatch(host):
                raise ValueError(
                    f'{host!r} is neither a name such as "log.example" or "log.example:7070" nor "*"'
                )
        return tuple(host.lower() for host in hosts)


class HttpsSettings(ClientListener):
    """The address for HTTP clients with TLS, and its files in PEM."""

    scheme: ClassVar[str] = "https"

    certificate_file: Path  # of this broker, then of the authorities between it and the root
    key_file: Path
    client_ca_file: Path | None = (
        None  # authorities of client certificates; None: clients need no certificate
    )
    crl_file: Path | None = None  # revocation lists of all authorities in client_ca_file
    minimum_version: Literal["1.2", "1.3"] = "1.3"  # of TLS
    connection_age_max_ms: Annotated[int, Field(ge=1000)] = 86_400_000  # then a connection closes

    @model_validator(mode="after")
    def _lists_have_their_authorities(self) -> HttpsSettings:
        if self.crl_file is not None and self.client_ca_file is None:
            raise ValueError("crl_file revokes certificates of client_ca_file: set client_ca_file, too")
        return self


class CorsSettings(BaseModel):
    """Settings that let web pages of other origins use the HTTP API (CORS)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    allowed_origins: tuple[str, ...] = ()  # origins that may read responses and write; "*" for all

    @field_validator("allowed_origins")
    @classmethod
    def _are_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(f'{origin!r} is neither an origin such as "https://ui.example:8443" nor "*"')
        return tuple(origin.lower() for origin in origins)


class Peer(BaseModel):
    """The address at which other brokers reach a broker. If ``pinned``, this address is used and the address
    in the metadata is ignored.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=PORT_MAX)]
    pinned: bool = False

    @field_validator("host")
    @classmethod
    def _leads_to_a_machine(cls, host: str) -> str:
        if is_unspecified(host):
            raise ValueError(
                f"{host!r} is not the address of a machine; use one that the broker's peers can reach"
            )
        return host


MESSAGE_BYTES_MAX: Final = 30 << 20  # requests and answers pass between brokers in frames of 32 MiB
QUEUE_BYTES_MIN: Final = 33 << 20  # room for one frame


class Limits(BaseModel):
    """Limits that are checked before memory is allocated, in bytes, milliseconds and counts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    body_bytes_max: Annotated[int, Field(ge=1024, le=MESSAGE_BYTES_MAX)] = 16 << 20
    request_bytes_in_flight_max: Annotated[int, Field(ge=1 << 20)] = 256 << 20
    # of responses that clients have not read yet
    response_bytes_in_flight_max: Annotated[int, Field(ge=1 << 20)] = 256 << 20
    uncommitted_bytes_max: Annotated[int, Field(ge=1 << 20)] = 256 << 20  # in logs led here, uncommitted
    fetch_bytes_max: Annotated[int, Field(ge=1024, le=MESSAGE_BYTES_MAX)] = 16 << 20
    wait_ms_max: Annotated[int, Field(ge=0)] = 55_000
    peer_queue_bytes_max: Annotated[int, Field(ge=QUEUE_BYTES_MIN)] = 64 << 20
    disk_reserve_bytes: Annotated[int, Field(ge=0)] = 64 << 20
    broker_replicas_max: Annotated[int, Field(ge=1)] = 4_000  # placed on one broker
    cluster_partitions_max: Annotated[int, Field(ge=1)] = 20_000  # whose metadata every broker keeps
    partition_metrics_max: Annotated[int, Field(ge=0)] = 1000  # replicas listed individually by /metrics
    group_metrics_max: Annotated[int, Field(ge=0)] = 1000  # groups, and offsets, listed by it
    connections_max: Annotated[int, Field(ge=1)] | None = None  # of HTTP clients; None for the default
    connections_client_max: Annotated[int, Field(ge=1)] | None = None  # of one address; None for a quarter
    # entries on this broker, about 400 bytes each; a quarter for one client
    producers_max: Annotated[int, Field(ge=1)] = 500_000
    scrub_bytes_per_s: Annotated[int, Field(ge=0)] = 10 << 20  # scrubbed; 0 for never
    compaction_bytes_per_s: Annotated[int, Field(ge=0)] = 10 << 20  # read by compaction; 0 for never
    restore_moves_max: Annotated[int, Field(ge=0, le=1000)] = 10  # partitions being restored; 0 for never
    # replicas that a plan moves at a time; 0 for no plan but those of operators, and leaders stay
    balancing_moves_max: Annotated[int, Field(ge=0, le=1000)] = 2
    catch_up_bytes_per_s: Annotated[int, Field(ge=0)] = 100 << 20  # to replicas far behind; 0 for no limit
    repair_bytes_per_s: Annotated[int, Field(ge=0)] = 50 << 20  # fetched by damaged replicas; 0 for no limit


class Timing(BaseModel):
    """Timing settings of the Raft groups; all brokers of a cluster should have equal values."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tick_ms: Annotated[int, Field(ge=5, le=1000)] = TICK_MS
    heartbeat_ticks: Annotated[int, Field(ge=1, le=50)] = HEARTBEAT_TICKS
    election_ticks: Annotated[int, Field(ge=3, le=500)] = ELECTION_TICKS
    quiesce_ticks: Annotated[int, Field(ge=1)] = QUIESCE_TICKS
    broker_timeout_ms: Annotated[int, Field(ge=500)] = 3000
    # silence after which the replicas of a broker are restored on others
    restore_after_ms: Annotated[int, Field(ge=1000, le=RESTORE_AFTER_MS_MAX)] = 300_000
    # replicas and leaders are balanced when no broker has joined or left for this time
    balance_after_ms: Annotated[int, Field(ge=100, le=RESTORE_AFTER_MS_MAX)] = 120_000
    retention_check_interval_ms: Annotated[int, Field(ge=100)] = 60_000
    # a broker whose clock differs by more deletes nothing by age
    clock_jump_ms_max: Annotated[int, Field(ge=1000)] = 600_000
    # after this time, a clock jump of a majority of brokers is accepted
    clock_pause_ms: Annotated[int, Field(ge=1000)] = 3_600_000
    trash_delay_ms: Annotated[int, Field(ge=0)] = 3_600_000
    # interval at which brokers exchange the ages of their disks
    disk_age_interval_ms: Annotated[int, Field(ge=100)] = AGES_MS

    @model_validator(mode="after")
    def _times_fit_together(self) -> Timing:
        if self.election_ticks < 3 * self.heartbeat_ticks:
            raise ValueError("election_ticks must be at least three times heartbeat_ticks")
        if self.quiesce_ticks < self.election_ticks:
            raise ValueError(
                f"quiesce_ticks is {self.quiesce_ticks}: "
                f"choose election_ticks ({self.election_ticks}) or more"
            )
        if self.restore_after_ms < self.broker_timeout_ms:
            raise ValueError(
                f"restore_after_ms is {self.restore_after_ms}: "
                f"choose broker_timeout_ms ({self.broker_timeout_ms}) or more"
            )
        return self


class Groups(BaseModel):
    """Settings of consumer groups. ``partitions`` is used only when ``__offsets`` is created."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partitions: Annotated[int, Field(ge=1, le=1000)] = 16
    offsets_retention_ms: Annotated[int, Field(ge=60_000)] = 7 * 86_400_000  # of groups without members
    # of groups and their offsets, in the partitions of ``__offsets`` together; a quarter for one client
    state_bytes_max: Annotated[int, Field(ge=LEAST)] = Field(
        default_factory=partial(part_of_memory, 256 << 20, 16)
    )


class QueueSettings(BaseModel):
    """Settings of queues, whose jobs are in the partitions of ``__offsets``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    open_jobs_max: Annotated[int, Field(ge=1, le=1_000_000)] = 100_000  # of one partition of ``__offsets``
    open_jobs_queue_max: Annotated[int, Field(ge=1, le=1_000_000)] = 20_000  # of one queue
    # of these jobs, in the partitions of ``__offsets`` together
    open_jobs_bytes_max: Annotated[int, Field(ge=LEAST)] = Field(
        default_factory=partial(part_of_memory, 1 << 30, 8)
    )


KEYS_BYTES_MAX: Final = 896 << 20  # ten keyed requests of one address per second, all day


class TransactionSettings(BaseModel):
    """Settings of transactions. ``partitions`` is used only when ``__transactions`` is created."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partitions: Annotated[int, Field(ge=1, le=1000)] = 16
    prepared_ms_max: Annotated[int, Field(ge=3_600_000, le=86_400_000)] = (
        3_600_000  # readers wait so long at most
    )
    # of ids and sinks, in the partitions of ``__transactions`` together; a quarter for one client
    state_bytes_max: Annotated[int, Field(ge=LEAST)] = Field(
        default_factory=partial(part_of_memory, 512 << 20, 16)
    )
    # of idempotency keys and their answers, likewise; half for one client
    keys_bytes_max: Annotated[int, Field(ge=LEAST)] = Field(
        default_factory=partial(part_of_memory, KEYS_BYTES_MAX, 8)
    )
    id_retention_ms: Annotated[int, Field(ge=60_000)] = 7 * 86_400_000  # of transactional ids without use
    key_retention_ms: Annotated[int, Field(ge=60_000)] = 86_400_000  # of answers to idempotency keys


class DelaySettings(BaseModel):
    """Settings of delayed messages. ``partitions`` is used only when ``__delayed`` is created."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partitions: Annotated[int, Field(ge=1, le=1000)] = 16
    pending_max: Annotated[int, Field(ge=1, le=1_000_000)] = 65_536  # of one partition of ``__delayed``
    # of pending and failed messages on disk, in all partitions of ``__delayed``; a quarter for one topic
    pending_bytes_max: Annotated[int, Field(ge=256 << 20)] = 16 << 30


class ArchiveSettings(BaseModel):
    """Settings of the archive, which has the records below the log start. All brokers should have equal
    values.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    location: str | None = None  # a directory, or an address such as s3://bucket/prefix; None for no archive
    readers_max: Annotated[int, Field(ge=1, le=64)] = 4  # reads of the archive at a time
    deadline_ms: Annotated[int, Field(ge=100, le=300_000)] = 10_000  # of one read of the archive


class BrokerSettings(BaseSettings):
    """All settings of one broker."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter=NESTED, extra="forbid", frozen=True
    )

    broker_id: Annotated[int, Field(ge=1, le=BROKER_ID_MAX)]
    cluster_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    secret_file: Path
    data_directory: Path
    http: HttpSettings = HttpSettings()
    https: HttpsSettings | None = None
    cors: CorsSettings = CorsSettings()
    rpc: Listener = Listener()
    # the first brokers of the cluster; a broker that has joined lists those of that time, and itself
    peers: dict[int, Peer] = Field(default_factory=dict)
    # highest feature level that this broker announces; a lower value keeps a downgrade possible
    feature_level_max: Annotated[int, Field(ge=FIRST, le=NEWEST)] = NEWEST
    joined: bool = False  # a cluster has admitted this broker, so it never begins a new cluster
    # location of this broker, such as a data centre: replicas are spread over racks, readers choose by rack
    rack: Annotated[str, Field(min_length=1, max_length=RACK_CHARACTERS_MAX)] | None = None
    insecure: bool = False  # listen beyond loopback without TLS and authentication
    log_level: str = "info"
    log_format: Literal["text", "json"] = "text"  # of the lines on standard error
    limits: Limits = Limits()
    timing: Timing = Timing()
    groups: Groups = Groups()
    queues: QueueSettings = QueueSettings()
    transactions: TransactionSettings = TransactionSettings()
    delayed: DelaySettings = DelaySettings()
    archive: ArchiveSettings = ArchiveSettings()

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, value: str) -> str:
        if value not in ("debug", "info", "warning", "error"):
            raise ValueError("use debug, info, warning or error")
        return value

    @model_validator(mode="after")
    def _is_safe_and_whole(self) -> BrokerSettings:
        if self.broker_id not in self.peers:
            raise ValueError(
                f"peers must name this broker too: add [peers.{self.broker_id}] with its host and port"
            )
        if not self.http.enabled and self.https is None:
            raise ValueError("http.enabled is false and there is no [https]: clients need one of them")
        for name, listener in self._listeners.items():
            if not self.insecure and name in self.listeners_beyond_loopback:
                raise ValueError(
                    f"{name}.host {listener.host!r} is reachable from other machines, and this release "
                    "has no authentication for clients; use 127.0.0.1, or set insecure = true in a network "
                    "you trust"
                )
            needs_url = isinstance(listener, ClientListener) and listener.advertised_url is None
            if needs_url and is_unspecified(listener.host):
                raise ValueError(
                    f"{name}.host {listener.host!r} listens on all addresses, and clients need one: set "
                    f"{name}.advertised_url to the URL by which they reach this broker, such as "
                    f'"{name}://log1.example:{listener.port}"'
                )
        return self

    @property
    def listeners_beyond_loopback(self) -> Sequence[str]:
        """The sections of the listeners that other machines can reach."""
        return [name for name, listener in self._listeners.items() if not is_loopback(listener.host)]

    @property
    def _listeners(self) -> dict[str, Listener]:
        """The listeners that are on, by their sections."""
        found: dict[str, Listener] = {"http": self.http} if self.http.enabled else {}
        if self.https is not None:
            found["https"] = self.https
        return found | {"rpc": self.rpc}

    @property
    def urls_of_listeners(self) -> frozenset[str]:
        """The URLs of all listeners for clients: their addresses, and the URLs that they advertise."""
        listeners = [each for each in self._listeners.values() if isinstance(each, ClientListener)]
        return frozenset(url for each in listeners for url in (each.url, each.url_for_clients))

    @property
    def http_url(self) -> str:
        """The URL for clients without TLS; empty when that listener is off."""
        return self.http.url_for_clients if self.http.enabled else ""

    @property
    def https_url(self) -> str:
        """The URL for clients with TLS; empty when there is no such listener."""
        return "" if self.https is None else self.https.url_for_clients

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources of settings, highest priority first: environment variables, then the file."""
        return env_settings, init_settings


def load_settings(path: Path) -> BrokerSettings:
    """Read a broker's TOML file. Relative paths in the file are relative to its directory.

    Raises ``InvalidRequest``, which names the file, the setting and the error.
    """
    if not path.is_file():
        raise InvalidRequest(
            f"no settings at {path}; create them with `raftlog cluster init`", field="config"
        )
    refuse_unknown_variables(os.environ, BrokerSettings)
    try:
        values = TomlConfigSettingsSource(BrokerSettings, toml_file=path)()
        settings = BrokerSettings(**values)
    except ValidationError as error:
        wrong = "; ".join(described(item, BrokerSettings, os.environ) for item in error.errors())
        raise InvalidRequest(f"{path}: {wrong}", field="config") from None
    except SettingsError as error:
        raise InvalidRequest(f"the environment: {error}", field="config") from None
    except ValueError as error:
        raise InvalidRequest(f"{path} is not TOML: {error}", field="config") from None
    here = path.resolve().parent
    return settings.model_copy(
        update={
            "secret_file": here / settings.secret_file,
            "data_directory": here / settings.data_directory,
            "archive": _placed(settings.archive, here),
            "https": None if settings.https is None else _in(settings.https, here),
        }
    )


def _in(https: HttpsSettings, here: Path) -> HttpsSettings:
    files = ("certificate_file", "key_file", "client_ca_file", "crl_file")
    given = {name: getattr(https, name) for name in files}
    return https.model_copy(update={name: here / path for name, path in given.items() if path is not None})


def _placed(archive: ArchiveSettings, here: Path) -> ArchiveSettings:
    if archive.location is None or "://" in archive.location:
        return archive
    return archive.model_copy(update={"location": str(here / archive.location)})
