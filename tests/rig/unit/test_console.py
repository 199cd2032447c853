# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What people see on terminals, in files and on GitHub."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from tools.rig.base import console as module
from tools.rig.base import streams
from tools.rig.base.console import Console, print_json


class Screen(io.TextIOWrapper):
    """A stream of a chosen encoding that may claim to be a terminal."""

    def __init__(self, *, tty: bool = False, encoding: str = "utf-8") -> None:
        self.raw_bytes = io.BytesIO()
        super().__init__(self.raw_bytes, encoding=encoding, newline="")
        self._tty = tty

    def isatty(self) -> bool:
        """Say what was asked for."""
        return self._tty

    def text(self) -> str:
        """Return all that was written."""
        self.flush()
        return self.raw_bytes.getvalue().decode(self.encoding)


class TestColour:
    """Colour is for terminals of people who want it."""

    @pytest.mark.parametrize(
        ("tty", "env", "coloured"),
        [
            (True, {}, True),
            (True, {"NO_COLOR": ""}, True),
            (True, {"NO_COLOR": "1"}, False),
            (True, {"TERM": "dumb"}, False),
            (False, {}, False),
        ],
    )
    def test_when(self, tty: bool, env: dict[str, str], coloured: bool) -> None:
        """Escape codes are written exactly when the rules allow it."""
        screen = Screen(tty=tty)
        Console(screen, env).mark("ok", "done")
        assert ("\033[32m" in screen.text()) is coloured
        assert screen.text().endswith(" done\n")

    def test_signs(self) -> None:
        """Each state has a sign that is told apart without colour."""
        screen = Screen()
        for status in ("ok", "warn", "fail", "skip", "unknown"):
            Console(screen, {}).mark(status, status)
        assert screen.text() == "✓ ok\n! warn\n✗ fail\n- skip\n? unknown\n"

    def test_plain_signs(self) -> None:
        """A stream without Unicode gets ASCII, and other letters escaped."""
        screen = Screen(encoding="ascii")
        console = Console(screen, {})
        console.mark("ok", "done")
        console.mark("fail", "我")
        assert screen.text() == "+ done\nx \\u6211\n"


class TestSay:
    """Plain lines."""

    def test_masks_secrets(self) -> None:
        """Nothing that is printed holds a secret."""
        screen = Screen()
        Console(screen, {}).say("HF_TOKEN=abc")
        assert screen.text() == "HF_TOKEN=***\n"

    @pytest.mark.parametrize(
        ("env", "said"),
        [
            ({}, "hint: invoke doctor"),
            ({"RIG_TASK": ""}, "hint: invoke doctor"),
            ({"RIG_TASK": "tools/nox -s task --"}, "hint: tools/nox -s task -- doctor"),
        ],
    )
    def test_hints_can_be_typed(self, env: dict[str, str], said: str) -> None:
        """Where invoke is at hand inside tools/nox only, hints go through that."""
        out = io.StringIO()
        Console(out, env).say("hint: invoke doctor")
        assert out.getvalue() == f"{said}\n"

    def test_stderr_is_for_people(self, capsys: pytest.CaptureFixture[str]) -> None:
        """By default people's text goes to stderr, and stdout stays empty."""
        Console().say("x")
        Console().say()
        assert capsys.readouterr() == ("", "x\n\n")

    def test_bytes_that_are_no_utf8(self) -> None:
        """The name of an old file does not break the screen."""
        screen = Screen()
        Console(screen, {}).say("x\udcff")
        assert screen.text() == "x\\udcff\n"


class TestDeaf:
    """Streams that take nothing."""

    def test_full(self) -> None:
        """Words that find no place are lost, and the step they frame goes on."""
        done = []
        with open("/dev/full", "w") as screen:
            console = Console(screen, {})
            with console.step("build"):
                console.live("1 of 2")
                done.append(True)
            streams.to_nowhere(screen.fileno())
        assert done

    def test_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A stream that is closed meanwhile, or was before Python began, is as good."""
        screen = Screen()
        console = Console(screen, {})
        screen.close()
        console.say("x")
        monkeypatch.setattr(sys, "stderr", None)
        Console().say()
        assert sys.stderr is not None

    @pytest.mark.parametrize("stream", ["closed", "none"])
    def test_data(self, monkeypatch: pytest.MonkeyPatch, stream: str) -> None:
        """Data that finds no place is an error, since somebody asked for it."""
        screen = Screen()
        screen.close()
        monkeypatch.setattr(sys, "stdout", None)
        with pytest.raises(OSError, match="Bad file descriptor"):
            print_json({}, screen if stream == "closed" else None)


class TestSteps:
    """Steps and their durations."""

    def test_frame(self) -> None:
        """A step shows its title and how long it took."""
        screen = Screen()
        console = Console(screen, {})
        with console.step("build"):
            console.say("  inside")
        first, inside, last = screen.text().splitlines()
        assert (first, inside) == ("> build", "  inside")
        assert last.startswith("✓ build (") and last.endswith(" s)")

    @pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
    def test_failed(self, kind: type[BaseException]) -> None:
        """A failed or interrupted step says so and passes the error on."""
        screen = Screen()
        with pytest.raises(kind), Console(screen, {}).step("build"):
            raise kind
        assert screen.text().splitlines()[-1].startswith("✗ build (")


class TestGitHub:
    """Logs of a GitHub runner."""

    ENV = {"GITHUB_ACTIONS": "true"}

    def test_groups_do_not_nest(self) -> None:
        """Only the outer step folds, and results are seen while it is folded."""
        screen = Screen()
        console = Console(screen, self.ENV)
        with console.step("outer\nname"), console.step("inner"):
            pass
        lines = [line.split(" (")[0] for line in screen.text().splitlines()]
        assert lines == [
            "::group::outer name",
            "> inner",
            "✓ inner",
            "::endgroup::",
            "✓ outer",
            "name",
        ]

    def test_output_gives_no_orders(self) -> None:
        """A line of somebody's output is not obeyed by the runner."""
        screen = Screen()
        Console(screen, self.ENV).say("a\n ::set-env name=X::y\nb::c")
        assert screen.text() == "a\n : :set-env name=X::y\nb::c\n"
        screen = Screen()
        Console(screen, {}).say("::x")
        assert screen.text() == "::x\n"


class TestLive:
    """The line that is replaced."""

    def test_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A shorter line covers the longer one, and the next print takes it away."""
        screen = Screen(tty=True)
        monkeypatch.setattr(module, "_width", lambda stream: 80)
        console = Console(screen, {})
        console.live("12 of 99")
        console.live("done\nand more")
        console.say("x")
        assert screen.text() == "\r12 of 99\rdone    \r    \rx\n"

    def test_wide_letters_fit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A line never wraps: a Chinese letter takes two columns."""
        screen = Screen(tty=True)
        monkeypatch.setattr(module, "_width", lambda stream: 6)
        Console(screen, {}).live("编译编译")
        assert screen.text() == "\r编译"

    def test_elsewhere(self) -> None:
        """A file gets no such lines."""
        screen = Screen()
        Console(screen, {}).live("x")
        assert screen.text() == ""

    def test_width(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The terminal is asked; a stream that is none has 80 columns."""
        assert module._width(io.StringIO()) == 80
        size = os.terminal_size((33, 10))
        monkeypatch.setattr(os, "get_terminal_size", lambda fd: size)
        with open(os.devnull) as null:
            assert module._width(null) == 33


class TestWords:
    """Numbers as people say them."""

    @pytest.mark.parametrize(
        ("seconds", "said"),
        [
            (0.44, "0.4 s"),
            (9.97, "10 s"),
            (12.3, "12 s"),
            (59.7, "1 min 0 s"),
            (200, "3 min 20 s"),
            (5640, "1 h 34 min"),
        ],
    )
    def test_duration(self, seconds: float, said: str) -> None:
        """Two units at most."""
        assert module.duration(seconds) == said

    @pytest.mark.parametrize(
        ("n", "said"),
        [
            (12, "12 B"),
            (2048, "2 KiB"),
            (221 << 20, "221 MiB"),
            (7.3 * 2**30, "7.3 GiB"),
            (2**50, "1048576.0 GiB"),
        ],
    )
    def test_size(self, n: float, said: str) -> None:
        """Binary units up to GiB."""
        assert module.size(n) == said

    def test_table(self) -> None:
        """Columns line up, also with letters that are twice as wide."""
        rows = [["编译", "ok"], ["a", "a longer one"]]
        assert module.table(["name", "is"], rows) == [
            "name  is",
            "编译  ok",
            "a     a longer one",
        ]

    def test_cells(self) -> None:
        """A combining accent takes no column of its own."""
        assert module.cells("e\u0301") == 1
        assert module.cells("ü") == 1


class TestJson:
    """Data for programs."""

    def test_stdout_holds_one_document(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Keys are sorted, secrets masked by shape and by name, paths are text."""
        print_json(
            {
                "b": ["https://u:p@h/", Path("/x"), 1, True, None],
                "a": {"HF_TOKEN": "abc", "n": (1.5, float("nan"))},
            }
        )
        out, err = capsys.readouterr()
        assert err == ""
        assert json.loads(out) == {
            "a": {"HF_TOKEN": "***", "n": [1.5, None]},
            "b": ["https://***@h/", "/x", 1, True, None],
        }
        assert out.index('"a"') < out.index('"b"')

    def test_letters(self) -> None:
        """Letters stay readable where the stream can show them."""
        wide, narrow = Screen(), Screen(encoding="ascii")
        print_json({"x": "我"}, wide)
        print_json({"x": "我"}, narrow)
        assert "我" in wide.text()
        assert json.loads(narrow.text()) == {"x": "我"}

    def test_no_utf8(self) -> None:
        """A file name that is no UTF-8 is escaped instead of breaking the document."""
        screen = Screen()
        print_json({"x": "\udcff"}, screen)
        assert json.loads(screen.text()) == {"x": "\udcff"}
