# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The text of units, and the step that writes them."""

from __future__ import annotations

import io
import os
import pwd
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.unit_plans import HOSTILE, PLAN
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, ExitCode, UsageError
from tools.rig.base.state import StateRoot
from tools.rig.host.systemd import Systemd
from tools.rig.serve import hardening, unit_text, units
from tools.rig.serve.hardening import Sandbox
from tools.rig.serve.reach import Need, Reached
from tools.rig.serve.unit_check import Checked
from tools.rig.serve.units import Launcher, Wish
from tools.rig.steps import serve_unit as step

START = Launcher(("/opt/python", "-m", "invoke"), Path("/opt/checkout"))
ROOT = Path("/srv/state")
WISH = Wish(PLAN, START, ("--model", "/srv/models/qwen", "--tp", "2"), ROOT, "llm")
TASKS = "/opt/python -m invoke"


def lines(wish: Wish, kind: str = "qwen.service") -> list[str]:
    """Return the lines of one of the files."""
    return units.plan(wish).files[f"rig-{kind}"].splitlines()


def test_service() -> None:
    """The service runs the task in the foreground, as its user, and not for ever."""
    text = lines(replace(WISH, extra=("--max-model-len", "4096")))
    command = f"ExecStart={TASKS} serve-tp2 --model /srv/models/qwen --tp 2"
    assert f'{command} --foreground "--" --max-model-len 4096' in text
    assert {"User=llm", "Restart=on-failure", "KillMode=mixed"} <= {*text}
    assert {"StartLimitBurst=5", "StartLimitIntervalSec=9075"} <= {*text}
    assert "RestartPreventExitStatus=2 3" in text
    assert "WantedBy=multi-user.target" in text


@pytest.mark.parametrize("drain", [0, 60, 600])
def test_stop_waits_longer_than_the_drain(drain: int) -> None:
    """Systemd kills nothing that still lets requests finish."""
    text = lines(replace(WISH, plan=replace(PLAN, drain_s=drain)))
    found = next(line for line in text if line.startswith("TimeoutStopSec="))
    assert int(found.split("=")[1]) >= drain + 31


def test_look() -> None:
    """The look runs as the server's user; what may follow it restarts a running one."""
    text = lines(WISH, "qwen-look.service")
    assert f"ExecCondition={TASKS} serve-unit --look --name qwen" in text
    control = "systemctl --no-block try-restart rig-qwen.service"
    assert f"ExecStart=+/usr/bin/env {control}" in text
    assert "User=llm" in text
    assert "OnUnitInactiveSec=5min" in lines(WISH, "qwen-look.timer")


def test_units_of_a_user() -> None:
    """A user's own units name no user and ask for nothing that is the system's."""
    wish = replace(WISH, user=True, run_as="")
    text = [*lines(wish), *lines(wish, "qwen-look.service")]
    begins = ("User=", "IPAddress", "Device", "TemporaryFileSystem=", "After=network")
    assert not [line for line in text if line.startswith(begins)]
    assert "PrivateUsers=yes" in text
    assert "WantedBy=default.target" in text
    again = "systemctl --user --no-block try-restart rig-qwen.service"
    assert f"ExecStart=/usr/bin/env {again}" in text


def test_notes_of_a_users_units() -> None:
    """Only units of the system promise that packets stay; others say they may go."""
    own = " ".join(units.plan(replace(WISH, user=True, run_as="")).notes)
    assert "packets may leave this machine" in own and "packets stay" not in own
    for part in ("no device is closed", "/dev/shm is everybody's"):
        assert part in own
    ours = " ".join(units.plan(WISH).notes)
    assert "packets stay on this machine" in ours and "may leave" not in ours


def test_packets_stay_here() -> None:
    """A server that listens on this machine alone reaches nobody else either."""
    here = lines(WISH)
    assert {"IPAddressDeny=any", "Environment=NCCL_SOCKET_IFNAME=lo"} <= {*here}
    open_ = lines(replace(WISH, plan=replace(PLAN, host="0.0.0.0")))
    assert not [line for line in open_ if "IPAddress" in line or "IFNAME" in line]
    after = next(line for line in open_ if line.startswith("After="))
    assert "network-online.target" in after


def test_devices() -> None:
    """Cards stay reachable, and without cards no device is."""
    assert "DeviceAllow=char-nvidia* rw" in lines(WISH)
    bare = lines(replace(WISH, plan=replace(PLAN, cards=())))
    assert "DevicePolicy=closed" in bare
    assert not [line for line in bare if "nvidia" in line]


def test_steps_of_the_back_off() -> None:
    """A systemd that can wait longer each time is told to; an older one is not."""
    assert "RestartSteps=4" in lines(replace(WISH, systemd=254))
    assert "RestartSteps=4" not in lines(replace(WISH, systemd=252))
    assert "RestartSteps=4" not in lines(WISH)


def test_variables_of_the_plan_win() -> None:
    """What the plan sets itself is not set by the unit as well."""
    plan = replace(PLAN, env={"VLLM_CACHE_ROOT": "/fast"})
    text = "\n".join(lines(replace(WISH, plan=plan, env={"ONECAT_SOURCE": "/a b%"})))
    assert "VLLM_CACHE_ROOT" not in text
    assert 'Environment="ONECAT_SOURCE=/a b%%"' in text


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"extra": ("--api-key", "sesame")}, UsageError, "secret"),
        ({"env": {"ONECAT_TOKEN": "sesame"}}, UsageError, "secret"),
        ({"run_as": "root"}, UsageError, "root"),
        ({"run_as": ""}, UsageError, "root"),
        ({"systemd": 239}, CannotError, "too old"),
        ({"plan": replace(PLAN, port=80)}, UsageError, "port 80"),
        (
            {"options": ("--model", "/a\nb")},
            UsageError,
            "value of --model holds a line",
        ),
        (
            {"extra": ("--served-name=a\nb",)},
            UsageError,
            "value of --served-name holds",
        ),
        ({"env": {"ONECAT_X": "a\rb"}}, UsageError, "ONECAT_X.* holds a line break"),
    ],
)
def test_refusals(changes: dict[str, Any], kind: type[Exception], words: str) -> None:
    """What would be unsafe, or would not work, is not written."""
    with pytest.raises(kind, match=words):
        units.plan(replace(WISH, **changes))


def test_names() -> None:
    """Names become names of units, and two that differ stay apart."""
    assert units.unit_name("qwen-2.5") == "rig-qwen-2.5"
    odd = {units.unit_name(name) for name in ("a b", "a/b", "a%b", "x" * 300)}
    assert len(odd) == 4
    assert all(len(name) < 120 and "%" not in name for name in odd)


def test_words_of_a_unit() -> None:
    """Words are quoted by systemd's rules (systemd.service(5), systemd.syntax(7))."""
    assert hardening.word("plain-word_1.2/x") == "plain-word_1.2/x"
    assert hardening.word('a "b" \\ %h') == '"a \\"b\\" \\\\ %%h"'
    assert hardening.word("$HOME", command=True) == '"$$HOME"'
    assert hardening.word("$HOME") == '"$HOME"'
    assert hardening.word(";") == '";"'
    assert hardening.word("") == '""'
    assert hardening.word("é\t\udcff") == '"é\\x09\\xff"'


def test_program_that_systemd_would_not_take() -> None:
    """A path with quotes or a dollar is handed to env, which takes all."""
    assert hardening.command(["/a b/python", "$x"]) == '"/a b/python" "$$x"'
    assert hardening.command(["/a$/p", "x"]) == '/usr/bin/env "/a$$/p" x'


def test_tmp_stays_where_it_is_needed() -> None:
    """A unit whose files lie in /tmp keeps the machine's own."""
    root = Path("/srv/rig")
    own = Sandbox(writable=(root,)).lines()
    assert "PrivateTmp=yes" in own
    assert "ReadWritePaths=/srv/rig" in own
    machines = Sandbox(writable=(root,), read=(Path("/tmp/model"),)).lines()
    assert "PrivateTmp=yes" not in machines
    # Python ends where there is no temporary folder to write to
    assert "ReadWritePaths=/srv/rig /tmp /var/tmp" in machines


def test_a_size_in_percent() -> None:
    """Mount options are no place where systemd reads ``%%`` as ``%``."""
    assert "TemporaryFileSystem=/dev/shm:mode=1777,size=50%" in Sandbox().lines()


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


def test_description_holds_no_specifier() -> None:
    """A name with a percent sign stays a name in the description."""
    text = unit_text.service(replace(WISH, plan=replace(PLAN, name=HOSTILE)))
    assert "%%h" in next(li for li in text.splitlines() if li.startswith("Description"))
