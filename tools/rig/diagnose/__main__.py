# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``python -m tools.rig.diagnose LOG...``: for hosts that have no Invoke."""

from __future__ import annotations

import argparse
import os
import sys

from tools.rig.base.console import print_json
from tools.rig.base.errors import RigError
from tools.rig.diagnose import examine, words


def main(args: list[str]) -> int:
    """Diagnose logs and return the exit code: 0 healthy, 1 a cause, 5 unknown."""
    parser = argparse.ArgumentParser(prog="python -m tools.rig.diagnose")
    parser.add_argument("logs", nargs="*", default=["-"], metavar="LOG")
    parser.add_argument("--lang", choices=words.LANGUAGES)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(args)
    lang = chosen.lang or words.language_of(os.environ)
    try:
        result = examine.logs(chosen.logs)[0]
    except RigError as exc:
        sys.stderr.write("\n".join(exc.lines()) + "\n")
        return int(exc.code)
    if chosen.json:
        print_json(words.as_json(result.judgement, lang, {}))
    else:
        text = words.as_text(result.judgement, lang, {}, result.lines)
        sys.stdout.write("\n".join(text) + "\n")
    return int(result.exit_code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
