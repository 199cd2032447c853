# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The real uv on a line that breaks off, and on a disk that dies under it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import io
import os
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.support import slowfs
from tools.rig.base import abandon, run
from tools.rig.base.console import Console
from tools.rig.base.errors import StepFailed
from tools.rig.base.state import StateRoot
from tools.rig.builds import uv
from tools.rig.host import look

pytestmark = pytest.mark.real

METADATA = "Metadata-Version: 2.1\n"
WHEEL = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def wheel(folder: Path, name: str, size: int) -> Path:
    """Make a wheel whose one module holds `size` bytes that do not compress."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": b"VALUE = 1\n# " + os.urandom(size).hex().encode(),
        f"{info}/METADATA": f"{METADATA}Name: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": WHEEL,
    }
    rows = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
        rows.append(f"{path},sha256={digest.decode()},{len(data)}")
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]).encode()
    out = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(out, "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    return out


class Index(http.server.ThreadingHTTPServer):
    """A package index that breaks off the first transfers of one file."""

    def __init__(self, folder: Path, breaks: str, times: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.breaks, self.times = folder, breaks, times
        self.whole: list[str] = []
        self.cut: list[str] = []

    @property
    def url(self) -> str:
        """Address for uv."""
        return f"http://127.0.0.1:{self.server_address[1]}/simple"


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves pages of links, and files from one folder."""

    server: Index

    def do_GET(self) -> None:
        """Answer with a page or a file, the latter perhaps only by half."""
        name = self.path.strip("/").split("/")[-1]
        if name.endswith(".metadata"):
            package = name.split("-")[0]
            self._send(
                f"{METADATA}Name: {package}\nVersion: 1.0\n".encode(), "text/plain"
            )
            return
        file = self.server.folder / name
        if name.endswith(".whl") and file.is_file():
            body = file.read_bytes()
            cut = name.startswith(self.server.breaks) and self.server.times > 0
            self.server.times -= cut
            (self.server.cut if cut else self.server.whole).append(name)
            self._send(body, "application/octet-stream", half=cut)
            return
        links = "".join(
            f'<a href="/files/{p.name}" data-core-metadata="true">{p.name}</a>'
            for p in self.server.folder.glob(f"{name}-*.whl")
        )
        self._send(f"<html>{links}</html>".encode(), "text/html")

    def _send(self, body: bytes, kind: str, half: bool = False) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body[: len(body) // 2] if half else body)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(index: Index) -> Iterator[Index]:
    """Serve in a thread."""
    thread = threading.Thread(target=index.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield index
    finally:
        index.shutdown()
        index.server_close()
        thread.join()


def make_venv(folder: Path, env: dict[str, str]) -> Path:
    """Make an environment; return its interpreter."""
    base = Path(getattr(sys, "_base_executable", sys.executable))
    assert uv.make_venv(uv.program(env), base, folder, env=env, prompt="test")
    return folder / "bin" / "python"


def environ(root: Path, **more: str) -> dict[str, str]:
    """Return the environment of a uv that knows no network but ours."""
    plain = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(root)}
    quiet = {"NO_PROXY": "127.0.0.1", "UV_HTTP_RETRIES": "0", "UV_NO_CONFIG": "1"}
    return uv.environment({**plain, **quiet, **more}, StateRoot(root))


def test_a_download_goes_on_where_it_was(tmp_path: Path) -> None:
    """After some breaks the big file comes; the small one is not fetched again."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel(wheels, "small", 1000)
    wheel(wheels, "huge", 2_000_000)
    out = io.StringIO()
    small_at_break: list[int] = []
    with serving(Index(wheels, "huge", 4)) as index:
        env = environ(tmp_path / "a root", UV_DEFAULT_INDEX=index.url)
        python = make_venv(tmp_path / "a root" / "venvs" / "it's", env)
        uv.install(
            uv.program(env),
            python,
            ["small", "huge"],
            env=env,
            console=Console(out, {}),
            log=tmp_path / "log",
            sleep=lambda s: small_at_break.append(
                index.whole.count("small-1.0-py3-none-any.whl")
            ),
        )
        # uv itself tries a broken transfer once more before it gives up
        assert len(index.cut) == 4 and small_at_break
        small = index.whole.count("small-1.0-py3-none-any.whl")
    assert small_at_break[0] == small == 1
    assert "the download broke off (" in out.getvalue()
    assert "; try 2 of 4 in 5 s" in out.getvalue()
    got = subprocess.run(
        [python, "-c", "import small, huge; print(huge.VALUE)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert got.stdout == "1\n"
    assert (tmp_path / "a root" / "cache" / "uv").is_dir()


def test_what_is_not_the_lines_fault_is_final(tmp_path: Path) -> None:
    """A package that does not exist is not asked for four times."""
    slept: list[float] = []
    with serving(Index(tmp_path, "none", 0)) as index:
        env = environ(tmp_path / "root", UV_DEFAULT_INDEX=index.url)
        python = make_venv(tmp_path / "root" / "venvs" / "v", env)
        with pytest.raises(StepFailed, match="uv pip install failed") as caught:
            uv.install(
                uv.program(env),
                python,
                ["nosuchpackage"],
                env=env,
                console=Console(io.StringIO(), {}),
                log=tmp_path / "log",
                sleep=slept.append,
            )
    assert slept == [] and any("nosuchpackage" in d for d in caught.value.details)


@pytest.mark.skipif(
    bool(slowfs.unavailable()), reason=f"no FUSE: {slowfs.unavailable()}"
)
def test_a_disk_that_dies_under_uv_is_named(tmp_path: Path) -> None:
    """Uv hangs in the kernel: it is left behind in time, and the mount is named."""
    wheels, disk, point = tmp_path / "wheels", tmp_path / "disk", tmp_path / "nas"
    for folder in (wheels, disk, point):
        folder.mkdir()
    small = wheel(wheels, "small", 1000)
    hang = tmp_path / "hang"
    with slowfs.mounted(disk, point, hang_file=hang):
        env = environ(tmp_path / "root", UV_OFFLINE="1")
        python = make_venv(point / "v", env)
        program = uv.program(env)
        hang.touch()
        start = time.monotonic()
        with pytest.raises(look.Hung) as caught:
            uv.install(
                program,
                python,
                [str(small)],
                env=env,
                console=Console(io.StringIO(), {}),
                log=tmp_path / "log",
                idle_s=2,
                disk=lambda path: look.disk(path, measure_s=0, limit_s=2),
            )
        assert time.monotonic() - start < 30
        assert caught.value.mount.point == point
        assert "hangs" in caught.value.what
    deadline = time.monotonic() + 10
    while abandon.left_behind() and time.monotonic() < deadline:
        time.sleep(0.05)


def test_a_child_that_only_sleeps_is_gone() -> None:
    """What can be killed is killed, not left behind."""
    start = time.monotonic()
    got = abandon.ask(["sleep", "60"], timeout=0.3)
    assert got.timed_out and time.monotonic() - start < 5
    assert abandon.left_behind() == []


def test_a_silent_worker_is_no_dead_one(tmp_path: Path) -> None:
    """A program that computes without a word is waited for; a sleeping one is not."""
    code = "import time\nend = time.time() + 3\nwhile time.time() < end: pass"
    lines: list[str] = []
    how = {"on_line": lines.append, "log": tmp_path / "log", "idle_s": 1.5}
    assert run.stream([sys.executable, "-c", code], **how).ok
    got = run.stream(["sleep", "60"], **how)
    assert got.timed_out and got.seconds < 20
