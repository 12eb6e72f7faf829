#!/usr/bin/env python3
"""`ptdecode report`: one file that fetches nothing, below 5 MB, whose numbers equal those of `info`, `stat`, `functions`, `flame` and `check`.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC; PTDECODE_CORPUS. Skips what needs qemu-x86_64 or the corpus.
"""
import collections
import json
import pathlib
import re
import shutil
import tempfile
import unittest

import page_reader
from page_reader import CORPUS, KERNEL, SOURCE, Page, lines, report, run

MOST_BYTES = 5_000_000
# Elements and attributes with which a page would fetch something.
FETCHES = {"link", "img", "iframe", "object", "embed", "base", "form", "video", "audio", "source"}
# Names that would end the data or begin markup. Each is as long as the name that it replaces.
NAMES = {b"demo/0-a": b"</script", b"demo/0-b": b"<img src>"[:8], b"6.1.0-demo": b"<!--<scri>", b"ftrace_trampoline": b"\xff\x1b]\"'</script>\xe2\x80\xae"}
SYMBOLS = {b"hot_keys": b"<b>&amp;", b"hot_traced": b"a\x07b\xc2\x9b</s>c"}


HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029]")


def texts_of(value):
    """Yields every string in a JSON document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts_of(each)


def shown(value):
    """As the page shows the text of a JSON document: control and hidden characters are escaped; U+FFFD stands for bytes that are not UTF-8."""
    if isinstance(value, str):
        return re.sub(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029]", lambda m: "".join(f"\\x{byte:02x}" for byte in m.group().encode()), value)
    if isinstance(value, list):
        return [shown(each) for each in value]
    return {key: shown(each) for key, each in value.items()} if isinstance(value, dict) else value


class ReportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.program = page_reader.record_program(cls.folder)

    def page(self, recording, *words):
        raw = report(recording, self.folder / "page.html", *words)
        self.assertLess(len(raw), MOST_BYTES)
        text = raw.decode("utf-8")
        page = Page(text)
        self.assertEqual([tag for tag, _ in page.tags if tag in FETCHES], [])
        for tag, attributes in page.tags:
            self.assertEqual({"src", "srcset", "action", "onload", "onerror"} & set(attributes), set(), tag)
            self.assertTrue(attributes.get("href", "#").startswith("#"), tag)
        policy = next(attributes["content"] for tag, attributes in page.tags if attributes.get("http-equiv") == "Content-Security-Policy")
        self.assertIn("default-src 'none'", policy)
        self.assertNotRegex(next(text for attributes, text in page.scripts if "id" in attributes), "[<>&]")
        self.assertEqual([each for each in texts_of(page.data) if HIDDEN.search(each.replace("\n", ""))], [])
        own = "".join(text for attributes, text in page.scripts if "id" not in attributes)
        self.assertEqual(set(re.findall(r"https?://[^'\"\s]*", own)), {"http://www.w3.org/2000/svg"})  # the name of a namespace
        self.assertNotRegex(own, r"\bfetch\(|XMLHttpRequest|import\(|innerHTML|insertAdjacentHTML|document\.write|\beval\(")
        return page

    def compare(self, recording, *words):
        """Returns the page after comparing it with the commands."""
        data = self.page(recording, *words).data
        info = json.loads(run("info", "--json", "-q", "-i", recording, *words).stdout)
        self.assertEqual(data["info"], shown(info))
        check = json.loads(run("check", "--json", "-q", "-i", recording, *words).stdout)
        self.assertEqual(data["check"], shown(check))
        if not data["info"]["streams"]:
            return data
        stat = json.loads(run("stat", "--json", "-q", "-i", recording, *words).stdout)
        self.assertEqual(data["stat"], shown(stat))
        rows = [row for row in data["density"]["rows"] if row["kind"] == "stream"]
        self.assertEqual([row["instructions"] for row in rows], [stream["instructions"] for stream in stat["streams"]])
        self.assertEqual([row["gaps"] for row in rows], [sum(gap["count"] for gap in stream["gaps"].values()) for stream in stat["streams"]])
        self.assertEqual([row["interrupts"] for row in rows], [stream.get("events", {}).get("async_branch", 0) for stream in stat["streams"]])
        self.assertEqual(sum(row["instructions"] for row in data["density"]["rows"] if row["kind"] == "thread"), sum(row["instructions"] for row in rows))
        for row in data["density"]["rows"]:
            self.assertLessEqual(sum(row["bins"]), row["instructions"])
        self.compare_functions(data, recording, words)
        return data

    def compare_functions(self, data, recording, words):
        head, *functions = lines("functions", "--json", "-q", "-i", recording, *words)
        self.assertEqual((data["functions"]["timed"], data["functions"]["all"]), (head["timed"], len(functions)))
        self.assertEqual(data["functions"]["rows"], shown(functions[:1000]))
        for number, detail in list(data["functions"]["details"].items())[:8]:
            row = data["functions"]["rows"][int(number)]
            self.assertEqual(sum(calls for _, _, calls in detail["latencies"]), row["calls"] - row["no_end"])
            counted = 0  # the median is in the class that holds half of the calls
            for first, end, calls in detail["latencies"]:
                if counted < (row["calls"] - row["no_end"] + 1) // 2 <= counted + calls:
                    self.assertLessEqual(first, row["p50_ns"] * 1.01)
                    self.assertLess(row["p50_ns"] * 0.99, end)
                counted += calls
            if all(call["call"] == row["function"] for call in detail["slowest"]) and [each["function"] for each in functions].count(row["function"]) == 1:
                slow = [each for each in lines("functions", "--json", "-q", "-i", recording, "--func", row["function"], "--slowest", 1000, *words)
                        if each.get("call") == row["function"]]
                self.assertEqual([{key: value for key, value in each.items() if key != "took_ns"} for each in detail["slowest"]], shown(slow[:5]))
        self.compare_flame(data, recording, words)

    def compare_flame(self, data, recording, words):
        flame, folded = data["flame"], collections.Counter()
        for line in run("flame", "--format", "folded", "-q", "-i", recording, *words).stdout.decode().splitlines():
            stack, amount = line.rsplit(" ", 1)
            folded[stack] += int(amount)
        if not flame["frames"]:
            return
        self.assertEqual(flame["frames"][0][2], sum(folded.values()))
        stacks = [""]
        own = collections.Counter()
        for name, parent, _, self_amount, _ in flame["frames"][1:]:
            text = flame["names"][name].replace(";", ":").replace(" ", "_")
            stacks.append(stacks[parent] + ";" + text if parent else text)
            own[stacks[-1]] += self_amount
        for stack, amount in own.items():
            if amount and len(stack) < 250:
                self.assertEqual(amount, folded[stack], stack)
        if len(flame["frames"]) == flame["all"]:
            self.assertEqual(sum(own.values()), flame["frames"][0][2])

    def test_a_kernel_that_patches_itself(self):
        data = self.compare(KERNEL)
        image = data["image"]
        self.assertEqual(image["all_changes"], len(image["changes"]))
        # Each patch and its bytes against `image --versions`.
        for change in [each for each in image["changes"] if each["kind"] == "patched"][:20]:
            text = run("image", "-q", "-i", KERNEL, change["ip"], "--versions", "--size", change["size"]).stdout.decode()
            for side in ("before", "after"):
                first = change[side].splitlines()[0].split("  ")[0]
                self.assertIn(first, text)
        sites = run("image", "-q", "-i", KERNEL).stdout.decode().splitlines()[-1]
        self.assertTrue(sites.startswith(f"{image['sections']} sections; {image['places']} places"), sites)
        kinds = {mark["name"]: mark["all"] for mark in image["marks"]}
        self.assertEqual(sum(kinds.values()), image["all_changes"])
        self.assertIn("BPF programs loaded or freed", kinds)
        rows = data["density"]["rows"]
        self.assertEqual([sum(row["bins"]) for row in rows], [row["instructions"] for row in rows])
        for row in [row for row in rows if row["kind"] == "thread" and row["name"] != "swapper"][:4]:
            own = lines("functions", "--json", "-q", "-i", KERNEL, "--tid", row["name"].split()[-1])
            self.assertEqual(row["instructions"], sum(each.get("self_instructions", 0) for each in own), row["name"])

    def test_generated_and_patched_user_code(self):
        for name in ("jit", "patch"):
            data = self.compare(SOURCE / f"data/user/{name}.bundle")
            self.assertNotEqual(data["image"]["all_changes"], 0, name)

    def test_arm(self):
        self.compare(SOURCE / "data/arm/changes.bundle")

    def test_a_program_under_the_emulator(self):
        if self.program is None:
            self.skipTest("needs qemu-x86_64")
        data = self.compare(self.program)
        self.assertIn("leaf", [row["function"] for row in data["functions"]["rows"]])

    def test_a_lossy_recording(self):
        if self.program is None:
            self.skipTest("needs qemu-x86_64")
        data = self.compare(page_reader.with_losses(self.program, self.folder / "lossy.data"))
        self.assertNotEqual(sum(row["gaps"] for row in data["density"]["rows"] if row["kind"] == "stream"), 0)
        self.assertNotEqual(data["findings"], [])

    def test_a_recording_without_trace(self):
        if self.program is None:
            self.skipTest("needs qemu-x86_64")
        data = self.compare(page_reader.without_trace(self.program, self.folder / "empty.data"))
        self.assertEqual((data["info"]["streams"], data["functions"]["rows"]), ([], []))

    def test_coresight_captures(self):
        captures = [path for path in (CORPUS / "cs-juno_r1_1/snapshot", CORPUS / "cs-simpleperf-missing-aux/perf.data") if path.exists()]
        if not captures:
            self.skipTest("needs the corpus")
        for path in captures:
            self.compare(path)

    def test_missing_code_says_what_to_supply(self):
        if self.program is None:
            self.skipTest("needs qemu-x86_64")
        program = self.folder / "program"
        away = program.rename(self.folder / "away")
        try:
            data = self.compare(self.program)
        finally:
            away.rename(program)
        self.assertEqual([line["path"] for line in data["stat"]["missing_code"]], [str(program)])
        self.assertIn("--symfs", data["stat"]["missing_code"][0]["supply"])

    def test_hostile_names(self):
        recording = self.folder / "hostile </title><script>alert(1)</script>"
        shutil.copytree(SOURCE / "data/demo", recording)
        for name, words in (("data", NAMES), ("kcore_dir/kallsyms", SYMBOLS)):
            content = (recording / name).read_bytes()
            for plain, odd in words.items():
                odd = odd[:len(plain)].ljust(len(plain), b"x")
                self.assertIn(plain, content)
                content = content.replace(plain, odd)
            (recording / name).chmod(0o644)
            (recording / name).write_bytes(content)
        page = self.page(recording)
        plain = self.page(SOURCE / "data/demo")
        self.assertEqual([tag for tag, _ in page.tags], [tag for tag, _ in plain.tags])  # no name became an element
        self.assertEqual(page.title, str(recording))
        report(recording, self.folder / "page.html")
        text = (self.folder / "page.html").read_text(encoding="utf-8")
        self.assertEqual([c for c in text if (c < " " and c != "\n") or "\x7f" <= c <= "\x9f" or c in "\u202e\u2028"], [])
        self.assertEqual(text.count("</script>"), 2)
        self.assertIn("</script", [thread["comm"] for thread in page.data["info"]["threads"]])
        names = json.dumps(page.data, ensure_ascii=False)
        for odd in ("<b>&amp;", r"a\\x07b\\xc2\\x9b</"):
            self.assertIn(odd, names)

    def test_the_page_stays_below_5_mb(self):
        """Long names, many mappings: the lists are halved until the page fits, and it says what it left out."""
        if self.program is None:
            self.skipTest("needs qemu-x86_64")
        source = self.folder / "many.c"
        count = 1500
        body = "".join(f"__attribute__((noinline)) int {'f' * 1500}{i}(int x) {{ return x + {i} * sink; }}\n" for i in range(count))
        calls = "".join(f"sum += {'f' * 1500}{i}(sum);\n" for i in range(count))
        source.write_text(f"static volatile int sink;\n{body}int main(void) {{ int sum = 0; {calls} return sum == 1; }}\n")
        page_reader.subprocess.run([page_reader.os.environ.get("CC", "cc"), "-O1", "-static", "-o", self.folder / "many", source], check=True)
        run("record", "--emulate", "--plugin", page_reader.os.environ["PTDECODE_PLUGIN"], "--no-stash", "-q", "-o", self.folder / "many.data", "--", self.folder / "many")
        data = self.page(self.folder / "many.data").data
        self.assertTrue(any("functions are shown" in each for each in data["cuts"]), data["cuts"])
        self.assertTrue(all(len(name) <= 303 for name in data["flame"]["names"]))

    def test_an_output_that_cannot_be_written(self):
        done = run("report", "-q", "-i", KERNEL, "-o", "/nonexistent/x.html", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"/nonexistent", done.stderr)
        self.assertEqual(run("report", "-q", "-i", KERNEL, check=False).returncode, 2)


if __name__ == "__main__":
    unittest.main(verbosity=1)
