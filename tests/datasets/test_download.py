"""Downloads against a local server that breaks off, lies, moves and forgets."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pt_convsearch.datasets.download import download

BODY = bytes(range(256)) * 2000  # 512,000 bytes
DIGEST = hashlib.sha256(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves BODY. ``plan`` says after how many bytes each answer breaks off (None: not at all)."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.body, self.etag, self.ranges, self.kind, self.status = (
            BODY,
            '"one"',
            True,
            "application/octet-stream",
            None,
        )
        self.plan: list[int | None] = []
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        asked = self.headers.get("Range")
        server.asked.append(asked)
        if server.status:
            self.send_error(server.status)
            return
        start = 0
        if asked and server.ranges and self.headers.get("If-Range") == server.etag:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(server.body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(server.body)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(server.body) - 1}/{len(server.body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Type", server.kind)
        self.send_header("Content-Length", str(len(server.body) - start))
        if server.etag:
            self.send_header("ETag", server.etag)
        self.end_headers()
        cut = server.plan.pop(0) if server.plan else None
        self.wfile.write(server.body[start:] if cut is None else server.body[start : start + cut])

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    served = Server()
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield served
    served.shutdown()
    served.server_close()


def test_whole_file_in_one_go(server, tmp_path):
    target = download(server.url, tmp_path / "a" / "file.bin", size=len(BODY), sha256=DIGEST)
    assert target.read_bytes() == BODY
    assert [one.name for one in target.parent.iterdir()] == ["file.bin"]


def test_broken_off_twice_and_resumed_within_one_call(server, tmp_path):
    server.plan = [131_072, 196_608]  # what came since the last full block of 64 kB is asked for again
    target = download(server.url, tmp_path / "file.bin", sha256=DIGEST, wait=0.01)
    assert target.read_bytes() == BODY
    assert server.asked == [None, "bytes=131072-", "bytes=327680-"]


def test_broken_off_for_good_is_resumed_by_the_next_call(server, tmp_path):
    server.plan = [131_072, 0, 0]
    with pytest.raises(ConnectionError, match=r"131072 bytes are kept in .*file\.bin\.part"):
        download(server.url, tmp_path / "file.bin", tries=2, wait=0.01)
    assert not (tmp_path / "file.bin").exists()
    server.plan, server.asked = [], []
    assert download(server.url, tmp_path / "file.bin", sha256=DIGEST, wait=0.01).read_bytes() == BODY
    assert server.asked == ["bytes=131072-"]


def test_a_file_that_changed_meanwhile_is_fetched_anew(server, tmp_path):
    server.plan = [131_072, 0]
    with pytest.raises(ConnectionError):
        download(server.url, tmp_path / "file.bin", tries=1, wait=0.01)
    server.plan, server.body, server.etag = [], b"new" * 1000, '"two"'
    assert download(server.url, tmp_path / "file.bin").read_bytes() == b"new" * 1000


def test_a_server_without_ranges_or_tags_starts_anew(server, tmp_path):
    server.ranges, server.etag, server.plan = False, "", [5000]
    assert download(server.url, tmp_path / "file.bin", sha256=DIGEST, wait=0.01).read_bytes() == BODY
    assert server.asked == [None, None]


def test_all_was_there_but_the_name(server, tmp_path):
    """Killed between the last byte and the renaming."""
    (tmp_path / "file.bin.part").write_bytes(BODY)
    (tmp_path / "file.bin.part.json").write_text(json.dumps({"url": server.url, "version": '"one"'}), encoding="utf-8")
    assert download(server.url, tmp_path / "file.bin", sha256=DIGEST).read_bytes() == BODY


def test_a_damaged_note_is_no_reason_to_fail(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"rubbish")
    (tmp_path / "file.bin.part.json").write_text("{", encoding="utf-8")
    assert download(server.url, tmp_path / "file.bin", sha256=DIGEST).read_bytes() == BODY


@pytest.mark.parametrize(
    ("options", "message"),
    [({"sha256": "0" * 64}, "SHA-256"), ({"size": 7}, "512000 bytes came where 7 are due")],
)
def test_what_is_not_the_published_file_is_removed(server, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        download(server.url, tmp_path / "file.bin", **options)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_answer_is_refused(server, tmp_path):
    server.body = b""
    with pytest.raises(ValueError, match="it is empty"):
        download(server.url, tmp_path / "file.bin")


def test_a_web_page_is_no_data(server, tmp_path):
    server.kind = "text/html; charset=utf-8"
    with pytest.raises(ValueError, match="a web page came"):
        download(server.url, tmp_path / "file.bin")
    assert not (tmp_path / "file.bin").exists()


def test_not_found_is_said_at_once(server, tmp_path):
    server.status = 404
    with pytest.raises(ConnectionError, match="404"):
        download(server.url, tmp_path / "file.bin", wait=0.01)
    assert len(server.asked) == 1


def test_a_server_in_trouble_is_asked_again(server, tmp_path):
    server.status = 503
    with pytest.raises(ConnectionError, match="503"):
        download(server.url, tmp_path / "file.bin", tries=3, wait=0.01)
    assert len(server.asked) == 3


def test_no_server_at_all(tmp_path):
    with pytest.raises(ConnectionError, match="failed 2 times"):
        download("http://127.0.0.1:9/file.bin", tmp_path / "file.bin", tries=2, wait=0.01)


def test_progress_is_shown_on_request_only(server, tmp_path, capsys):
    download(server.url, tmp_path / "quiet.bin")
    assert capsys.readouterr() == ("", "")
    download(server.url, tmp_path / "loud.bin", verbose=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "loud.bin" in err


def test_a_full_disk_is_told_before(server, tmp_path):
    with pytest.raises(OSError, match="CONVSEARCH_HOME"):
        download(server.url, tmp_path / "file.bin", size=1 << 60)
