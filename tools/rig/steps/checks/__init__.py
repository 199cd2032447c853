# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The doctor's checks, one module a topic; importing this registers them all."""

# the order of these lines is the order on the screen
from tools.rig.steps.checks import (  # isort: skip
    system,
    toolchain,
    driver,
    python,
    memory,
    storage,
    network,
    environment,
)
from tools.rig.steps.checks.registry import Check, Outcome, registered

__all__ = [
    "Check",
    "Outcome",
    "driver",
    "environment",
    "memory",
    "network",
    "python",
    "registered",
    "storage",
    "system",
    "toolchain",
]
