"""Addresses at which something listens that is no broker, or a broker that never answers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def frozen_broker() -> AsyncIterator[str]:
    """The address of a broker that accepts connections and never answers."""
    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        for writer in held:
            writer.close()
        server.close()


@asynccontextmanager
async def tls_port() -> AsyncIterator[str]:
    """The address, with http://, of a port that expects TLS: it closes connections without."""
    asyncio.get_running_loop().set_exception_handler(lambda _, context: None)  # of failed handshakes
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # its certificate would come after the first message
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=tls)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@asynccontextmanager
async def other_service(status: str = "404 Not Found") -> AsyncIterator[str]:
    """The address of a web server that is no broker."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status}\r\nContent-Length: 4\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + b"none")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
