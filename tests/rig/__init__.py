# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Tests of rig: unit (fakes), real (real tools), e2e (whole pipelines)."""
