# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The step that writes a report, and who draws for it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from pytest_subprocess import FakeProcess

from tests.rig.support import built
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, RigError, StepFailed, UsageError
from tools.rig.base.run import Result
from tools.rig.base.state import SENTINEL, StateRoot
from tools.rig.builds.report.artist import LOCK, Artist
from tools.rig.steps import report as step

SVG = {"timeline": {"wide": "<svg>drawn</svg>"}}


@pytest.fixture
def root(tmp_path: Path) -> StateRoot:
    """Return a state root with one build in it."""
    found = StateRoot(tmp_path / "root")
    built.write(found, built.record())
    return found


@pytest.fixture(autouse=True)
def _flush(fp: FakeProcess) -> None:
    """Let what is published be flushed without a process."""
    fp.register(["sync", fp.any()], occurrences=9)


@pytest.fixture
def console() -> Console:
    """Return a console to look at afterwards."""
    return Console(io.StringIO(), {})


class Fake:
    """An artist whose tools are fakes that note what they were asked."""

    def __init__(self, out: str = json.dumps(SVG), code: int = 0) -> None:
        self.out, self.code = out, code
        self.asked: list[tuple[list[str], dict[str, Any]]] = []
        self.installed: list[list[str]] = []
        self.fails: RigError | None = None

    def artist(self, **env: str) -> Artist:
        """Return it."""
        return Artist(
            env,
            Path("/usr/bin/python3"),
            find=lambda env: Path("/uv"),
            make=self.make,
            install=self.install,
            ask=self.ask,
        )

    def make(self, uv: Path, python: Path, folder: Path, **how: Any) -> bool:
        """Make an environment."""
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").touch()
        return True

    def install(self, uv: Path, python: Path, words: list[str], **how: Any) -> None:
        """Install, or fail."""
        if self.fails:
            raise self.fails
        self.installed.append([str(python.parents[2].name), *words])
        assert how["env"]["UV_HTTP_TIMEOUT"] == "20" and how["pauses_s"] == ()

    def ask(self, argv: list[Any], **how: Any) -> Result:
        """Draw."""
        self.asked.append(([str(word) for word in argv], how))
        return Result((), self.code, self.out, "Traceback\nImportError: no", 0.1)


def said(console: Console) -> str:
    """Return what people saw."""
    assert isinstance(console.stream, io.StringIO)
    return console.stream.getvalue()


class TestArtist:
    """matplotlib in an environment of its own."""

    def test_made_once(self, root: StateRoot, console: Console) -> None:
        """It is made at the first report, beside its place, and found by the next."""
        fake = Fake()
        old = root.path / "tools" / "report" / "old"
        old.mkdir(parents=True)
        (old / SENTINEL).touch()
        foreign = old.with_name("foreign")
        (foreign / "x").mkdir(parents=True)
        for _ in range(2):
            assert fake.artist(A="1").draw({"a": 1}, root, console) == SVG
        [(name, *words)] = fake.installed
        assert name.startswith(".") and words == [
            "--require-hashes",
            "--requirement",
            str(LOCK),
        ]
        argv, how = fake.asked[1]
        home = Path(argv[0]).parents[1]
        assert home.parent == root.path / "tools" / "report"
        assert (home / SENTINEL).exists() and not old.exists() and foreign.exists()
        assert argv[1] == "-I" and argv[2].endswith("plots.py")
        assert how["env"]["A"] == "1" and how["input_text"] == '{"a": 1}'
        assert how["env"]["MPLCONFIGDIR"] == str(home / "fonts")

    def test_python_went_away(self, root: StateRoot, console: Console) -> None:
        """An environment without its Python is made anew."""
        fake = Fake()
        fake.artist().draw({}, root, console)
        (Path(fake.asked[0][0][0])).unlink()
        fake.artist().draw({}, root, console)
        assert len(fake.installed) == 2

    def test_nothing_half_made(self, root: StateRoot, console: Console) -> None:
        """When it cannot be brought, nothing stays that looks like one."""
        fake = Fake()
        fake.fails = StepFailed("no network")
        with pytest.raises(StepFailed, match="no network"):
            fake.artist().draw({}, root, console)
        homes = root.path / "tools" / "report"
        assert [p.name for p in homes.iterdir() if p.is_dir()] == []

    @pytest.mark.parametrize(
        "out, code, why",
        [
            ("", 1, "did not draw: ImportError: no"),
            ("{", 0, "drew no picture"),
            ('{"a": {"b": "<html>"}}', 0, "drew no picture"),
            ("[]", 0, "drew no picture"),
        ],
    )
    def test_bad_drawing(
        self, root: StateRoot, console: Console, out: str, code: int, why: str
    ) -> None:
        """What is no drawing does not get into the page."""
        with pytest.raises(StepFailed, match=why):
            Fake(out, code).artist().draw({}, root, console)


class TestReport:
    """The file and the data."""

    def test_written(self, root: StateRoot, console: Console) -> None:
        """The page lies below the root, with the drawings; the data names it."""
        got = step.report(
            console, built.record(), None, root, None, artist=Fake().artist()
        )
        assert got.file == root.path / "reports" / "20261130-080000-cccc.html"
        assert "<svg>drawn</svg>" in got.file.read_text()
        data = got.to_json()
        assert data["plots"] == "matplotlib" and data["file"] == str(got.file)
        assert data["timeline"]["source"] == "events"
        assert data["memory"]["source"] == "samples"
        assert str(got.file) in said(console)
        json.dumps(data)

    def test_without_matplotlib(self, root: StateRoot, console: Console) -> None:
        """Without a network there is a report with simpler plots, and it says so."""
        fake = Fake()
        fake.fails = CannotError("no network", details=["no such host"])
        got = step.report(
            console, built.record(), None, root, None, artist=fake.artist()
        )
        text = got.file.read_text()
        assert got.plots == "plain" and "no network" in text and "<rect" in text
        assert "no such host" in said(console)

    def test_nothing_to_draw(self, root: StateRoot, console: Console) -> None:
        """Of a build that compiled nothing no matplotlib is brought."""
        fake = Fake()
        bare = {"id": "x", "result": "failed"}
        got = step.report(console, bare, None, root, None, artist=fake.artist())
        assert got.plots == "none" and fake.asked == []

    def test_output(self, root: StateRoot, console: Console, tmp_path: Path) -> None:
        """A file, or a folder, of the user's."""
        draw = Fake().artist()
        for given, made in ((tmp_path / "a.html", "a.html"), (tmp_path, "x/y.html")):
            record = built.record(made.removesuffix(".html").replace("x/", ""))
            got = step.report(console, record, None, root, given, artist=draw)
            assert got.file == tmp_path / made.replace("x/", "")

    @pytest.mark.parametrize("there", [True, False])
    def test_of_another_user(
        self,
        root: StateRoot,
        console: Console,
        monkeypatch: pytest.MonkeyPatch,
        there: bool,
    ) -> None:
        """Where a root may not be written to, another place is named before work."""
        folder, fake, record = root.path / "reports", Fake(), built.record()
        if there:
            monkeypatch.setattr(step.os, "access", lambda path, mode: path != folder)
        else:
            # root may write everywhere, but not into this
            folder.touch()
        with pytest.raises(StepFailed, match="cannot write") as caught:
            step.report(console, record, None, root, None, artist=fake.artist())
        hint = f"invoke report --build {record['id']} --output ."
        assert not fake.asked and caught.value.hint == hint

    def test_output_with_a_slash(
        self, root: StateRoot, console: Console, tmp_path: Path
    ) -> None:
        """A folder that is not there yet is made, and nothing of its name beside."""
        given = f"{tmp_path}/new/er/"
        got = step.report(
            console, built.record("x"), None, root, given, artist=Fake().artist()
        )
        assert got.file == tmp_path / "new" / "er" / "x.html" and got.file.is_file()

    def test_name_that_is_a_path(self, root: StateRoot, console: Console) -> None:
        """An id that leads elsewhere reads nothing from there."""
        odd = built.record("../logs/20261130-080000-cccc")
        out = root.path / "out.html"
        got = step.report(console, odd, None, root, out, artist=Fake().artist())
        assert got.facts["timeline"]["source"] == "ninja"


class TestChosen:
    """Which build is meant, and with which it is compared."""

    RECORDS: list[dict[str, Any]] = [
        {"id": "20261130-5", "result": "failed", "profile": "p"},
        {"id": "20261130-4", "result": "done", "profile": "p", "objects": [1]},
        {"id": "20261130-3", "result": "unreadable"},
        {"id": "20261129-2", "result": "done", "profile": "q", "objects": [1]},
        {"id": "20261129-1", "result": "done", "profile": "p", "objects": [1]},
    ]

    def test_newest_that_compiled(self) -> None:
        """Without a name, and with the one before it of the same profile."""
        meant, earlier = step.chosen(self.RECORDS)
        assert meant["id"] == "20261130-4"
        assert earlier is not None and earlier["id"] == "20261129-1"

    def test_builds_that_compiled_nothing(self) -> None:
        """Neither is meant nor compared with, whatever stale rows they list."""
        nothing = {"compiles": 0, "hits": 0}
        told = [nothing, {"compiles": 9, "hits": 2}, {"compiles": 9, "hits": 9}]
        told += [nothing, {"compiles": 9, "hits": 8}, {"compiles": 9, "hits": 0}]
        records = [
            {"id": f"b{9 - i}", "result": "done", "objects": [1], "admission": one}
            for i, one in enumerate(told)
        ]
        meant, earlier = step.chosen(records)
        assert meant["id"] == "b8"
        assert earlier is not None and earlier["id"] == "b5"
        assert step.chosen(records[:4]) == (records[1], None)

    def test_named(self) -> None:
        """By the id or by a beginning that is one build's."""
        assert step.chosen(self.RECORDS, "20261130-5")[0]["result"] == "failed"
        meant, earlier = step.chosen(self.RECORDS, "20261129-1")
        assert meant["id"] == "20261129-1" and earlier is None
        only_failed = step.chosen(self.RECORDS[:1])
        assert only_failed == (self.RECORDS[0], None)

    @pytest.mark.parametrize(
        "build, why, hint",
        [
            ("nope", "there is no build nope", "invoke builds"),
            ("20261130", "20261130 names 3 builds", "invoke builds"),
            ("20261130-3", "the record of 20261130-3 cannot be read", "invoke builds"),
        ],
    )
    def test_not_chosen(self, build: str, why: str, hint: str) -> None:
        """A name that fits none or several is refused with the way on."""
        with pytest.raises(UsageError, match=why) as caught:
            step.chosen(self.RECORDS, build)
        assert caught.value.hint == hint

    def test_no_builds(self) -> None:
        """Nothing was built yet, or nothing can be read."""
        with pytest.raises(UsageError, match="no builds yet") as caught:
            step.chosen([])
        assert caught.value.hint == "invoke build-sm70"
        with pytest.raises(UsageError, match="no record can be read"):
            step.chosen(self.RECORDS[2:3])
        damaged = [{**self.RECORDS[2], "problem": "/r/3.json is no build record"}]
        for named in ("", "20261130-3"):
            with pytest.raises(UsageError, match="be read") as caught:
                step.chosen(damaged, named)
            assert caught.value.details == ("/r/3.json is no build record",)

    def test_root_of(self) -> None:
        """The root is where the log lies."""
        assert step.root_of({"log": "/r/logs/a.log"}).path == Path("/r")
        with pytest.raises(CannotError, match="names no log"):
            step.root_of({"id": "a"})
