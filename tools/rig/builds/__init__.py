# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The machinery of a build: target, profile, environment, plan, progress and record."""
