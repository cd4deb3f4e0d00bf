"""Who may look: by the Host header, against pages that point a name of theirs at this machine, and by a token.

A browser that was led astray sends the name that it was led by. So names are admitted only where they are this
machine's own; a bare address cannot be the product of such a trick.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
import socket
from dataclasses import dataclass

_HOST = re.compile(r"(?:\[(?P<address>[0-9a-fA-F:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]{1,253}))(?::[0-9]{1,5})?")

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
