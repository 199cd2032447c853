# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The step that writes units, and has them read before people do."""

from __future__ import annotations

import io
import os
import pwd
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.unit_plans import PLAN, START, TASKS
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, ExitCode, UsageError
from tools.rig.base.state import StateRoot
from tools.rig.host.systemd import Systemd
from tools.rig.serve import hardening
from tools.rig.serve.reach import Need, Reached
from tools.rig.serve.unit_check import Checked
from tools.rig.steps import serve_unit as step


class Machine:
    """A machine with a systemd, and an analyser that finds what it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.systemd = Systemd(True, 252)
        self.checked = Checked((), {"rig-qwen.service": 2.4})
        self.stream = io.StringIO()
        self.read: list[Path] = []
        self.asked: tuple[str, list[Path]] = ("", [])
        self.closed = Reached()

    def check(self, files: Sequence[Path], *, user: bool, limit: float) -> Checked:
        """Stand for the analyser."""
        self.read = [*files]
        assert limit == hardening.LIMIT
        return self.checked

    def reached(self, user: str, wanted: Sequence[Need]) -> Reached:
        """Stand for what asks with the rights of the server's user."""
        self.asked = (user, [need.path for need in wanted])
        return self.closed

    def write(self, **more: Any) -> step.Written:
        """Run the step."""
        given: dict[str, Any] = {
            "run_as": "" if more.get("user") else pwd.getpwuid(65534).pw_name,
            "env": {"ONECAT_SOURCE": "/x", "HOME": "/h", "HF_TOKEN": "hf_x"},
            **more,
        }
        return step.serve_unit(
            Console(self.stream, {}),
            PLAN,
            StateRoot(self.folder / "root"),
            ["--model", "/srv/models/qwen"],
            start=START,
            ask=lambda: self.systemd,
            check=self.check,
            reached=self.reached,
            **given,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine with systemd."""
    return Machine(tmp_path)


def test_files_are_written_and_read(machine: Machine) -> None:
    """The files lie in the state root, and the analyser gets them before people do."""
    done = machine.write()
    assert [Path(f) for f in done.files] == machine.read
    assert Path(done.folder) == machine.folder / "root/units/rig-qwen"
    text = Path(done.files[0]).read_text()
    assert "ONECAT_SOURCE=/x" in text
    assert f"ONECAT_LOCAL_ROOT={machine.folder / 'root'}" in text
    assert any("must be able to write there" in note for note in done.notes)
    assert "hf_x" not in text
    assert "--name qwen" in text
    assert done.exit_code == ExitCode.OK
    assert done.to_json()["exposure"] == {"rig-qwen.service": 2.4}
    assert "exposure 2.4" in machine.stream.getvalue()
    assert any("/etc/systemd/system/" in line for line in done.install)


def test_settings_that_stay_behind_are_named(machine: Machine) -> None:
    """What shapes a server by hand and is not in its unit is named, without values."""
    env = {
        "VLLM_SLEEP": "s3cret",
        "CUDA_VISIBLE_DEVICES": "1",
        "VLLM_CACHE_ROOT": "/c",
        "PATH": "/bin",
    }
    done = machine.write(env=env)
    [note] = [note for note in done.notes if "not in the unit" in note]
    assert "CUDA_VISIBLE_DEVICES, VLLM_SLEEP;" in note
    assert "sudo systemctl edit rig-qwen.service" in note
    assert "s3cret" not in note
    assert "VLLM_CACHE_ROOT" not in note
    assert "systemctl --user edit" in " ".join(machine.write(env=env, user=True).notes)
    assert not any("not in the unit" in note for note in machine.write().notes)


def test_secrets_are_never_to_be_edited_in(machine: Machine) -> None:
    """A key of the shell is led to its file, and no advice puts one into a unit."""
    env = {"VLLM_API_KEY": "s3cret", "NCCL_AUTH_TOKEN": "t", "CUDA_VISIBLE_DEVICES": ""}
    notes = machine.write(env=env).notes
    [edit] = [note for note in notes if "systemctl edit" in note]
    assert "CUDA_VISIBLE_DEVICES;" in edit and "KEY" not in edit and "TOKEN" not in edit
    assert any("VLLM_API_KEY is set" in n and "--api-key-file" in n for n in notes)
    assert any("NCCL_AUTH_TOKEN is set" in n and "secret" in n for n in notes)


def test_what_its_user_cannot_reach(machine: Machine) -> None:
    """A server that could not start is told of; so is what nobody could look at."""
    machine.closed = Reached(("nobody cannot read /models/m",))
    done = machine.write()
    assert done.exit_code == ExitCode.FAILED
    assert done.closed == ("nobody cannot read /models/m",)
    assert "nobody cannot read /models/m" in machine.stream.getvalue()
    assert "finds nothing wrong" in machine.stream.getvalue()
    assert machine.asked[0] == pwd.getpwuid(65534).pw_name
    machine.closed = Reached(unknown="root alone can ask")
    done = machine.write()
    assert done.exit_code == ExitCode.OK
    assert "root alone can ask" in done.notes


def test_installing_works_from_anywhere(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is named from here becomes a whole path in the commands."""
    monkeypatch.chdir(machine.folder)
    done = machine.write(output=Path("u u"))
    assert f"'{machine.folder}/u u/rig-qwen.service'" in done.install[0]
    assert done.folder == f"{machine.folder}/u u"


def test_problems_are_a_failure(machine: Machine) -> None:
    """What the analyser finds wrong is told, and the step fails."""
    machine.checked = Checked(("rig-qwen.service:3: nonsense",), {}, "no exposure")
    done = machine.write()
    assert done.exit_code == ExitCode.FAILED
    assert "nonsense" in machine.stream.getvalue()
    assert "no exposure" in machine.stream.getvalue()


def test_user_without_namespaces(machine: Machine) -> None:
    """Where users make no namespaces their units do without, and exposure is no fault.

    For another machine they are written as they should be.
    """
    machine.systemd = Systemd(True, 252, "kernel/x is 0")
    machine.checked = Checked(("rig-qwen.service: exposure 6.5, above 4.0",), {})
    done = machine.write(user=True)
    assert done.problems == ()
    assert "PrivateUsers" not in Path(done.files[0]).read_text()
    assert done.install[0].startswith("install ")
    assert not any("must be able" in note for note in done.notes)
    machine.systemd = Systemd(False, None, "kernel/x is 0")
    there = machine.write(user=True, output=machine.folder / "out")
    assert "PrivateUsers=yes" in Path(there.files[0]).read_text()


def test_without_systemd(machine: Machine) -> None:
    """Where systemd does not run the machine, other ways are told."""
    machine.systemd = Systemd(False, 252)
    with pytest.raises(CannotError) as told:
        machine.write()
    said = "\n".join(told.value.lines())
    assert (
        f"{TASKS} serve-tp2 --model /srv/models/qwen --name qwen --foreground" in said
    )
    assert "105 s" in said
    assert "@reboot" in said


def test_cron_has_its_own_percent(machine: Machine) -> None:
    """Cron ends a command at a percent sign, so it is escaped there."""
    told = step.instead(PLAN, START, ["--model", "/a%b", "--name=x"])
    assert any("@reboot" in line and "/a\\%b" in line for line in told)
    assert not any("--name qwen --name" in line for line in told)


def test_whose_processes_they_are(machine: Machine) -> None:
    """They are those of the state root's owner, or of a user that there is."""
    with pytest.raises(UsageError, match="no user"):
        machine.write(run_as="nobody-of-that-name")
    (machine.folder / "root").mkdir()
    os.chown(machine.folder / "root", os.getuid(), -1)
    if os.getuid() == 0:
        with pytest.raises(UsageError, match="root"):
            machine.write(run_as="")
    else:
        assert machine.write(run_as="").exit_code == ExitCode.OK


def test_own_systemd_runs_nothing_as_another_user(machine: Machine) -> None:
    """--user and --run-as OTHER contradict each other, and nothing is written."""
    me = pwd.getpwuid(os.geteuid()).pw_name
    other = pwd.getpwuid(0 if os.geteuid() else 65534).pw_name
    with pytest.raises(UsageError, match=f"--run-as {other} contradict"):
        machine.write(user=True, run_as=other)
    assert not list(machine.folder.rglob("*.service"))
    made = machine.write(user=True, run_as=me)
    assert not any("User=" in Path(file).read_text() for file in made.files)


def test_options_are_typed_again(tmp_path: Path) -> None:
    """Options become words that mean the same from any folder."""
    given = {
        "model": "m/../qwen",
        "tp": "2",
        "insecure": True,
        "text_only": False,
        "preset": ["a", "b"],
        "api_key_file": None,
        "served_name": "-m",
    }
    assert step.typed(given, tmp_path) == [
        *("--model", f"{tmp_path}/qwen", "--tp", "2", "--insecure"),
        *("--preset", "a", "--preset", "b", "--served-name=-m"),
    ]
    odd = step.typed({"source": "~nobody-here/x"}, tmp_path)
    assert odd == ["--source", f"{tmp_path}/~nobody-here/x"]


def test_launcher() -> None:
    """Tasks are called by an interpreter, wherever one stands."""
    made = step.launcher(Path("/c"), "/p")
    assert made.argv == ("/p", "-m", "invoke", "--search-root", "/c")
