"""The demonstration recording: made again it has the same bytes, we decode it exactly, a frozen image does not, and perf reads it."""
import filecmp
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
MAKE_DEMO = os.environ["MAKE_DEMO"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
DEMO = SOURCE / "data" / "demo"
TRUTHS = [DEMO / "truth.cpu0.txt", DEMO / "truth.cpu1.txt"]
MAX_BYTES = 200 * 1024


def run(*words):
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=120)


def files_of(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def executed(text):
    """Returns the addresses, one per line, as numbers."""
    return [int(line, 16) for line in text.split("\n") if line.strip()]


class Demo(unittest.TestCase):
    def test_made_anew_it_is_the_same(self):
        with tempfile.TemporaryDirectory() as scratch:
            made = run(MAKE_DEMO, pathlib.Path(scratch) / "demo")
            self.assertEqual(made.returncode, 0, made.stderr)
            names = files_of(DEMO)
            self.assertEqual(files_of(pathlib.Path(scratch) / "demo"), names)
            for name in names:
                self.assertTrue(filecmp.cmp(DEMO / name, pathlib.Path(scratch) / "demo" / name, shallow=False), name)
        self.assertLess(sum((DEMO / name).stat().st_size for name in names), MAX_BYTES)

    def test_decoded_exactly(self):
        done = run(PTDECODE, "verify", "-q", "-i", DEMO, *TRUTHS)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 2)
        for line in lines:
            self.assertIn("flagged 0 (", line)
            self.assertIn("gaps 0,", line)
            self.assertGreater(int(line.rsplit("int3 ", 1)[1]), 0, "no cpu met an INT3")

    def test_what_the_command_shows(self):
        """`ptdecode demo`: the kernel's recording, compared with its truth, and the result with frozen code."""
        done = run(PTDECODE, "demo")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        self.assertIn(str(SOURCE / "data" / "kernel"), done.stdout)
        checked = re.findall(r"cpu \d: (\d+) of the (\d+) instructions that it executed are decoded correctly .*, 0 of them marked uncertain", done.stdout)
        executed = [(SOURCE / f"data/kernel/truth.cpu{cpu}.txt").read_text().splitlines()[-1].split()[0] for cpu in (0, 1)]
        self.assertEqual(checked, [(count, count) for count in executed])
        frozen = re.findall(r"of (\d+) instructions, frozen code decodes (\d+) correctly, loses (\d+) and lists (\d+) that", done.stdout)
        self.assertEqual([int(total) for total, *_ in frozen], [int(count) for count in executed])
        for total, right, lost, wrong in (map(int, counts) for counts in frozen):
            self.assertEqual(right + lost, total)
            self.assertTrue(wrong > 0, done.stdout[-2000:])
        self.assertLess(sum(int(right) for _, right, *_ in frozen), 0.998 * sum(int(total) for total, *_ in frozen))
        told = re.search(r"All ([\d,]+) instructions are .* loses ([\d,]+)\s+instructions of cpu 0 and shows ([\d,]+) that never ran", (SOURCE / "README.md").read_text(), re.S)
        self.assertEqual([int(number.replace(",", "")) for number in told.groups()], [sum(map(int, executed)), *map(int, frozen[0][2:])])

    def test_nothing_to_find(self):
        done = run(PTDECODE, "check", "-q", "-i", DEMO)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_frozen_code_decodes_wrongly(self):
        done = run(PTDECODE, "verify", "-q", "--freeze", "-i", DEMO, *TRUTHS)
        self.assertEqual(done.returncode, 3, done.stdout)
        for line in done.stdout.splitlines():
            if line.startswith("cpu "):
                right, _, total = line.split()[2:5]
                self.assertLess(int(right), int(total) // 2, line)

    def test_packets_decide_where_time_does_not(self):
        for words in (["--no-anchors"], ["--no-time"], ["--slack", "50us"]):
            done = run(PTDECODE, "verify", "-q", *words, "-i", DEMO, *TRUTHS)
            self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}")

    @unittest.skipUnless(shutil.which("perf"), "perf is not installed")
    def test_perf_reads_it(self):
        for words in (["-D"], ["--itrace=b"]):
            done = run("perf", "script", *words, "-i", DEMO)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr, "", words)
            self.assertGreater(len(done.stdout.splitlines()), 10_000)

    @unittest.skipUnless(shutil.which("perf"), "perf is not installed")
    def test_perf_sees_the_same_instructions(self):
        for cpu in (0, 1):
            theirs = executed(run("perf", "script", "--itrace=i1i", "-F", "ip", "-C", cpu, "-i", DEMO).stdout)
            ours = executed(run(PTDECODE, "script", "-q", "--itrace=i1i", "-F", "ip", "-C", cpu, "-i", DEMO).stdout)
            self.assertGreater(len(ours), 50_000)
            self.assertTrue(ours == theirs, f"cpu {cpu}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
