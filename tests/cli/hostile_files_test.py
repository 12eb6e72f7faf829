#!/usr/bin/env python3
"""Recordings that name files not belonging to them: files that are not proven to be code of the recording are neither read nor bundled.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Inputs: PTDECODE_CORPUS and its neighbour faults/; what is absent is skipped.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
CORPUS = pathlib.Path(os.environ.get("PTDECODE_CORPUS", SOURCE / ".." / "shared" / "corpus")).resolve()
FAULTS = CORPUS.parent / "faults"
OUTSIDE = "outside the recording's folder"
NOTHING = {"DEBUGINFOD_URLS": "", "PTDECODE_STASH": "off"}


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=300, env={**os.environ, **NOTHING})


HAS_NAMESPACES = os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0


class WithoutProc(unittest.TestCase):
    @unittest.skipUnless(HAS_NAMESPACES, "needs root, to hide /proc")
    def test_recordings_are_read(self):
        inputs = [SOURCE / "data/kernel/kernel.bundle"] + list(CORPUS.glob("pt-lldb-*/trace.json")) + list(CORPUS.glob("cs-a57_single_step/snapshot"))
        for path in inputs:
            with self.subTest(path=path):
                usual = run("stat", "-q", "-i", path)
                self.assertIn(usual.returncode, (0, 3), usual.stderr)
                hidden = subprocess.run(["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh", PTDECODE, "stat", "-q", "-i", path],
                                        capture_output=True, text=True, timeout=300, env={**os.environ, **NOTHING})
                self.assertTrue(hidden.stdout == usual.stdout, hidden.stdout + hidden.stderr)


class Endless(unittest.TestCase):
    @unittest.skipUnless(HAS_NAMESPACES, "needs root, for a small file system")
    def test_an_input_that_never_ends_leaves_room_on_the_disk(self):
        mebibyte = 1 << 20
        for name, shown in (("-", "standard input"), ("/dev/stdin", "/dev/stdin")):
            with tempfile.TemporaryDirectory() as folder:
                words = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64m none "$TMPDIR" && exec "$@"', "sh", PTDECODE, "stat", "-i", name]
                with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": folder}) as process:
                    sent = 0
                    try:
                        while True:
                            sent += process.stdin.write(b"PERFILE2" + bytes(mebibyte - 8))
                    except BrokenPipeError:
                        pass
                    with contextlib.suppress(BrokenPipeError):
                        process.stdin.close()
                    process.stdin = None
                    said = process.communicate(timeout=60)[1].decode()
                self.assertEqual(process.returncode, 1, said)
                self.assertRegex(said, rf"cannot spool {shown} to {folder}/ptdecode-\w+: the file system is nearly full after \d+ bytes \(TMPDIR names another folder\)")
                self.assertTrue(50 * mebibyte < sent < 62 * mebibyte, "a twentieth of 64 MiB stays free")


class HostileFiles(unittest.TestCase):
    def setUp(self):
        self.tmp = pathlib.Path(tempfile.mkdtemp(prefix="ptd-hostile-"))
        self.addCleanup(shutil.rmtree, self.tmp, ignore_errors=True)
        self.secret = self.tmp / "secret"
        self.secret.write_bytes(b"the secret of somebody else " * 400)
        self.folder = self.tmp / "rec"

    def dry(self, *words):
        got = run("bundle", *words, "--dry-run")
        self.assertEqual(got.returncode, 0, got.stderr)
        return got.stdout

    def refused(self, listing, name, why=OUTSIDE):
        lines = [line for line in listing.splitlines() if name in line and "left out: " in line]
        self.assertEqual(len(lines), 1, listing)
        self.assertIn(why, lines[0])
        self.assertEqual(lines[0].split()[0], "0")

    def take(self, name):
        if not (FAULTS / name).is_dir():
            self.skipTest(f"{FAULTS / name} is absent")
        shutil.copytree(FAULTS / name, self.folder)
        for path in self.folder.iterdir():
            path.chmod(0o644)

    def test_memory_dumps_of_a_snapshot(self):
        self.take("evil_snapshot")
        ini = self.folder / "device1.ini"
        text = ini.read_text()
        self.assertIn("file=../../../../../etc/shadow", text)
        (self.folder / "link").symlink_to("../secret")
        (self.folder / "fd").symlink_to("/proc/self/fd/0")
        (self.folder / "up").symlink_to("..")
        os.mkfifo(self.folder / "fifo")
        for named, why in ((str(self.secret), OUTSIDE), ("../secret", OUTSIDE), ("link", OUTSIDE), ("up/secret", OUTSIDE), ("x/../../secret", None),
                           ("fd", OUTSIDE), ("fifo", "not a regular file"), ("/dev/zero", OUTSIDE), ("../no such file", OUTSIDE)):
            with self.subTest(named):
                ini.write_text(text.replace("../../../../../etc/shadow", named))
                listing = self.dry(self.folder)
                self.refused(listing, pathlib.PurePath(named).name, why or "")
                made = run("bundle", self.folder, "-o", self.tmp / "out.ptb")
                self.assertEqual(made.returncode, 0, made.stderr)
                self.assertRegex(made.stdout, r"code +0\.000 MB of 0\.000 MB")
                self.assertIn("is not read: ", made.stderr)
                self.assertIn(why or "", run("stat", "-i", self.folder).stderr)
                self.assertIn(why or "", run("stat", "-i", self.tmp / "out.ptb").stderr)
        ini.write_text(text.replace("../../../../../etc/shadow", "../secret"))
        listing = self.dry(self.folder, "--allow-outside")
        self.assertRegex(listing, r"(?m)^ *[1-9]\d* +\d+  .*secret \(a memory dump of the snapshot\)$")
        # An ELF image next to the folder, as used by snapshots that share images: decoded, but not bundled.
        image = bytearray(pathlib.Path("/bin/true").read_bytes())
        ini.write_text(text.replace("../../../../../etc/shadow", "../image"))
        for machine, refused in ((62, True), (183, False)):  # EM_X86_64, EM_AARCH64
            image[18:20] = machine.to_bytes(2, "little")
            (self.tmp / "image").write_bytes(image)
            self.assertEqual("it is for x86 processors (e_machine 62)" in run("stat", "-i", self.folder).stderr, refused)
        self.assertNotIn("is not read", run("stat", "-i", self.folder).stderr)
        self.refused(self.dry(self.folder), "image", OUTSIDE)
        self.assertRegex(self.dry(self.folder, "--allow-outside"), r"(?m)image \(a memory dump of the snapshot\)$")
        # Its own files by any path that stays inside.
        (self.folder / "sub").mkdir()
        shutil.copy(self.secret, self.folder / "sub" / "code")
        (self.folder / "inner").symlink_to("sub/code")
        for named in ("sub/code", "./sub/../sub/code", "inner", str(self.folder / "sub" / "code"), "sub\\code"):
            ini.write_text(text.replace("../../../../../etc/shadow", named))
            self.assertRegex(self.dry(self.folder), r"(?m)^ *[1-9]\d* +\d+  .*(code|inner) \(a memory dump of the snapshot\)$", named)

    def test_traces_and_descriptions_of_a_snapshot(self):
        self.take("evil_aux")
        got = run("bundle", self.folder, "-o", self.tmp / "out.ptb")
        self.assertIn(OUTSIDE, got.stderr)
        self.assertRegex(got.stdout, r"trace +0\.000 MB of 0\.000 MB")
        shutil.rmtree(self.folder)
        self.take("evil_snapshot")
        packets = run("packets", "-i", self.folder).stdout
        self.assertGreater(len(packets), 100)
        shutil.move(self.folder / "CSTMC_TRACE_FIFO.bin", self.tmp / "trace")
        trace = self.folder / "trace.ini"
        text = trace.read_text()
        trace.write_text(text.replace("file=CSTMC_TRACE_FIFO.bin", "file=../trace"))
        self.assertNotEqual(run("packets", "-i", self.folder).stdout, packets)
        self.assertEqual(run("check", "-i", self.folder, "--allow-outside").returncode, 0)
        for named in ("../trace", "absent.bin", ".", "/dev/zero"):
            trace.write_text(text.replace("file=CSTMC_TRACE_FIFO.bin", f"file={named}"))
            checked = run("check", "-i", self.folder)
            self.assertEqual(checked.returncode, 3, checked.stdout + checked.stderr)
            self.assertIn("trace_lost", checked.stdout)
            run("bundle", "-i", self.folder, "-o", self.tmp / "lost.ptb")
            self.assertIn("trace_lost", run("check", "-i", self.tmp / "lost.ptb").stdout)
        trace.write_text(text.replace("file=CSTMC_TRACE_FIFO.bin", "file=../trace"))
        self.assertEqual(run("packets", "-i", self.folder, "--allow-outside").stdout, packets)
        shutil.copy(self.tmp / "trace", self.folder / "CSTMC_TRACE_FIFO.bin")
        trace.write_text(text)
        shutil.move(self.folder / "device2.ini", self.tmp / "device2.ini")
        ini = self.folder / "snapshot.ini"
        ini.write_text(ini.read_text().replace("device2.ini", "../device2.ini"))
        self.assertIn(OUTSIDE, run("stat", "-i", self.folder).stderr)
        self.assertEqual(run("packets", "-i", self.folder, "--allow-outside").stdout, packets)

    def test_modules_and_traces_of_an_lldb_bundle(self):
        original = CORPUS / "pt-lldb-single"
        if not original.is_dir():
            self.skipTest(f"{original} is absent")
        shutil.copytree(original, self.folder, copy_function=shutil.copyfile)
        trace = self.folder / "trace.json"
        description = json.loads(trace.read_text())
        module = description["processes"][0]["modules"][0]
        whole = run("script", "-i", trace, "--itrace=b").stdout
        self.assertGreater(len(whole), 100)
        shutil.move(self.folder / "a.out", self.tmp / "a.out")

        def with_module(**values):
            module.clear()
            module.update({"systemPath": "a.out", "loadAddress": 4194304, **values})
            trace.write_text(json.dumps(description))
        uuid = json.loads((original / "trace.json").read_text())["processes"][0]["modules"][0]["uuid"]
        with_module(file=str(self.tmp / "a.out"), uuid=uuid)
        self.assertEqual(run("script", "-i", trace, "--itrace=b").stdout, whole, "its recorded build id proves it")
        self.assertRegex(self.dry(trace), r"a\.out \(has the recorded build id\)")
        for values in ({"file": "../a.out"}, {"file": str(self.tmp / "a.out")}, {"file": str(self.tmp / "a.out"), "uuid": "00112233-4455-6677-8899-aabbccddeeff"},
                       {"file": str(self.secret), "uuid": uuid}):
            with_module(**values)
            self.refused(self.dry(trace), "a.out")
            self.assertIn(OUTSIDE, run("stat", "-i", trace).stderr)
        with_module(file="../a.out")
        self.assertEqual(run("script", "-i", trace, "--itrace=b", "--allow-outside").stdout, whole)
        description["processes"][0]["threads"][0]["iptTrace"] = "../trace.bin"
        shutil.copy(self.folder / "trace.bin", self.tmp / "trace.bin")
        trace.write_text(json.dumps(description))
        got = run("stat", "-i", trace)
        self.assertEqual(got.returncode, 1)
        self.assertIn(OUTSIDE, got.stderr)

    def test_links_in_the_folder_of_a_perf_recording(self):
        demo = SOURCE / "data" / "demo"
        shutil.copytree(demo, self.folder, copy_function=shutil.copyfile)
        self.assertTrue((self.folder / "kcore_dir" / "kcore").is_file())
        before = run("stat", "-i", self.folder)
        shutil.move(self.folder / "kcore_dir", self.tmp / "kcore_dir")
        for link, target in (("kcore_dir", "../kcore_dir"), ("kcore_dir", None)):
            if target:
                (self.folder / link).symlink_to(target)
            else:
                (self.folder / link).unlink()
                (self.folder / link).mkdir()
                for name in ("kcore", "kallsyms", "modules"):
                    (self.folder / link / name).symlink_to(self.tmp / "kcore_dir" / name)
            self.assertIn(OUTSIDE, run("check", "-i", self.folder).stderr)
            got = run("stat", "-i", self.folder, "--allow-outside")
            self.assertEqual(got.stdout, before.stdout)
            self.assertNotIn(OUTSIDE, got.stderr)
        shutil.move(self.folder / "data", self.tmp / "data")
        (self.folder / "data").symlink_to("../data")
        got = run("stat", "-i", self.folder)
        self.assertEqual(got.returncode, 1)
        self.assertIn(OUTSIDE, got.stderr)

    def test_what_is_no_file_of_records_in_the_folder_of_a_perf_recording(self):
        shutil.copytree(SOURCE / "data" / "demo", self.folder, copy_function=shutil.copyfile)
        before = run("stat", "-i", self.folder)
        (self.folder / "data.1").mkdir()
        os.mkfifo(self.folder / "data.2")
        checked = run("check", "-i", self.folder)
        self.assertIn("no findings in what could be read", checked.stdout)
        for what in ("data.0 is missing, and later files of its kind are there", "data.1 is no regular file: its records are not read",
                     "data.2 is no regular file: its records are not read"):
            self.assertIn(f"ptdecode: warning: {self.folder}/{what}\n", checked.stderr)
        self.assertEqual(run("stat", "-i", self.folder).stdout, before.stdout)


@unittest.skipUnless(shutil.which("qemu-x86_64") and shutil.which("cc"), "needs qemu-x86_64 and a compiler")
class MappedFiles(unittest.TestCase):
    """Files named by MMAP2 records, of a program that has no build id."""

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.tmp = pathlib.Path(cls.temporary.name)
        cls.program = cls.tmp / "program"
        cls.recording = cls.tmp / "rec"
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-w", "-static", "-Wl,--build-id=none", SOURCE / "tests/cli/programs/sorter.c", "-o", cls.program],
                       check=True)
        done = run("record", "--emulate", "--no-stash", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", cls.recording, "--", cls.program)
        assert done.returncode == 0, done.stderr
        cls.content = cls.program.read_bytes()
        cls.blocks = run("script", "-i", cls.recording, "--itrace=b", "--stash", "off").stdout

    def dry(self, *words):
        got = run("bundle", self.recording, "--stash", "off", "--dry-run", *words)
        self.assertEqual(got.returncode, 0, got.stderr)
        return got.stdout

    def line(self, listing):
        lines = [line for line in listing.splitlines() if str(self.program) in line]
        self.assertEqual(len(lines), 1, listing)
        return lines[0]

    def put(self, content):
        """Replaced in place: the inode stays, and the time is older than the recording's."""
        with open(self.program, "r+b") as file:
            file.truncate(0)
            file.write(content)
        os.utime(self.program, (1, 1))

    def test_the_recorded_file_is_bundled(self):
        self.put(self.content)
        self.assertIn("has the recorded inode", self.line(self.dry()))
        made = self.tmp / "made.ptb"
        self.assertEqual(run("bundle", self.recording, "--stash", "off", "-o", made).returncode, 0)
        blocks = run("script", "-i", made, "--itrace=b").stdout
        self.assertIn("program) {assumed}", blocks)  # the ctime is after the recording
        self.assertEqual(blocks.replace(" {assumed}", ""), self.blocks)

    def test_another_file_at_the_path_is_refused_by_all_commands(self):
        self.put(self.content)
        other = self.tmp / "other"
        other.write_bytes(self.content)
        os.utime(other, (1, 1))
        kept = self.tmp / "kept"
        self.program.rename(kept)
        self.addCleanup(kept.rename, self.program)
        other.rename(self.program)
        for command in ("functions", "stat", "script"):
            got = run(command, "-i", self.recording, "--stash", "off")
            self.assertRegex(got.stderr, f"since they were recorded: {self.program}: not used", command)
            self.assertNotIn("main", got.stdout, command)
        got = run("check", "-i", self.recording, "--stash", "off")
        self.assertRegex(got.stdout + got.stderr, f"file_changed: {self.program} is another file than the recorded one")
        self.assertIn("left out: the file at this path is not the recorded one", self.line(self.dry()))
        self.assertIn("(below --symfs)", self.line(self.dry("--allow-outside")))
        os.utime(kept, (1 << 32, 1 << 32))
        other.unlink(missing_ok=True)

    def test_a_file_newer_than_the_recording_is_not_bundled(self):
        self.put(self.content)
        os.utime(self.program, (1 << 32, 1 << 32))
        self.assertIn("left out: the file at this path is not the recorded one", self.line(self.dry()))

    def test_a_path_with_dots_does_not_lead_out_of_a_root(self):
        """The kernel records no "..". A file outside of --symfs ROOT is not read; the path counts from ROOT."""
        name = "s" * (len(str(self.program)) - len("/../"))
        evil, root = self.tmp / "evil", self.tmp / "root"
        evil.write_bytes(self.recording.read_bytes().replace(str(self.program).encode() + b"\0", b"/../" + name.encode() + b"\0"))
        self.addCleanup(evil.unlink)
        root.mkdir()
        (self.tmp / name).write_bytes(self.content)
        listing = run("bundle", evil, "--stash", "off", "--symfs", root, "--dry-run").stdout
        self.assertNotIn("below --symfs", listing)
        counted = json.loads(run("stat", "--json", "-i", evil, "--stash", "off", "--symfs", root).stdout)
        self.assertEqual([stream["instructions"] for stream in counted["streams"]], [0])
        (self.tmp / name).rename(root / name)
        listing = run("bundle", evil, "--stash", "off", "--symfs", root, "--dry-run").stdout
        self.assertRegex(listing, rf"(?m)^ *[1-9]\d* +\d+ +{root}/{name} \(below --symfs\)$")

    def test_what_is_no_code_is_never_bundled(self):
        self.put(b"root:*:1:0:::::\n" * 60000)
        self.addCleanup(self.put, self.content)
        self.assertIn("left out: no proof", self.line(self.dry()))
        kept = run("stash", "add", "--stash", self.tmp / "stash", "-i", self.recording)
        self.assertIn("neither its build id nor its content shows that it is code", kept.stderr)

    def test_only_pages_of_executable_segments_are_bundled(self):
        # One program header fewer: the text is now data, as if the recording had mapped data as code.
        content = bytearray(self.content)
        at, size, count = int.from_bytes(content[32:40], "little"), int.from_bytes(content[54:56], "little"), int.from_bytes(content[56:58], "little")
        for i in range(count):
            header = at + i * size
            if int.from_bytes(content[header:header + 4], "little") == 1:
                content[header + 4] &= 0xfe  # PF_X
        self.put(bytes(content))
        self.addCleanup(self.put, self.content)
        listing = self.dry()
        self.assertFalse([line for line in listing.splitlines() if str(self.program) in line and not line.lstrip().startswith("0 ")], listing)


class PrivateOutput(unittest.TestCase):
    """Files with code or memory of processes are accessible to their owner only; links placed there by others are not followed."""

    def setUp(self):
        self.tmp = pathlib.Path(tempfile.mkdtemp(prefix="ptd-private-"))
        self.addCleanup(shutil.rmtree, self.tmp, ignore_errors=True)

    def commands(self):
        """Each with -o, which is appended."""
        yield ["bundle", SOURCE / "data" / "demo"], True
        yield ["flame", "-i", SOURCE / "data" / "demo"], False
        if shutil.which("qemu-x86_64"):
            yield ["record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--", "/bin/true"], True

    @staticmethod
    def with_output(command, path):
        at = command.index("--") if "--" in command else len(command)
        return [*command[:at], "-o", path, *command[at:]]

    def test_mode(self):
        before = os.umask(0)
        self.addCleanup(os.umask, before)
        for command, private in self.commands():
            path = self.tmp / command[0]
            got = run(*self.with_output(command, path))
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600 if private else 0o666, command)

    @unittest.skipUnless(os.geteuid() == 0, "only root makes links of other users")
    def test_links_of_others(self):
        os.chmod(self.tmp, 0o1777)
        for command, _ in self.commands():
            for target, exists in (("victim", True), ("nothing", False)):
                link = self.tmp / f"{command[0]}-{target}"
                if exists:
                    (self.tmp / target).write_text("precious")
                link.symlink_to(self.tmp / target)
                os.lchown(link, 12345, 12345)
                got = run(*self.with_output(command, link))
                self.assertNotEqual(got.returncode, 0, command)
                self.assertTrue(link.is_symlink())
                self.assertEqual((self.tmp / target).exists(), exists)
                if exists:
                    self.assertEqual((self.tmp / target).read_text(), "precious")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + ["-v"] + sys.argv[1:])
