# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""From typed words to the steps about servers."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tools.rig.base import typed
from tools.rig.base.console import Console
from tools.rig.base.errors import UsageError
from tools.rig.base.state import StateRoot
from tools.rig.serve import record
from tools.rig.steps import (
    capacity,
    commands,
    serve_logs,
    serve_look,
    serve_router,
    serve_status,
    serve_stop,
    serve_tp2,
    serve_unit,
    serving,
)
from tools.rig.tasks import serving as tasks

CLI = {"profile": "", "source": ""}


class Desk:
    """A state root in force, and steps that only note what they are given."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = StateRoot(folder)
        self.console = Console(io.StringIO(), {})
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.patch = patch
        patch.setattr(commands, "root_in_force", lambda: self.root)
        found = SimpleNamespace(root=self.root, environment=folder / "venv")
        patch.setattr(commands, "scene", lambda *args, **how: found)
        self.found = found

    def put(self, module: Any, name: str) -> None:
        """Note the calls of a step instead of doing it."""

        def noted(*args: Any, **how: Any) -> Any:
            self.calls.append((args, how))
            return "done"

        self.patch.setattr(module, name, noted)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Return a desk."""
    return Desk(tmp_path, monkeypatch)


def test_capacity(desk: Desk) -> None:
    """The profile says for which card; without one it is Volta."""
    desk.put(capacity, "capacity")
    words = {"memory": "16", "tp": "2", "pp": "", "utilisation": "", "max_len": ""}
    words |= {"speculative": ""}
    more = {"eager": False, "text_only": False}
    for profile, sm in (("", 70), ("a100-cu118", 80)):
        serving.capacity(desk.console, "/m", "fp8", profile, **words, **more)
        args, how = desk.calls[-1]
        assert args[1] == Path("/m") and how == {"cache_dtype": "fp8", "sm": sm}


def test_what_is_missing(desk: Desk) -> None:
    """A model and a router must be named."""
    with pytest.raises(UsageError, match="which model"):
        serving.capacity(desk.console, "", "", "")
    with pytest.raises(UsageError, match="which router: llama-swap"):
        serving.serve_router(desk.console, "", [], [], {}, output="", **CLI)


class TestStart:
    """``serve-tp2``."""

    def test_checkout(self, desk: Desk) -> None:
        """The environment of the checkout serves; words behind -- arrive whole."""
        desk.put(serve_tp2, "serve_tp2")
        rest = '["--override", "{\\"a\\": 1}"]'
        serving.serve_tp2(desk.console, {"model": "/m"}, rest, **CLI)
        args, how = desk.calls[-1]
        assert args == (desk.console, desk.found, desk.root)
        assert how == {"model": "/m", "rest": ["--override", '{"a": 1}']}

    @pytest.mark.parametrize("option", [{"environment": "/conda"}, {"preset": "list"}])
    def test_no_checkout(self, desk: Desk, option: dict[str, str]) -> None:
        """With an environment that is named none is looked for."""
        desk.put(serve_tp2, "serve_tp2")
        serving.serve_tp2(desk.console, option, "--max-num-seqs 4", **CLI)
        args, how = desk.calls[-1]
        assert args[1] is None and how["rest"] == ["--max-num-seqs", "4"]


class TestLook:
    """``serve-status``, ``serve-stop``, ``serve-logs``."""

    def test_words(self, desk: Desk) -> None:
        """What is typed reaches the steps as numbers and truth."""
        for module, name in (
            (serve_status, "serve_status"),
            (serve_stop, "serve_stop"),
            (serve_logs, "serve_logs"),
        ):
            desk.put(module, name)
        serving.serve_status(desk.console, "m", True, "5", True)
        assert desk.calls[-1][1] == {"deep": False, "watch_s": 5.0, "as_json": True}
        with pytest.raises(UsageError, match="--watch 0"):
            serving.serve_status(desk.console, "", True, "0")
        serving.serve_stop(desk.console, "m", "60")
        assert desk.calls[-1][1] == {"drain": 60.0}
        serving.serve_stop(desk.console, "m", "")
        assert desk.calls[-1][1] == {"drain": None}
        serving.serve_logs(desk.console, "m", True, "9")
        assert desk.calls[-1][1] == {"follow": True, "lines": 9}

    @pytest.mark.parametrize("word", ["soon", "-1", "inf"])
    def test_no_number(self, desk: Desk, word: str) -> None:
        """What is no number is told."""
        with pytest.raises(UsageError, match=f"--drain {word}"):
            serving.serve_stop(desk.console, "", word)

    def test_no_root(self, desk: Desk) -> None:
        """Where nothing was ever started there is nothing to stop."""
        desk.patch.setattr(commands, "root_in_force", lambda: None)
        with pytest.raises(UsageError, match="no server was ever started"):
            serving.serve_stop(desk.console, "", "")


class Plan(str):
    """A plan of which only the words behind the dashes are looked at."""

    rest = ("--a",)


class TestWritten:
    """``serve-unit`` and ``serve-router``."""

    @pytest.fixture
    def planned(self, desk: Desk) -> Desk:
        """Return a desk at which a plan is made and nothing is started."""

        def plan(console: Any, found: Any, root: Any, **how: Any) -> None:
            seams = how["seams"]
            assert seams.machine.port("127.0.0.1", 8000) is None
            assert seams.machine.in_use(None, 0.9) is None
            assert "VLLM_API_KEY" not in how["env"] and "VLLM_OTHER" in how["env"]
            shared = f" on {how['tp']}" if how.get("tp") else ""
            name = Plan(f"plan of {how['model']} at {how.get('port', '')}{shared}")
            seams.start(console, name, root, foreground=False)

        # a unit or a router starts it later, without what only this shell has
        desk.patch.setenv("VLLM_API_KEY", "s3cret")
        desk.patch.setenv("VLLM_OTHER", "1")
        desk.patch.setattr(serve_tp2, "serve_tp2", plan)
        return desk

    def test_unit(self, planned: Desk) -> None:
        """A unit starts the server as it was typed, in absolute paths."""
        planned.put(serve_unit, "serve_unit")
        how = {"look": False, "user": True, "run_as": "", "output": "/out"}
        words = {"model": "/m", "name": "x", "tp": ""}
        serving.serve_unit(planned.console, words, '["--a"]', **how, **CLI)
        args, given = planned.calls[-1]
        assert args[1:3] == ("plan of /m at ", planned.root)
        assert args[3] == ["--model", "/m", "--name", "x"] and args[4] == ("--a",)
        assert given["user"] and given["output"] == Path("/out")
        assert given["ready_s"] == 1800
        words["timeout"] = "7200"
        serving.serve_unit(planned.console, words, "", **how, **CLI)
        assert planned.calls[-1][1]["ready_s"] == 7200

    def test_unit_of_no_preset(self, desk: Desk) -> None:
        """Asked for the presets, the task for units lists them and writes nothing."""
        how = {"look": False, "user": False, "run_as": "", "output": ""}
        words = {"model": "", "preset": "list", "environment": ""}
        done = serving.serve_unit(desk.console, words, "", **how, **CLI)
        assert done.exit_code == 0
        assert [one["name"] for one in done.to_json()][:2] == ["2x16", "2x32"]

    def test_look(self, desk: Desk) -> None:
        """The timer's look needs the name alone."""
        desk.put(serve_look, "serve_look")
        how = {"look": True, "user": False, "run_as": "", "output": ""}
        serving.serve_unit(desk.console, {"name": "x"}, "", **how, **CLI)
        assert desk.calls[-1][0] == (desk.console, desk.root, "x")

    def test_look_at_which(self, desk: Desk) -> None:
        """Without a name the servers are named, and none is taken for granted."""
        how = {"look": True, "user": False, "run_as": "", "output": ""}
        for known, what in (([], "which server\\?"), (["a", "b"], "server: a or b")):
            found = [SimpleNamespace(name=name) for name in known]
            desk.patch.setattr(record, "listing", lambda root, found=found: found)
            with pytest.raises(UsageError, match=what) as told:
                serving.serve_unit(desk.console, {"name": ""}, "", **how, **CLI)
            name = known[0] if known else "NAME"
            assert told.value.hint == f"invoke serve-unit --look --name {name}"

    def test_router(self, planned: Desk) -> None:
        """Models are planned each at a port of its own; running servers are named."""
        planned.put(serve_router, "serve_router")
        planned.patch.setattr(
            "tools.rig.serve.routers.backend.of_plan", lambda plan: plan
        )
        planned.patch.setattr(
            serve_router, "running", lambda root, names: [f"running {names}"]
        )
        words = dict.fromkeys(
            ("name", "host", "port", "api_key_file", "certificate"), ""
        )
        words |= {"certificate_key": "", "memory": "16", "idle": "60"}
        more: dict[str, Any] = {"insecure": False, "environment": "", "tp": "1,2"}
        typed_words = {**words, **more}
        serving.serve_router(
            planned.console,
            "llama-swap",
            [],
            ["/a", "/b"],
            typed_words,
            output="",
            **CLI,
        )
        args, _ = planned.calls[-1]
        assert args[2] == ["plan of /a at 8000 on 1", "plan of /b at 8001 on 2"]
        wish = args[3]
        assert wish.port == 8080 and wish.idle_s == 60 and wish.memory > 15 << 30
        serving.serve_router(
            planned.console, "nginx", ["m"], [], typed_words, output="", **CLI
        )
        assert planned.calls[-1][0][2] == ["running ['m']"]
        typed_words["port"] = "0"
        with pytest.raises(UsageError) as told:
            serving.serve_router(
                planned.console, "nginx", ["m"], [], typed_words, output="", **CLI
            )
        assert told.value.hint == "--port 8080"


def test_words_behind_a_dash() -> None:
    """They arrive as one flag, and only for the tasks that take them."""
    argv = ["invoke", "serve-tp2", "--model", "/m", "--", "--x", '{"a b": 1}']
    words = ["serve-tp2", "--model", "/m"]
    found = typed.rest_as_flag(words, argv, ("serve-tp2",), "--rest")
    assert found == [*words, '--rest=["--x", "{\\"a b\\": 1}"]']
    assert typed.rest_as_flag(words, argv[:4], ("serve-tp2",), "--rest") == words
    assert typed.rest_as_flag(["plan"], argv, ("serve-tp2",), "--rest") == ["plan"]


def test_letters_of_the_log() -> None:
    """The log is followed by the letter that ``tail`` has for it."""
    found = {one.name: one.names for one in tasks.serve_logs.get_arguments()}
    assert found["follow"] == ("follow", "f")
    assert found["name"] == ("name", "n")
