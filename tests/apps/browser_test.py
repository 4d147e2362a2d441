#!/usr/bin/env python3
"""Pages in real Chromium: usage: browser_test.py COMMAND"""

import json
import time

from support import CommandTest, unittest

from browser import Browser

# What is painted: whether a canvas of the chart has pixels of the color of its curves.
PAINTED = """
const chart = arguments[0].querySelector('canvas');
const pixels = chart.getContext('2d').getImageData(0, 0, chart.width, chart.height).data;
let strong = 0;
for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] > 200) ++strong;
return strong;
"""


class PageTest(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = Browser()
        cls.browser.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        super().tearDownClass()


class ReportPage(PageTest):
    def open_report(self, *arguments, name="<script>alert(1)</script>"):
        """Of a run whose folder and name others have chosen."""
        run = self.folder / "<script>"
        done = self.run_command("train", "job.toml", "--quiet", "--out", run, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        job = json.loads((run / "job.json").read_text())
        (run / "job.json").write_text(json.dumps({**job, "name": name}))
        done = self.run_command("report", run)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.browser.look()
        self.browser.driver.get((run / "report.html").as_uri())
        return run

    def test_charts_draw_and_names_are_text(self):
        self.open_report("--profile")
        b = self.browser
        self.assertEqual(b.js("return document.querySelector('h1').textContent"), "<script>alert(1)</script>")
        self.assertIn("<script>alert(1)", b.driver.title)
        charts = b.driver.find_elements("css selector", ".chart")
        self.assertEqual(len(charts), 3)
        for chart in charts:
            self.assertGreater(b.js(PAINTED, chart), 100)
            self.assertIn("last", chart.get_attribute("aria-label"))
        headings = [h.text for h in b.driver.find_elements("css selector", "h2")]
        for heading in ("Curves", "Confusion (test)", "Classes (test)", "Worst-classified images (test)",
                        "Time by layer", "Network", "Options"):
            self.assertIn(heading, headings)
        self.assertEqual(b.js("return document.querySelectorAll('.message').length"), 0)
        self.assertGreater(b.js("return Lockstep.page.charts[0].bands"), 0)
        # Recall and precision of the chart are those of the table.
        self.assertEqual(b.js("return document.querySelectorAll('section[aria-label=\"Classes (test)\"] tbody tr').length"), 10)
        self.assertGreater(b.js("return [...document.images].filter(i => i.complete && i.naturalWidth === 28).length"), 3)
        # The whole of the page fits its width, in any window.
        for width, dark in ((1400, False), (1400, True), (390, False), (390, True)):
            b.look(width, 900, dark)
            time.sleep(0.3)
            self.assertLessEqual(b.js("return document.documentElement.scrollWidth"), width)
            back = b.js("return getComputedStyle(document.body).backgroundColor")
            self.assertEqual(sum(map(int, back[4:-1].split(","))) < 300, dark, back)
        self.assertEqual(b.problems(), [])

    def test_zoom_sort_and_keyboard(self):
        self.open_report()
        b = self.browser
        chart = b.driver.find_element("css selector", ".chart")
        chart.send_keys("+")
        self.assertEqual(len(b.js("return Lockstep.page.charts[0].window")), 2)
        chart.send_keys("0")
        self.assertIsNone(b.js("return Lockstep.page.charts[0].window"))
        first = "return document.querySelector('section[aria-label=\"Classes (test)\"] tbody td').textContent"
        head = b.driver.find_elements("css selector", "section[aria-label='Classes (test)'] th button")[2]
        before = b.js(first)
        head.click()
        recalls = b.js("return [...document.querySelectorAll('section[aria-label=\"Classes (test)\"] tbody tr')]"
                       ".map(r => parseFloat(r.children[2].textContent))")
        self.assertEqual(recalls, sorted(recalls, reverse=True), before)
        svg = b.driver.find_element("css selector", "section[aria-label='Confusion (test)'] svg")
        b.js("arguments[0].focus()", svg)
        b.js("arguments[0].dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}))", svg)
        self.assertIn("0 predicted as 1", b.js("return document.querySelector('section[aria-label=\"Confusion (test)\"] [aria-live]').textContent"))
        self.assertTrue(b.js("return Lockstep.page.charts[0].image().toDataURL('image/png')").startswith("data:image/png;base64,iVBOR"))
        self.assertIn("<rect", b.js("return Lockstep.svgText(document.querySelector('svg'))"))

    def test_many_classes_show_the_worst(self):
        run = self.open_report()
        classes = 6000
        cells = [(c, 7 if c % 1000 == 5 else c, 1 + c % 1000 // 999 * 4) for c in range(classes)]
        part = {"version": 2, "classes": [f"kind {c}" for c in range(classes)],
                "cells": {"observed": [c[0] for c in cells], "predicted": [c[1] for c in cells], "count": [c[2] for c in cells]},
                "recall": [None] * classes, "precision": [None] * classes}
        (run / "confusion.json").write_text(json.dumps({"test": part}))
        self.assertEqual(self.run_command("report", run).returncode, 0)
        b = self.browser
        b.driver.get((run / "report.html").as_uri())
        self.assertEqual(b.js("return document.querySelectorAll('.message').length"), 0)
        rows = b.js("return [...document.querySelectorAll('section[aria-label=\"Classes (test)\"] table')]"
                    ".map(t => [...t.querySelectorAll('tbody tr')].map(r => r.textContent))")
        scores, pairs = rows
        self.assertEqual(len(scores), 301)
        self.assertTrue(scores[0].startswith("kind 7"), scores[0])  # it was taken six times for others
        self.assertTrue(scores[1].startswith("kind 5"), scores[1])
        self.assertIn("5,700 more", scores[-1])
        self.assertEqual(len(pairs), 6)
        self.assertTrue(pairs[0].startswith("kind 5kind 71"), pairs[0])
        self.assertIn("The 40 classes with the most errors of 6000.", b.js(
            "return document.querySelector('section[aria-label=\"Confusion (test)\"]').textContent"))
        self.assertEqual(b.problems(), [])

    def test_many_points_are_thinned_and_refined(self):
        self.open_report()
        b = self.browser
        b.js("""
          const n = 200000, x = Array.from({length: n}, (_, i) => i + 1), y = x.map(i => Math.sin(i / 999));
          y[123456] = 7;
          const began = performance.now();
          window.chart = Lockstep.page.charts[0];
          chart.set([{name: 'many', x, y}], []);
          window.took = performance.now() - began;""")
        self.assertLessEqual(b.js("return chart.drawn"), 4000)
        self.assertTrue(b.js("return chart.rows(1, 200000).some(row => row[1] === 7)"), "the largest value was lost")
        self.assertLess(b.js("return took"), 2000)
        b.js("chart.zoom(120000, 121000)")
        self.assertGreater(b.js("return chart.drawn"), 1000)


if __name__ == "__main__":
    unittest.main(verbosity=2)
