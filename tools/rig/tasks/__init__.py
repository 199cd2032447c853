# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Invoke's side of the house: one thin task a step; ``tasks.py`` lists them.

The steps themselves live in ``tools/rig/steps`` and know nothing of Invoke; each is
imported when its task runs, so that listing the tasks stays fast.
"""
