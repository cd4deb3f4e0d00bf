"""Access control for the live page, by Host header and token.

The Host check stops DNS rebinding: a rebound browser sends the attacker's name, so only this machine's own names are
admitted. A bare IP address cannot come from rebinding.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from dataclasses import dataclass

from stayfinite.core.lazy_regex import lazy_regex

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
