#!/usr/bin/env python3
"""Code that is not where it was recorded: debuginfod (the test's own server), file systems of processes, mappings given as options; and the
messages if nothing is found.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
"""
import ctypes.util
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zlib

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])


def run(*words, environment=None):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=120, env={**os.environ, **(environment or {})})


class Server:
    """Serves files by build id with debuginfod's HTTP interface; records the requests."""

    def __init__(self, files):
        asked = self.asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                content = files.get(self.path)
                self.send_response(200 if content is not None else 404)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class BadServer:
    """A server that sends too much, or nothing, except for `files`; counts the bytes sent, unpacked, until the client closes the connection."""

    def __init__(self, kind, files=None):
        self.sent, self.asked, self.gone = 0, threading.Event(), threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                content = (files or {}).get(self.path)
                if not content:
                    outer.asked.set()
                if kind != "silent" or content:
                    self.send_response(200)
                    if kind == "declared":
                        self.send_header("Content-Length", str(1 << 40))
                    if kind == "packed" and not content:
                        self.send_header("Content-Encoding", "gzip")
                    self.end_headers()
                gzip_window = 31  # 15 bits, and 16 for gzip's header
                packed = zlib.compressobj(9, zlib.DEFLATED, gzip_window)
                try:
                    if content:
                        self.wfile.write(content)
                    while not content and kind == "packed" and outer.sent < 2 << 30:
                        self.wfile.write(packed.compress(bytes(1 << 20)) + packed.flush(zlib.Z_SYNC_FLUSH))
                        outer.sent += 1 << 20
                    while not content and kind != "silent" and outer.sent < 2 << 30:
                        self.wfile.write(b"\x7fELF" + bytes(1 << 20))
                        outer.sent += 1 << 20
                    if not content and kind == "silent":
                        self.rfile.read(1)  # until the client closes the connection
                except OSError:
                    pass
                outer.gone.set()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


# A libdebuginfod that waits for a reply and calls no progress function until it has one, as version 0.192 does with a silent server. It creates $ASKED, and the file
# of a long reply if a folder for it is set.
SILENT_LIBRARY = """
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
static int client;
void* debuginfod_begin(void) { return &client; }
void debuginfod_end(void* c) { (void)c; }
void debuginfod_set_progressfn(void* c, int (*f)(void*, long, long)) { (void)c, (void)f; }
int debuginfod_find_executable(void* c, const unsigned char* id, int size, char** path) {
  char name[4096];
  (void)c, (void)size, (void)path;
  if (getenv("DEBUGINFOD_CACHE_PATH") != 0) {
    snprintf(name, sizeof name, "%s/%s", getenv("DEBUGINFOD_CACHE_PATH"), (const char*)id);
    mkdir(name, 0700);
    snprintf(name, sizeof name, "%s/%s/executable.a1B2c3", getenv("DEBUGINFOD_CACHE_PATH"), (const char*)id);
    ftruncate(creat(name, 0600), 1ll << 32);
  }
  if (getenv("ASKED") != 0) close(creat(getenv("ASKED"), 0600));
  for (;;) pause();
}
int debuginfod_find_debuginfo(void* c, const unsigned char* id, int size, char** path) { return debuginfod_find_executable(c, id, size, path); }
"""


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.program = cls.folder / "sorter"
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-g", "-fno-inline", "-w", "-static", "-Wl,--build-id=sha1", SOURCE / "tests/cli/programs/sorter.c", "-o",
                        cls.program], check=True)
        done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", cls.folder / "rec", "--", cls.program)
        assert done.returncode == 0, done.stderr
        cls.whole = run("functions", "-i", cls.folder / "rec", "-q", "--limit", "0").stdout
        note = subprocess.run(["readelf", "-n", cls.program], capture_output=True, text=True, check=True).stdout
        cls.build_id = re.search(r"Build ID: (\w+)", note)[1]
        os.makedirs(cls.folder / "away")
        cls.kept = cls.folder / "away" / "kept"
        shutil.move(cls.program, cls.kept)
        subprocess.run(["objcopy", "--only-keep-debug", cls.kept, cls.folder / "away" / "debug"], check=True)
        subprocess.run(["strip", "-o", cls.folder / "away" / "bare", cls.kept], check=True)
        info = json.loads(run("info", "--json", "-i", cls.folder / "rec").stdout)
        cls.pid = next(thread["pid"] for thread in info["threads"])

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def decode(self, *words, environment=None):
        return run("functions", "-i", self.folder / "rec", "-q", "--limit", "0", *words, environment=environment)

    def with_server(self, files, *words):
        server = Server(files)
        self.addCleanup(server.close)
        cache = tempfile.TemporaryDirectory()
        self.addCleanup(cache.cleanup)
        done = self.decode(*words, environment={"DEBUGINFOD_URLS": server.url, "DEBUGINFOD_CACHE_PATH": cache.name})
        return done, server.asked

    def test_what_is_missing_is_named_with_what_to_paste(self):
        done = run("stat", "-i", self.folder / "rec", environment={"DEBUGINFOD_URLS": ""})
        self.assertIn("missing code, by share of the trace lost:", done.stderr)
        self.assertIn(f"{self.program} build id {self.build_id}", done.stderr)
        self.assertIn(f"debuginfod-find executable {self.build_id}", done.stderr)
        self.assertIn("no_image: the code was not found", done.stdout)

    @unittest.skipUnless(ctypes.util.find_library("debuginfod"), "libdebuginfod is not installed")
    def test_debuginfod_is_asked(self):
        files = {f"/buildid/{self.build_id}/executable": self.kept.read_bytes()}
        done, asked = self.with_server(files)
        self.assertEqual(done.stdout, self.whole)
        self.assertIn(f"/buildid/{self.build_id}/executable", asked)
        done, asked = self.with_server(files, "--no-debuginfod")
        self.assertNotEqual(done.stdout, self.whole)
        self.assertEqual(asked, [])

    @unittest.skipUnless(ctypes.util.find_library("debuginfod"), "libdebuginfod is not installed")
    def test_debug_information_comes_from_debuginfod_too(self):
        files = {f"/buildid/{self.build_id}/executable": (self.folder / "away" / "bare").read_bytes(),
                 f"/buildid/{self.build_id}/debuginfo": (self.folder / "away" / "debug").read_bytes()}
        done, asked = self.with_server(files)
        self.assertIn("by_length", done.stdout)
        self.assertEqual(asked.count(f"/buildid/{self.build_id}/debuginfo"), 1)
        without, _ = self.with_server({f"/buildid/{self.build_id}/executable": (self.folder / "away" / "bare").read_bytes()})
        self.assertNotIn("by_length", without.stdout)

    @unittest.skipUnless(ctypes.util.find_library("debuginfod"), "libdebuginfod is not installed")
    def test_a_wrong_answer_is_refused_and_no_answer_is_named(self):
        done, _ = self.with_server({f"/buildid/{self.build_id}/executable": pathlib.Path("/bin/true").read_bytes()})
        self.assertNotEqual(done.stdout, self.whole)
        done = run("check", "-i", self.folder / "rec", environment={"DEBUGINFOD_URLS": "http://127.0.0.1:9/", "DEBUGINFOD_CACHE_PATH": str(self.folder / "cache")})
        self.assertRegex(done.stdout + done.stderr, r"debuginfod: .*: not tried again")

    def bad_server(self, kind, files=None):
        server = BadServer(kind, files)
        self.addCleanup(server.close)
        cache = tempfile.TemporaryDirectory()
        self.addCleanup(cache.cleanup)
        return server, pathlib.Path(cache.name), {"DEBUGINFOD_URLS": server.url, "DEBUGINFOD_CACHE_PATH": cache.name}

    @unittest.skipUnless(ctypes.util.find_library("debuginfod"), "libdebuginfod is not installed")
    def test_debuginfod_sends_more_than_there_can_be(self):
        allowed = (64 << 20) + 64 * self.kept.stat().st_size  # limit derived from the recorded size of the program
        for kind in ("endless", "declared", "packed"):
            server, cache, environment = self.bad_server(kind)
            done = run("stat", "-i", self.folder / "rec", environment=environment)
            self.assertRegex(done.stderr, r"debuginfod: a reply (of|that unpacks to) more than \d+ MiB: not tried again", kind)
            self.assertTrue(server.gone.wait(60))
            if kind != "packed":  # which fits the connection's buffers as a whole
                self.assertLess(server.sent, 2 * allowed, kind)
            self.assertEqual([path for path in cache.rglob("*") if path.parent.name == self.build_id], [], "nothing of it stays, not even as 'not found'")

    @unittest.skipUnless(ctypes.util.find_library("debuginfod"), "libdebuginfod is not installed")
    def test_debuginfod_says_nothing(self):
        _, _, environment = self.bad_server("silent")
        self.check_silence(environment)

    def test_a_library_that_says_nothing(self):
        self.check_silence(self.silent_library())

    def check_silence(self, environment):
        start = time.monotonic()
        done = run("stat", "-i", self.folder / "rec", environment=environment)
        self.assertRegex(done.stderr, r"debuginfod: fewer than 64 bytes in 10 s: not tried again")
        self.assertLess(time.monotonic() - start, 60)

    def silent_library(self):
        folder = self.folder / "silent"
        folder.mkdir(exist_ok=True)
        source = folder / "silent.c"
        source.write_text(SILENT_LIBRARY)
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", source, "-o", folder / "libdebuginfod.so.1"], check=True)
        return {"DEBUGINFOD_URLS": "http://127.0.0.1:9/", "LD_LIBRARY_PATH": str(folder)}

    @unittest.skipUnless(ctypes.util.find_library("debuginfod"), "libdebuginfod is not installed")
    def test_ctrl_c_ends_a_download(self):
        # For the program while the recording is opened; for its debug information while it is decoded.
        for files in ({}, {f"/buildid/{self.build_id}/executable": (self.folder / "away" / "bare").read_bytes()}):
            server, _, environment = self.bad_server("silent", files)
            self.check_ctrl_c(environment, server.asked.is_set)

    def test_ctrl_c_ends_a_silent_library(self):
        asked = self.folder / "asked"
        self.check_ctrl_c(self.silent_library() | {"ASKED": str(asked)}, asked.exists)

    def test_a_library_that_does_not_end_leaves_no_file(self):
        cache = self.folder / "cache_of_silent"
        cache.mkdir()
        done = run("stat", "-i", self.folder / "rec", environment=self.silent_library() | {"DEBUGINFOD_CACHE_PATH": str(cache)})
        self.assertRegex(done.stderr, r"debuginfod: a reply that unpacks to more than \d+ MiB: not tried again")
        self.assertEqual([path.name for path in cache.iterdir()], [self.build_id])
        self.assertEqual(list((cache / self.build_id).iterdir()), [])

    def check_ctrl_c(self, environment, is_asked):
        with subprocess.Popen([PTDECODE, "functions", "-i", str(self.folder / "rec")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, **environment}) as process:
            deadline = time.monotonic() + 60
            while not is_asked() and time.monotonic() < deadline:
                time.sleep(0.02)
            self.assertTrue(is_asked())
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
            self.assertNotIn("fewer than 64 bytes", out + err)
            self.assertIn(process.returncode, (-signal.SIGINT, 0, 130), err)

    def test_a_process_has_a_file_system_of_its_own(self):
        root = self.folder / "box"
        place = root / str(self.program)[1:]
        os.makedirs(place.parent)
        shutil.copy(self.kept, place)
        self.assertEqual(self.decode("--symfs", f"{self.pid}={root}", environment={"DEBUGINFOD_URLS": ""}).stdout, self.whole)
        none = {"DEBUGINFOD_URLS": ""}
        other = run("functions", "-i", self.folder / "rec", "--limit", "0", "--symfs", f"{self.pid + 1}={root}", environment=none)
        self.assertNotEqual(other.stdout, self.whole)
        self.assertIn(f"--symfs {self.pid + 1}={root}: no process {self.pid + 1} was recorded", other.stderr)
        # A copy that is newer than the recording is proven by its build id, as below a plain root.
        for words in ([f"{root}"], [f"{self.pid}={root}"], [f"{self.pid}={self.folder}", f"{self.pid}={root}"]):
            options = [word for each in words for word in ("--symfs", each)]
            stat = run("stat", "-i", self.folder / "rec", "--stash", "off", *options, environment=none)
            self.assertNotIn("may have changed", stat.stderr)
            self.assertNotIn("file_changed", stat.stdout)
            self.assertNotIn("was recorded", stat.stderr)
            listed = json.loads(run("info", "--json", "-i", self.folder / "rec", "--stash", "off", *options, environment=none).stdout)
            self.assertEqual([image["found"] for image in listed["images"] if image["path"] == str(self.program)], [True])
        absent = run("stat", "-i", self.folder / "rec", "--symfs", f"{self.pid}={root}/absent", environment=none)
        self.assertIn(f"--symfs: folder {root}/absent does not exist; no files of its process are found in it", absent.stderr)
        empty = run("stat", "-i", self.folder / "rec", "--symfs", f"{self.pid}=")
        self.assertEqual((empty.returncode, f"'{self.pid}=' names no folder" in empty.stderr), (2, True), empty.stderr)

    def test_options_for_processes_have_no_effect_without_processes(self):
        bundle = self.folder / "rec.bundle"
        made = run("bundle", "-i", self.folder / "rec", "-o", bundle, "--symfs", self.folder / "away")
        self.assertEqual(made.returncode, 0, made.stderr)
        bts = SOURCE / "tests/cli/files_test.py"
        for words in (["-i", bundle], ["--pt", self.raw_trace(), "--image", f"{bts}@0x1000"]):
            said = run("stat", *words, "--symfs", f"{self.pid}={self.folder}", "--map", f"{self.pid}:{self.kept}@400000").stderr
            for name in ("--map", "--symfs PID=ROOT"):
                self.assertIn(f"{name} has no effect", said)

    def raw_trace(self):
        path = self.folder / "raw.pt"
        path.write_bytes(bytes.fromhex("0282" * 8 + "0223") + bytes(32))
        return path

    def test_code_for_other_processors_is_not_used(self):
        """A file whose ELF header names another machine has no code of the trace, wherever it is found."""
        none = {"DEBUGINFOD_URLS": ""}
        content = bytearray(self.kept.read_bytes())
        content[18:20] = (183).to_bytes(2, "little")  # e_machine: EM_AARCH64
        root = self.folder / "arm"
        place = root / str(self.program)[1:]
        os.makedirs(place.parent)
        place.write_bytes(content)
        said = "is for Arm processors (e_machine 183), but the trace is of an x86 processor"
        for symfs in (root, f"{self.pid}={root}"):
            checked = run("check", "-i", self.folder / "rec", "--stash", "off", "--symfs", symfs, environment=none)
            self.assertIn(f"{place} {said}: not used", checked.stdout)
            stat = json.loads(run("stat", "--json", "-i", self.folder / "rec", "--stash", "off", "--symfs", symfs, environment=none).stdout)
            self.assertEqual(stat["streams"][0]["instructions"], 0)
        mapped = run("stat", "-i", self.folder / "rec", "--stash", "off", "--map", f"{self.pid}:{place}@400000", environment=none)
        self.assertIn(f"--map {place} {said}: not used", mapped.stderr)
        image = run("stat", "--pt", self.raw_trace(), "--image", f"{place}@400000")
        self.assertEqual((image.returncode != 0, f"{place} {said}" in image.stderr), (True, True), image.stderr)

    def test_results_replace_links_and_go_to_devices(self):
        place = self.folder / "results"
        place.mkdir()
        shutil.copy(self.kept, self.program)
        self.addCleanup(self.program.unlink)
        (place / "target").write_text("old")
        (place / "null").symlink_to("/dev/null")
        os.mkfifo(place / "fifo")
        for words in (("flame", "--format", "folded"), ("timeline",), ("coverage",), ("profile", "--format", "bolt", "--dso", "sorter")):
            made = run(*words, "-q", "-i", self.folder / "rec", "-o", place / "plain")
            self.assertEqual(made.returncode, 0, made.stderr)
            whole = (place / "plain").read_bytes()
            self.assertTrue(whole)
            (place / "link").unlink(missing_ok=True)
            (place / "link").symlink_to("target")
            for name in ("link", "null", "fifo", "/dev/stdout"):
                got = []
                reader = threading.Thread(target=lambda: got.append((place / "fifo").read_bytes()))  # noqa: B023
                if name == "fifo":
                    reader.start()
                done = subprocess.run([PTDECODE, *words, "-q", "-i", self.folder / "rec", "-o", place / name], capture_output=True, timeout=120)
                self.assertEqual(done.returncode, 0, (words, name, done.stderr))
                if name == "fifo":
                    reader.join(60)
                    self.assertEqual(got, [whole])
                self.assertEqual(done.stdout, whole if name == "/dev/stdout" else b"")
            self.assertEqual((place / "target").read_text(), "old")
            self.assertEqual((place / "link").read_bytes(), whole)
            self.assertTrue(not (place / "link").is_symlink() and (place / "null").is_symlink() and (place / "null").is_char_device())
            self.assertEqual(sorted(os.listdir(place)), ["fifo", "link", "null", "plain", "target"])

    def test_a_mapping_can_be_given(self):
        words = []
        for line in subprocess.run(["readelf", "-lW", self.kept], capture_output=True, text=True, check=True).stdout.splitlines():
            match = re.match(r"^ +LOAD +(0x\w+) (0x\w+) 0x\w+ (0x\w+) 0x\w+ R E", line)
            if match:
                offset, address, size = (int(each, 16) for each in match.groups())
                words = ["--map", f"{self.pid}:{self.kept},off={offset},size={size}@{address:x}"]
        done = self.decode(*words, environment={"DEBUGINFOD_URLS": ""})

        def numbers(text):  # the names contain another file name
            return [re.sub(r"\S+(?=\+0x)", "", line.rsplit(" (", 1)[0]) for line in text.splitlines()]
        self.assertEqual(numbers(done.stdout), numbers(self.whole))
        marked = json.loads(run("stat", "--json", "-i", self.folder / "rec", *words).stdout)
        self.assertEqual(marked["streams"][0]["code"]["assumed"]["instructions"], marked["streams"][0]["instructions"])
        for wrong in ("812", "x:/bin/true@400000", "812:/bin/true", "0:/bin/true@400000"):
            refused = run("stat", "-i", self.folder / "rec", "--map", wrong)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("is not PID:FILE", refused.stderr)


if __name__ == "__main__":
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        sys.exit(77)
    unittest.main(verbosity=2)
