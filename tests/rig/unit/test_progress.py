# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a person sees of a running build."""

from __future__ import annotations

import io
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.screen import Tty
from tools.rig.base.console import Console
from tools.rig.builds.eta import Eta
from tools.rig.builds.progress import Events, Progress

GIB = 1 << 30


class Clock:
    """Time that stands still until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def told(*running: tuple[str, str, float], waiting: Any = ()) -> dict[str, Any]:
    """Return a status of the admission."""
    return {
        "budget": 22 * GIB,
        "used": 3 * GIB,
        "running": [
            {"object": name, "build": build, "seconds": seconds, "bytes": GIB}
            for name, build, seconds in running
        ],
        "waiting": list(waiting),
    }


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("[3/102] Building CUDA object CMakeFiles/_C.dir/csrc/a.cu.o", "a.cu"),
        ("  [3/102] Building CXX object b.cpp.o", "b.cpp"),
        ("[3/102] Linking CXX shared module deep/_C.abi3.so", "_C.abi3.so"),
        ("[3/102] /cuda/bin/nvcc -O3 -c /x/k.cu -o /y/k.o -arch=sm_70", "k"),
    ],
)
def test_one_line(line: str, shown: str) -> None:
    """Outside of its block a terminal gets one live line with what was made."""
    tty, clock = Tty(), Clock()
    progress = Progress(Console(tty, {}), clock)
    clock.now = 65
    progress.line(line)
    assert f"[3/102] {shown} (1 min 5 s" in tty.getvalue()
    assert (progress.done, progress.total) == (3, 102)


@pytest.mark.parametrize("env", [{}, {"GITHUB_ACTIONS": "true"}])
def test_plain(env: dict[str, str]) -> None:
    """Without a terminal a line comes now and then, and at the end."""
    out, clock = io.StringIO(), Clock()
    with Progress(Console(out, env), clock, tick_s=None) as progress:
        for now, line in (
            (1, "[1/9] Building CXX object a.o"),
            (31, "[2/9] Building CXX object b.o"),
            (32, "[3/9] Building CXX object c.o"),
            (33, "some other output [4/9]"),
            (34, "[9/9] Linking CXX shared module z.so"),
        ):
            clock.now = now
            progress.line(line)
    assert out.getvalue() == "  [2/9] b (31 s)\n  [9/9] z.so (34 s)\n"


def test_plain_between_lines() -> None:
    """While one file compiles for minutes, a log still says every half a minute so."""
    out, clock = io.StringIO(), Clock()
    status = told(("CMakeFiles/x.dir/b.cu.o", "", 3.0))
    made = Eta([{"CMakeFiles/x.dir/a.cu.o": 5.0, "CMakeFiles/x.dir/b.cu.o": 600.0}])
    progress = Progress(
        Console(out, {}), clock, status=lambda: dict(status), eta=made, tick_s=None
    )
    with progress:
        clock.now = 5
        progress.line("[1/2] Building CUDA object CMakeFiles/x.dir/a.cu.o")
        for clock.now in range(6, 70):
            progress.tick()
    rest = "memory 3.0 of 22.0 GiB; 1 running; longest b.cu 3.0 s"
    assert out.getvalue().splitlines() == [
        f"  [1/2] 30 s, about 10 min left; {rest}",
        f"  [1/2] 1 min 0 s, about 10 min left; {rest}",
    ]


def test_waits_for_another_build() -> None:
    """Before its first compile a build says every half a minute whom it waits for."""
    out, clock = io.StringIO(), Clock()
    status = told(
        ("x.cu.o", "other", 300.0),
        ("y.cu.o", "other", 20.0),
        waiting=[{"object": "a.cu.o", "build": "mine", "seconds": 4.0}],
    )
    status["cores"] = 2
    for one in status["running"]:
        one["pid"] = 77
    progress = Progress(
        Console(out, {}), clock, status=lambda: dict(status), build="mine", tick_s=None
    )
    with progress:
        for clock.now in range(1, 62):
            progress.tick()
        status["running"] = []
        for clock.now in range(62, 130):
            progress.tick()
    rest = "0 running; 1 waiting; waiting: build other (PID 77) holds 2 of 2 places"
    assert out.getvalue().splitlines() == [
        f"  nothing compiled yet, 30 s; memory 3.0 of 22.0 GiB; {rest}",
        f"  nothing compiled yet, 1 min 0 s; memory 3.0 of 22.0 GiB; {rest}",
    ]


def test_github_folds() -> None:
    """On GitHub the lines lie in the folded group of the step, and nothing is drawn."""
    tty, clock = Tty(), Clock()
    console = Console(tty, {"GITHUB_ACTIONS": "true"})
    with console.step("build"), Progress(console, clock, tick_s=None) as progress:
        clock.now = 31
        progress.line("[1/9] Building CXX object a.o")
    start = "::group::build\n  [1/9] a (31 s)\n::endgroup::\n"
    assert tty.getvalue().startswith(start)


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_dumb(term: str) -> None:
    """A terminal that cannot move its cursor gets plain lines, and no codes."""
    tty, clock = Tty(), Clock()
    with Progress(Console(tty, {"TERM": term}), clock, tick_s=None) as progress:
        clock.now = 31
        progress.line("[1/9] Building CXX object a.o")
    assert tty.getvalue() == "  [1/9] a (31 s)\n"


class TestFoot:
    """A terminal."""

    def test_drawn_below(self) -> None:
        """What is said stands above, the build below, and in the end only the first."""
        tty, clock = Tty(), Clock()
        console = Console(tty, {})
        status = told(("d/wide.cu.o", "b1", 61.0), waiting=[{"object": "n.cu.o"}])
        with Progress(console, clock, status=lambda: status, tick_s=None) as progress:
            assert tty.screen()[0] == "  nothing compiled yet (0.0 s)"
            clock.now = 5
            progress.line("[1/9] Building CXX object a.o")
            console.say("one")
            console.mark("ok", "[2/9] two :smile: [bold]")
            progress.tick()
            assert tty.screen() == [
                "one",
                "✓ [2/9] two :smile: [bold]",
                "  ━━━───────────────────────────  1/9  5.0 s",
                "  memory 3.0 of 22.0 GiB  1 running  1 waiting",
                "   1:06   1.0 GiB  d/wide.cu",
            ]
        assert tty.screen() == ["one", "✓ [2/9] two :smile: [bold]"]
        assert console.stream is tty
        console.say("after")
        assert tty.screen()[-1] == "after"

    def test_long_text_is_whole(self) -> None:
        """A long line that is said is not cut, so that it can be copied."""
        tty = Tty()
        console = Console(tty, {})
        with Progress(console, Clock(), tick_s=None):
            console.say("x" * 300)
        assert "x" * 300 in tty.getvalue()

    def test_stderr(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What other parts of us write to stderr stands above, half a line waits."""
        tty = Tty()
        monkeypatch.setattr(sys, "stderr", tty)
        with Progress(Console(None, {}), Clock(), tick_s=None):
            sys.stderr.write("half ")
            assert "half" not in tty.getvalue()
            sys.stderr.write("whole\nrest")
            assert tty.screen()[0] == "half whole"
        assert sys.stderr is tty
        assert tty.screen() == ["half whole", "rest"]

    def test_no_color(self) -> None:
        """Whoever wants no colour gets lines that move and none of its codes."""
        tty = Tty()
        with Progress(Console(tty, {"NO_COLOR": "1"}), Clock(), tick_s=None) as p:
            p.line("[1/9] Building CXX object a.o")
        assert "\033[2K" in tty.getvalue()
        assert not [
            part for part in tty.getvalue().split("\033")[1:] if "m" in part[:6]
        ]

    def test_ascii(self) -> None:
        """A terminal without Unicode gets ASCII."""
        tty = Tty("ascii")
        console = Console(tty, {})
        with Progress(console, Clock(), tick_s=None) as progress:
            progress.line("[1/9] Building CXX object 我.o")
            console.say("我")
            assert tty.screen() == [
                "\\u6211",
                "  ###---------------------------  1/9  0.0 s",
                "  \\u6211",
            ]
        assert tty.getvalue().isascii()

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
    def test_crash(self, error: type[BaseException]) -> None:
        """Whatever ends the build: the lines go, and the cursor was never hidden."""
        tty = Tty()
        console = Console(tty, {})
        with pytest.raises(error), Progress(console, Clock(), tick_s=0.01) as progress:
            progress.line("[1/9] Building CXX object a.o")
            raise error
        assert list(tty.screen()) == []
        assert "\033[?25" not in tty.getvalue()
        assert console.stream is tty
        left = [t for t in threading.enumerate() if t is progress._thread]
        assert not left

    def test_deaf(self) -> None:
        """A terminal that is gone stops nothing."""
        tty = Tty()
        console = Console(tty, {})
        with Progress(console, Clock(), tick_s=None) as progress:
            tty.close()
            progress.line("[1/9] Building CXX object a.o")
            console.say("lost")
        assert console.stream is tty

    def test_without_rich(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where rich is missing one live line does."""
        monkeypatch.setitem(sys.modules, "tools.rig.builds.foot", None)
        tty = Tty()
        with Progress(Console(tty, {}), Clock(), tick_s=None) as progress:
            progress.line("[1/9] Building CXX object a.o")
            assert tty.screen() == ["  [1/9] a (0.0 s)"]
        assert list(tty.screen()) == []


class TestStatus:
    """What the admission says."""

    def test_others(self) -> None:
        """Another build's compiles are not shown as ours."""
        status = told(
            ("a.o", "mine", 1), ("b.o", "other", 2), waiting=[{"object": "c.o"}]
        )
        progress = Progress(
            Console(io.StringIO(), {}), Clock(), status=lambda: status, build="mine"
        )
        view = progress.view()
        assert [c.name for c in view.running or ()] == ["a.o"]
        assert view.waiting == 1

    def test_stale(self) -> None:
        """A status that does not change any more is not shown."""
        clock, status = Clock(), told(("a.o", "", 1))
        progress = Progress(Console(io.StringIO(), {}), clock, status=lambda: status)
        assert progress.view().running
        clock.now = 9
        assert progress.view().running
        clock.now = 11
        view = progress.view()
        assert view.running is None and view.used is None

    def test_cache(self, tmp_path: Path) -> None:
        """Hits are counted from whole lines of a file that is still written."""
        file = tmp_path / "events.jsonl"
        events = Events(file)
        events.read()
        assert (events.hits, events.count) == (0, 0)
        file.write_text('{"cache": "hit"}\n{"cache": ""}\nbroken\n[]\n{"cache": "h')
        events.read()
        assert (events.hits, events.count) == (1, 2)
        with file.open("a") as out:
            out.write('it"}\n')
        events.read()
        events.read()
        assert (events.hits, events.count) == (2, 3)


def test_failure_is_seen_at_once() -> None:
    """A failed compile is said when it fails; ninja waits minutes for the others."""
    out = io.StringIO()
    with Progress(Console(out, {}), Clock(), tick_s=None) as progress:
        for line in (
            "x.cu(3): error: nobody asks for this",
            "  FAILED: [code=1] CMakeFiles/_C.dir/x.cu.o ",
            "nvcc -Werror=all -c x.cu",
            *(f'x.cu({n}): error: identifier "y" is undefined' for n in range(9)),
            "[2/9] Building CXX object b.o",
            "y.cu(1): error: of no failed one",
        ):
            progress.line(line)
    said = out.getvalue().splitlines()
    assert said[0].endswith("FAILED: [code=1] CMakeFiles/_C.dir/x.cu.o")
    assert said[1:] == [
        f'  x.cu({n}): error: identifier "y" is undefined' for n in range(5)
    ]
