"""Who may look: by the Host header, against pages that point a name of theirs at this machine, and by a token.

A browser that was led astray sends the name that it was led by. So names are admitted only where they are this
machine's own; a bare address cannot be the product of such a trick.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """What a request must show."""

    token: str = ""
    """First part of the path; empty where none is asked for."""
    local: bool = True
    """Only addresses and names of the loopback are admitted."""
    names: frozenset[str] = LOOPBACK_NAMES

    @classmethod
    def of(cls, address: str, *, always_token: bool = False) -> Door:
        """The door for a server that is bound to this address: a token wherever others can reach it."""
        local = is_loopback(address)
        names = LOOPBACK_NAMES
        if not local:
            names |= {socket.gethostname().lower(), socket.getfqdn().lower(), address.lower()}
        token = secrets.token_urlsafe(24) if always_token or not local else ""
        return cls(token=token, local=local, names=names)

    def admits_host(self, header: str | None) -> bool:
        """Whether a Host header is one under which this server may be reached."""
        if not header or len(header) > 255:
            return False
        try:
            name = urlsplit(f"//{header}").hostname
        except ValueError:
            return False
        if not name or "@" in header or "/" in header:
            return False
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name.lower().rstrip(".") in self.names
        return address.is_loopback or not self.local

    def place(self, path: str) -> str | None:
        """What is asked for behind the token; None where the token is wrong. Compared in constant time."""
        plain = path.partition("?")[0].removeprefix("/")
        if not self.token:
            return plain
        given, _, rest = plain.partition("/")
        # Bytes, because compare_digest refuses other characters than ASCII.
        return rest if secrets.compare_digest(given.encode(), self.token.encode()) else None


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach what is bound there."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address.lower() in LOOPBACK_NAMES
