#!/usr/bin/env python3
"""The HTML report in headless Chromium: what it shows, search, sort, zoom, the keyboard, what a screen reader gets, dark mode, print.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, PTDECODE_BUILD (folder for the virtual environment with Playwright); PTDECODE_CORPUS;
PTDECODE_CHROMIUM (default: chromium in PATH); PTDECODE_SCREENSHOTS (a folder: pictures are kept there). Exit status 77: no Chromium, or no Playwright.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CHROMIUM = os.environ.get("PTDECODE_CHROMIUM") or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NEEDED = "playwright>=1.40"


def playwright_here():
    """Runs this script again with the interpreter of a virtual environment that has Playwright. Its own browsers are not downloaded."""
    venv = pathlib.Path(os.environ["PTDECODE_BUILD"]) / "report-test-venv"
    python = venv / "bin/python"
    if not (venv / "complete").exists():
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        if subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", NEEDED], check=False).returncode != 0:
            print("skipped: pip cannot install", NEEDED)
            sys.exit(77)
        (venv / "complete").touch()
    os.execv(python, [str(python), *sys.argv])


if CHROMIUM is None:
    print("skipped: no Chromium (Debian: apt-get install chromium)")
    sys.exit(77)
try:
    from playwright.sync_api import sync_playwright
except ImportError:
    playwright_here()

import page_reader  # noqa: E402
from page_reader import CORPUS, KERNEL, SOURCE, Page, report  # noqa: E402

# The contrast of two colours as [WCAG 2.1] "contrast ratio" defines it, for every element that shows text of its own.
CONTRAST = """() => {
  const channel = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const back = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c; } return [255, 255, 255]; };
  const low = [];
  for (const e of document.querySelectorAll('body *')) {
    if (e.closest('svg') || ![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) || !e.getClientRects().length) continue;
    const a = light(parse(getComputedStyle(e).color)), b = light(back(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(e.tagName + ' ' + e.className + ' ' + ratio.toFixed(2));
  }
  return low;
}"""


class BrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.playwright = sync_playwright().start()
        cls.addClassCleanup(cls.playwright.stop)
        cls.browser = cls.playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        cls.addClassCleanup(cls.browser.close)
        report(KERNEL, cls.folder / "kernel.html")

    def open(self, name="kernel", **options):
        page = self.browser.new_page(viewport={"width": 1280, "height": 900}, **options)
        self.addCleanup(page.close)
        self.trouble = []
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("console", lambda message: self.trouble.append(message.text) if message.type in ("error", "warning") else None)
        page.on("request", lambda request: self.trouble.append(request.url) if not request.url.startswith("file:") else None)
        page.on("dialog", lambda dialog: (self.trouble.append("dialog"), dialog.dismiss()))
        page.goto((self.folder / f"{name}.html").as_uri())
        self.addCleanup(lambda: self.assertEqual(self.trouble, []))
        return page

    def keep(self, page, name):
        if os.environ.get("PTDECODE_SCREENSHOTS"):
            page.screenshot(path=f"{os.environ['PTDECODE_SCREENSHOTS']}/{name}.png", full_page=True)

    def test_the_totals_are_those_of_the_data(self):
        page = self.open()
        data = Page((self.folder / "kernel.html").read_text()).data
        streams = data["stat"]["streams"]
        self.assertIn(f"{sum(stream['instructions'] for stream in streams):,}", page.inner_text("#all-instructions"))
        self.assertIn(f"{data['image']['all_changes']:,}", page.inner_text("#all-changes"))
        first = data["functions"]["rows"][0]
        cells = page.locator("#functions tbody tr").first.locator("th,td").all_inner_texts()
        self.assertEqual(cells[:3], [first["function"], first["module"], f"{first['calls']:,}"])
        self.assertEqual(page.locator("#functions .tall tbody tr").count(), len(data["functions"]["rows"]))

    def test_sort_by_click_and_by_keyboard(self):
        page = self.open()
        column = page.locator("#functions .tall thead button", has_text="calls")
        calls = lambda: [int(text.replace(",", "")) for text in page.locator("#functions .tall tbody tr td:nth-child(3)").all_inner_texts()]  # noqa: E731
        column.click()
        self.assertEqual(calls(), sorted(calls(), reverse=True))
        self.assertEqual(page.locator("#functions .tall th[aria-sort=descending]").inner_text(), "calls")
        column.press("Enter")
        self.assertEqual(calls(), sorted(calls()))
        self.assertEqual(page.locator("#functions .tall th[aria-sort=ascending]").count(), 1)

    def test_search_and_choose_a_function(self):
        page = self.open()
        page.get_by_label("Search functions").fill("ftrace_shutdown")
        visible = page.locator("#functions .tall tbody tr:visible")
        self.assertEqual(visible.count(), 1)
        self.assertIn("1 of", page.inner_text("#functions .controls"))
        visible.locator("button").press("Enter")
        self.assertIn("Latency of ftrace_shutdown.part.0", page.inner_text("#latency"))
        self.assertIn("--tid 1 --time 24.469949540,24.533885284", page.inner_text("#latency"))
        self.assertEqual(page.locator("#latency svg .bar").count() > 0, True)

    def test_the_flame_graph_zooms_and_searches(self):
        page = self.open()
        frames = page.locator("#flame g.frame")
        everything = frames.count()
        frame = page.locator("#flame g.frame[aria-label^='vfs_write']").first
        frame.click()
        self.assertLess(frames.count(), everything)
        self.assertIn("vfs_write", page.inner_text("#flame-info"))
        self.assertGreater(page.locator("#flame g.frame[aria-label^='vfs_write'] rect").first.bounding_box()["width"], 1000)
        page.keyboard.press("Escape")
        self.assertEqual(frames.count(), everything)
        # Down to the callee with the largest amount, right to its neighbour, Enter zooms in.
        page.locator("#flame g.frame[tabindex='0']").focus()
        page.keyboard.press("ArrowDown")
        focused = lambda: page.evaluate("document.activeElement.getAttribute('aria-label')")  # noqa: E731
        self.assertTrue(focused().startswith("init,"), focused())
        page.keyboard.press("ArrowRight")
        self.assertTrue(focused().startswith("swapper,"), focused())
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("Enter")
        self.assertIn("init", page.inner_text("#flame-info"))
        self.assertTrue(focused().startswith("init,"), focused())
        page.keyboard.press("Escape")
        page.get_by_label("Search the graph").fill("ftrace_replace_code")
        self.assertGreater(page.locator("#flame g.match").count(), 2)
        self.assertRegex(page.inner_text("#flame-info"), r"ftrace_replace_code: \d+\.\d\d % in \d+ frames")

    def test_the_slider_reads_out_a_moment(self):
        page = self.open()
        slider = page.get_by_label("Moment", exact=True)
        slider.focus()
        before = page.inner_text("#moment-text")
        for _ in range(5):
            page.keyboard.press("ArrowRight")
        self.assertNotEqual(page.inner_text("#moment-text"), before)
        self.assertEqual(slider.get_attribute("aria-valuetext"), page.inner_text("#moment-text"))
        self.assertRegex(page.inner_text("#moment-command"), r"script --call-trace --time 24\.\d{9},24\.\d{9}")
        # A click into the picture chooses the moment as well.
        box = page.locator("#timeline svg").bounding_box()
        page.locator("#timeline svg").click(position={"x": box["width"] * 0.9, "y": box["height"] / 2})
        self.assertGreater(int(slider.input_value()), 180)

    def test_the_changes_of_code(self):
        page = self.open()
        page.get_by_label("Search changes").fill("bpf_prog")
        rows = page.locator("#image .tall tbody tr:visible")
        self.assertEqual(rows.count(), 6)  # five programs that appear, one that is freed
        self.assertIn("nothing is mapped here", rows.first.inner_text())

    def test_the_image_over_time(self):
        """A click on a mark lists the changes at that moment, a click on a name those of the function; the slider does so by keyboard."""
        page = self.open()
        changes = Page((self.folder / "kernel.html").read_text()).data["image"]["changes"]
        visible = page.locator("#image .tall tbody tr:visible")
        cell = page.locator("#image svg .cell.patched").nth(2)
        moment = int(cell.get_attribute("data-bin"))
        cell.click()
        at_moment = [change for change in changes if min(239, int(change["at"] * 240)) == moment]
        self.assertEqual(visible.count(), len(at_moment))
        self.assertTrue(page.get_by_label("only the changes at this moment").is_checked())
        self.assertEqual(visible.first.locator("th").inner_text(), at_moment[0]["time"])
        slider = page.get_by_label("Moment of the image")
        slider.focus()
        page.keyboard.press("End")
        at_end = [change for change in changes if int(change["at"] * 240) >= 239]
        self.assertEqual(visible.count(), len(at_end))
        self.assertEqual(page.get_by_label("Moment", exact=True).input_value(), "239")  # both move
        name = page.locator("#image svg .label.row[data-name=ftrace_call]").first
        name.click()
        self.assertEqual(visible.count(), sum("ftrace_call" in " ".join(map(str, change.values())) for change in changes))
        # Each patched place of the list is marked in a picture, in its row and its part of the time.
        marked = {(int(mark.get_attribute("data-bin"))) for mark in page.locator("#image svg .cell").all()}
        listed = {min(239, int(change["at"] * 240)) for change in changes if change["kind"] in ("patched", "created", "removed")}
        self.assertEqual(marked, listed)

    def test_what_a_screen_reader_gets(self):
        page = self.open()
        nameless = page.evaluate("""() => [...document.querySelectorAll('button, input, a, [role=button], svg[role], [role=region], table')].filter((e) =>
          !(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length))).map((e) => e.outerHTML.slice(0, 80))""")
        self.assertEqual(nameless, [])
        levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map((e) => Number(e.tagName[1]))")
        self.assertEqual(levels[0], 1)
        self.assertTrue(all(b - a <= 1 for a, b in zip(levels, levels[1:])), levels)
        for each in page.locator("section").all():
            self.assertNotEqual(page.locator("#" + each.get_attribute("aria-labelledby")).count(), 0)
        for part, title in (("timeline", "The timeline as a table"), ("latency", "The histogram as a table"), ("flame", "Callees of the zoomed frame"),
                            ("image", "The mappings as a table")):
            self.assertEqual(page.locator(f"#{part} summary", has_text=title).count(), 1, part)
        page.keyboard.press("Tab")
        self.assertEqual(page.evaluate("document.activeElement.className"), "skip")
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
        self.assertEqual(len(ids), len(set(ids)))

    def test_light_dark_and_narrow(self):
        for scheme in ("light", "dark"):
            page = self.open(color_scheme=scheme)
            self.assertEqual(page.evaluate(CONTRAST), [], scheme)
            self.keep(page, f"kernel-{scheme}")
        page = self.open()
        page.set_viewport_size({"width": 420, "height": 800})
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 420)

    def test_print(self):
        page = self.open()
        page.emulate_media(media="print")
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        self.assertEqual(page.locator("nav:visible, .controls:visible, button.copy:visible").count(), 0)
        self.assertEqual(page.locator("details:not([open])").count(), 0)
        self.keep(page, "kernel-print")
        paper = page.pdf(format="A4")
        self.assertTrue(paper.startswith(b"%PDF"))
        self.assertLess(paper.count(b"/Type /Page\n") + paper.count(b"/Type /Page "), 60)

    def test_hostile_names_stay_text(self):
        recording = self.folder / "rec"
        shutil.copytree(SOURCE / "data/demo", recording)
        kallsyms = recording / "kcore_dir/kallsyms"
        kallsyms.chmod(0o644)
        kallsyms.write_bytes(kallsyms.read_bytes().replace(b"hot_keys", b"<img/s=x").replace(b"hot_traced", b"'><s>&lt;\"x"[:10]))
        report(recording, self.folder / "hostile.html")
        page = self.open("hostile")
        self.assertEqual(page.locator("main img, main s").count(), 0)
        self.assertIn("<img/s=x", page.inner_text("#functions"))

    def test_other_recordings_open(self):
        made = {"jit": SOURCE / "data/user/jit.bundle", "arm": SOURCE / "data/arm/changes.bundle", "coresight": CORPUS / "cs-juno_r1_1/snapshot"}
        program = page_reader.record_program(self.folder)
        if program is not None:
            made.update(program=program, lossy=page_reader.with_losses(program, self.folder / "lossy.data"),
                        empty=page_reader.without_trace(program, self.folder / "empty.data"))
        for name, path in made.items():
            if not path.exists():
                continue
            report(path, self.folder / f"{name}.html")
            page = self.open(name)
            self.assertEqual(page.locator("main > section").count(), 8, name)
            self.assertEqual(self.trouble, [], name)
            self.keep(page, name)


if __name__ == "__main__":
    unittest.main(verbosity=1)
