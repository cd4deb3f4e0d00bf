"""One writer, many viewers."""

import threading

import pytest

from stayfinite.report.live.hub import BEHIND, KEPT_MESSAGES, MOST_VIEWERS, Hub, TooManyViewers


def taken(viewer):
    found = []
    while (news := viewer.take(0.0)) is not None:
        found.append(news[1])
    return found


def test_everybody_gets_everything_in_order():
    hub = Hub(lambda: b"whole")
    viewers = [hub.join(hub.now()) for _ in range(20)]
    for number in range(30):
        hub.publish(b"%d" % number)
    assert all(taken(viewer) == [b"%d" % number for number in range(30)] for viewer in viewers)


def test_who_opened_the_page_a_moment_ago_misses_nothing_and_sees_nothing_twice():
    hub = Hub(lambda: b"whole")
    hub.publish(b"before")
    seen = hub.now()
    hub.publish(b"one")
    hub.publish(b"two")
    viewer = hub.join(seen)
    hub.publish(b"three")
    assert taken(viewer) == [b"one", b"two", b"three"]


@pytest.mark.parametrize("seen", ["", "0", "another-1", "-5", "x" * 10_000, "deadbeef-99999999999999999999"])
def test_who_comes_from_elsewhere_gets_the_whole(seen):
    hub = Hub(lambda: b"whole")
    hub.publish(b"one")
    assert taken(hub.join(seen)) == [b"whole"]


def test_who_missed_too_much_gets_the_whole():
    hub = Hub(lambda: b"whole")
    seen = hub.now()
    for _ in range(KEPT_MESSAGES + 1):
        hub.publish(b"more")
    assert taken(hub.join(seen)) == [b"whole"]
    assert len(hub._kept) <= KEPT_MESSAGES


def test_large_messages_are_not_hoarded():
    hub = Hub(lambda: b"whole")
    for _ in range(20):
        hub.publish(bytes(1 << 20))
    assert sum(map(len, hub._kept)) <= 5 << 20


def test_a_slow_viewer_is_dropped_and_holds_nobody_up():
    hub = Hub(lambda: b"whole")
    slow, quick = hub.join(hub.now()), hub.join(hub.now())
    for _ in range(BEHIND + 1):
        hub.publish(b"news")  # nobody ever takes what is slow's: to wait for it would be to wait for ever
        assert quick.take(0.0) is not None
    assert (hub.viewers, hub.dropped) == (1, 1)
    with pytest.raises(EOFError):
        slow.take(0.0)


def test_there_is_an_end_to_how_many_may_look_on():
    hub = Hub(lambda: b"whole")
    viewers = [hub.join("") for _ in range(MOST_VIEWERS)]
    with pytest.raises(TooManyViewers):
        hub.join("")
    hub.leave(viewers[0])
    hub.join("")


def test_a_viewer_who_waits_is_woken_by_news_and_by_the_end():
    hub = Hub(lambda: b"whole")
    viewer = hub.join(hub.now())
    threading.Timer(0.05, hub.publish, [b"news"]).start()
    assert viewer.take(60.0)[1] == b"news"
    threading.Timer(0.05, hub.close).start()
    with pytest.raises(EOFError):
        viewer.take(60.0)
