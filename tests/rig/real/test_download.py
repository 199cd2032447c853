# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A download that breaks off goes on where it was, with apt's own transport."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import regex as re

from tests.rig.support.toolkit import needs_packages
from tools.rig.base.errors import StepFailed
from tools.rig.builds.private_apt import Archive, Package, PrivateApt

pytestmark = pytest.mark.real

BODY = bytes(range(256)) * 400
DIGEST = f"SHA256:{hashlib.sha256(BODY).hexdigest()}"
DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


class Mirror(ThreadingHTTPServer):
    """A server that sends `piece` bytes and hangs up."""

    piece = len(BODY) // 5
    body = BODY

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.starts: list[int] = []


class Handler(BaseHTTPRequestHandler):
    """Answers for one file, whole or from an offset on."""

    server: Mirror

    def do_GET(self) -> None:
        """Send a piece of what was asked for."""
        asked = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        whole = self.server.body
        start = int(asked[1]) if asked else 0
        self.server.starts.append(start)
        self.send_response(206 if asked else 200)
        self.send_header("Last-Modified", DATE)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(whole) - start))
        if asked:
            span = f"bytes {start}-{len(whole) - 1}/{len(whole)}"
            self.send_header("Content-Range", span)
        self.end_headers()
        self.wfile.write(whole[start : start + self.server.piece])
        self.close_connection = True

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    """Return a server that runs."""
    needs_packages()
    with Mirror() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def fetch(mirror: Mirror, folder: Path, size: int = len(BODY)) -> Path:
    """Fetch the file; apt itself does not try twice."""
    uri = f"http://127.0.0.1:{mirror.server_port}/x_1_all.deb"
    env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    archive = Archive(uri, "none", ("main",), ())
    apt = PrivateApt(folder, [archive], env)
    config = folder / "apt.conf"
    config.write_text(config.read_text().replace('Retries "3"', 'Retries "0"'))
    return apt.fetch(Package(uri, "x_1_all.deb", size, DIGEST))


def test_goes_on(mirror: Mirror, tmp_path: Path) -> None:
    """Each try begins where the last one broke off, until all is there."""
    got = fetch(mirror, tmp_path)
    assert got.read_bytes() == BODY
    assert mirror.starts == sorted(mirror.starts) and len(mirror.starts) >= 5
    assert mirror.starts.count(0) == 1


def test_kept_for_the_next_run(mirror: Mirror, tmp_path: Path) -> None:
    """What one run fetched is not fetched again by the next."""
    fetch(mirror, tmp_path)
    before = len(mirror.starts)
    assert fetch(mirror, tmp_path).read_bytes() == BODY
    assert len(mirror.starts) == before


def test_a_changed_file_is_refused(mirror: Mirror, tmp_path: Path) -> None:
    """A mirror that serves other bytes than were signed gets nowhere."""
    mirror.piece = len(BODY)
    mirror.body = BODY[:-1] + b"x"
    with pytest.raises(StepFailed):
        fetch(mirror, tmp_path)


def test_no_server(mirror: Mirror, tmp_path: Path) -> None:
    """A server that is away is named at once."""
    port = mirror.server_port
    mirror.server_close()
    with pytest.raises(StepFailed, match="fetching x_1_all.deb failed") as caught:
        fetch(mirror, tmp_path)
    assert any(str(port) in line for line in caught.value.details)
