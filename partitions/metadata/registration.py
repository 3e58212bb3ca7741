"""Registration of this broker in the metadata: its process, addresses, rack and disk.

Decides: when the broker registers, and when it must not: a later process has its id, or the broker was
removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from msgspec import structs

from partitions.metadata.active import ControllerSettings
from partitions.metadata.commands import RegisterBroker
from partitions.metadata.features import HTTPS, check_feature
from partitions.metadata.forgetting import removed_for_good
from partitions.metadata.image import BrokerInfo, MetadataImage
from partitions.metadata.shown_image import ShownImage
from raftlog.errors import RaftlogError
from raftlog.node.group_host import GroupHost

_log = logging.getLogger("raftlog.controller")


class Registration:
    """Keeps one broker registered, and watches the metadata for other registrations of its id."""

    def __init__(
        self, host: GroupHost, shown: ShownImage, wanted: RegisterBroker, settings: ControllerSettings
    ) -> None:
        self.wanted = structs.replace(wanted, feature_level=settings.feature_level)
        self._host = host
        self._shown = shown
        self._settings = settings
        self._something_new = asyncio.Event()  # a new leader, or a new image
        self._was_registered = False
        shown.subscribe(self._image_changed)

    @property
    def is_registered(self) -> bool:
        """Whether the metadata here shows this incarnation of this broker, with its addresses.

        The URL with TLS follows when the feature level allows it.
        """
        shown = self._shown.image.brokers.get(self.wanted.broker_id)
        return shown is not None and _shown(shown) == _shown(self.wanted)

    @property
    def _is_current(self) -> bool:
        """Whether the metadata here shows all that this broker registers at the cluster's feature level."""
        shown = self._shown.image.brokers.get(self.wanted.broker_id)
        wanted = self._at_level(self._shown.image)
        return self.is_registered and shown is not None and shown.https_url == wanted.https_url

    @property
    def is_superseded(self) -> bool:
        """Whether a later process has registered with this broker's id."""
        shown = self._shown.image.brokers.get(self.wanted.broker_id)
        return self._was_registered and shown is not None and shown.incarnation != self.wanted.incarnation

    @property
    def why_removed(self) -> str:
        """The error text if this broker was removed from the cluster, else empty."""
        me = self._host.node_id
        is_removed = me in self._shown.image.forgotten or self._host.is_refused
        return str(removed_for_good(me)) if is_removed else ""

    def look_again(self) -> None:
        """Wake ``keep`` to check the registration again: the metadata group may have another leader."""
        self._something_new.set()

    async def keep(
        self,
        current_image: Callable[[int], Awaitable[MetadataImage]],
        register: Callable[[RegisterBroker, int], Awaitable[object]],
    ) -> None:
        """Register at the start of this process, and again whenever the metadata shows another registration.

        Stops when a later process has this broker's id: two processes with one id would register in turns.
        The last argument of both callbacks is a time limit in milliseconds; both raise ``RaftlogError``.
        """
        while True:
            self._something_new.clear()
            if self.is_superseded:
                _log.error(
                    "another process has registered as broker %s: give each broker its own id",
                    self._host.node_id,
                )
                return
            if self._host.node_id in self._shown.image.forgotten:
                _log.error("%s", self.why_removed)
                return
            if self._is_current:
                await self._something_new.wait()
                continue
            timeout_ms = self._settings.command_timeout_ms
            try:
                image = await current_image(timeout_ms)
                request = self._request(image)
                if not request.http_url:  # TLS alone, which an older release does not expect
                    check_feature(image, HTTPS)
                if not self.is_superseded:
                    await register(request, timeout_ms)
            except RaftlogError as error:
                _log.warning("this broker is not registered yet: %s", error)
            await asyncio.sleep(self._settings.retry_pause_ms / 1000)

    def _request(self, image: MetadataImage) -> RegisterBroker:
        """The request that replaces the incarnation in ``image``, but no later incarnation if the request is
        delayed.
        """
        shown = image.brokers.get(self._host.node_id)
        return structs.replace(self._at_level(image), replaces="" if shown is None else shown.incarnation)

    def _at_level(self, image: MetadataImage) -> RegisterBroker:
        """The registration at the feature level of ``image``: below ``HTTPS`` without the URL with TLS."""
        return self.wanted if image.feature_level >= HTTPS else structs.replace(self.wanted, https_url="")

    def _image_changed(self, image: MetadataImage) -> None:
        self._was_registered |= self.is_registered
        self.look_again()


def _shown(broker: BrokerInfo | RegisterBroker) -> tuple[object, ...]:
    """The fields of a registration that the metadata show."""
    return (
        broker.incarnation,
        broker.http_url,
        broker.rpc_host,
        broker.rpc_port,
        broker.rack,
        broker.disk_id,
    )
