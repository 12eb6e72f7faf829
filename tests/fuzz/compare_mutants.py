#!/usr/bin/env python3
"""Mutated recordings: the fast path, the exact walker and several threads decode the same.

usage: compare_mutants.py COMPARE_PATHS RECORDING MUTATOR FIRST LAST
RECORDING: perf.data in directory form, as data/demo. MUTATOR: perf_mutator.py of the folder `faults` beside the corpus. Seeds FIRST to LAST - 1.
Exit status 1 if an output differs or a decode takes more than two minutes.
"""
import importlib.util
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile


def main(program, recording, mutator, first, last):
    spec = importlib.util.spec_from_file_location("perf_mutator", mutator)
    mutations = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mutations)
    counts = {"equal": 0, "refused": 0, "differs": 0, "slow": 0}
    with tempfile.TemporaryDirectory() as folder:
        mutant = pathlib.Path(folder) / "mutant"
        shutil.copytree(recording, mutant)
        for seed in range(int(first), int(last)):
            random_numbers = random.Random(seed)
            parts = mutations.load(f"{recording}/data")
            made = mutations.mutate(parts, random_numbers)
            (mutant / "data").write_bytes(mutations.dump(parts))
            try:
                done = subprocess.run([program, mutant], capture_output=True, text=True, timeout=120)
                result = {0: "equal", 2: "refused"}.get(done.returncode, "differs")
            except subprocess.TimeoutExpired:
                result = "slow"
            counts[result] += 1
            if result in ("differs", "slow"):
                print(f"seed {seed} {result}: {' '.join(made)}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["differs"] + counts["slow"] != 0 else 0


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
