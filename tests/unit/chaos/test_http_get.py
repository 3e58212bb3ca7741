"""Requests of the harness fail in one way."""

from __future__ import annotations

import socket
import threading

import pytest

from chaos.http_get import http_get
from raftlog.testing.waits import LIMIT_S


# The harness survives a broker that is killed during its response.
@pytest.mark.parametrize(
    "response",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhalf", b"HTTP/1.1 200 OK\r\nContent-", b"", b"no HTTP"],
)
def test_a_response_that_breaks_off_is_an_error_of_the_connection(response: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(response)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConnectionError):
            http_get(f"http://127.0.0.1:{listener.getsockname()[1]}/", LIMIT_S)
        thread.join()
