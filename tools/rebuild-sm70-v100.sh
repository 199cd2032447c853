#!/bin/sh
# The one command: from a bare machine to a verified build. Arguments go to build-sm70
# (--source DIR, --jobs N, --wheel, --profile NAME). nox knows only success and failure,
# so the exit code of the failed step comes through a file.
set -u

# a closed descriptor would become the number of the next file that is opened
true 9>&2 || exec 2>/dev/null
{ true 9<&0; } 2>/dev/null || exec </dev/null
{ true 9>&1; } 2>/dev/null || exec 1</dev/null

self=$(readlink -f -- "$0")
here=$(CDPATH='' cd -- "$(dirname -- "$self")/.." && pwd -P)
if [ ! -d "${TMPDIR:-/tmp}" ]; then
    printf 'error: TMPDIR=%s is no folder\nhint: unset TMPDIR\n' "$TMPDIR" >&2
    exit 2
fi
RIG_EXIT_FILE=$(mktemp) || exit 1
export RIG_EXIT_FILE
child=
trap 'rm -f "$RIG_EXIT_FILE"' EXIT

# A supervisor signals this shell alone, and nox forwards nothing: its end is what tells
# the step below it to stop. That one says in the file when it has.
# shellcheck disable=SC2329  # the trap below invokes it
stop() {
    trap '' INT TERM HUP
    if [ -n "$child" ]; then
        kill -TERM "$child" 2>/dev/null
        wait "$child"
        tenths=0
        while [ "$(cat "$RIG_EXIT_FILE")" = running ] && [ "$tenths" -lt 200 ]; do
            sleep 0.1
            tenths=$((tenths + 1))
        done
    fi
    exit 130
}
trap stop INT TERM HUP

# SIGKILL leaves no time to tell anybody, so the step looks for itself whether we live:
# our pid, and our start time behind it (proc(5): the 20th field after the name)
started() { # shellcheck disable=SC2086  # fields
    set -- ${1##*) }
    echo "${20}"
}
if read -r stat <"/proc/$$/stat"; then
    RIG_PARENT="$$:$(started "$stat")"
    export RIG_PARENT
fi 2>/dev/null

"$here/tools/nox" -s rebuild -- "$@" &
child=$!
wait "$child"
code=$?
if [ "$code" -ne 0 ]; then
    said=$(cat "$RIG_EXIT_FILE")
    case "$said" in
    # a step that ended well says 0, and something after it failed all the same
    '' | 0 | *[!0-9]*) ;;
    *) code=$said ;;
    esac
fi
exit "$code"
