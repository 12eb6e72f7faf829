#!/usr/bin/env python3
"""opencsd_ranges.py PTDECODE SNAPSHOT...: compares the flow of CoreSight snapshots with the ranges that OpenCSD's trc_pkt_lister lists.

trc_pkt_lister reads the paths of dumps relative to the snapshot only. Exit status 1 if a flow differs.
"""
import collections
import json
import re
import subprocess
import sys
import tempfile

RANGE = re.compile(r"ID:(\w+); OCSD_GEN_TRC_ELEM_INSTR_RANGE\(exec range=0x(\w+):\[0x(\w+)\] num_i\((\d+)\)")


def listed(snapshot):
    """Returns trace id -> ranges (first address, end, instructions)."""
    ranges = collections.defaultdict(list)
    with tempfile.NamedTemporaryFile("r", errors="replace") as log:
        subprocess.run(["trc_pkt_lister", "-ss_dir", ".", "-decode", "-logfilename", log.name], cwd=snapshot, stdout=subprocess.DEVNULL, check=False)
        for line in log:
            if found := RANGE.search(line):
                ranges[int(found[1], 16)].append((int(found[2], 16), int(found[3], 16), int(found[4])))
    return ranges


def difference(ranges, flow):
    """Returns the number of instructions before the first difference; None if there is none."""
    at = 0
    for first, end, count in ranges:
        block = flow[at:at + count]
        if len(block) != count or block[0] != first or not first <= block[-1] < end:
            return at
        at += count
    return None if at == len(flow) else at


def main():
    ptdecode, *snapshots = sys.argv[1:]
    status = 0
    for snapshot in snapshots:
        stat = json.loads(subprocess.run([ptdecode, "stat", "-q", "--json", "-i", snapshot], capture_output=True, text=True).stdout)
        ranges = listed(snapshot)
        for stream in stat["streams"]:
            words = [ptdecode, "script", "-q", "-i", snapshot, "-C", str(stream["cpu"]), "--itrace=i1i", "-F", "ip"]
            flow = [int(word, 16) for word in subprocess.run(words, capture_output=True, text=True).stdout.split()]
            differs = difference(ranges[stream["trace_id"]], flow)
            gaps = sum(gap["count"] for gap in stream["gaps"].values())
            status = 1 if differs is not None else status
            print(f"{snapshot} {stream['source']}: {len(flow)} instructions, {gaps} gaps,", "equal" if differs is None else f"differs after {differs}")
    return status


if __name__ == "__main__":
    sys.exit(main())
