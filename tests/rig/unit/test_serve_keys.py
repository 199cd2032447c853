# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Keys of servers: where they come from, and what is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.rig.support.server_record import a_record
from tools.rig.base.errors import UsageError
from tools.rig.serve import probe, safe


def test_key(tmp_path: Path) -> None:
    """The key comes from its file, else from our own environment."""
    file = tmp_path / "key"
    record = a_record(pid=4194303, api_key_file=os.fspath(file))
    assert probe.key_of(record, {"VLLM_API_KEY": "other"}) == ""
    file.write_text("sesame\n\n")
    assert probe.key_of(record, {}) == "sesame"
    record.api_key_file = None
    assert probe.key_of(record, {"VLLM_API_KEY": "other"}) == "other"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"two words", "more than one word"),
        (b"one\ntwo\n", "more than one word"),
        (b"a" * 4097, "more than 4096 bytes"),
        (b"ses\0ame", "control characters"),
        (b"ses\x1b[0mame", "control characters"),
        (b"\x0bsesame", "control characters"),
        ("ses\u0085ame".encode(), "control characters"),
        ("\ufeffsesame".encode(), "HTTP header"),
        ("ses\u0105me".encode(), "HTTP header"),
        (b"ses\xff\xfeame", "HTTP header"),
    ],
)
def test_what_is_no_key(tmp_path: Path, data: bytes, problem: str) -> None:
    """A file with anything but one word is named, and its content never is."""
    file = tmp_path / "key"
    file.write_bytes(data)
    file.chmod(0o600)
    for use in (probe.read_key, lambda where: [*safe.of_key(where)]):
        with pytest.raises(UsageError, match=problem) as caught:
            use(file)
        said = " ".join(caught.value.lines()).replace(str(file), "FILE")
        assert "there is no usable key in FILE" in said
        assert "ame" not in said and "two" not in said and "aaa" not in said


def test_what_is_no_key_file(tmp_path: Path) -> None:
    """A pipe, a folder and a device are refused at once; a link to a file is none."""
    os.mkfifo(tmp_path / "pipe")
    for file in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(UsageError, match="no regular file"):
            probe.read_key(file)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UsageError, match="cannot read the key in"):
        probe.read_key(tmp_path / "loop")
    (tmp_path / "key").write_bytes(b" \t" + b"a" * 4090 + b"\r\n")
    (tmp_path / "link").symlink_to("key")
    assert probe.read_key(tmp_path / "link") == "a" * 4090
    (tmp_path / "key").write_text(" \n")
    assert probe.read_key(tmp_path / "link") == ""
    assert probe.read_key(tmp_path / "key" / "x") == ""


def test_a_key_that_no_header_carries() -> None:
    """A key of the environment that cannot be sent is told without being shown."""
    for key in ("ses\u0105me", "ses\name"):
        got = probe.ask(a_record(port=1), "/health", timeout=1.0, key=key)
        assert got.status == 0
    said = probe.ask(a_record(port=1), "/health", timeout=1.0, key="ses\u0105me")
    assert said.problem == "the API key cannot be sent in an HTTP header"


def test_whose_key_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's own user hears of its key file, others are kept out of it."""
    no = probe.Completion("HTTP 401", refused=True, status=401)
    record = a_record(pid=4194303, api_key_file=os.fspath(tmp_path / "key"))
    assert probe.key_for(record) == ("", f"there is no key in {tmp_path}/key")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert probe.key_fault(record, "gone", no) == "gone"
    assert "is not the one" in probe.key_fault(record, "", no)
    assert probe.key_fault(record, "", None) == ""
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    assert probe.key_fault(record, "gone", no) == ""
    record.api_key_file = None
    assert probe.key_fault(record, "", no) == ""


def test_an_answer_that_is_no_json() -> None:
    """Whatever a server sends for JSON, it is an answer without text and no crash."""
    for body in (b"", b"{", b"\xff", b"[" * 200_000):
        assert probe.Answer(200, body).json() is None
