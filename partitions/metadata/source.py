"""Port to the metadata for the parts of a broker that follow it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from partitions.metadata.image import MetadataImage


class MetadataSource(Protocol):
    """The methods of ``metadata.service.Controller`` that followers of the metadata use."""

    @property
    def image(self) -> MetadataImage:
        """The newest metadata of this broker."""

    def subscribe(self, listener: Callable[[MetadataImage], None]) -> None:
        """Call ``listener`` with every new image."""

    async def current_image(self, timeout_ms: int) -> MetadataImage:
        """Metadata with all changes acknowledged before this call."""
