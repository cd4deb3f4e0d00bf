"""The live page over HTTP, asked by plain sockets and by the standard library's client."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable

import pytest

from live_runs import WrittenRun
from stayfinite.diagnosis.live_log import LiveLog
from stayfinite.diagnosis.live_run import LiveRun
from stayfinite.readers.runs.reader import RunReader
from stayfinite.report.live.page import LivePage, Shown
from stayfinite.report.live.server import MOST_CONNECTIONS, Door, LiveServer

PATIENCE = 90.0
"""Seconds for what takes a moment, also on a machine that stands still for a while."""


class Served:
    """A run that is written, followed and served, all in this process."""

    def __init__(self, directory, *, address="127.0.0.1", door=None):
        self.run = WrittenRun(directory)
        self.live = LiveRun(directory, "run", source=RunReader(directory))
        self.page = LivePage()
        self.server = LiveServer(address, 0, door=door or Door.of(address), hub=self.page.hub, page=self.page.page)
        self.server.start()
        self.port = self.server.server_address[1]
        self.look()

    def look(self):
        with self.page.hub.lock:
            self.live.look(at_once=True)
            found = self.live.diagnosis
            told = {} if found is None else {"diagnosis": found.to_json()}
            self.page.publish([Shown(status=self.live.status(), reader=self.live.source, news=self.live.news, **told)])

    def ask(self, path="/", method="GET", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        content = answer.read() if "event-stream" not in answer.headers.get("Content-Type", "") else b""
        connection.close()
        return answer, content

    def stream(self, seen=""):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("GET", f"/events?from={seen}")
        return connection, messages(connection.getresponse())


def messages(answer):
    while line := answer.readline():
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def patient(monkeypatch):
    """Connections that stay still are kept for as long as a test takes."""
    monkeypatch.setattr("stayfinite.report.live.server._Handler.timeout", PATIENCE)


def nothing_more(sock):
    try:
        return sock.recv(100) == b""
    except ConnectionError:
        return True


@pytest.fixture
def served(tmp_path):
    made = Served(tmp_path / "run")
    yield made
    made.server.stop()


def test_the_page_is_served_with_strict_headers(served):
    served.run.accept(20)
    served.look()
    answer, content = served.ask()
    assert answer.status == 200
    assert content.startswith(b"<!doctype html>")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    expected = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
    assert {name: answer.headers[name] for name in expected} == expected
    assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"])
def test_nothing_can_be_changed(served, method):
    answer, content = served.ask(method=method)
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET, HEAD"
    assert method.encode() not in content


def test_a_head_request_gets_no_body_and_no_stream(served):
    for path in ("/", "/events"):
        answer, content = served.ask(path, "HEAD")
        assert (answer.status, content) == (200, b"")
    assert served.page.hub.viewers == 0


@pytest.mark.parametrize(
    "path",
    ["/run.json", "/../run.json", "/..%2f..%2fetc/passwd", "//etc/passwd", "/steps.jsonl", "/events/", "/%00",
     "/events/../x", "/index.html", "/favicon.ico"],
)  # fmt: skip
def test_no_path_reaches_the_disk(served, path):
    answer, content = served.ask(path)
    assert answer.status == 404
    assert content == b"not found\n"


def test_a_name_that_was_pointed_here_is_turned_away(served):
    for path in ("/", "/events"):
        assert served.ask(path, Host="evil.example:80")[0].status == 403


def test_the_stream_is_not_for_other_sites(served):
    assert served.ask("/events", **{"Sec-Fetch-Site": "cross-site"})[0].status == 403


def test_a_token_opens_and_nothing_else_does(tmp_path):
    made = Served(tmp_path / "run", door=Door.of("127.0.0.1", always_token=True))
    token = made.server.door.token
    assert made.server.url.endswith(f"/{token}/")
    assert made.ask(f"/{token}/")[0].status == 200
    assert made.ask(f"/{token}/events", "HEAD")[0].status == 200
    assert made.ask(f"/{token}")[0].headers["Location"] == f"/{token}/"
    for path in ("/", "/events", "/wrong/", f"/{token[:-1]}/", f"/?token={token}"):
        answer, content = made.ask(path)
        assert (answer.status, token.encode() in content) == (404, False)
    made.server.stop()


def test_a_new_veto_reaches_a_viewer_as_a_small_change(served):
    served.run.accept(20)
    served.look()
    connection, heard = served.stream()
    whole = next(heard)
    assert whole["runs"][0]["health"]["word"] == "healthy"
    assert whole["runs"][0]["series"]["loss"]["x"][-1] == 20
    served.run.refuse(reason="loss is nan, because of </script><script>alert(1)</script>")
    served.look()
    (patch,) = next(heard)["patches"]
    assert patch["set"]["health"]["word"] == "warning"
    assert patch["append"]["series"]["loss"]["bad"] == [[21, 21, 1, "NaN"]]
    assert [mark["kind"] for mark in patch["append"]["marks"]] == ["veto"]
    assert "series" not in patch["set"]
    connection.close()


def test_what_is_appended_and_what_is_whole_are_the_same_run(served):
    served.run.accept(20)
    served.look()
    connection, heard = served.stream()
    seen = next(heard)["runs"][0]["series"]["loss"]
    for _ in range(5):
        served.run.accept(7)
        served.look()
        more = next(heard)["patches"][0]["append"]["series"]["loss"]
        seen["x"] += more["x"]
        seen["y"] += more["y"]
    other, whole = served.stream()
    assert next(whole)["runs"][0]["series"]["loss"] == seen
    connection.close()
    other.close()


def test_a_page_that_was_opened_meanwhile_follows_from_where_it_was_made(served):
    served.run.accept(20)
    served.look()
    _, content = served.ask()
    seen = content.split(b"events?from=")[1].split(b'"')[0].decode()
    served.run.accept(1)
    served.look()
    connection, heard = served.stream(seen)
    assert next(heard)["patches"][0]["append"]["series"]["loss"]["x"] == [21]
    connection.close()


def test_a_run_that_begins_anew_is_sent_as_a_whole(served):
    served.run.accept(20)
    served.look()
    connection, heard = served.stream()
    next(heard)
    (served.run.directory / "steps.jsonl").write_text('{"step": 1, "loss": 7.0}\n')
    served.look()
    assert next(heard)["runs"][0]["series"]["loss"]["y"] == [7]
    connection.close()


def test_a_run_whose_process_was_killed_is_not_called_live(served, monkeypatch):
    served.run.accept(30)
    served.look()
    steps = served.run.directory / "steps.jsonl"
    connection, heard = served.stream()
    assert next(heard)["runs"][0]["standing"] == ""
    killed = time.time()
    monkeypatch.setattr("stayfinite.diagnosis.live_run.time.time", lambda: killed + 660)
    assert steps.stat().st_mtime <= killed
    assert served.page.outdated([served.live.status()])  # though nothing was written
    served.look()
    told = next(heard)["patches"][0]["set"]
    assert (told["health"]["word"], told["health"]["reason"]) == ("warning", "no step for 11 min")
    assert "Healthy" not in told["sentence"]
    assert told["standing"] == "last step 11 min ago"
    assert ["state", "last step 11 min ago"] in told["figures"]
    assert "pace" not in dict(told["figures"])
    assert not served.page.outdated([served.live.status()])
    connection.close()


def test_logs_of_others_are_sent_each_in_its_turn_and_none_is_forgotten(tmp_path, monkeypatch):
    page = LivePage()
    logs = [LiveLog(tmp_path / f"{name}.log", name) for name in ("a", "b")]

    def shown():
        for log in logs:
            log.look(at_once=True)
        return [Shown(status=log.status(), series=log.series) for log in logs]

    page.publish(shown())
    viewer = page.hub.join(page.hub.now())
    for count in (3, 5):
        for log in logs:
            log.path.write_text("".join(f"{{'loss': {1 + step / 10}, 'step': {step}}}\n" for step in range(1, count)))
        page.publish(shown())
    told = json.loads(viewer.take(0.0)[1])["patches"]
    assert [(patch["id"], patch["set"]["series"]["loss"]["x"]) for patch in told] == [("r0", [1, 2]), ("r1", [1, 2])]
    assert page.late
    monkeypatch.setattr("stayfinite.report.live.page.LOGS_EVERY", 0.0)
    page.publish(shown())
    told = json.loads(viewer.take(0.0)[1])["patches"]
    assert [patch["set"]["series"]["loss"]["x"] for patch in told] == [[1, 2, 3, 4]] * 2
    assert not page.late


def test_viewers_who_take_nothing_hold_up_neither_the_reader_nor_the_others(patient, served):
    served.run.accept(20)
    served.look()
    deaf = []
    for _ in range(5):
        sock = socket.create_connection(("127.0.0.1", served.port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        deaf.append(sock)
    connection, heard = served.stream()
    next(heard)
    wait_until(lambda: served.page.hub.viewers == 6)
    wide = json.dumps({"patches": [], "filler": "x" * 200_000}).encode()
    for _ in range(1000):  # how much the system takes for those who do not listen is its own affair
        served.page.hub.publish(wide)
        next(heard)
        if served.page.hub.dropped == 5:
            break
    assert (served.page.hub.dropped, served.page.hub.viewers) == (5, 1)
    for sock in deaf:
        sock.close()
    connection.close()


def test_connections_beyond_what_there_is_room_for_are_closed_and_it_recovers(patient, served):
    idle = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(MOST_CONNECTIONS)]
    wait_until(lambda: not served.server._connections._value)
    extra = socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE)
    extra.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert nothing_more(extra)
    for sock in [*idle, extra]:
        sock.close()
    wait_until(lambda: served.server._connections._value == MOST_CONNECTIONS)
    assert served.ask()[0].status == 200


MALFORMED = [
    b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x00\xff\r\n\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
]


@pytest.mark.parametrize("request_line", MALFORMED)
def test_malformed_requests_are_answered_or_dropped_and_nothing_breaks(served, request_line, capfd):
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as sock:
        sock.sendall(request_line)
        sock.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while piece := sock.recv(65_536):
                answer += piece
        except ConnectionError:
            pass
    assert b"200 OK" not in answer
    assert served.ask()[0].status == 200
    assert capfd.readouterr().err == ""


def test_stopping_lets_viewers_go_and_frees_the_port(tmp_path):
    made = Served(tmp_path / "run")
    connection, heard = made.stream()
    next(heard)
    ended = threading.Event()
    threading.Thread(target=lambda: (list(heard), ended.set())).start()
    made.server.stop()
    assert ended.wait(PATIENCE)
    connection.close()
    socket.create_server(("127.0.0.1", made.port)).close()
