#!/usr/bin/env python3
"""Runs each stage of `bench` once, on short captures, and checks the counters of each. smoke.py BENCH RECORDING"""
import json
import os
import subprocess
import sys

STAGES = ["packets", "flow", "libipt_block", "walker", "libipt_insn"]
INSTRUCTIONS = 20000  # of each generated program


def run(bench, arguments, **variables):
    """Returns the counters of each benchmark, by name."""
    command = [bench, "--benchmark_min_time=0.001", "--benchmark_format=json", *arguments]
    environment = {**os.environ, "PTDECODE_BENCH_INSTRUCTIONS": str(INSTRUCTIONS), "PTDECODE_CORPUS": "/nonexistent", **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    return {row["name"].split("/process_time")[0]: row for row in json.loads(done.stdout)["benchmarks"]}


def check(rows, captures, stages, least):
    wrong = []
    for capture in captures:
        counts = {}
        for stage in stages:
            row = rows.get(f"{stage}/{capture}")
            if row is None:
                wrong.append(f"{stage}/{capture} did not run")
            elif stage != "packets":
                counts[stage] = int(row["insns"])
        ours = {n for stage, n in counts.items() if stage != "libipt_block" and stage != "libipt_insn"}
        if len(ours) != 1 or min(counts.values()) < least:
            wrong.append(f"{capture}: instructions {counts}")
    if not captures:
        wrong.append("no captures")
    return wrong


def main():
    bench, recording = sys.argv[1], sys.argv[2]
    made = run(bench, [])
    wrong = check(made, sorted({name.split("/")[1] for name in made}), STAGES, INSTRUCTIONS // 2)
    recorded = run(bench, [f"demo={recording}"])
    wrong += check(recorded, sorted({name.split("/")[1] for name in recorded}), STAGES, 1000)
    poked = run(bench, [], PTDECODE_BENCH_POKES="100")
    wrong += check(poked, sorted({name.split("/")[1] for name in poked}), STAGES[:2], INSTRUCTIONS // 2)
    corpus = os.environ.get("PTDECODE_CORPUS") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../shared/corpus")
    arm = os.path.join(corpus, "cs-a57_single_step/snapshot")
    if os.path.isdir(arm):
        done = subprocess.run([bench, f"arm={arm}"], capture_output=True, text=True, check=False)
        if done.returncode == 0 or "a CoreSight recording" not in done.stderr or "insns" in done.stdout:
            wrong.append(f"a CoreSight recording: exit status {done.returncode}, {done.stdout}{done.stderr}")
    else:
        print(f"not run, no {arm}: a CoreSight recording is refused")
    print("\n".join(wrong) or f"{len(made) + len(recorded) + len(poked)} benchmarks ran")
    return 1 if wrong else 0


sys.exit(main())
