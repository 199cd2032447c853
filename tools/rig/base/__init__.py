# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The ground floor: processes, errors, settings, state on disk and the console.

It imports nothing else of the suite.
"""
