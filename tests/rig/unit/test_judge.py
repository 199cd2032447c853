# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which of several matches is the root cause, and what a log says as a whole."""

from __future__ import annotations

import pytest

from tests.rig.support.entries import entry
from tools.rig.diagnose.entries import Entry
from tools.rig.diagnose.judge import Judgement, judge
from tools.rig.diagnose.match import Matcher

FLAT = entry("flat", "flat tyre")
HOLE = entry("hole", "hole in it")
TAIL = entry("tail", "tail of it", role="consequence")
MEH = entry("meh", "meh", "meh ", role="harmless")
ANY = entry("any", "anything wrong", general=True)


def said(text: str, *entries: Entry) -> Judgement:
    """Return the judgement of a text."""
    return judge(Matcher(entries).read([text.encode()]))


def roles(text: str, *entries: Entry) -> list[tuple[str, str]]:
    """Return the findings as names and roles, in order."""
    return [(f.hit.entry.id, f.role.value) for f in said(text, *entries).findings]


class TestOrder:
    """The root cause comes first."""

    def test_earlier_first(self) -> None:
        """Of two causes the earlier one is the root; both stand by themselves."""
        found = roles("hole in it\nflat tyre\n", FLAT, HOLE)
        assert found == [("hole", "cause"), ("flat", "cause")]

    def test_consequences_and_harmless_follow(self) -> None:
        """Causes, then what follows, then what only looks bad."""
        text = "meh this\ntail of it\nflat tyre\n"
        found = roles(text, TAIL, MEH, FLAT)
        assert found == [
            ("flat", "cause"),
            ("tail", "consequence"),
            ("meh", "harmless"),
        ]

    def test_specific_first(self) -> None:
        """A catch-all that came earlier follows from what is specific."""
        found = roles("anything wrong\nflat tyre\n", ANY, FLAT)
        assert found == [("flat", "cause"), ("any", "consequence")]
        assert roles("anything wrong\n", ANY) == [("any", "cause")]

    def test_same_line(self) -> None:
        """What says less of the root's own line is not told again."""
        less = entry("less", "tyre", "tyre", general=True)
        assert roles("flat tyre\n", less, FLAT) == [("flat", "cause")]

    def test_beats(self) -> None:
        """An entry may know what follows from it."""
        knows = entry("flat", "flat tyre", beats=["hole"])
        found = roles("hole in it\nflat tyre\n", knows, HOLE)
        assert found == [("flat", "cause"), ("hole", "consequence")]

    def test_later_phase_follows(self) -> None:
        """What goes wrong in a later phase follows from what went wrong before."""
        late = entry("late", "late one", phase="serve")
        found = roles("flat tyre\nlate one\n", FLAT, late)
        assert found == [("flat", "cause"), ("late", "consequence")]

    def test_worker_engine_server(self) -> None:
        """A worker's exception beats the engine's, which beats the API server's."""
        text = (
            "(APIServer pid=1) flat tyre\n"
            "(EngineCore pid=2) hole in it\n"
            "(Worker_TP1 pid=3) deep down\n"
        )
        deep = entry("deep", "deep down")
        found = [name for name, _ in roles(text, FLAT, HOLE, deep)]
        assert found == ["deep", "hole", "flat"]

    def test_what_was_raised_stands(self) -> None:
        """The line of the source that raises is no evidence where its words follow."""
        text = '    raise Oops("flat tyre "\nOops: flat tyre now\n'
        found = said(text, FLAT).findings
        assert [finding.hit.line.number for finding in found] == [2]
        cut = said('    raise Oops("flat tyre "\n', FLAT).findings
        assert [finding.hit.line.number for finding in cut] == [1]

    def test_deepest_line_stands(self) -> None:
        """The same failure told by several processes is shown where it happened."""
        text = "(APIServer pid=1) flat tyre\n(Worker pid=3) flat tyre\n"
        (finding,) = said(text, FLAT).findings
        assert finding.hit.line.number == 2
        assert finding.times == 2


class TestSurvived:
    """An error that was followed by success is no cause."""

    @pytest.mark.parametrize(
        ("phase", "success", "verdict"),
        [
            ("fetch", "Successfully installed torch-2.10.0", "healthy"),
            ("compile", "Successfully built x", "healthy"),
            ("serve", "Successfully installed torch-2.10.0", "failure"),
            ("serve", "INFO:     Application startup complete.", "healthy"),
            ("compile", "-- Build files have been written to: /b", "failure"),
            ("configure", "-- Build files have been written to: /b", "healthy"),
            (
                "configure",
                "-- Build files have been written to: /x-subbuild",
                "failure",
            ),
            ("configure", "-- Generating done (0.1s)", "failure"),
            ("run", "INFO:     Application startup complete.", "failure"),
        ],
    )
    def test_success_of_its_phase(self, phase: str, success: str, verdict: str) -> None:
        """The success must be of the same phase or a later one."""
        text = f"flat tyre\n{success}\n"
        flat = entry("flat", "flat tyre", phase=phase)
        assert said(text, flat).verdict.value == verdict

    def test_success_before(self) -> None:
        """Success before the error excuses nothing."""
        text = "Successfully built x\nflat tyre\n"
        assert said(text, FLAT).verdict.value == "failure"

    @pytest.mark.parametrize(
        ("end", "verdict"),
        [
            ("Successfully built x\n", "healthy"),
            ("Successfully built other\nERROR: build stopped\n", "failure"),
            ("Successfully built other\nserver stopped\n", "healthy"),
        ],
    )
    def test_how_it_ended(self, end: str, verdict: str) -> None:
        """A retry may succeed; a success of something else excuses nothing."""
        stopped = entry("stopped", "build stopped", role="consequence")
        later = entry("server", "server stopped", role="consequence", phase="run")
        text = f"flat tyre\nninja: build stopped\n{end}"
        result = said(text, FLAT, stopped, later)
        assert (result.root is not None) is (verdict == "failure")

    def test_silent(self) -> None:
        """A failure that ends in success is one all the same."""
        flat = entry("flat", "flat tyre", silent=True)
        text = "flat tyre\nSuccessfully built x\n"
        assert said(text, flat).verdict.value == "failure"


class TestHarmless:
    """A line that an entry calls harmless excuses others on the same line."""

    def test_claims_its_line(self) -> None:
        """The entry that knows better wins, and the log is healthy."""
        known = entry("known", "^meh flat tyre", "meh ", role="harmless")
        assert roles("meh flat tyre\n", known, FLAT) == [("known", "harmless")]
        assert said("meh flat tyre\n", known, FLAT).verdict.value == "healthy"

    def test_unless_beaten(self) -> None:
        """A cause that names the harmless entry is the more exact one."""
        known = entry("known", "^meh flat tyre", "meh ", role="harmless")
        exact = entry("flat", "flat tyre", beats=["known"])
        assert roles("meh flat tyre\n", known, exact)[0] == ("flat", "cause")


class TestUnknown:
    """A failure that no entry explains is never guessed at."""

    def test_telling_lines(self) -> None:
        """The lines that tell most come first, at most a handful."""
        text = "ninja: build stopped.\nx.cu(3): error: oh\nValueError: no\n" * 9
        result = said(text, FLAT)
        assert result.verdict.value == "unknown"
        assert result.root is None
        assert result.telling[0].text == "x.cu(3): error: oh"
        assert len(result.telling) == 8

    @pytest.mark.parametrize(
        ("last", "verdict"),
        [
            ("httpx.ConnectTimeout: timed out", "unknown"),
            ("shop.Sold: out of it", "unknown"),
            ("KeyboardInterrupt", "healthy"),
            ("starlette.requests.ClientDisconnect", "healthy"),
        ],
    )
    def test_exceptions_of_any_name(self, last: str, verdict: str) -> None:
        """What a traceback ends with is a failure, whatever its name."""
        text = f'Traceback (most recent call last):\n  File "a", line 1\n{last}\n'
        assert said(text, FLAT).verdict.value == verdict

    def test_only_a_consequence(self) -> None:
        """A consequence without its cause is not a cause."""
        result = said("tail of it\n", TAIL)
        assert result.verdict.value == "unknown"
        assert [f.role.value for f in result.findings] == ["consequence"]

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "all is well\n",
            "meh error: something\n",
            "old.module.FutureWarning: x\n",
            "x.cu(3): error: oh\nSuccessfully built x\n",
        ],
    )
    def test_healthy(self, text: str) -> None:
        """Nothing wrong, known to be harmless, or survived."""
        assert said(text, MEH).verdict.value == "healthy"
