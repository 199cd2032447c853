# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Who is using this environment: a lock that a build holds, and a scan of the processes
that run from it.
"""
