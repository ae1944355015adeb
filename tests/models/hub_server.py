"""A hub on loopback: the routes of the Hugging Face hub that its library uses to look up and download a model.

Large files answer with a redirect to a content address, ranges are honoured, and a download can be made to break off,
all as the real hub does it.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

_RESOLVE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")
_INFO = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)(?:/revision/[^/]+)?")
_LARGE = (".safetensors", ".gguf", ".bin")


@dataclass
class Hub:
    """What the server holds and what it was asked.

    Attributes:
        repos: "owner/name" -> file name -> bytes.
        gated: repositories that want their terms accepted.
        break_after: file name -> bytes after which the connection is cut, once.
        requests: (method, path, Range header) in order.
    """

    repos: dict[str, dict[str, bytes]]
    gated: set[str] = field(default_factory=set)
    break_after: dict[str, int] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    url: str = ""
    content_url: str = ""  # another host name: the library follows redirects within one host by itself

    def commit(self, repo: str) -> str:
        names = json.dumps({name: _sha256(content) for name, content in self.repos[repo].items()}, sort_keys=True)
        return hashlib.sha1(names.encode()).hexdigest()

    def downloads(self) -> list[tuple[str, str]]:
        """Return (file, Range header) of every request for a file's bytes."""
        return [
            (path.rsplit("/", 1)[-1], range_header)
            for method, path, range_header in self.requests
            if method == "GET" and not path.startswith("/api")
        ]


@contextmanager
def serve_hub(hub: Hub) -> Iterator[Hub]:
    """Serve a hub on a free port of loopback for as long as the block runs."""

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    hub.content_url = f"http://localhost:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        with suppress(ConnectionError):  # a client that gave up
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path, self.headers.get("Range", "")))
        if match := _INFO.fullmatch(path):
            self._guarded(match["repo"], lambda: self._info(match["repo"]))
        elif match := _RESOLVE.fullmatch(path):
            self._guarded(match["repo"], lambda: self._resolve(match["repo"], match["file"]))
        elif path.startswith("/content/"):
            self._content(path.removeprefix("/content/"))
        else:
            self._refuse(404, "EntryNotFound")

    def _guarded(self, repo: str, answer: object) -> None:
        if repo not in self.hub.repos:
            self._refuse(404, "RepoNotFound")
        elif repo in self.hub.gated:
            self._refuse(403, "GatedRepo")
        else:
            assert callable(answer)
            answer()

    def _info(self, repo: str) -> None:
        files = self.hub.repos[repo]
        body = {
            "id": repo,
            "sha": self.hub.commit(repo),
            "private": False,
            "siblings": [{"rfilename": name, "size": len(content)} for name, content in files.items()],
        }
        self._send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _resolve(self, repo: str, file: str) -> None:
        content = self.hub.repos[repo].get(file)
        if content is None:
            self._refuse(404, "EntryNotFound")
            return
        headers = {"X-Repo-Commit": self.hub.commit(repo), "ETag": f'"{_sha256(content)}"'}
        if file.endswith(_LARGE):
            headers |= {"X-Linked-Size": str(len(content)), "X-Linked-Etag": f'"{_sha256(content)}"'}
            self._send(302, b"", headers | {"Location": f"{self.hub.content_url}/content/{repo}/{file}"})
        else:
            self._send_range(file, content, headers)

    def _content(self, path: str) -> None:
        owner, name, file = path.split("/", 2)
        content = self.hub.repos[f"{owner}/{name}"][file]
        self._send_range(file, content, {"ETag": f'"{_sha256(content)}"'})

    def _send_range(self, file: str, content: bytes, headers: dict[str, str]) -> None:
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(match[1]) if match else 0
        if match:
            headers = headers | {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        cut = self.hub.break_after.pop(file, None) if self.command == "GET" else None
        self._send(206 if match else 200, content[start:], headers | {"Accept-Ranges": "bytes"}, cut)

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": code})

    def _send(self, status: int, body: bytes, headers: dict[str, str], cut: int | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body if cut is None else body[:cut])
        if cut is not None:
            self.close_connection = True


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
