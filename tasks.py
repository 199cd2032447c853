# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The Invoke namespace: every task by name. ``invoke --list`` is the contents page."""

from __future__ import annotations

import sys

from invoke.collection import Collection
from invoke.program import Program

# the checkout may be somebody else's, or on a slow NAS: leave no compiled files there;
# E402: what is imported before this line would leave them, so ours comes after it
sys.dont_write_bytecode = True

from tools.rig.tasks import building, explaining, preparing, serving  # noqa: E402
from tools.rig.tasks.frame import hear_interrupts, need_values, read_words  # noqa: E402

namespace = Collection(
    preparing.doctor,
    preparing.cuda_toolkit,
    preparing.shim_glibc,
    preparing.git_safe,
    preparing.venv_local,
    preparing.plan,
    building.build_sm70,
    building.in_use,
    building.verify,
    building.install_wheel,
    building.builds,
    building.activate,
    building.rollback,
    building.report,
    serving.capacity,
    serving.serve_tp2,
    serving.serve_status,
    serving.serve_stop,
    serving.serve_logs,
    serving.serve_unit,
    serving.serve_router,
    explaining.diagnose,
    explaining.bundle,
)
# Invoke reads this file before it parses the words behind its own options, and has no
# other place to say the code of a usage error; a checker sees a method that is replaced
_parse = hear_interrupts(need_values(read_words(Program.parse_tasks)))
Program.parse_tasks = _parse  # type: ignore[method-assign, assignment]
# a task's own signals and exit codes count, not those of Invoke's runner
namespace.configure({"run": {"in_stream": False}, "tasks": {"auto_dash_names": True}})
