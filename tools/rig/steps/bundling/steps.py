# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What other steps say of this machine, for a bundle."""

from __future__ import annotations

import io

from tools.rig.base.console import Console
from tools.rig.builds.target import HERE
from tools.rig.steps import doctor as doctors
from tools.rig.steps import plan as plans
from tools.rig.steps import scene as scenes
from tools.rig.steps.bundling.site import Part, Site


def doctor(site: Site) -> list[Part]:
    """Return what ``doctor`` finds, as data and as people read it."""
    if site.profile is None:
        site.note("doctor: no profile is known")
        return []
    said = io.StringIO()
    report = doctors.doctor(
        Console(said, {}),
        site.settings,
        site.profile,
        checkout=site.checkout or HERE,
        absent=site.is_sample,
        env=site.env,
    )
    data = report.to_json()
    site.facts["doctor"] = data
    return [Part("doctor.json", data), Part("doctor.txt", said.getvalue())]


def plan(site: Site) -> list[Part]:
    """Return what ``plan`` would print."""
    said = io.StringIO()
    quiet = Console(said, {})
    found = scenes.find(quiet, site.settings, site.env, lay_out=False)
    made = plans.preview(quiet, found, wheel_only=False)
    text = "\n".join([*found.placing.lines(), *made.lines(), ""])
    site.facts["plan"] = text
    return [Part("plan.json", made.to_json()), Part("plan.txt", text)]
