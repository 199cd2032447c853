# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Lines that say how something ended: with success up to a phase, or with a failure.

An error that was followed by success was survived (a retried download, a compile that
was killed and tried again), so it is no cause of anything. A failure that no entry of
the catalogue knows makes a log "not recognised" instead of healthy.
"""

from __future__ import annotations

import regex as re

from tools.rig.diagnose.entries import Phase

SUCCESS: tuple[tuple[Phase, tuple[str, ...], re.Pattern[str]], ...] = tuple(
    (phase, needles, re.compile(pattern))
    for phase, needles, pattern in (
        (
            Phase.CONFIGURE,
            ("build files have been written",),
            # fetched parts are configured before what needs them
            r"^-- Build files have been written to: (?!\S*-subbuild)",
        ),
        (
            Phase.INSTALL,
            ("successfully installed", "successfully built"),
            r"^Successfully (?:installed|built) ",
        ),
        (Phase.INSTALL, ("installed ",), r"^Installed \d+ packages? in "),
        (Phase.INSTALL, ("hold sm_",), r"\d+ CUDA librar\w+ holds? sm_\d+ code"),
        (
            Phase.SERVE,
            ("application startup complete",),
            r"Application startup complete",
        ),
        (
            Phase.RUN,
            ("generation throughput",),
            r"Avg generation throughput: (?!0\.0 )\d",
        ),
    )
)
"""Phase reached, literals of the line, pattern. Wordings of CMake, pip, uv, uvicorn,
vLLM and of this suite."""

SUCCESS_NEEDLES = tuple(needle for _, needles, _ in SUCCESS for needle in needles)


def success_of(text: str) -> Phase | None:
    """Return the phase that a line says has been passed, or None."""
    for phase, _, pattern in SUCCESS:
        if pattern.search(text):
            return phase
    return None
