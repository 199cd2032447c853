# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What is looked at before a place is chosen, and in which order."""

from __future__ import annotations

import errno
import os
import pwd
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tools.rig.base import run
from tools.rig.base.config import resolve
from tools.rig.base.errors import CannotError, StepFailed, UsageError
from tools.rig.builds import survey, uv
from tools.rig.builds.survey import Seams
from tools.rig.host.look import Checkout, Disk, Link
from tools.rig.host.pythons import Python
from tools.rig.host.storage import Mount, Rates

MOUNT = Mount(Path("/"), "ext4", "/dev/sda", "rw", "8:1")
PYTHON = Python(Path("/usr/bin/python3.12"), "3.12.3", "PATH")
UID = os.getuid()


class World:
    """A made-up machine that remembers what was asked."""

    def __init__(self, tmp: Path, **changes: Any) -> None:
        self.tmp = tmp
        self.looked: list[tuple[Path, float]] = []
        self.known: list[list[str]] = []
        self.here = Checkout(
            path=Path("/src/main"),
            real=Path("/src/main"),
            place="main-0a1b2c3d",
            owner=UID,
            writable=True,
            link=changes.pop("link", Link("absent")),
            pyproject=changes.pop(
                "pyproject", '[project]\nrequires-python = ">=3.10"\n'
            ),
        )
        self.disks: dict[str, dict[str, Any]] = changes.pop("disks", {})
        self.text: tuple[str | None, str] = changes.pop("text", (None, ""))
        self.answer = changes.pop("answer", "")
        self.searched: list[Any] = []
        program = tmp / "bin" / "uv"
        program.parent.mkdir(exist_ok=True)
        program.touch(mode=0o755)
        path = f"{program.parent}:/bin"
        self.env = {"HOME": "/home/me", "PATH": path, **changes.pop("env", {})}
        self.cli = changes

    def disk(self, path: Path, *, measure_s: float, **how: Any) -> Disk:
        """Stand for `look.disk`."""
        self.looked.append((path, measure_s))
        self.known.append(list(how.get("known", {})))
        good: dict[str, Any] = {"writable": True, "free_bytes": 1 << 40}
        good |= {"free_inodes": 1 << 30, **self.disks.get(str(path), {})}
        return Disk(path, path, MOUNT, **good)

    def search(self, env: Any, uv: Any, *, enough: Any) -> list[Python]:
        """Stand for `pythons.find`."""
        self.searched.append(enough(PYTHON))
        assert not enough(replace(PYTHON, version="3.9.1"))
        return [PYTHON]

    def facts(self, python_too: bool = True, **more: Any) -> Any:
        """Survey this world."""
        seams = Seams(
            disk=self.disk,
            checkout=lambda path: self.here,
            text=lambda file: self.text,
            find_pythons=self.search if python_too else None,
            probe_python=lambda path, origin: replace(PYTHON, path=path),
            run=lambda *a, **k: run.Result((), 0, self.answer, "", 0.1),
            shared=(self.tmp / "scratch", self.tmp / "data"),
            var_tmp=Path("/var/tmp"),
        )
        settings = resolve(self.cli, self.env)
        return survey.facts(
            settings, Path("/src/main"), env=self.env, seams=seams, **more
        )

    def roots(self) -> list[tuple[str, bool]]:
        """Return the places in order and whether the user named them."""
        return [(str(c.root), c.chosen) for c in self.facts().candidates]


DEFAULTS = [
    ("/home/me/.local/state/1cat-rig", False),
    (f"/var/tmp/1cat-rig-{UID}", False),
    (f"/src/.1cat-rig-{UID}", False),
]


def test_no_python_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who makes no environment needs no uv to look at one."""

    def missing(env: Any) -> None:
        raise CannotError("uv is not installed")

    monkeypatch.setattr(uv, "program", missing)
    world = World(tmp_path)
    assert world.facts(python_too=False).pythons == ()
    with pytest.raises(CannotError, match="uv is not"):
        world.facts()


class TestOrder:
    """The places in the order in which they are tried."""

    def test_defaults(self, tmp_path: Path) -> None:
        """State folder, scratch, and the checkout's disk last."""
        assert World(tmp_path).roots() == DEFAULTS

    def test_named_first(self, tmp_path: Path) -> None:
        """What the user names comes before everything."""
        world = World(tmp_path, env={"ONECAT_LOCAL_ROOT": "/fast", "UV_CACHE_DIR": ""})
        assert world.roots() == [("/fast", True), *DEFAULTS]

    def test_who_names_it(self, tmp_path: Path) -> None:
        """Only what a setting names for this run is never replaced."""
        got = World(tmp_path, env={"ONECAT_LOCAL_ROOT": "/fast"}).facts().candidates
        assert got[0].setting == "environment (ONECAT_LOCAL_ROOT)"
        assert {c.setting for c in got[1:]} == {""}
        memory = ('{"root": "/big", "chosen": true}', "")
        got = World(tmp_path, text=memory).facts().candidates
        assert got[0].chosen and got[0].setting == ""

    def test_xdg(self, tmp_path: Path) -> None:
        """XDG_STATE_HOME counts when it is absolute."""
        world = World(tmp_path, env={"XDG_STATE_HOME": "/xdg"})
        assert world.roots()[0] == ("/xdg/1cat-rig", False)
        world = World(tmp_path, env={"XDG_STATE_HOME": "xdg"})
        assert world.roots() == DEFAULTS

    def test_remembered(self, tmp_path: Path) -> None:
        """The earlier choice comes first, and once."""
        world = World(tmp_path, text=('{"root": "/old", "chosen": true}', ""))
        assert world.roots() == [("/old", True), *DEFAULTS]
        world = World(tmp_path, text=('{"root": "/home/me/.local/state/1cat-rig"}', ""))
        assert world.roots() == DEFAULTS

    def test_link_of_another_host(self, tmp_path: Path) -> None:
        """A link into a place of ours tells where other hosts keep it."""
        link = Link("link", "x", "/scratch/me/1cat-rig/venvs/main-0a1b2c3d")
        world = World(tmp_path, link=link)
        assert world.roots() == [("/scratch/me/1cat-rig", False), *DEFAULTS]
        other = Link("link", "x", "/scratch/me/venvs/other-0a1b2c3d")
        assert World(tmp_path, link=other).roots() == DEFAULTS

    def test_shared_scratch(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Site folders count when one of ours is there; a user without a name too."""
        user = pwd.getpwuid(UID).pw_name
        (tmp_path / "data" / user).mkdir(parents=True)
        wanted = (f"{tmp_path}/data/{user}/1cat-rig", False)
        assert wanted in World(tmp_path).roots()

        def nameless(uid: int) -> None:
            raise KeyError(uid)

        monkeypatch.setattr(pwd, "getpwuid", nameless)
        assert World(tmp_path).roots() == DEFAULTS

    def test_a_full_folder_is_not_claimed(self, tmp_path: Path) -> None:
        """In a named folder with other things in it we take one of our own."""
        env = {"ONECAT_LOCAL_ROOT": "/full"}
        full = {"exists": True, "empty": False}
        world = World(tmp_path, env=env, disks={"/full": full})
        assert world.roots()[0] == ("/full/1cat-rig", True)
        ours = {**full, "made": True}
        world = World(tmp_path, env=env, disks={"/full": ours})
        assert world.roots()[0] == ("/full", True)

    def test_no_home(self, tmp_path: Path) -> None:
        """Without HOME the user database tells the home."""
        home = pwd.getpwuid(UID).pw_dir
        assert survey.state_home({}) == Path(home) / ".local" / "state"


class TestFacts:
    """The rest of what is found out."""

    def test_plain(self, tmp_path: Path) -> None:
        """Requirements of the target, disks and Pythons."""
        world = World(tmp_path)
        got = world.facts(measure_s=0.25, need_headers=True)
        assert got.requires_python == ">=3.10" and got.wanted == "3.12"
        assert got.pythons == (PYTHON,) and world.searched == [True]
        assert got.need_headers and got.cache is None and not got.offline
        assert world.looked[-1] == (Path("/src/main"), 0.5)
        assert {seconds for _, seconds in world.looked[:-1]} == {0.25}

    def test_one_disk_is_measured_once(self, tmp_path: Path) -> None:
        """What was measured is handed on to the looks that follow."""
        rates = Rates(1, 2, 3, 4, 5, 6)
        world = World(tmp_path, disks={DEFAULTS[0][0]: {"rates": rates}})
        world.facts()
        assert world.known == [[], ["8:1"], ["8:1"], ["8:1"]]

    def test_cache_of_the_users(self, tmp_path: Path) -> None:
        """Uv's own cache is looked at, not measured."""
        world = World(tmp_path, env={"UV_CACHE_DIR": "/c"})
        assert world.facts().cache.path == Path("/c")
        assert world.looked[-1] == (Path("/c"), 0)

    def test_a_ready_environment_needs_no_search(self, tmp_path: Path) -> None:
        """Where the environment is there, Pythons are not looked for."""
        root = tmp_path / "root"
        environment = root / "venvs" / "main-0a1b2c3d"
        environment.mkdir(parents=True)
        (environment / "pyvenv.cfg").touch()
        env = {"ONECAT_LOCAL_ROOT": str(root)}
        disks = {str(root): {"exists": True, "made": True, "empty": False}}
        world = World(tmp_path, env=env, disks=disks, answer="3 12 3 final 0")
        got = world.facts()
        assert (got.candidates[0].venv, got.candidates[0].version) == (
            "ready",
            "3.12.3",
        )
        assert world.searched == [] and got.pythons == ()

    @pytest.mark.parametrize("state", ["dumb", "bare", "absent"])
    def test_inspect(self, tmp_path: Path, state: str) -> None:
        """An environment that does not answer, or has no cfg, is broken."""
        folder = tmp_path / "v"
        if state != "absent":
            folder.mkdir()
        if state == "dumb":
            (folder / "pyvenv.cfg").touch()
        said = "" if state == "dumb" else "3 12 3 final 0"
        answer = run.Result((), 0, said, "", 0.1)
        got = survey.inspect(folder, lambda *a, **k: answer)
        assert got == ("absent" if state == "absent" else "broken", "")

    @pytest.mark.parametrize(
        ("cfg", "state"),
        [
            ("home = /usr/bin\nversion_info = 3.12.1\n", ("ready", "3.12.1")),
            ("home = /usr/bin\nversion = 3.11.2\n", ("ready", "3.11.2")),
            ("home = /usr/bin\n", ("broken", "")),
            (None, ("broken", "")),
        ],
    )
    def test_a_busy_machine(
        self, tmp_path: Path, cfg: str | None, state: tuple[str, str]
    ) -> None:
        """An environment that does not answer in time is not taken for broken."""
        folder = tmp_path / "venv"
        folder.mkdir()
        if cfg is not None:
            (folder / "pyvenv.cfg").write_text(cfg)
        late = run.Result((), -9, "", "", 20.0, timed_out=True)
        assert survey.inspect(folder, lambda *a, **k: late) == state

    @pytest.mark.parametrize(
        ("code", "said", "state"),
        [
            (-9, "", "ready"),
            (127, f"cannot start x: {os.strerror(errno.ENOMEM)}", "ready"),
            (127, f"cannot start x: {os.strerror(errno.EAGAIN)}", "ready"),
            (127, "cannot start x: there is no such file", "broken"),
            (1, "ModuleNotFoundError: No module named 'encodings'", "broken"),
        ],
    )
    def test_a_machine_at_its_limits(
        self, tmp_path: Path, code: int, said: str, state: str
    ) -> None:
        """One whose Python the kernel ended, or had no room for, is not set aside."""
        folder = tmp_path / "venv"
        folder.mkdir()
        (folder / "pyvenv.cfg").write_text("version_info = 3.12.1\n")
        ended = run.Result((), code, "", said, 0.1)
        assert survey.inspect(folder, lambda *a, **k: ended)[0] == state

    @pytest.mark.parametrize(
        ("given", "path", "wanted", "by_user"),
        [
            ("3.11", None, "3.11", True),
            ("3.11.4", None, "3.11.4", True),
            ("sh", "/bin/sh", "3.12", True),
            ("/bin/sh", "/bin/sh", "3.12", True),
            ("/none/python", "/none/python", "3.12", True),
        ],
    )
    def test_the_users_python(
        self, tmp_path: Path, given: str, path: str | None, wanted: str, by_user: bool
    ) -> None:
        """A version, a name on the path, or a program."""
        got = World(tmp_path, python=given).facts()
        assert (str(got.named.path) if got.named else None) == path
        assert (got.wanted, got.wanted_by_user) == (wanted, by_user)
        if given.startswith("/none"):
            assert got.named.problem == "no such program"

    def test_a_line_break_is_refused(self, tmp_path: Path) -> None:
        """No build tool can quote one."""
        world = World(tmp_path, env={"HOME": "/a\nb"})
        with pytest.raises(UsageError, match="line break"):
            world.facts()


class TestRemembered:
    """The file that keeps the choice."""

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ('{"root": ', ""),
            ("[]", ""),
            ("{}", ""),
            ("7", ""),
            (None, "Permission denied"),
        ],
    )
    def test_cannot_be_read(self, text: str | None, problem: str) -> None:
        """A file that makes no sense is named and left alone."""
        file = Path("/s/root.json")
        with pytest.raises(StepFailed, match="cannot read /s/root.json") as caught:
            survey.remembered_root(file, lambda path: (text, problem))
        assert caught.value.hint == "mv /s/root.json /s/root.json.broken"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('[project]\nrequires-python = ">=3.10"', ">=3.10"),
        ("[project]\n", ""),
        ("project = 3", ""),
        ("not toml", ""),
        ("", ""),
    ],
)
def test_requires_python(text: str, wanted: str) -> None:
    """What cannot be read asks for nothing."""
    assert survey.requires_python(text) == wanted
