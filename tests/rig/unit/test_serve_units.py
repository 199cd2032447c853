# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The text of units."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.unit_plans import HOSTILE, PLAN, TASKS, WISH
from tools.rig.base.errors import CannotError, UsageError
from tools.rig.serve import hardening, unit_text, units
from tools.rig.serve.hardening import Sandbox
from tools.rig.serve.units import Wish


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


def test_description_holds_no_specifier() -> None:
    """A name with a percent sign stays a name in the description."""
    text = unit_text.service(replace(WISH, plan=replace(PLAN, name=HOSTILE)))
    assert "%%h" in next(li for li in text.splitlines() if li.startswith("Description"))
