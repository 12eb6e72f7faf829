#!/usr/bin/env python3
"""kallsyms that does not belong to the recording: the kernel's mapping record has the address of its reference symbol, so that another kernel's
or boot's names are not used. The names of the bundled recording are the expected ones.

Environment: PTDECODE, PTDECODE_SOURCE.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
DEMO = pathlib.Path(os.environ["PTDECODE_SOURCE"]) / "data" / "demo"
KALLSYMS = (DEMO / "kcore_dir/kallsyms").read_text()
NAMES = set(re.findall(r"^\w+ \w (\w+)", KALLSYMS, re.M))


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=300)


def moved(text, distance, only=""):
    """All symbols, or the one called `only`, at other addresses."""
    lines = (line.split(" ", 1) for line in text.splitlines())
    return "".join(f"{int(at, 16) + (distance if only in ('', rest.split()[1]) else 0):016x} {rest}\n" for at, rest in lines)


class KernelNames(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.recording = pathlib.Path(self.temporary.name) / "recording"
        shutil.copytree(DEMO, self.recording)
        (self.recording / "kcore_dir/kallsyms").chmod(0o644)

    def tearDown(self):
        self.temporary.cleanup()

    def with_kallsyms(self, text):
        (self.recording / "kcore_dir/kallsyms").write_text(text)

    def functions(self, *words):
        done = run("functions", "-q", "-i", self.recording, "--limit", "0", "--format", "json", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {json.loads(line)["function"] for line in done.stdout.splitlines()[1:]}

    def assert_refused(self, *words):
        self.assertEqual(self.functions(*words) & NAMES, set())
        checked = run("check", "-i", self.recording, *words)
        self.assertEqual(checked.returncode, 3)
        self.assertRegex(checked.stdout, r"(?m)^file_changed: .*/kallsyms is of another kernel or another boot: it has _text at 0x")
        self.assertIn("is of another kernel or another boot", checked.stderr)

    def test_many_names_of_one_address(self):
        """Each was compared with all others: 400,000 took minutes."""
        first = next(line for line in KALLSYMS.splitlines() if line.split()[1] in "tT").split()[0]
        self.with_kallsyms(KALLSYMS + "".join(f"{first} t same_{i}\n" for i in range(400_000)))
        done = subprocess.run([PTDECODE, "functions", "-q", "-i", self.recording, "--limit", "1"], capture_output=True, text=True, timeout=40)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_names_at_other_addresses_are_refused(self):
        for distance in (0x10, -0x10, 0x200000, 0x12000000):
            with self.subTest(distance=distance):
                self.with_kallsyms(moved(KALLSYMS, distance))
                self.assert_refused()
        self.with_kallsyms(moved(KALLSYMS, 0x1000, "_text"))
        self.assert_refused()

    def test_a_list_of_modules_that_contradicts_the_names(self):
        """The demo's own list agrees with its names and its copy."""
        modules = self.recording / "kcore_dir/modules"
        modules.chmod(0o644)
        self.assertEqual(run("check", "-i", self.recording).returncode, 0)
        functions = len(re.findall(r"(?m)^\w+ [tT] \S+\s\[demo\]$", KALLSYMS))
        for listed, contradiction in ((0xffffffffc0301000, f"kallsyms: demo at 0xffffffffc0301000 does not contain {functions} of its {functions} functions, first "),
                                      (0xffffffffc0200000, "kcore: demo at 0xffffffffc0200000 is in the copy from 0xffffffffc0201000 on only")):
            modules.write_text(f"demo 8192 0 - Live {listed:#x}\n")
            done = run("check", "-i", self.recording)
            self.assertEqual(done.returncode, 3, done.stdout)
            self.assertRegex(done.stdout, rf"(?m)^file_changed: .*/modules contradicts .*/{contradiction}")
            self.assertEqual(done.stdout.count("contradicts"), 1)

    def test_names_of_this_boot_are_used(self):
        expected = run("functions", "-q", "-i", DEMO, "--limit", "0", "--format", "json").stdout
        self.assertGreater(len(self.functions() & NAMES), 20)
        self.with_kallsyms(KALLSYMS.replace("_text\n", "_other\n"))  # without the reference symbol, nothing can be compared
        self.assertEqual(run("functions", "-q", "-i", self.recording, "--limit", "0", "--format", "json").stdout, expected)
        self.assertEqual(run("check", "-i", self.recording).returncode, 0)

    def test_without_a_reference_symbol_the_names_are_used(self):
        data = self.recording / "data"
        data.chmod(0o644)
        raw = data.read_bytes()
        self.assertEqual(raw.count(b"[kernel.kallsyms]_text"), 1)
        data.write_bytes(raw.replace(b"[kernel.kallsyms]_text", b"[kernel.kallsyms]\0\0\0\0\0"))
        self.with_kallsyms(moved(KALLSYMS, 0x10))
        self.assertGreater(len(self.functions() & NAMES), 20)

    def test_a_later_copy_of_another_boot_is_refused(self):
        later = pathlib.Path(self.temporary.name) / "later"
        shutil.copytree(DEMO / "kcore_dir", later)
        (later / "kallsyms").chmod(0o644)
        (later / "kallsyms").write_text(moved(KALLSYMS, 0x200000))
        shutil.rmtree(self.recording / "kcore_dir")
        self.assert_refused("--kcore-after", later)

    def test_a_list_that_is_cut_names_no_function_after_the_cut(self):
        """The last name covered the functions after it. A cut can come within a line and between lines."""
        whole = self.functions()
        lines = KALLSYMS.splitlines(True)
        for text, last in ((KALLSYMS[:1000], "function_trace_call"), ("".join(lines[:6]), "function_trace_call"),
                           (KALLSYMS[:-4], "choice_first")):
            self.with_kallsyms(text)
            self.assertIn(last, whole)
            self.assertFalse({name for name in self.functions() if name.startswith(last)}, "where the function ends is not known")
            checked = run("check", "-i", self.recording)
            self.assertRegex(checked.stdout, r"(?m)^file_changed: .*/kallsyms is cut: ", text[-40:])
            self.assertEqual(checked.returncode, 3)

    def test_a_later_copy_has_the_names_that_a_cut_list_lacks(self):
        expected = self.functions("--kcore-after", DEMO / "kcore_dir")
        self.with_kallsyms(KALLSYMS[:1000])
        self.assertEqual(self.functions("--kcore-after", DEMO / "kcore_dir"), expected)

    def test_lines_may_end_in_carriage_returns(self):
        expected = self.functions()
        self.with_kallsyms(KALLSYMS)
        path = self.recording / "kcore_dir/kallsyms"
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
        self.assertEqual(self.functions(), expected)

    def test_hidden_addresses_are_explained(self):
        for text in ("", re.sub(r"(?m)^\w+", "0" * 16, KALLSYMS)):
            self.with_kallsyms(text)
            checked = run("check", "-i", self.recording)
            self.assertIn("kallsyms has no addresses: functions of the kernel have no names", checked.stderr)
            self.assertIn("kernel.kptr_restrict", checked.stderr)
            self.assertIn("see the warnings on standard error", checked.stdout)
            self.assertEqual(run("check", "-q", "-i", self.recording).stderr, checked.stderr)  # warnings are no summary

    def test_hidden_addresses_of_a_guest_are_the_guests(self):
        hidden = pathlib.Path(self.temporary.name) / "guest"
        hidden.write_text(re.sub(r"(?m)^\w+", "0" * 16, KALLSYMS))
        checked = run("check", "-i", self.recording, "--guestkallsyms", hidden)
        self.assertIn(f"{hidden} has no addresses: functions of the guest's kernel have no names", checked.stderr)


class Threads(unittest.TestCase):
    """Each switch executes __switch_to, so its address tells where the kernel's flow changes its thread."""

    def branches(self, path, *words):
        done = run("script", "-i", path, "--itrace=b", "-F", "tid,ip,addr", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_without_the_switch_function_time_tells_the_thread(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "demo"
            shutil.copytree(DEMO, copy)
            (copy / "kcore_dir/kallsyms").chmod(0o644)
            (copy / "kcore_dir/kallsyms").write_text(KALLSYMS.replace(" __switch_to\n", " renamed\n"))
            bundle = pathlib.Path(folder) / "demo.ptb"
            self.assertEqual(run("bundle", "-i", copy, "-o", bundle).returncode, 0)
            for cpu in ("0", "1"):
                right = self.branches(DEMO, "-C", cpu).stdout.splitlines()
                for path in (copy, bundle):
                    done = self.branches(path, "-C", cpu)
                    said = done.stdout.splitlines()
                    self.assertIn("where __switch_to is", done.stderr)
                    self.assertEqual(len(said), len(right))
                    self.assertTrue(all(a.split()[1:] == b.split()[1:] for a, b in zip(said, right)), "the flow is the same")
                    late = sum(a.split()[0] != b.split()[0] for a, b in zip(said, right))
                    self.assertTrue(0 < late < len(right) // 50, f"{late} of {len(right)}")


if __name__ == "__main__":
    unittest.main()
