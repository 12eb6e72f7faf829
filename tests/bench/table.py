#!/usr/bin/env python3
"""Runs the benchmark program and prints the table of docs/EVIDENCE.md: processor time of one core, ratios within the one run.

usage: table.py BENCH [ROUNDS]     (BENCH: build/tests/bench/bench)
"""
import json
import os
import statistics
import subprocess
import sys


def main():
    bench = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    text = subprocess.run(
        [bench, "--benchmark_format=json", f"--benchmark_repetitions={rounds}", "--benchmark_min_time=0.1",
         "--benchmark_enable_random_interleaving=true"],
        check=True, stdout=subprocess.PIPE, env=os.environ).stdout
    times, rates = {}, {}
    for row in json.loads(text)["benchmarks"]:
        if row.get("run_type") != "iteration":
            continue
        stage, capture = row["name"].split("/")[:2]
        times.setdefault((stage, capture), []).append(row["cpu_time"])
        if row["insns"]:
            rates.setdefault((stage, capture), []).append(row["insn/s"])
    captures = list(dict.fromkeys(capture for _, capture in times))
    print("| capture | flow, M insn/s | libipt block, M insn/s | flow against libipt block | against libipt insn | counts against libipt block | against our walker |")
    print("|---|---|---|---|---|---|---|")
    for capture in captures:
        def time(stage):
            return statistics.median(times[stage, capture])

        def rate(stage):
            return statistics.median(rates.get((stage, capture), [0])) / 1e6

        flow = time("flow")
        print(f"| {capture} | {rate('flow'):.0f} | {rate('libipt_block'):.0f} | {time('libipt_block') / flow:.1f}x | "
              f"{time('libipt_insn') / flow:.1f}x | {time('libipt_block') / time('counts'):.1f}x | {time('walker') / flow:.1f}x |")


if __name__ == "__main__":
    main()
