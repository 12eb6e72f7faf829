#!/usr/bin/env python3
"""Runs the benchmark program and prints the tables of docs/evidence/speed.md: processor time of one core, medians, ratios within the same
run.

usage: table.py [--short] BENCH ROUNDS [NAME=RECORDING[,SYMFS][@MS]]...

BENCH is build/tests/bench/bench. MS is the traced program's own processor time (native_time.py). --short omits libipt's instruction decoder
and our exact walker. Ratios to libipt compare instructions per second: where it loses the flow, the skipped code does not count for it.
"""
import json
import os
import statistics
import subprocess
import sys


def measure(bench, rounds, captures, short):
    """Returns ({(stage, capture): [ms]}, {(stage, capture): [instructions per second]})."""
    stages = "flow|libipt_block" if short else "flow|libipt_block|libipt_insn|walker"
    text = subprocess.run(
        [bench, "--benchmark_format=json", f"--benchmark_repetitions={rounds}", "--benchmark_min_time=0.05",
         "--benchmark_enable_random_interleaving=true", f"--benchmark_filter=^({stages})/", *captures],
        check=True, stdout=subprocess.PIPE, env=os.environ).stdout
    times, rates = {}, {}
    for row in json.loads(text)["benchmarks"]:
        if row.get("run_type") != "iteration":
            continue
        key = tuple(row["name"].split("/")[:2])
        times.setdefault(key, []).append(row["cpu_time"])
        rates.setdefault(key, []).append(row["insn/s"])
    return times, rates


def main():
    words = [word for word in sys.argv[1:] if word != "--short"]
    bench, rounds = words[0], int(words[1])
    native = {}
    captures = []
    for word in words[2:]:
        path, _, own = word.partition("@")
        captures.append(path)
        if own:
            native[path.partition("=")[0]] = float(own)
    times, rates = measure(bench, rounds, captures, "--short" in sys.argv)

    def rate(stage, capture):
        return statistics.median(rates.get((stage, capture), [0])) / 1e6

    def ratio(stage, peer, capture):
        return f"{rate(stage, capture) / rate(peer, capture):.1f}x" if rate(peer, capture) else "-"

    print("| capture | flow, M insn/s | libipt block, M insn/s | flow against libipt block "
          "| against libipt insn | against our walker | flow, ms | of the program's own time |")
    print("|---|---|---|---|---|---|---|---|")
    for capture in dict.fromkeys(capture for _, capture in times):
        flow_ms = statistics.median(times["flow", capture])
        own = f"{flow_ms / native[capture]:.1f}x" if capture in native else "-"
        print(f"| {capture} | {rate('flow', capture):.0f} | {rate('libipt_block', capture):.0f} | {ratio('flow', 'libipt_block', capture)} | "
              f"{ratio('flow', 'libipt_insn', capture)} | {ratio('flow', 'walker', capture)} | "
              f"{flow_ms:.1f} | {own} |")


if __name__ == "__main__":
    main()
