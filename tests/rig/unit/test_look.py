# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Questions about disks, as the parent asks them and as the child answers them."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.rig.base import run
from tools.rig.base.errors import StepFailed
from tools.rig.base.state import StateRoot
from tools.rig.host import look, look_child, storage


def here(argv: list[str], *, timeout: float, input_text: str) -> run.Result:
    """Answer in this process what the child would answer in its own."""
    assert argv == [sys.executable, "-I", str(Path(look_child.__file__))]
    trail: list[str] = []
    try:
        said = look_child.answer(json.loads(input_text), trail.append)
    except OSError as exc:
        said = {"error": str(exc)}
    lines = [f"@ {json.dumps(p)}" for p in trail] + [json.dumps(said)]
    return run.Result(tuple(argv), 0, "\n".join(lines) + "\n", "", 0.1)


def hangs(*lines: str) -> Any:
    """Return a child that says `lines` and no more."""

    def ask(argv: list[str], *, timeout: float, input_text: str) -> run.Result:
        return run.Result((), -9, "".join(f"{x}\n" for x in lines), "", timeout, True)

    return ask


@pytest.mark.allow_process  # where the mount table is silent, stat is asked
class TestDisk:
    """The place for a folder."""

    def test_not_there_yet(self, tmp_path: Path) -> None:
        """The nearest folder that exists is measured and nothing is left."""
        got = look.disk(tmp_path / "a b" / "c", measure_s=0.02, skip=(), ask=here)
        assert not got.exists and got.empty and got.writable and not got.made
        assert got.real == tmp_path.resolve() / "a b" / "c"
        assert got.rates is not None and got.links is True
        assert got.free_bytes > 0 and got.owner is None and got.problem == ""
        assert list(tmp_path.iterdir()) == []

    def test_there(self, tmp_path: Path) -> None:
        """Owner, content and our mark are told; kinds that are out are not measured."""
        (tmp_path / ".rig-made").touch()
        kind = storage.kind(storage.mount_of(tmp_path).fs)
        got = look.disk(tmp_path, skip=(kind,), ask=here)
        assert got.exists and got.made and not got.empty and got.rates is None
        assert got.owner == os.getuid()

    def test_ours_without_its_mark(self, tmp_path: Path) -> None:
        """A root with our environments in it is ours, whatever it lost."""
        (tmp_path / "venvs").mkdir()
        assert not look.disk(tmp_path, measure_s=0, ask=here).made
        (tmp_path / "venvs" / ".rig-made").touch()
        assert look.disk(tmp_path, measure_s=0, ask=here).made

    def test_known_disk(self, tmp_path: Path) -> None:
        """A disk that was measured before is not measured again."""
        rates = storage.Rates(1, 2, 3, 4, 5, 6)
        known = {storage.mount_of(tmp_path).device: rates}
        got = look.disk(tmp_path, skip=(), known=known, ask=here)
        assert got.rates is rates and got.links
        assert look.disk(tmp_path, measure_s=0, known=known, ask=here).rates is None

    def test_a_file_in_the_way(self, tmp_path: Path) -> None:
        """A file is no folder."""
        (tmp_path / "f").touch()
        got = look.disk(tmp_path / "f", ask=here)
        assert got.problem == "it is not a folder" and not got.writable

    def test_full(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A disk that cannot be measured says why."""

        def full(*args: object, **how: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(storage, "measure", full)
        got = look.disk(tmp_path, skip=(), ask=here)
        assert got.problem == "No space left on device" and not got.writable

    def test_without_links(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file system that knows no links says so."""

        def refuse(*args: object, **how: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(Path, "symlink_to", refuse)
        got = look.disk(tmp_path, measure_s=0.01, skip=(), ask=here)
        assert got.links is False and list(tmp_path.iterdir()) == []

    def test_hangs(self) -> None:
        """The place that was touched last names the mount."""
        got = look.disk(Path("/proc/x"), ask=hangs('@ "/"', '@ "/proc/\\u00e4"'))
        assert got.hung and got.mount.fs == "proc"
        assert got.problem.startswith("no answer from /proc/ä within")

    def test_a_loop(self, tmp_path: Path) -> None:
        """Links that never end are a problem and no crash."""
        (tmp_path / "a").symlink_to("b")
        (tmp_path / "b").symlink_to("a")
        got = look.disk(tmp_path / "a", ask=here)
        assert "Too many levels" in got.problem and not got.writable


class TestCheckout:
    """A checkout and the name in it."""

    def test_plain(self, tmp_path: Path) -> None:
        """Place, owner and settings of the target are read."""
        (tmp_path / "pyproject.toml").write_text("[project]\n")
        got = look.checkout(tmp_path, ask=here)
        assert got.link == look.Link("absent") and got.pyproject == "[project]\n"
        assert got.place.startswith(tmp_path.name[:5]) and got.owner == os.getuid()
        assert got.writable

    @pytest.mark.parametrize("kind", ["directory", "file"])
    def test_something_of_the_users(self, tmp_path: Path, kind: str) -> None:
        """A folder and a file are told apart."""
        name = tmp_path / ".venv"
        name.mkdir() if kind == "directory" else name.touch()
        assert look.checkout(tmp_path, ask=here).link.kind == kind

    def test_links(self, tmp_path: Path) -> None:
        """A relative link is followed; a dangling one and a loop are told."""
        (tmp_path / "real").mkdir()
        (tmp_path / "step").symlink_to("real")
        name = tmp_path / ".venv"
        name.symlink_to("step")
        got = look.checkout(tmp_path, ask=here).link
        assert got == look.Link("link", "step", str(tmp_path.resolve() / "real"), True)
        name.unlink()
        name.symlink_to("/none/such")
        got = look.checkout(tmp_path, ask=here).link
        assert (got.kind, got.real, got.exists) == ("link", "/none/such", False)
        name.unlink()
        name.symlink_to(".venv")
        assert not look.checkout(tmp_path, ask=here).link.exists

    def test_no_folder(self, tmp_path: Path) -> None:
        """What is not there is no checkout."""
        with pytest.raises(StepFailed, match="is no folder"):
            look.checkout(tmp_path / "none", ask=here)

    def test_hangs(self) -> None:
        """Without a word the child hung at its own start, on our own disk."""
        with pytest.raises(look.Hung) as caught:
            look.checkout(Path("/x"), ask=hangs(), limit_s=3)
        assert str(look_child.__file__) in caught.value.what


class TestSmallQuestions:
    """Text, links and failures."""

    def test_text(self, tmp_path: Path) -> None:
        """Text, nothing, or why it cannot be read."""
        (tmp_path / "t").write_text("x")
        (tmp_path / "b").write_bytes(b"\xff")
        assert look.text(tmp_path / "t", ask=here) == ("x", "")
        assert look.text(tmp_path / "none", ask=here) == (None, "")
        text, why = look.text(tmp_path / "b", ask=here)
        assert text is None and "utf-8" in why

    def test_make_link(self, tmp_path: Path) -> None:
        """A link is made once and never replaces anything."""
        assert look.make_link(tmp_path / "l", Path("/x y"), ask=here) == ""
        assert os.readlink(tmp_path / "l") == "/x y"
        assert look.make_link(tmp_path / "l", Path("/z"), ask=here) == "File exists"
        assert os.readlink(tmp_path / "l") == "/x y"

    def test_replace_link(self, tmp_path: Path) -> None:
        """Only a link that still leads where it was seen to is replaced."""
        link = tmp_path / "l"
        link.symlink_to("/a")
        assert look.make_link(link, Path("/z"), "/b", ask=here) == "File exists"
        assert os.readlink(link) == "/a"
        assert look.make_link(link, Path("/z"), "/a", ask=here) == ""
        assert os.readlink(link) == "/z" and os.listdir(tmp_path) == ["l"]

    def test_made(self, tmp_path: Path) -> None:
        """A link into a state root of ours is known, whatever it leads to there."""
        root, link = tmp_path / "root", tmp_path / ".venv"
        link.symlink_to(root / "venvs" / "a-1")
        assert not look.checkout(tmp_path, ask=here).link.made
        StateRoot(root).make(root / "venvs")
        assert look.checkout(tmp_path, ask=here).link.made
        bench = root / "benches" / "a-1"
        bench.mkdir(parents=True)
        (root / "venvs" / "a-1").symlink_to(bench)
        assert look.checkout(tmp_path, ask=here).link.made
        (tmp_path / "other").mkdir()
        link.unlink()
        link.symlink_to(tmp_path / "other")
        assert not look.checkout(tmp_path, ask=here).link.made

    def test_a_child_that_fails(self) -> None:
        """Its last words are shown."""

        def ask(*args: object, **how: object) -> run.Result:
            return run.Result((), 1, "", "Traceback\nImportError: no regex\n", 0.1)

        with pytest.raises(StepFailed) as caught:
            look.text(Path("/x"), ask=ask)
        assert caught.value.details[-1] == "ImportError: no regex"

    def test_no_permission(self, tmp_path: Path) -> None:
        """An error of the system is one line."""

        def ask(*args: object, **how: object) -> run.Result:
            return run.Result((), 0, '{"error": "Permission denied"}', "", 0.1)

        with pytest.raises(StepFailed, match="cannot look at /x: Permission denied"):
            look.text(Path("/x"), ask=ask)
        assert "Permission denied" in look.disk(tmp_path, ask=ask).problem

    def test_hint_names_the_server(self) -> None:
        """A network disk's server is what to look at first."""
        mount = storage.Mount(Path("/nas"), "nfs4", "srv:/x", "rw", "0:9")
        got = look.Hung("/nas/a", mount, 3.0, ("age: 1",))
        assert got.hint == "ping srv" and got.details == ("age: 1",)


def test_main(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The program reads one request and ends with its answer."""
    out = io.StringIO()
    request = {"op": "read", "path": str(tmp_path / "x")}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(request)))
    monkeypatch.setattr(sys, "stdout", out)
    assert look_child.main() == 0
    *trail, last = out.getvalue().splitlines()
    assert trail[0].startswith('@ "/') and json.loads(last)["text"] is None


def test_main_with_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An error of the system is an answer too."""
    (tmp_path / "a").symlink_to("a")
    out = io.StringIO()
    request = {"op": "read", "path": str(tmp_path / "a")}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(request)))
    monkeypatch.setattr(sys, "stdout", out)
    look_child.main()
    assert "Too many levels" in json.loads(out.getvalue().splitlines()[-1])["error"]
