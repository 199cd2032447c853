# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A desk at which servers are planned, with a model and a parser like the fork's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.made_model import LLAMA, llama_tensors, write
from tests.rig.support.made_parser import FORK, TWO
from tools.rig.base.state import StateRoot
from tools.rig.host.gpu import Gpus
from tools.rig.serve import folder, planning, presets
from tools.rig.serve.parser import Parser
from tools.rig.serve.planning import Planned, Wish

NONE = Gpus("absent", "no NVIDIA driver")
CPU = replace(FORK, device="cpu")


class Desk:
    """A model, and plans for it."""

    def __init__(self, path: Path, config: dict[str, Any] | None = None) -> None:
        self.path = path
        self.model = path / "qwen 3"
        write(self.model, {**LLAMA, **(config or {})}, llama_tensors())

    def plan(
        self,
        *rest: str,
        parser: Parser = FORK,
        cards: Gpus = TWO,
        env: dict[str, str] | None = None,
        **wish: Any,
    ) -> Planned:
        """Return a plan; ``cards_`` are those that were asked for."""
        wish["cards"] = wish.pop("cards_", "")
        if "preset" in wish:
            wish["presets"] = presets.chosen(wish.pop("preset"))
        return planning.plan(
            Wish(model=self.model, environment=Path("/e"), rest=rest, **wish),
            parser,
            cards,
            folder.read(self.model),
            StateRoot(self.path / "root"),
            env=env or {},
            cwd=self.path,
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return a desk with a Llama."""
    return Desk(tmp_path)


def words(planned: Planned) -> str:
    """Return the options of the command."""
    return " ".join(planned.plan.argv[6:])
