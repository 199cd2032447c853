# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Records of builds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.rig.base.errors import ExitCode, StepFailed
from tools.rig.base.state import StateRoot, read_json
from tools.rig.builds import record
from tools.rig.builds.record import Record, listing


@pytest.fixture
def root(tmp_path: Path) -> StateRoot:
    """Return a state root."""
    return StateRoot(tmp_path / "state")


def test_written_from_the_start(root: StateRoot) -> None:
    """A build that is killed at once has a record that says it was running."""
    made = Record(root, "invoke build-sm70 --token=hf_abcdefabcdefabcdef")
    data = read_json(made.file)
    assert data["result"] == "running" and data["exit_code"] is None
    assert data["log"] == str(made.log) and "hf_abc" not in data["command"]
    assert made.file.parent == root.records and made.log.parent == root.logs


def test_steps_and_end(root: StateRoot) -> None:
    """Each step is written when it is over, the end last."""
    made = Record(root, "x")
    made.step("wheel", 1.23456, "done")
    made.update(version="1.0")
    assert read_json(made.file)["steps"] == [
        {"title": "wheel", "seconds": 1.23, "result": "done"}
    ]
    made.end("failed", ExitCode.CANNOT, seconds=3)
    data = read_json(made.file)
    assert (data["result"], data["exit_code"], data["seconds"]) == ("failed", 3, 3)
    assert data["version"] == "1.0"


def test_full_disk(root: StateRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end a full disk must not hide the failure; before, it is one."""
    made = Record(root, "x")
    monkeypatch.setattr(record, "write_json", _refuse)
    with pytest.raises(StepFailed):
        made.step("wheel", 1, "done")
    made.end("failed", 1, error="no space left", seconds=3.0)
    assert made.data["result"] == "failed"
    # over the old text, in the room that the file has already
    data = read_json(made.file)
    assert (data["result"], data["error"]) == ("failed", "no space left")
    assert data["steps"][0]["title"] == "wheel"


@pytest.mark.parametrize(
    ("error", "told"), [("short", "short"), ("x" * 9000, None)], ids=["facts", "error"]
)
def test_little_room(
    root: StateRoot, monkeypatch: pytest.MonkeyPatch, error: str, told: str | None
) -> None:
    """What has no room on a full disk is left out, and the end is told all the same."""
    made = Record(root, "x")
    monkeypatch.setattr(record, "write_json", _refuse)
    made.end("failed", 1, error=error, objects=[{"name": "x" * 9000}])
    data = read_json(made.file)
    assert (data["result"], data["exit_code"], data.get("error")) == ("failed", 1, told)
    assert "objects" not in data


def test_no_room(root: StateRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing at all can be written, the failure is still not hidden."""
    made = Record(root, "x")
    monkeypatch.setattr(record, "write_json", _refuse)
    made.file.unlink()
    made.end("failed", 1)
    assert made.data["result"] == "failed" and not made.file.exists()


def _refuse(path: Path, data: object) -> None:
    raise StepFailed("disk full")


class TestListing:
    """All records."""

    def test_none(self, root: StateRoot) -> None:
        """A machine on which nothing was built."""
        assert listing(root) == []

    def test_newest_first(
        self, root: StateRoot, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The order is that of time."""
        for second in ("20260101-000001", "20260101-000003", "20260101-000002"):
            monkeypatch.setattr(
                record.time, "strftime", lambda form, when, second=second: second
            )
            Record(root, "x")
        ids = [entry["id"][:15] for entry in listing(root)]
        assert ids == sorted(ids, reverse=True) and len(ids) == 3

    def test_running_or_died(self, root: StateRoot) -> None:
        """A build that says it is running, and whose process is gone, has died."""
        alive, killed = Record(root, "x"), Record(root, "y")
        # no process has this number: it is above the kernel's limit
        killed.update(holder={**killed.data["holder"], "pid": 1 << 30})
        found = {entry["id"]: entry for entry in listing(root)}
        assert [found[it.id]["result"] for it in (alive, killed)] == ["running", "died"]
        assert "its end could not be written" in found[killed.id]["error"]
        assert "error" not in found[alive.id]
        killed.update(holder="nobody")
        assert {entry["result"] for entry in listing(root)} == {"running"}

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b'{"id": "x", ', "cannot read"),
            (b"", "cannot read"),
            (b"\xff\xfe", "cannot read"),
            (b"[]", "is no build record"),
            (b'{"a": 1}', "is no build record: it has no id"),
            (b'{"id": "x"}', "is no build record: it has no log"),
            (b'{"id": 3, "log": "x"}', "is no build record: its id is no text"),
            (b'{"id": "..", "log": "x"}', "its id is no name"),
            (b'{"id": "../x", "log": "x"}', "its id is no name"),
            (b'{"id": "x", "log": "x", "started": []}', "its started is no text"),
            (b'{"id": "x", "log": "x", "objects": {}}', "its objects is no list"),
            (b'{"id": "x", "log": "x", "plan": []}', "its plan is no table"),
            (b'{"id": "x", "log": "x", "seconds": "9"}', "its seconds is no number"),
        ],
    )
    def test_corrupt(self, root: StateRoot, content: bytes, words: str) -> None:
        """A record that cannot be read says so, hides no other and stays."""
        good = Record(root, "x")
        bad = root.records / "0.json"
        bad.write_bytes(content)
        first, second = listing(root)
        assert first["id"] == good.id
        assert second["id"] == "0" and second["result"] == "unreadable"
        assert words in second["problem"] and bad.read_bytes() == content
