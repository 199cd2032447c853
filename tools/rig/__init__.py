# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""rig: builds, verifies and (later) serves a CUDA project on Tesla V100 machines.

The library knows nothing of Invoke or nox. Imports point downwards only::

    steps -> builds -> guard -> diagnose -> host -> base

Every command is the same four beats: read the facts of this machine, make a plan (a
pure function of the facts, the profile and the options), act on that plan and nothing
else, write a record.
"""

__version__ = "0.1.0"
