"""The metadata as the parts of a broker see it that follow it. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from partitions.metadata.image import MetadataImage


class CurrentMetadata(Protocol):
    """The metadata of this broker, which it can have confirmed."""

    @property
    def image(self) -> MetadataImage:
        """The newest metadata here."""

    async def current_image(self, timeout_ms: int) -> MetadataImage:
        """``image`` once it holds everything acknowledged before this call. Raises ``NoLeader``."""


class MetadataSource(CurrentMetadata, Protocol):
    """The part of ``metadata.service.Controller`` that is needed here."""

    def subscribe(self, listener: Callable[[MetadataImage], None]) -> None:
        """Call ``listener`` with every new image."""
