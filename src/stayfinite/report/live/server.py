"""Serve the live page and its event stream over HTTP, read-only, to those who may look.

A request never names a file: there are two fixed paths, both rendered from the given runs.

The check of the Host header stops DNS rebinding: a rebound browser sends the attacker's name, so only this machine's
own names are admitted. A bare IP address cannot come from rebinding.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.report.live.hub import Hub, TooManyViewers

_HOST = lazy_regex(r"(?:\[(?P<address>[0-9a-fA-F:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]{1,253}))(?::[0-9]{1,5})?")

LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Requirements for a request."""

    token: str = ""
    """First part of the path; empty if no token is required."""
    local: bool = True
    """Admit only loopback addresses and names."""
    names: frozenset[str] = LOOPBACK_NAMES

    @classmethod
    def of(cls, address: str, *, always_token: bool = False) -> Door:
        """Rules for a server bound to this address: a token is required if other machines can reach it."""
        local = is_loopback(address)
        names = LOOPBACK_NAMES
        if not local:
            names |= {socket.gethostname().lower(), socket.getfqdn().lower(), address.lower()}
        token = secrets.token_urlsafe(24) if always_token or not local else ""
        return cls(token=token, local=local, names=names)

    def admits_host(self, header: str | None) -> bool:
        """Whether the Host header names this server."""
        found = _HOST.fullmatch(header or "")
        if found is None:
            return False
        name = (found["address"] or found["name"]).lower().rstrip(".")
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name in self.names
        return address.is_loopback or not self.local

    def place(self, path: str) -> str | None:
        """The path after the token, or None if the token is wrong. Compared in constant time."""
        plain = path.partition("?")[0].removeprefix("/")
        if not self.token:
            return plain
        given, _, rest = plain.partition("/")
        # compare_digest accepts only ASCII strings, so compare bytes.
        return rest if secrets.compare_digest(given.encode(), self.token.encode()) else None


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address.lower() in LOOPBACK_NAMES


PATIENCE = 10.0
"""Seconds to complete a request, or to accept sent data."""

HEARTBEAT = 15.0
"""Seconds of silence before a keep-alive comment, which detects dead connections."""

MOST_CONNECTIONS = 128

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
NOTHING_ALLOWED = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
FRAMING = "; frame-ancestors 'none'"

Page = Callable[[], tuple[bytes, str]]
"""Returns the page's bytes and content security policy."""


class LiveServer(ThreadingHTTPServer):
    """Serves one page and its stream until stopped."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: str, port: int, *, door: Door, hub: Hub, page: Page) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.door, self.hub, self.page = door, hub, page
        self._connections = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((address, port), _Handler)

    @property
    def url(self) -> str:
        """URL of the page, including the token."""
        host, port = self.server_address[:2]
        named = socket.gethostname() if host in ("0.0.0.0", "::") else str(host)
        named = f"[{named}]" if ":" in named else named
        return f"http://{named}:{port}/{f'{self.door.token}/' if self.door.token else ''}"

    def server_bind(self) -> None:
        """Skip the standard library's lookup of the full host name, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, name="stayfinite-live", daemon=True, args=(0.2,)).start()

    def stop(self) -> None:
        """Disconnect all viewers and release the port."""
        self.hub.close()
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Refuse connections beyond the limit."""
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._connections.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore broken connections."""


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    protocol_version = "HTTP/1.1"
    server_version = "stayfinite"
    sys_version = ""
    timeout = PATIENCE

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.close_connection = True
        if not self.server.door.admits_host(self.headers.get("Host")):
            self._say(HTTPStatus.FORBIDDEN, "wrong host name")
            return
        place = self.server.door.place(self.path)
        if place == "":
            if self.server.door.token and not urlsplit(self.path).path.endswith("/"):
                # The page loads its stream by relative URL, so its own must end in a slash.
                moved = {"Location": f"/{self.server.door.token}/", "Content-Length": "0"}
                self._begin(HTTPStatus.MOVED_PERMANENTLY, "text/plain; charset=utf-8", NOTHING_ALLOWED, moved)
                return
            content, policy = self.server.page()
            self._send(HTTPStatus.OK, content, "text/html; charset=utf-8", policy + FRAMING)
        elif place == "events":
            self._stream()
        else:
            self._say(HTTPStatus.NOT_FOUND, "not found")

    def _stream(self) -> None:
        if self.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
            self._say(HTTPStatus.FORBIDDEN, "cross-site requests are refused")
            return
        asked = parse_qs(urlsplit(self.path).query, max_num_fields=8)
        seen = self.headers.get("Last-Event-ID") or (asked.get("from") or [""])[0]
        if self.command == "HEAD":
            self._begin_stream()
            return
        try:
            viewer = self.server.hub.join(seen)
        except TooManyViewers:
            self._say(HTTPStatus.SERVICE_UNAVAILABLE, "too many viewers")
            return
        try:
            self._begin_stream()
            self.wfile.write(b"retry: 1000\n\n")
            while True:
                news = viewer.take(HEARTBEAT)
                if news is None:
                    self.wfile.write(b": still here\n\n")
                else:
                    # The JSON is one line: newlines in it are escaped.
                    self.wfile.write(b"id: " + news[0].encode() + b"\ndata: " + news[1] + b"\n\n")
        except (OSError, EOFError):
            return  # disconnected or too slow
        finally:
            self.server.hub.leave(viewer)

    def _begin_stream(self) -> None:
        self._begin(HTTPStatus.OK, "text/event-stream; charset=utf-8", NOTHING_ALLOWED, {"X-Accel-Buffering": "no"})

    def _say(self, status: HTTPStatus, words: str) -> None:
        self._send(status, f"{words}\n".encode(), "text/plain; charset=utf-8", NOTHING_ALLOWED)

    def _send(self, status: HTTPStatus, content: bytes, kind: str, policy: str) -> None:
        allowed = {"Allow": "GET, HEAD"} if status == HTTPStatus.METHOD_NOT_ALLOWED else {}
        self._begin(status, kind, policy, {"Content-Length": str(len(content))} | allowed)
        if self.command != "HEAD":
            self.wfile.write(content)

    def _begin(self, status: HTTPStatus, kind: str, policy: str, more: dict[str, str]) -> None:
        """Send the status and all headers."""
        self.send_response(status)
        own = {"Content-Type": kind, "Content-Security-Policy": policy, "Connection": "close"}
        for name, value in (own | HEADERS | more).items():
            self.send_header(name, value)
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Answer malformed requests and other methods without echoing the request."""
        self.close_connection = True
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code)
        words = "only GET and HEAD" if status == HTTPStatus.METHOD_NOT_ALLOWED else status.phrase
        if not hasattr(self, "command") or self.command is None:
            self.command = "GET"
        self._say(status, words)

    def log_message(self, format: str, *args: Any) -> None:
        """No access log: it would hold the token."""
