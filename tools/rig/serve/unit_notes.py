# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What is to be said of units, beside what is wrong with them."""

from __future__ import annotations

import contextlib
import pwd
from collections.abc import Mapping

from tools.rig.base import redact
from tools.rig.base.state import StateRoot
from tools.rig.serve import probe
from tools.rig.serve.units import Units

_SETTINGS_OF_SERVERS = ("VLLM_", "NCCL_", "CUDA_", "PYTORCH_")


def left_out(env: Mapping[str, str], made: Units, *, user: bool) -> list[str]:
    """Return what is to be said of our own settings that a unit does not take along.

    They may be secret or meant for today; who wants them for ever says so. A secret is
    never to be written into a unit, which everybody may read.

    Parameters
    ----------
    env
        Our own environment.
    user
        The units are for the user's own systemd.
    """
    text = made.files[made.service]
    names = sorted(
        name
        for name in env
        if name.startswith(_SETTINGS_OF_SERVERS) and f"{name}=" not in text
    )
    secret = [name for name in names if redact.is_secret_name(name)]
    plain = [name for name in names if name not in secret]
    control = "systemctl --user" if user else "sudo systemctl"
    said = []
    if plain:
        way = f"{control} edit {made.service}, [Service], Environment=NAME=VALUE"
        said.append(f"set here and not in the unit: {', '.join(plain)}; to keep: {way}")
    for name in secret:
        # for this one an option of ours has a file
        own = name == probe.KEY
        if own and "--api-key-file" in text:
            continue
        way = "its server has no key of it; give it one by --api-key-file FILE"
        if not own:
            way = "a secret belongs into a file that its owner alone can read"
        said.append(f"{name} is set here and not in the unit: {way}")
    return said


def of_owner(root: StateRoot, run_as: str) -> list[str]:
    """Return what is to be said where the server could not write its state."""
    with contextlib.suppress(KeyError, OSError):
        owner = pwd.getpwuid(root.path.stat().st_uid).pw_name
        if run_as and owner != run_as:
            return [f"{root.path} is {owner}'s: {run_as} must be able to write there"]
    return []
