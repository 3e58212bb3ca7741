"""Port to the metadata, for the parts of a broker that read the metadata and follow its changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from partitions.metadata.image import MetadataImage


class CurrentMetadata(Protocol):
    """The metadata of this broker, which the active controller can confirm."""

    @property
    def image(self) -> MetadataImage:
        """The newest metadata of this broker."""

    async def current_image(self, timeout_ms: int) -> MetadataImage:
        """``image`` once it has all changes acknowledged before this call. Raises ``NoLeader``."""


class MetadataSource(CurrentMetadata, Protocol):
    """The methods of ``metadata.service.Controller`` that followers of the metadata use."""

    def subscribe(self, listener: Callable[[MetadataImage], None]) -> None:
        """Call ``listener`` with every new image."""
