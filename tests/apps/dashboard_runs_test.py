#!/usr/bin/env python3
"""Runs in the dashboard's pages, in real Chromium: usage: dashboard_runs_test.py COMMAND"""

import fcntl
import json
import time

from support import CommandTest, unittest

from browser import Browser
from dashboard_support import Dashboard, write_run
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

LONG = ["a_very_long_name_of_an_experiment_with_label_smoothing_and_warmup", "deep/folders-of-november/and-another-run-of-it",
        "anamewithoutanyseparatorthatgoesonandon"]

# The numbers of characters in the lines that the names of the table's runs are broken into, without the last line of each.
LINES = """
return [...document.querySelectorAll('td.name a, td.name div')].flatMap(node => {
  const lines = new Map(), range = document.createRange(), walk = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  for (let text; (text = walk.nextNode());) for (let i = 0; i < text.length; ++i) {
    range.setStart(text, i); range.setEnd(text, i + 1);
    const top = Math.round(range.getBoundingClientRect().top);
    lines.set(top, (lines.get(top) || 0) + 1);
  }
  return [...lines.values()].slice(0, -1);
});"""

HEADS = "return [...document.querySelectorAll('section[aria-label=Runs] thead th')].map(n => n.textContent)"
FOLDERS = "return [...document.querySelectorAll('td.name div')].map(n => n.textContent)"
KEYS = "[...arguments[0].querySelectorAll('.key')].map(n => n.textContent)"


def layers(width):
    return {"network": {"layers": [{"name": "conv", "type": "convolution2d", "filters": width}]}}


class Page(CommandTest):
    def setUp(self):
        super().setUp()
        self.browser = Browser.of_all_tests()
        self.runs = self.folder / "runs"

    def fits(self):
        """In the window, light and dark."""
        for width, dark in ((420, True), (1000, False), (1600, True)):
            self.browser.look(width, 900, dark)
            time.sleep(0.3)
            self.assertLessEqual(self.browser.js("return document.documentElement.scrollWidth"), width)

    def choose(self, label, value):
        self.browser.js("const box = document.querySelector(`[aria-label='${arguments[0]}']`); box.value = arguments[1];"
                        "box.dispatchEvent(new Event('change'))", label, value)

    def tick(self, label):
        self.browser.js("[...document.querySelectorAll('label')].find(l => l.textContent.trim() === arguments[0]).querySelector('input').click()", label)

    def click(self, text):
        self.browser.js("[...document.querySelectorAll('button')].find(b => b.textContent.trim() === arguments[0]).click()", text)


class Table(Page):
    def test_what_runs_now_comes_first_and_then_the_newest(self):
        for name, day in (("old", 1), ("live", 2), ("new", 3), ("middle", 2)):
            write_run(self.runs / name, 20, facts={"created": f"2026-11-{day:02}T10:00:0{len(name)}Z"})
        with open(self.runs / "live" / "lock", "w", encoding="ascii") as lock, Dashboard(self.folder) as d:
            fcntl.flock(lock, fcntl.LOCK_EX)
            b = self.browser
            b.driver.get(d.address)
            b.wait("return document.querySelectorAll('tbody tr').length === 4")
            self.assertEqual(b.js(FOLDERS), ["runs/live", "runs/new", "runs/middle", "runs/old"])
            self.assertEqual(b.js("return [...document.querySelectorAll('td.name a')].map(n => n.textContent)"), ["live", "new", "middle", "old"])
            self.assertEqual(b.js("return document.querySelector('[aria-label=Order]').selectedOptions[0].textContent"), "running first, then the newest")
            self.choose("Order", "Run")
            self.assertEqual(b.js(FOLDERS), ["runs/live", "runs/middle", "runs/new", "runs/old"])
            self.assertEqual(b.js("return document.querySelector('th.name').getAttribute('aria-sort')"), "ascending")
            self.assertIn("▲", b.js("return getComputedStyle(document.querySelector('th.name button'), '::after').content"))
            b.driver.refresh()
            b.wait("return document.querySelectorAll('tbody tr').length === 4")
            self.assertEqual(b.js(FOLDERS), ["runs/live", "runs/middle", "runs/new", "runs/old"])
            self.choose("Order", "")
            self.assertEqual(b.js(FOLDERS)[1], "runs/new")
            self.assertEqual(b.problems(), [])

    def test_metrics_variables_and_layers_have_columns(self):
        for i, width in enumerate((4, 8, 12)):
            write_run(self.runs / f"w{width}", 200, job={**layers(width), "training": {"seed": 1, "threads": i}},
                      metrics={"f1": lambda k, w=width: w / 100 + k / 1000, "rmse": lambda k: 500 - k},
                      facts={"variables": {"width": float(width)}, "given": ["training.seed"], "scores": {"test.f1": width / 10}})
        with Dashboard(self.folder) as d:
            b = self.browser
            b.driver.get(d.address)
            b.wait("return document.querySelectorAll('tbody tr').length === 3")
            for name in ("Best f1", "Best rmse"):
                self.assertIn(name, b.js(HEADS))
            cell = "return [...document.querySelectorAll('tbody tr')].map(r => r.children[arguments[0]].textContent)"
            self.assertEqual(sorted(b.js(cell, b.js(HEADS).index("Best f1"))), ["0.24", "0.28", "0.32"])
            self.assertEqual(set(b.js(cell, b.js(HEADS).index("Best rmse"))), {"300"})
            self.assertNotIn("Test f1", b.js(HEADS))
            self.tick("Test f1")
            self.assertEqual(sorted(b.js(cell, b.js(HEADS).index("Test f1"))), ["0.4", "0.8", "1.2"])
            self.tick("What differs")
            b.wait("return [...document.querySelectorAll('thead th')].some(n => n.textContent === 'width')")
            self.assertEqual(b.js(HEADS)[2:6], ["State", "width", "threads", "conv.filters"])
            self.assertEqual(sorted(b.js(cell, b.js(HEADS).index("conv.filters"))), ["12", "4", "8"])
            self.assertNotIn("seed", b.js(HEADS))
            self.assertEqual(b.problems(), [])

    def test_what_differs_is_asked_once_at_a_time(self):
        def add(name, momentum):
            write_run(self.runs / name, 20, job={"training": {"seed": 1, "momentum": momentum}}, facts={"variables": {"momentum": 2 * momentum}})

        for i in range(1, 4):
            add(f"r{i}", i)
        with Dashboard(self.folder) as d:
            b = self.browser
            b.driver.get(d.address)
            rows = "return document.querySelectorAll('tbody tr').length === "
            b.wait(rows + "3")
            # An answer waits for release().
            b.js("window.asked = 0; window.sent = window.fetch; window.fetch = async (path, ...rest) => {"
                 "  if (!path.startsWith('/api/differences')) return window.sent(path, ...rest);"
                 "  ++window.asked; await new Promise(done => { window.release = done; }); return window.sent(path, ...rest); };")
            self.tick("What differs")
            add("r4", 4)
            b.wait(rows + "4")
            self.assertEqual(b.js("return window.asked"), 1)
            # The answer comes after the box was switched off.
            self.tick("What differs")
            b.js("window.release()")
            time.sleep(1)
            self.assertFalse([name for name in b.js(HEADS) if "momentum" in name])
            self.tick("What differs")
            self.assertEqual(b.js("return window.asked"), 2)
            b.js("window.release(); window.fetch = window.sent")
            b.wait("return [...document.querySelectorAll('thead th')].some(n => n.textContent.includes('momentum'))")
            # Two options with one short name are two columns.
            self.assertEqual(b.js(HEADS)[3:5], ["variables.momentum", "training.momentum"])
            self.choose("Order", "training.momentum")
            self.assertEqual(b.js(FOLDERS), ["runs/r4", "runs/r3", "runs/r2", "runs/r1"])
            self.assertEqual(b.js("return [...document.querySelectorAll('thead th')].map(n => n.getAttribute('aria-sort')).slice(3, 5)"), ["none", "descending"])
            self.tick("training.momentum")
            self.assertIn("variables.momentum", b.js(HEADS))
            self.assertNotIn("training.momentum", b.js(HEADS))
            # The filter also applies to a run that is new.
            b.js("const f = document.querySelector('input[type=search]'); f.value = 'training.momentum > 2'; f.dispatchEvent(new Event('input'))")
            b.wait(rows + "2")
            add("r5", 5)
            b.wait(rows + "3")
            self.assertEqual(b.problems(), [])

    def test_names_do_not_break_letter_by_letter(self):
        metrics = {f"metric_{i}": lambda k, i=i: k + i for i in range(12)}
        for i, name in enumerate(LONG):
            write_run(self.runs / name, 200, name=name.split("/", maxsplit=1)[0], metrics=metrics,
                      facts={"variables": {f"v{k}": i for k in range(8)}})
        with Dashboard(self.folder) as d:
            b = self.browser
            b.look(420)
            b.driver.get(d.address)
            b.wait("return document.querySelectorAll('tbody tr').length === 3")
            self.tick("What differs")
            b.wait("return [...document.querySelectorAll('thead th')].some(n => n.textContent === 'v7')")
            for width in (420, 1000, 1600):
                b.look(width)
                time.sleep(0.3)
                self.assertGreaterEqual(min(b.js(LINES), default=99), 4, b.js(LINES))
            self.fits()

    def test_tags_and_a_note(self):
        for name in ("one", "two"):
            write_run(self.runs / name, 20)
        (self.runs / "two" / "notes.json").write_text(json.dumps({"lockstep.notes": "1", "tags": ["good"], "note": "", "archived": False}))
        with Dashboard(self.folder) as d:
            b = self.browser
            b.driver.get(d.address)
            b.wait("return document.querySelectorAll('tbody tr').length === 2")
            b.js("window.prompt = () => { throw new Error('prompt') }")
            edit = "[...document.querySelectorAll('tbody tr')].find(r => r.textContent.includes('runs/one')).querySelector('button').click()"
            b.js(edit)
            field = b.driver.find_element("css selector", "dialog input")
            field.send_keys("slow, odd" + Keys.ENTER)
            b.js("document.querySelector('dialog .chip.add').click()")  # the tag of the other run
            b.js("document.querySelector('[aria-label=\"Remove tag odd\"]').click()")
            b.driver.find_element("css selector", "dialog textarea").send_keys("<b>looked at</b>")
            b.look(420, 700, True)
            self.assertLessEqual(b.js("return document.querySelector('dialog').getBoundingClientRect().right"), 420)
            self.click("Save")
            b.wait("return !document.querySelector('dialog')")
            notes = json.loads((self.runs / "one" / "notes.json").read_text())
            self.assertEqual((notes["tags"], notes["note"]), (["good", "slow"], "<b>looked at</b>"))
            b.wait("return document.querySelector('tbody').textContent.includes('<b>looked at</b>')")
            # What cannot be saved stays in the dialog, with the reason.
            b.js(edit)
            b.js("document.querySelector('dialog textarea').value = 'x'.repeat(10001)")
            self.click("Save")
            b.wait("return document.querySelector('dialog p.message')?.textContent.includes('10,000 bytes')")
            self.click("Cancel")
            b.wait("return !document.querySelector('dialog')")
            self.assertEqual(json.loads((self.runs / "one" / "notes.json").read_text())["note"], "<b>looked at</b>")


class Curves(Page):
    def open(self, dashboard, page):
        self.browser.driver.get(dashboard.address)
        self.browser.wait("return document.querySelector('tbody a')")
        self.browser.js("location.hash = arguments[0]", page)
        self.browser.wait("return Lockstep.view?.group?.charts.length > 0 || Lockstep.view?.page?.charts.length > 0")

    def look_at_curves(self, group, title):
        """Axes, scale and crosshair of a run's curves, in a report or in the dashboard. The loss is 50 at iteration 7."""
        b = self.browser
        loss, metric = (f"{group}.charts.find(c => c.options.title === '{name}')" for name in ("Loss", title))
        b.wait(f"return !!({loss} && {metric})")
        reach = f"return {loss}.graph.yAxisRange()[1]"
        self.assertGreater(b.js(reach), 45)
        self.tick("Clip outliers")
        self.assertLess(b.js(reach), 5)
        self.assertIn("are beyond the axis", b.js(f"return {loss}.note.textContent"))
        self.tick("Clip outliers")
        self.assertGreater(b.js(reach), 45)
        self.assertEqual(b.js(f"return {loss}.note.textContent"), "")
        self.tick("Log scale")
        self.assertTrue(b.js(f"return {loss}.graph.getOption('logscale')"))
        self.assertFalse(b.js(f"return {group}.charts.find(c => c.options.title === 'Accuracy').graph.getOption('logscale')"))
        self.tick("Log scale")
        # Validation is shown at its own iteration, also between validations.
        for x, said in ((250, ["at 200", "0.2"]), (300, ["0.3"]), (50, ["–"])):
            b.js(f"{loss}.point({x}); {loss}.options.pointed({x})")
            keys = b.js("return " + KEYS, b.js(f"return {metric}.legend"))
            self.assertTrue(all(text in keys[0] for text in said), (x, keys))
            self.assertEqual("at 200" in keys[0], x == 250, keys)
            self.assertFalse(b.js(f"return {metric}.cross.hidden"))
        self.assertAlmostEqual(b.js(f"return {metric}.cross.offsetLeft - {metric}.graph.toDomXCoord(50)"), 0, delta=2)
        # A pointer that moves does not read all points.
        b.js(f"const y = {loss}.series.at(-1).y; y.filter = () => {{ throw new Error('all points are read'); }};"
             f"try {{ {loss}.point(50); }} finally {{ delete y.filter; }}")
        # The zoom goes through all.
        b.js(f"{loss}.zoom(100, 200)")
        self.assertEqual(b.js(f"return {metric}.window"), [100, 200])
        for axis, name, last in (("epoch", "epoch", 3), ("time", "seconds since the start", 3)):
            self.choose("Horizontal axis", axis)
            self.assertEqual(b.js(f"return {loss}.axisName.textContent"), name)
            self.assertIsNone(b.js(f"return {loss}.window"))
            self.assertAlmostEqual(b.js(f"return {loss}.range()[1]"), last, delta=0.02)
            self.assertAlmostEqual(b.js(f"return {loss}.graph.xAxisRange()[1]"), last, delta=0.02)  # as it is drawn
        self.choose("Horizontal axis", "epoch")
        self.assertEqual(b.js(f"return {metric}.series[0].x"), [1, 2, 3])
        self.choose("Horizontal axis", "iteration")
        self.assertEqual(b.js(f"return {metric}.series[0].x"), [100, 200, 300])
        scores = b.js("return [...document.querySelectorAll('table.scores tr')].map(r => [...r.children].map(c => c.textContent))")
        self.assertEqual(scores[0], ["Metric", "Training", "Validation", "Best validation", "Test"])
        self.assertIn([title, "–", "0.3 at 300", "0.3 at 300", "0.25"], scores)
        self.assertEqual(b.problems(), [])

    def test_of_a_run(self):
        write_run(self.runs / "a", 300, loss=lambda i: 50 if i == 7 else 2 / (1 + i / 50), metrics={"f1": lambda i: i / 1000},
                  job=layers(4), facts={"variables": {"width": 4.0}, "scores": {"test.f1": 0.25}, "iterations": 300, "iterations_per_epoch": 100})
        with Dashboard(self.folder) as d:
            self.open(d, "#/run/" + d.json("/api/runs")["runs"][0]["id"])
            self.look_at_curves("Lockstep.view.page.group", "f1")
            self.fits()
        self.works("report", "runs/a")
        self.browser.look()
        self.browser.driver.get((self.runs / "a" / "report.html").as_uri())
        self.look_at_curves("Lockstep.page.group", "f1")
        # A pointer moves the crosshairs of all charts.
        chart = self.browser.driver.find_element("css selector", ".chart")
        self.browser.js("arguments[0].scrollIntoView({block: 'center'})", chart)
        ActionChains(self.browser.driver).move_to_element(chart).perform()
        self.browser.wait("return [...document.querySelectorAll('.cross')].filter(c => !c.hidden).length === 4")
        self.fits()

    def test_of_a_run_before_its_first_line(self):
        write_run(self.runs / "a", 0)
        titles = "return [...document.querySelectorAll('.curves h3')].map(n => n.textContent).join()"

        def append(iteration, accuracy):
            with open(self.runs / "a" / "log.jsonl", "a", encoding="utf-8") as log:
                log.write(json.dumps({"iteration": iteration, "epoch": 1, "in_epoch": iteration, "loss": 0.5, "accuracy": accuracy, "learning_rate": 0.1,
                                      "elapsed": 0.01 * iteration, "seconds": 0.01, "observations": 32}, separators=(",", ":")) + "\n")

        with Dashboard(self.folder) as d:
            self.open(d, "#/run/" + d.json("/api/runs")["runs"][0]["id"])
            self.assertEqual(self.browser.js(titles), "Loss,Learning rate")
            append(1, None)  # regression has no accuracy
            self.browser.wait("return Lockstep.view.page.charts[0].series.length > 0")
            self.assertEqual(self.browser.js(titles), "Loss,Learning rate")
            append(2, 0.5)
            self.browser.wait(titles + " === 'Loss,Accuracy,Learning rate'")
            self.assertEqual(self.browser.problems(), [])

    def test_of_runs_side_by_side(self):
        for width in (4, 8, 12, 16):
            write_run(self.runs / "widths" / str(width) / "run", 300, job={**layers(width), "training": {"seed": 3, "threads": width}},
                      metrics={"f1": lambda i, w=width: i / w},
                      facts={"variables": {"width": float(width)}, "given": ["training.seed"], "iterations_per_epoch": 100})
        with Dashboard(self.folder) as d:
            runs = sorted(d.json("/api/runs")["runs"], key=lambda run: len(run["folder"]) * 100 + ord(run["folder"][12]))
            self.open(d, "#/compare/" + ",".join(run["id"] for run in runs) + ",gone")
            b = self.browser
            self.assertIn("4 of 5 runs are shown", b.js("return document.querySelector('main').textContent"))
            b.wait("return Lockstep.view.group.charts.map(c => c.options.title).join() === 'Training loss,Validation loss,Training accuracy,Validation accuracy,Validation f1'")
            self.assertEqual(sorted(b.js("return Lockstep.view.charts[0].series.map(s => s.name)")), ["12/run", "16/run", "4/run", "8/run"])
            rows = b.js("return [...document.querySelectorAll('table.compared tbody tr')].map(r => [r.className, ...[...r.children].map(c => c.textContent)])")
            by_name = {row[1]: row for row in rows}
            for name, marked in (("variables.width", "differs"), ("network.layers.conv.filters", ""), ("training.threads", "")):
                self.assertEqual(sorted(by_name[name][2:]), ["12", "16", "4", "8"])
                self.assertEqual(by_name[name][0], marked)
            self.assertNotIn("training.seed", by_name)
            self.assertEqual(sorted(by_name["validation.f1.best"][2:], key=float), ["18.75", "25", "37.5", "75"])
            self.choose("Horizontal axis", "epoch")
            self.assertEqual(b.js("return Lockstep.view.charts[4].series[0].x"), [1, 2, 3])
            self.assertEqual(b.js("return ['validation.loss', 'loss.of.f1', 'f1'].map(name => Lockstep.smallerIsBetter(name))"), [True, False, False])
            self.fits()
            # Without runs, the server is not asked, because it would compare all.
            for page, said in (("#/compare/gone", "0 of 1 runs are shown"), ("#/compare/", "No runs are chosen")):
                b.js("location.hash = arguments[0]", page)
                b.wait(f"return document.querySelector('main').textContent.includes('{said}')")
            self.assertFalse(b.js("return performance.getEntriesByType('resource').some(one => one.name.endsWith('/api/differences?ids='))"))
            self.assertEqual(b.problems(), [])


if __name__ == "__main__":
    unittest.main()
