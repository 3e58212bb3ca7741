"""The HTTP interface of HDFS, as fsspec uses it: files in memory, renamed as a name node does it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

_PREFIX = "/webhdfs/v1"


class _Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def _serve(self) -> None:
        url = urlsplit(self.path)
        path, query = unquote(url.path.removeprefix(_PREFIX)), parse_qs(url.query)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        name = query["op"][0]
        if name in ("CREATE", "APPEND", "OPEN") and "datanode" not in query:
            self.send_response(307)
            self.send_header("Location", f"http://{self.headers['Host']}{self.path}&datanode=1")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        with self.server.lock:
            answer = getattr(self, f"_{name.lower()}")(path, query, body)
        if answer is None:
            self._answer(404, _error("FileNotFoundException", f"File {path} does not exist."))
        else:
            self._answer(200, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def _answer(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _create(self, path: str, query: dict[str, list[str]], body: bytes) -> bytes:
        self.server.files[path] = body
        return b""

    def _append(self, path: str, query: dict[str, list[str]], body: bytes) -> bytes:
        self.server.files[path] += body
        return b""

    def _open(self, path: str, query: dict[str, list[str]], body: bytes) -> bytes | None:
        data = self.server.files.get(path)
        start = int(query.get("offset", ["0"])[0])
        length = int(query.get("length", [str(1 << 62)])[0])
        return None if data is None else data[start : start + length]

    def _rename(self, path: str, query: dict[str, list[str]], body: bytes) -> dict[str, object]:
        files, target = self.server.files, query["destination"][0]
        if path not in files or target in files:
            return {"boolean": False}
        files[target] = files.pop(path)
        return {"boolean": True}

    def _delete(self, path: str, query: dict[str, list[str]], body: bytes) -> dict[str, object]:
        return {"boolean": self.server.files.pop(path, None) is not None}

    def _getfilestatus(self, path: str, query: dict[str, list[str]], body: bytes) -> dict[str, object] | None:
        found = self._status(path)
        return None if found is None else {"FileStatus": found}

    def _liststatus(self, path: str, query: dict[str, list[str]], body: bytes) -> dict[str, object] | None:
        if self._status(path) is None:
            return None
        below = f"{path.rstrip('/')}/"
        names = {
            one.removeprefix(below).partition("/")[0] for one in self.server.files if one.startswith(below)
        }
        found = [{**(self._status(below + name) or {}), "pathSuffix": name} for name in sorted(names)]
        return {"FileStatuses": {"FileStatus": found}}

    def _status(self, path: str) -> dict[str, object] | None:
        data = self.server.files.get(path)
        if data is not None:
            return {"type": "FILE", "length": len(data), "modificationTime": 1_000}
        if any(one.startswith(f"{path.rstrip('/')}/") for one in self.server.files):
            return {"type": "DIRECTORY", "length": 0, "modificationTime": 1_000}
        return None


def _error(name: str, text: str) -> bytes:
    return json.dumps({"RemoteException": {"exception": name, "message": text}}).encode()


@contextmanager
def webhdfs() -> Iterator[tuple[str, dict[str, bytes]]]:
    """The address of an empty directory, and all files by their paths."""
    with _Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"webhdfs://127.0.0.1:{server.server_port}/archive", server.files
        finally:
            server.shutdown()
            thread.join()
