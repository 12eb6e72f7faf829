#!/usr/bin/env python3
"""Times of `ptdecode replay --gdb` on a large recording: replay.py PTDECODE RECORDING

Prints the time to the first stop reply, of seeks to random times, and of reverse runs over a million instructions, with the most memory used.
A run goes back to a time: the instructions between are counted by `ptdecode functions`.
"""
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "replay"))
from gdb_client import Client  # noqa: E402

SEEKS, RUNS, WANTED = 20, 5, 1_000_000


def timed(action):
    began = time.monotonic()
    action()
    return time.monotonic() - began


def instructions(program, recording, first, last):
    listed = subprocess.run([program, "functions", "-q", "-i", recording, "--time", f"{first:.9f},{last:.9f}", "--limit", "0", "--format", "json"],
                            capture_output=True, text=True, check=True).stdout
    return sum(json.loads(line)["self_instructions"] for line in listed.splitlines() if '"self_instructions"' in line)


def main():
    program, recording = sys.argv[1:]
    began = time.monotonic()
    with Client("-i", recording, ptdecode=program) as peer:
        peer.ask("?")
        print(f"first stop: {time.monotonic() - began:.2f} s")
        start, end = (float(value) for value in re.search(r"of ([\d.]+) to ([\d.]+)", peer.monitor("time")).groups())
        rng = random.Random(1)
        seeks = []
        for _ in range(SEEKS):
            to = rng.uniform(start, end)
            seeks.append(timed(lambda: (peer.monitor(f"seek {to:.9f}"), peer.ask("?"))))
        print(f"{SEEKS} seeks: median {statistics.median(seeks) * 1000:.0f} ms, most {max(seeks) * 1000:.0f} ms")
        span = 0.01
        for _ in range(RUNS):
            to = rng.uniform(start + 2 * span, end)
            peer.monitor(f"seek {to:.9f}")
            peer.monitor(f"stop-at {to - span:.9f}")
            took = timed(lambda: peer.ask("bc"))
            count = instructions(program, recording, to - span, to)
            print(f"reverse-continue over {count} instructions: {took * 1000:.0f} ms")
            if count > WANTED / 100:
                span *= WANTED / count
        status = pathlib.Path(f"/proc/{peer.process.pid}/status").read_text()
        print("memory: " + re.search(r"VmHWM:\s*(\d+) kB", status)[1] + " kB")


if __name__ == "__main__":
    main()
