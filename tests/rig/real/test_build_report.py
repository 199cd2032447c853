# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A report as a browser sees it, drawn by the real matplotlib and without it."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.rig.support import built
from tools.rig.base import run
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, RigError
from tools.rig.base.state import StateRoot
from tools.rig.builds.report import sheet
from tools.rig.builds.report.artist import Artist
from tools.rig.builds.report.facts import gather
from tools.rig.steps import report as step

pytestmark = pytest.mark.real

EVIL = 'csrc/<script>console.error("run")</script>/$a_b$&amp;.cu'
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    None,
)
QUIET = (
    "--headless --no-sandbox --disable-gpu --no-first-run --hide-scrollbars "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--disable-extensions --enable-logging=stderr"
)

Open = Callable[..., tuple[str, list[str], list[str]]]


@pytest.fixture
def browse(tmp_path: Path) -> Open:
    """Open a page; return its document, the console's words and what was asked for."""
    if CHROMIUM is None:
        pytest.skip("no chromium on the PATH")
    chromium = CHROMIUM

    def browse(file: Path, *flags: str) -> tuple[str, list[str], list[str]]:
        log = tmp_path / "net.json"
        got = run.run(
            [
                chromium,
                *QUIET.split(),
                f"--user-data-dir={tmp_path / 'profile'}",
                f"--log-net-log={log}",
                *flags,
                "--dump-dom",
                file.as_uri(),
            ],
            env={**os.environ, "HOME": str(tmp_path)},
            timeout=120,
        )
        assert got.ok, got.err
        said = [line for line in got.err.splitlines() if "CONSOLE" in line]
        return got.out, said, addresses(json.loads(log.read_text()))

    return browse


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> StateRoot:
    """Return a root with a build in it, one of whose objects has an evil name."""
    root = StateRoot(tmp_path_factory.mktemp("root"))
    built.write(root, built.record())
    evil = built.event(0, 0, 90, object=f"CMakeFiles/x.dir/{EVIL}.o", code=2)
    file = root.logs / "20261130-080000-cccc.events.jsonl"
    built.lines(file, [*built.events(), evil])
    return root


def addresses(log: object) -> list[str]:
    """Return what a log of Chromium's network says that a page asked for.

    What the browser asks for of its own accord has no origin.
    """
    assert isinstance(log, dict)
    told = [e.get("params", {}) for e in log["events"]]
    asked = [p for p in told if "url" in p and "initiator" in p]
    return sorted({p["url"] for p in asked if p["initiator"] != "not an origin"})


def nobody(env: object) -> Path:
    """Find no uv."""
    raise CannotError("uv is not installed")


def written(root: StateRoot, artist: Artist) -> step.ReportResult:
    """Write the report of the build."""
    console = Console(io.StringIO(), {})
    earlier = built.record("20261129-080000-bbbb", seconds=200.0)
    return step.report(console, built.record(), earlier, root, None, artist=artist)


def looked_at(page: Path, browse: Open) -> str:
    """Assert that a browser has nothing to say of a page, by day and by night."""
    documents = []
    for flags in (
        ("--window-size=1280,900", "--blink-settings=preferredColorScheme=1"),
        ("--window-size=400,900", "--blink-settings=preferredColorScheme=0"),
    ):
        document, said, asked = browse(page, *flags)
        assert said == []
        assert asked == []
        documents.append(document)
    assert documents[0].count("<script") == 0
    assert "&lt;script&gt;" in documents[0] and "Slowest objects" in documents[0]
    return documents[0]


def test_without_matplotlib(made: StateRoot, browse: Open) -> None:
    """The page with plain drawings opens without an error and without a request."""
    got = written(made, Artist(dict(os.environ), find=nobody))
    assert got.plots == "plain"
    assert looked_at(got.file, browse).count("<svg") == 4


def test_with_matplotlib(made: StateRoot, browse: Open) -> None:
    """So does the one that matplotlib drew."""
    got = written(made, Artist(dict(os.environ)))
    if got.plots != "matplotlib":
        pytest.skip(f"matplotlib cannot be brought here: {got.note}")
    text = looked_at(got.file, browse)
    assert text.count("<svg") == 4 and "simpler ones" not in text


def test_browser_would_tell(tmp_path: Path, browse: Open) -> None:
    """A page that errs, and one that asks for something, are seen as such."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<script>console.error('broken')</script>"
        "<img src='http://127.0.0.1:9/picture.png'>"
    )
    _, said, asked = browse(page)
    assert [line for line in said if "broken" in line]
    assert "http://127.0.0.1:9/picture.png" in asked


def test_script_draws(made: StateRoot) -> None:
    """Its drawings are whole, keep letters and have no colours of their own."""
    facts = gather(built.record(), None, events=built.events(), memory=built.memory())
    artist = Artist(dict(os.environ), Path(sys.executable))
    console = Console(io.StringIO(), {})
    try:
        drawn = artist.draw(sheet.sheet(facts), made, console)
    except RigError as exc:
        pytest.skip(f"matplotlib cannot be brought here: {exc.what}")
    assert {name: [*views] for name, views in drawn.items()} == {
        "timeline": ["wide", "narrow"],
        "memory": ["wide", "narrow"],
    }
    names: list[str] = []
    for svg in (svg for views in drawn.values() for svg in views.values()):
        root = ElementTree.fromstring(svg)
        names += [n.attrib["id"] for n in root.iter() if "id" in n.attrib]
        assert "#0a0b" not in svg and "var(--" in svg and "<style" not in svg
    assert len(names) == len({*names})
    wide = ElementTree.fromstring(drawn["timeline"]["wide"])
    words = [node.text for node in wide.iter() if node.tag.endswith("}text")]
    assert "big.cu" in words and "1 min" in words
    titles = [node.text for node in wide.iter() if node.tag.endswith("}title")]
    assert any(t and t.startswith("bind.cpp\ncsrc\n1.0 s") for t in titles)
