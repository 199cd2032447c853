# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Makes the tables of docs/rig/measured.md from the records beside it.

    python benchmarks/rig/measured.py --keep LISTING.txt NAME MACHINE RECORD.json...
    python benchmarks/rig/measured.py --write

The first form takes over what the tables need of a build's record, without paths of the
machine; of a build that was interrupted and went on, all its records are named, oldest
first. The second writes the tables between their markers. A test holds both together.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import regex as re

DOCS = Path(__file__).resolve().parents[2] / "docs" / "rig"
PAGE = DOCS / "measured.md"
RECORDS = DOCS / "records"

_ELF = re.compile(r"^ELF file +\d+: .*\.(sm_\d+)\w*\.cubin$", re.MULTILINE)
_MIB = 1 << 20
_KEPT = ("started", "seconds", "steps", "peaks", "objects", "commit", "version")


def keep(record: dict[str, Any], machine: str) -> dict[str, Any]:
    """Return the part of a build's record that is published."""
    kept = {name: record[name] for name in _KEPT}
    kept["machine"] = machine
    kept["sittings"] = record.get("sittings", [record["seconds"]])
    # ninja's own number counts those that wait for room
    plan = record["plan"]
    kept["jobs"] = plan.get("compiles_at_once", plan["jobs"])
    toolchain = re.sub(r" (?:in|\()\s?/[^ ;)]*\)?", "", record["plan"]["toolchain"])
    kept["toolchain"] = toolchain
    kept["libraries"] = [
        {"name": lib["name"], "size": lib["size"]}
        for lib in record["verify"]["libraries"]
    ]
    return kept


def joined(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one record of a build that took several runs, the oldest first.

    Outputs and their times are the last run's: ninja's log remembers the earlier ones.
    Memory was sampled in the run that compiled the object.
    """
    last = dict(records[-1])
    held: dict[str, int] = {}
    for record in records:
        sampled = {o["output"]: o["peak_bytes"] for o in record["objects"]}
        # the first builds kept them beside the other peaks
        sampled |= record["peaks"].get("objects_bytes", {})
        for name, size in sampled.items():
            short = name.removeprefix(f"{record['checkout']}/")
            if size is not None:
                held[short] = max(size, held.get(short, 0))
    last["objects"] = [
        {**one, "peak_bytes": held.get(one["output"], one["peak_bytes"])}
        for one in last["objects"]
    ]
    largest = max(records, key=lambda r: r["peaks"]["process_bytes"])["peaks"]
    total = max(record["peaks"]["total_bytes"] for record in records)
    last["peaks"] = {**largest, "total_bytes": total, "objects_bytes": {}}
    last["sittings"] = [record["seconds"] for record in records]
    last["seconds"] = round(sum(last["sittings"]), 1)
    return last


def cubins(listing: str) -> dict[str, dict[str, int]]:
    """Return the number of cubins by library and architecture.

    `listing` holds, for each library, a line ``== NAME`` and the output of
    ``cuobjdump --list-elf NAME``.
    """
    found = {}
    for part in listing.split("== ")[1:]:
        name, _, text = part.partition("\n")
        counts: dict[str, int] = {}
        for arch in _ELF.findall(text):
            counts[arch] = counts.get(arch, 0) + 1
        found[name.strip()] = counts
    return found


def tables(name: str) -> str:
    """Return the Markdown of one record's tables."""
    record = json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))
    listed = cubins((RECORDS / f"{name}-cuobjdump.txt").read_text(encoding="utf-8"))
    gib = 1 << 30
    objects = [o for o in record["objects"] if o["output"].endswith(".o")]
    compiling = sum(one["end_s"] - one["start_s"] for one in objects)
    links = len(record["objects"]) - len(objects)
    peaks = record["peaks"]
    largest = f"{peaks['process_name']}, {peaks['process_bytes'] / gib:.1f} GiB"
    out = [
        "| what | value |",
        "| --- | --- |",
        f"| version | {record['version']} ({record['commit']}) |",
        f"| machine | {record['machine']} |",
        f"| toolchain | {record['toolchain']} |",
        f"| compiles at once | {record['jobs']} |",
        f"| wall time | {_minutes(record['seconds'])}{_sittings(record)} |",
        f"| compile time | {_minutes(compiling)} |",
        f"| ninja steps | {len(objects)} compiles, {links} links |",
        f"| peak memory of all | {peaks['total_bytes'] / gib:.1f} GiB |",
        f"| largest process | {largest} |",
        "",
        "| step | seconds |",
        "| --- | --- |",
        *(f"| {s['title']} | {s['seconds']:.0f} |" for s in record["steps"]),
        "",
        "| longest compiles | seconds | peak MiB |",
        "| --- | --- | --- |",
    ]
    longest = sorted(objects, key=lambda o: o["start_s"] - o["end_s"])[:15]
    for one in longest:
        took = one["end_s"] - one["start_s"]
        held = "-" if not one["peak_bytes"] else f"{one['peak_bytes'] / _MIB:.0f}"
        short = one["output"].rpartition("/")[2]
        out.append(f"| {short} | {took:.0f} | {held} |")
    out += ["", "| library | bytes | cubins |", "| --- | --- | --- |"]
    for lib in record["libraries"]:
        counts = listed.get(lib["name"], {})
        said = ", ".join(f"{n} {arch}" for arch, n in sorted(counts.items()))
        out.append(f"| {lib['name']} | {lib['size']:,} | {said or 'none'} |")
    return "\n".join(out) + "\n"


def page(text: str) -> str:
    """Return the page with every table made anew from its record."""

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- record {name} -->\n{tables(name)}<!-- /record -->"

    shape = r"<!-- record (\S+) -->\n.*?<!-- /record -->"
    return str(re.sub(shape, fill, text, flags=re.DOTALL))


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min"


def _sittings(record: dict[str, Any]) -> str:
    times = [_minutes(seconds) for seconds in record["sittings"]]
    return f" in {len(times)} runs ({', '.join(times)})" if len(times) > 1 else ""


def main(words: list[str]) -> int:
    """Take a record over, or write the tables."""
    if words[:1] == ["--keep"] and len(words) >= 5:
        listing, name, machine = words[1:4]
        texts = [Path(file).read_text(encoding="utf-8") for file in words[4:]]
        kept = keep(joined([json.loads(text) for text in texts]), machine)
        made = json.dumps(kept, indent=1) + "\n"
        (RECORDS / f"{name}.json").write_text(made, encoding="utf-8")
        listed = Path(listing).read_text(encoding="utf-8")
        (RECORDS / f"{name}-cuobjdump.txt").write_text(listed, encoding="utf-8")
        return 0
    if words == ["--write"]:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
