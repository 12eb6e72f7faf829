"""The emulated recordings of data/, Intel PT and CoreSight: flow and bytes equal the ground truth, every instruction.

Environment: PTDECODE, PTDECODE_SOURCE.
"""
import os
import pathlib
import subprocess
import unittest

PTDECODE = os.environ["PTDECODE"]
DATA = pathlib.Path(os.environ["PTDECODE_SOURCE"]) / "data"
USER = DATA / "user"
THREADS = {"plain": 1, "jit": 1, "patch": 1, "pair": 2}  # recording -> threads
ARM_THREADS = {"plain": 1, "changes": 2, "threads": 5}


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=120)


class UserRecordings(unittest.TestCase):
    def test_all_are_listed(self):
        self.assertEqual(sorted(path.stem for path in USER.glob("*.bundle")), sorted(THREADS))

        self.assertEqual(sorted(path.stem for path in (DATA / "arm").glob("*.bundle")), sorted(ARM_THREADS))

    def check_truth(self, folder, recordings):
        for name, threads in recordings.items():
            with self.subTest(name):
                truths = sorted(folder.glob(f"{name}.*.ptt"))
                self.assertEqual(len(truths), threads)
                done = run("verify", "-q", "-i", folder / f"{name}.bundle", *truths)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                lines = done.stdout.splitlines()
                self.assertEqual(len(lines), threads)
                for line in lines:
                    self.assertIn("(100.000000 %), of them flagged 0 ", line)
                    self.assertGreater(int(line.split()[2]), 3000, line)

    def test_flow_is_the_truth(self):
        self.check_truth(USER, THREADS)

    def test_flow_of_arm_is_the_truth(self):
        self.check_truth(DATA / "arm", ARM_THREADS)

    def test_changed_arm_code_needs_its_versions(self):
        """changes.c modifies an instruction 27 times: without times, not all versions allowed by the packets are the right ones."""
        truths = sorted((DATA / "arm").glob("changes.*.ptt"))
        done = run("verify", "-q", "--no-time", "-i", DATA / "arm" / "changes.bundle", *truths)
        self.assertEqual(done.returncode, 3, done.stdout)

    def test_truth_of_another_program_is_refused(self):
        """The comparison can fail."""
        done = run("verify", "-q", "-i", USER / "plain.bundle", *sorted(USER.glob("jit.tid*.ptt")))
        self.assertNotEqual(done.returncode, 0)
        patch = sorted(USER.glob("patch.tid*.ptt"))[0]
        done = run("verify", "-q", "--no-time", "-i", USER / "patch.bundle", patch)
        self.assertEqual(done.returncode, 3, done.stdout)

    def test_nothing_to_find(self):
        for path in [*USER.glob("*.bundle"), *(DATA / "arm").glob("*.bundle")]:
            done = run("check", "-q", "-i", path)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_each_version_ran_as_often_as_the_program_says(self):
        """patch.c: 60 rounds of 20 calls; in every third round its switch is a JMP, else a NOP."""
        lines = run("script", "-q", "-i", USER / "patch.bundle", "--insn-trace=disasm").stdout.splitlines()
        address = next(line for line in lines if " key_site+0x0 " in line).split(" key_site+0x0 ")[0].split()[-1]
        texts = [line.split(")  ", 1)[1].split()[0] for line in lines if f" {address} " in line]
        self.assertEqual({text: texts.count(text) for text in set(texts)}, {"jmp": 400, "nop": 800})


if __name__ == "__main__":
    unittest.main(verbosity=2)
