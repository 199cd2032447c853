# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What is in a server's way, all of it and before it is started; and the whole step."""

from __future__ import annotations

import io
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.made_model import LLAMA, llama_tensors, write
from tests.rig.support.made_parser import FORK, GIB, TWO, card, gpus
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, ExitCode, InUseError, UsageError
from tools.rig.base.state import StateRoot
from tools.rig.builds import generations
from tools.rig.builds.generation import Generation, mark_text
from tools.rig.host.gpu import Gpus
from tools.rig.host.memory import Memory
from tools.rig.serve import preflight
from tools.rig.serve.folder import Problem
from tools.rig.serve.plan import ServePlan
from tools.rig.steps import serve_tp2 as step

ROOM = Memory(64 * GIB, 64 * GIB, None, "", 64 * GIB)
MACHINE = preflight.Seams(
    port=lambda host, port: None, shm_free=lambda: GIB, memory=lambda: ROOM
)


@dataclass
class Desk:
    """A model and an environment, and what was said and started."""

    path: Path
    said: io.StringIO
    started: list[tuple[ServePlan, dict[str, Any]]]
    machine: preflight.Seams = MACHINE
    cards: Gpus = TWO

    @property
    def root(self) -> StateRoot:
        """The state root."""
        return StateRoot(self.path / "root")

    def serve(self, *rest: str, env: dict[str, str] | None = None, **how: Any) -> Any:
        """Run the step."""

        def start(console: Console, plan: ServePlan, root: Any, **more: Any) -> str:
            self.started.append((plan, more))
            return "served"

        how = {"model": str(self.path / "m"), "environment": self.environment, **how}
        return step.serve_tp2(
            Console(self.said, env={}),
            how.pop("scene", None),
            self.root,
            rest=rest,
            env=env or {},
            seams=step.Seams(
                gpus=lambda: self.cards,
                ask=lambda *args, **more: FORK,
                start=start,
                machine=self.machine,
            ),
            **how,
        )

    @property
    def environment(self) -> str:
        """The folder of the environment."""
        return str(self.path / "e")

    def refused(self, *rest: str, **how: Any) -> Any:
        """Return the error that the step ends with; nothing must be started."""
        with pytest.raises((UsageError, CannotError, InUseError)) as caught:
            self.serve(*rest, **how)
        assert self.started == []
        return caught.value


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return a desk where all is well."""
    write(tmp_path / "m", LLAMA, llama_tensors())
    (tmp_path / "e/bin").mkdir(parents=True)
    (tmp_path / "e/bin/python").touch()
    return Desk(tmp_path, io.StringIO(), [])


def test_all_is_well(desk: Desk) -> None:
    """What is asked for reaches the start, with the environment's real folder."""
    (desk.path / "link").symlink_to("e")
    done = desk.serve(
        *("--max-num-seqs", "2"),
        environment=str(desk.path / "link"),
        timeout="90",
        foreground=True,
    )
    assert done == "served"
    plan, more = desk.started[0]
    assert plan.python == Path(os.path.realpath(desk.path)) / "e/bin/python"
    assert plan.argv[-2:] == ("--max-num-seqs", "2")
    assert more == {"foreground": True, "timeout": 90.0}
    assert "not built here" in desk.said.getvalue()


def test_everything_at_once(desk: Desk) -> None:
    """A wrong option, a full card, a taken port and little shared memory: one error."""
    desk.cards = gpus(card(0, used=12), card(1))
    desk.machine = replace(
        MACHINE,
        port=lambda host, port: Problem(f"port {port} is taken", "--port 8002"),
        shm_free=lambda: 64 << 20,
    )
    error = desk.refused("--no-such")
    assert error.code == ExitCode.USAGE
    text = "\n".join(error.lines())
    for part in (
        "4 things are in the way",
        "no option --no-such",
        "card 0 has 4.0 GiB free of 16.0 GiB, and vLLM will ask for 14.7 GiB (used by",
        "port 8000 is taken (hint: --port 8002",
        "/dev/shm has 64 MiB free, and 2 workers want about 224 MiB",
        "--gpu-memory-utilization 0.25",
    ):
        assert part in text
    assert "no option --no-such" in desk.said.getvalue()


def test_one_thing_is_told_with_its_hint(desk: Desk) -> None:
    """One thing in the way of the machine ends with 3 and what to do."""
    desk.machine = replace(MACHINE, shm_free=lambda: None)
    error = desk.refused()
    assert error.code == ExitCode.CANNOT
    assert "no /dev/shm" in error.what and "remount" in error.hint
    assert desk.serve(tp="1") == "served"


def test_what_others_have_may_be_free_later(desk: Desk) -> None:
    """A taken port and a full card end with 4, at which a unit tries again; 3 wins."""
    desk.cards = gpus(card(0, used=12), card(1))
    desk.machine = replace(
        MACHINE, port=lambda host, port: Problem("taken", "--port 8002", busy=True)
    )
    with pytest.raises(InUseError, match="2 things are in the way") as caught:
        desk.serve()
    assert caught.value.code == ExitCode.IN_USE
    assert desk.serve(show=True).exit_code == ExitCode.IN_USE
    desk.machine = replace(desk.machine, shm_free=lambda: None)
    assert desk.refused().code == ExitCode.CANNOT
    assert desk.refused("--no-such").code == ExitCode.USAGE


def test_a_model_that_cannot_be_divided(desk: Desk) -> None:
    """Heads that three cards cannot share are told before three cards are taken."""
    desk.cards = gpus(card(0), card(1), card(2))
    error = desk.refused(tp="3")
    assert "8 attention heads cannot be divided by --tp 3" in error.what


def test_a_model_too_large(desk: Desk) -> None:
    """Weights that no card of these can hold are told, with the way to look closer."""
    desk.cards = gpus(card(0, gib=0.0005), card(1, gib=0.0005))
    error = desk.refused()
    assert "the weights take" in error.what and "invoke capacity" in error.hint


def test_a_context_too_long_is_a_note(desk: Desk) -> None:
    """What only an estimate says against it does not keep it from starting."""
    desk.cards = gpus(card(0, gib=0.5), card(1, gib=0.5))
    assert desk.serve("--kv-cache-dtype", "fp8_e5m2") == "served"
    assert "by estimate it does not fit" in desk.said.getvalue()


@pytest.mark.parametrize(
    ("value", "is_wrong"),
    [
        ('{"method": "mtp", "num_speculative_tokens": 4}', True),
        ('{"method": "mtp", "model": "/d", "num_speculative_tokens": 4}', False),
        ('{"method": "ngram", "num_speculative_tokens": 4}', False),
        ("[]", False),
    ],
)
def test_drafts_need_layers(desk: Desk, value: str, is_wrong: bool) -> None:
    """A model without layers for it cannot draft its own tokens."""
    words = ("--speculative-config", value)
    if is_wrong:
        assert "no layers for multi-token" in desk.refused(*words).what
    else:
        assert desk.serve(*words) == "served"
    text = {**LLAMA, "text_config": {"mtp_num_hidden_layers": 1}}
    (desk.path / "m/config.json").write_text(json.dumps(text))
    desk.started.clear()
    assert desk.serve(*words) == "served"


def test_cards_that_do_not_tell(desk: Desk) -> None:
    """A card whose memory is not known is no reason not to start."""
    desk.cards = gpus(replace(card(0), used=None), replace(card(1), total=None))
    assert desk.serve() == "served"
    assert "how much of card 0 is free is not known" in desk.said.getvalue()


def test_a_share_that_is_asked_for(desk: Desk) -> None:
    """A smaller share of the memory is enough where a card is in use."""
    desk.cards = gpus(card(0, used=7), card(1))
    assert desk.serve("--gpu-memory-utilization", "0.5") == "served"
    desk.started.clear()
    assert "card 0 has" in desk.refused("--gpu-memory-utilization", "0.7").what


def test_a_card_that_is_full(desk: Desk) -> None:
    """Where nearly nothing is free, other cards are the way out."""
    desk.cards = gpus(card(0, used=15.5), card(1))
    assert "--cards with free ones" in desk.refused().hint


def test_variables_are_told(desk: Desk) -> None:
    """A variable that the installed vLLM does not know is a warning."""
    assert desk.serve(env={"VLLM_USE_V1": "1"}) == "served"
    assert "VLLM_USE_V1 does nothing" in desk.said.getvalue()


def test_only_shown(desk: Desk) -> None:
    """A plan can be seen without a start, with everything against it."""
    shown = desk.serve(show=True, preset="2x16,text-only", name="mine")
    assert desk.started == [] and shown.exit_code == ExitCode.OK
    data = shown.to_json()
    assert data["plan"]["name"] == "mine"
    assert {p["level"] for p in data["problems"]} == {"note"}, data["problems"]
    said = desk.said.getvalue()
    assert "preset 2x16: two V100 with 16 GB" in said
    assert "for a hunt: VLLM_LOGGING_LEVEL=DEBUG" in said
    assert "RELEASE.md" in said and "CUDA_VISIBLE_DEVICES=0,1" in said
    assert desk.serve("--zzzz", show=True).exit_code == ExitCode.USAGE
    desk.cards = Gpus("absent", "no driver")
    assert desk.serve(show=True).exit_code == ExitCode.CANNOT


def test_presets_are_listed(desk: Desk) -> None:
    """The word list shows all presets, and needs neither model nor environment."""
    shown = desk.serve(preset="list", model="", environment="")
    assert len(shown.to_json()) == 7
    assert "preset mtp" in desk.said.getvalue()


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ({"model": ""}, "which model"),
        ({"model": "/no/such/model"}, "no model folder"),
        ({"environment": ""}, "which environment"),
        ({"environment": "/no/such/place"}, "no environment at"),
        ({"tp": "two"}, "--tp two is not a whole number"),
        ({"port": "70000"}, "--port 70000"),
        ({"drain": "soon"}, "--drain soon"),
        ({"timeout": "90000"}, "--timeout 90000"),
        ({"preset": "none"}, "no preset none"),
        ({"name": "../up"}, "cannot be called"),
        ({"api_key_file": "/no/such/key"}, "no key in /no/such/key"),
        ({"model": "~nobody-here/m"}, "no home folder of that name"),
        ({"environment": "~nobody-here/v"}, "no home folder of that name"),
        ({"api_key_file": "~nobody-here/k"}, "no home folder of that name"),
    ],
)
def test_what_was_typed_wrong(desk: Desk, how: dict[str, str], what: str) -> None:
    """A word that cannot be is a fault of usage, told before anything is asked."""
    error = desk.refused(**how)
    assert error.code == ExitCode.USAGE
    assert what in error.what


def test_a_key_never_stands_in_the_command(desk: Desk) -> None:
    """The key's file is in the plan, and the key itself nowhere."""
    key = desk.path / "key"
    key.write_text("open-sesame\n")
    key.chmod(0o600)
    desk.serve(host="0.0.0.0", api_key_file=str(key), drain="30")
    plan, _ = desk.started[0]
    assert plan.api_key_file == key and plan.drain_s == 30
    assert "open-sesame" not in repr(plan) + desk.said.getvalue()


def generation(desk: Desk, **mark: Any) -> Path:
    """Return a generation with such a mark."""
    folder = desk.root.generations / "p" / "g1"
    folder.mkdir(parents=True, exist_ok=True)
    text = mark_text(Generation("g1", folder, **mark))
    (folder / generations.MARK).write_text(text)
    return Path(os.path.realpath(folder))


def test_what_is_known_of_a_build(desk: Desk) -> None:
    """A verified build is quiet; one that is not, or a bench, is told."""
    problem: Problem | None = step.build_problem(
        generation(desk, verified=True), desk.root
    )
    assert problem is None
    problem = step.build_problem(generation(desk, verified=False), desk.root)
    assert problem is not None and "never verified" in problem.what
    folder = generation(desk)
    (folder / generations.MARK).write_text("{broken")
    problem = step.build_problem(folder, desk.root)
    assert problem is not None and problem.level == "unknown"
    bench = Path(os.path.realpath(desk.root.benches / "p"))
    problem = step.build_problem(bench, desk.root)
    assert problem is not None and problem.level == "error"


def test_shared_memory_is_measured(tmp_path: Path) -> None:
    """The free shared memory of this machine is a number, or not there."""
    assert preflight.shm_free(tmp_path / "none") is None
    assert preflight.shm_free(tmp_path) is not None
    here = preflight.Seams().shm_free()
    assert here is None or here >= 0
