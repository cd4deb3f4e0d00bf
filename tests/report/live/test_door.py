"""Who may look."""

import socket

import pytest

from stayfinite.report.live.server import Door, is_loopback

LOCAL = Door.of("127.0.0.1")
WIDE = Door.of("0.0.0.0")


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8765", "localhost:9000", "LOCALHOST", "[::1]:8765", "127.8.8.8", "localhost."]
)
def test_the_loopback_is_reached_under_its_own_names(host):
    assert LOCAL.admits_host(host)


@pytest.mark.parametrize(
    "host",
    [None, "", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8765", "evil.example@127.0.0.1",
     "192.168.1.7:8765", "[::1", "127.0.0.1/x", "a" * 300, "[fe80::1]:80", "0x7f.1", "127.0.0.1:x:y"],
)  # fmt: skip
def test_a_name_that_was_pointed_at_this_machine_is_turned_away(host):
    assert not LOCAL.admits_host(host)


def test_elsewhere_bare_addresses_and_this_machines_name_are_admitted_and_no_other():
    assert WIDE.admits_host("192.168.1.7:8765")
    assert WIDE.admits_host("[2001:db8::1]:8765")
    assert WIDE.admits_host(f"{socket.gethostname()}:8765")
    assert not WIDE.admits_host("evil.example:8765")


def test_a_token_is_asked_for_wherever_others_can_reach_the_page():
    assert LOCAL.token == ""
    assert len(WIDE.token) >= 32
    assert Door.of("0.0.0.0").token != WIDE.token
    assert Door.of("127.0.0.1", always_token=True).token
    assert [is_loopback(each) for each in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "10.0.0.1", "host")] == [
        True, True, True, False, False, False, False,
    ]  # fmt: skip


def test_only_the_right_token_opens():
    assert WIDE.place(f"/{WIDE.token}/") == ""
    assert WIDE.place(f"/{WIDE.token}/events?from=1") == "events"
    for path in ("/", "/events", f"/{WIDE.token[:-1]}/", f"/{WIDE.token}x/", "/\u00e9/", f"//{WIDE.token}/"):
        assert WIDE.place(path) is None
    assert LOCAL.place("/events?from=x") == "events"
