"""A name that is no directory: asked for once, not for a minute."""

from __future__ import annotations

import logging
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from huggingface_hub import constants

from stayfinite.errors import UsageError
from stayfinite.recipes.models import loading_options
from stayfinite.recipes.seq2seq.models import load_seq2seq
from stayfinite.recipes.seq2seq.tokenizers import load_tokenizer


def asked_at(monkeypatch, place):
    monkeypatch.setattr(constants, "ENDPOINT", place)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", place + "/{repo_id}/resolve/{revision}/{filename}")


@pytest.fixture
def nobody(monkeypatch):
    """A hub that is not there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    asked_at(monkeypatch, f"http://127.0.0.1:{port}")


@pytest.fixture
def logged():
    """What any package logs to the root."""
    lines: list[str] = []
    listening = logging.Handler()
    listening.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger().addHandler(listening)
    yield lines
    logging.getLogger().removeHandler(listening)


@pytest.fixture
def hub(monkeypatch):
    """A hub that answers every question with what ``headers`` say."""
    answer = {"status": 404, "headers": {}}

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(answer["status"])
            for name, value in {**answer["headers"], "Content-Length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_):
            return

    # It answers, however long a busy machine lets it wait for its turn.
    monkeypatch.setattr("stayfinite.recipes.models.SECONDS", 90.0)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    asked_at(monkeypatch, f"http://127.0.0.1:{server.server_port}")
    yield answer
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("load", [load_seq2seq, load_tokenizer])
def test_an_unknown_name_without_a_network_is_refused_at_once_and_quietly(load, nobody, tmp_path, logged):
    with pytest.raises(UsageError, match="the hub does not answer") as caught:
        load("nobody/nothing-here", cache_dir=str(tmp_path))
    assert "a directory" in caught.value.fix
    assert not [line for line in logged if "Retry" in line]


@pytest.mark.parametrize("name", ["runs/first/best", "/no/such/place", "./here", "a b", "owner/"])
def test_what_cannot_be_a_hubs_name_is_not_asked_for(name, nobody):
    with pytest.raises(UsageError, match="no such directory$"):
        loading_options(name)


def test_what_was_downloaded_before_is_loaded_without_a_network(nobody, tmp_path):
    repository = tmp_path / "models--someone--something"
    (repository / "snapshots" / "abc").mkdir(parents=True)
    (repository / "snapshots" / "abc" / "config.json").write_text("{}", encoding="utf-8")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc", encoding="utf-8")
    assert loading_options("someone/something", cache_dir=str(tmp_path))["local_files_only"] is True


def test_a_hub_that_does_not_know_the_name_is_believed(hub, tmp_path):
    hub["headers"] = {"X-Error-Code": "RepoNotFound"}
    with pytest.raises(UsageError, match="the hub has no such name"):
        loading_options("nobody/nothing-here", cache_dir=str(tmp_path))


def test_a_hub_that_has_it_is_left_to_transformers(hub, tmp_path):
    hub["headers"] = {"X-Error-Code": "EntryNotFound"}  # a tokenizer has no config.json
    assert "local_files_only" not in loading_options("someone/tokenizer", cache_dir=str(tmp_path))


def test_a_directory_is_not_asked_for_anywhere(nobody, tmp_path):
    assert loading_options(str(tmp_path)) == {"cache_dir": None}
