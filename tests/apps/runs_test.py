#!/usr/bin/env python3
"""The run store as users meet it: lockstep train records, lockstep runs shows and changes.

usage: runs_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import csv
import fcntl
import io
import json
import os
import pathlib
import pty
import shutil
import signal
import sqlite3
import struct
import subprocess
import termios
import time
import unittest

from support import COMMAND, CommandTest


class Runs(CommandTest):
    def setUp(self):
        super().setUp()
        self.home = self.folder / "home"
        os.environ["LOCKSTEP_HOME"] = str(self.home)
        self.store = self.home / "runs.sqlite"

    def train(self, out, *more):
        return self.works("train", "job.toml", "--quiet", "--out", out, "--set", "max_epochs=2", *more)

    def listed(self, *more):
        return json.loads(self.works("runs", "list", "--json", *more).stdout)

    def shown(self, run):
        return json.loads(self.works("runs", "show", run, "--json").stdout)[0]

    def test_everything_about_a_run_is_recorded(self):
        self.train("a")
        run = self.shown("a")
        self.assertEqual((run["state"], run["epoch"], run["number"]), ("finished", 2, 1))
        self.assertEqual(run["options"]["training.max_epochs"], 2)
        self.assertEqual(run["variables"], {"width": 4.0})
        receipt = (self.folder / "a/receipt.jsonl").read_text().splitlines()
        self.assertEqual(run["receipt"], json.loads(receipt[-1])["chain"])
        self.assertRegex(run["data"], "^[0-9a-f]{32}$")
        self.assertTrue(run["host"] and run["version"] and run["fingerprint"])
        self.assertLessEqual({"model.safetensors", "job.json", "log.jsonl"}, set(run["artifacts"]))
        log = [json.loads(line) for line in (self.folder / "a/log.jsonl").read_text().splitlines()]
        losses = [line["loss"] for line in log if "loss" in line]
        self.assertEqual(run["metrics"]["training.loss"]["last"], losses[-1])
        self.assertEqual(run["metrics"]["training.loss"]["best"], min(losses))
        self.assertIn("test.accuracy", run["metrics"])

    def test_a_home_that_cannot_be_written(self):
        if os.getuid() != 0:
            self.skipTest("needs root, to become somebody else")
        self.home.mkdir()
        os.chmod(self.folder, 0o755)
        done = self.run_command("runs", "list", preexec_fn=lambda: os.setuid(65534))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(f"{self.store} cannot be written: Permission denied\nhint: ", done.stderr)

    def test_bytes_after_a_receipt_are_named(self):
        for name in "ab":
            self.train(name, "--set", "checkpoint_frequency=1")
        self.assertEqual(self.works("diff", "a", "b").stderr, "")
        with open(self.folder / "b/receipt.jsonl", "a", encoding="utf-8") as receipt:
            receipt.write('{"iteration":5')
        note = ("note: {}receipt.jsonl: 14 bytes follow its last whole line and are not part of the receipt: a line was "
                "cut off, or something was appended\n")
        b = str((self.folder / "b").resolve()) + "/"
        for arguments, path in ((("diff", "a", "b"), "b/"), (("diff", "b", "a"), "b/"),
                                (("verify", "b", "--iteration", "2"), "b/"), (("info", "b"), "b/"),
                                (("runs", "show", "b"), b), (("runs", "show", "b", "--json"), b)):
            done = self.works(*arguments)
            self.assertEqual(done.stderr, note.format(path), arguments)
        self.works("report", "b")
        self.assertIn("14 bytes follow its last whole line", (self.folder / "b/report.html").read_text())
        done = self.run_command("train", "job.toml", "--out", "b", "--resume", "--set", "max_epochs=3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("14 bytes follow its last whole line", done.stderr)
        self.assertIn("the training drops it", done.stderr)
        done = self.works("diff", "a", "b")
        self.assertEqual(done.stderr, "")
        self.assertRegex(done.stdout, r"^equal in all 4 common iterations; b has 2 more\n$")
        # Whole lines that do not belong there are refused.
        with open(self.folder / "a/receipt.jsonl", "a", encoding="utf-8") as receipt:
            receipt.write("{}\n")
        self.assertIn("receipt.jsonl, line 5: ", self.run_command("diff", "a", "b").stderr)

    def test_left_out(self):
        self.train("a", "--not-recorded")
        self.assertFalse(self.store.exists())
        self.works("train", "job.toml", "--dry-run", "--quiet")
        self.assertFalse(self.store.exists())

    def test_filters_and_columns(self):
        self.train("a")
        self.train("b", "--set", "momentum=0.5", "--set", "width=6")
        self.assertEqual([r["number"] for r in self.listed("--where", "momentum < 0.7")], [2])
        self.assertEqual([r["number"] for r in self.listed("--where", "width = 4 and validation.loss < 99")], [1])
        self.assertEqual([r["number"] for r in self.listed("--sort", "width", "--reverse")], [2, 1])
        text = self.works("runs", "list", "--columns", "number, width", "--csv").stdout
        self.assertEqual(list(csv.reader(io.StringIO(text))), [["number", "width"], ["1", "4"], ["2", "6"]])
        self.fails(1, "error: [filter] no run has a field `widht`\nhint: did you mean `width`?\n",
                   "runs", "list", "--where", "widht = 4")
        differs = json.loads(self.works("runs", "compare", "1", "2", "--json").stdout)
        self.assertEqual([r["training.momentum"] for r in differs], [0.9, 0.5])
        self.assertNotIn("training.solver", differs[0])
        self.assertIn("network.layers.convolution2d_1.filters", differs[0])

    def test_a_list_fits_the_terminal_and_names_are_distinct(self):
        for name in ("a", "other/a", "a-long-name-for-a-run-that-says-everything-about-it-and-does-not-fit-any-table-at-all"):
            self.train(name)
        self.works("runs", "tag", "1", "--add", "good")
        done = self.works("runs", "list")
        lines = done.stdout.splitlines()
        self.assertLessEqual(max(map(len, lines)), 80, done.stdout)
        self.assertEqual(lines[0].split()[:4], ["number", "run", "state", "epoch"])
        here = self.folder.resolve().name
        self.assertEqual([line.split()[1] for line in lines[1:3]], [here + "/a", "other/a"])
        self.assertRegex(lines[3], r"^3       a-long-\S+\u2026\S+-at-all +finished ")
        self.assertRegex(done.stderr, r"^note: not shown for want of width: .*folder \(--columns chooses")
        wide = self.on_terminal(400, "runs", "list")
        self.assertIn(str(self.folder.resolve() / "other/a"), wide)
        self.assertNotIn("not shown", wide)
        self.assertLessEqual(max(map(len, self.on_terminal(60, "runs", "list").splitlines()[:4])), 60)
        self.assertEqual([r["run"] for r in self.listed()][:2], ["a", "a"])
        self.assertEqual(self.shown(self.listed()[2]["run"])["number"], 3)
        (self.folder / "elsewhere").mkdir()
        for number, name in ((1, here + "/a"), (2, "other/a")):  # as the list prints them
            done = subprocess.run([COMMAND, "runs", "show", name, "--json"], cwd=self.folder / "elsewhere",
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)[0]["number"], number)
        head = next(csv.reader(io.StringIO(self.works("runs", "list", "--csv", "--sort", "name").stdout)))
        self.assertEqual(head[:3], ["number", "run", "name"])
        self.assertEqual(len(head), len(set(head)), head)
        done = subprocess.run([COMMAND, "runs", "show", "a"], cwd=self.folder / "other" / "a", capture_output=True,
                              text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "error: [store] several runs have the name a\nhint: name one by its number: 1, 2\n"))

    def on_terminal(self, columns, *arguments):
        """What the command prints on a terminal of so many columns."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        subprocess.run([COMMAND, *arguments], cwd=self.folder, stdout=theirs, stderr=theirs, check=True, timeout=60)
        os.close(theirs)
        text = b""
        try:
            while part := os.read(ours, 65536):
                text += part
        except OSError:  # the end of a terminal
            pass
        os.close(ours)
        return text.decode().replace("\r\n", "\n")

    def test_export(self):
        self.train("a", "--set", 'metrics=["f1"]')
        rows = list(csv.DictReader(io.StringIO(self.works("runs", "export", "1").stdout)))
        log = [json.loads(line) for line in (self.folder / "a/log.jsonl").read_text().splitlines()]
        iterations = [line for line in log if "loss" in line]
        self.assertEqual([float(r["loss"]) for r in rows], [line["loss"] for line in iterations])
        validated = [r for r in rows if r["validation_loss"]]
        self.assertEqual([float(r["validation_f1"]) for r in validated],
                         [line["validation_metrics"]["f1"] for line in log if "validation_loss" in line])
        self.works("runs", "export", "a", "--out", "m.csv")
        self.assertEqual(len((self.folder / "m.csv").read_text().splitlines()), len(rows) + 1)

    def test_tags_notes_archive_and_removal(self):
        self.train("a")
        self.train("b")
        hostile = "'; DROP TABLE runs; -- <script>\x1b[2J,\"\n"
        self.works("runs", "tag", "1", "2", "--add", hostile, "--add", "good")
        self.works("runs", "tag", "2", "--remove", "good")
        self.works("runs", "note", "1", "--text", hostile)
        self.assertEqual(self.shown("1")["tags"], [hostile, "good"])
        self.assertEqual(self.shown("1")["note"], hostile)
        table = self.works("runs", "list").stdout
        self.assertNotIn("\x1b", table)
        text = self.works("runs", "list", "--csv", "--columns", "note").stdout
        self.assertEqual(list(csv.reader(io.StringIO(text, newline="")))[1], [hostile])
        self.assertEqual([r["number"] for r in self.listed("--where", "tag = good")], [1])
        self.works("runs", "note", "1", "--text", "")
        self.assertEqual(self.shown("1")["note"], "")
        self.works("runs", "archive", "1")
        self.assertEqual([r["number"] for r in self.listed()], [2])
        self.assertEqual([r["number"] for r in self.listed("--all")], [1, 2])
        self.works("runs", "archive", "1", "--undo")
        (self.folder / "a/mine.txt").write_text("of the user")
        self.works("runs", "rm", "1", "--files")
        self.assertEqual(sorted(p.name for p in (self.folder / "a").iterdir()), ["mine.txt"])
        self.works("runs", "rm", "2")
        self.assertTrue((self.folder / "b/model.safetensors").exists())
        self.assertEqual(self.works("runs", "list").stdout, "no runs\n")
        self.fails(1, f"error: [store] there is no run 2 in {self.store}\n"
                   "hint: `lockstep runs list --all` shows the numbers\n", "runs", "show", "2")

    def test_rebuild_after_moves_and_damage(self):
        self.train("here/a")
        self.train("here/b")
        self.works("runs", "tag", "1", "--add", "good")
        (self.folder / "here").rename(self.folder / "there")
        self.assertEqual(self.works("runs", "rebuild", "there").stdout, "2 runs recorded\n")
        self.assertEqual([(r["number"], pathlib.Path(r["folder"]).parent.name) for r in self.listed()],
                         [(1, "there"), (2, "there")])
        self.store.write_bytes(b"x" * 5000)
        done = self.run_command("runs", "list")
        self.assertEqual(done.returncode, 1)
        self.assertIn("is damaged", done.stderr)
        self.assertIn("lockstep runs rebuild", done.stderr)
        # A training goes on and says what is missing.
        done = self.works("train", "job.toml", "--quiet", "--out", "there/c", "--set", "max_epochs=1")
        self.assertIn("the begin of this run is not recorded in the run store", done.stderr)
        self.assertIn("the end of this run is not recorded in the run store", done.stderr)
        done = self.works("runs", "rebuild", "there")
        self.assertIn("runs.sqlite.damaged-1", done.stderr)
        self.assertEqual(done.stdout, "3 runs recorded\n")
        self.assertEqual([pathlib.Path(r["folder"]).name for r in self.listed("--where", "tag = good")], ["a"])

    def test_a_training_goes_on_without_its_store(self):
        def problem(out):
            done = self.works("train", "job.toml", "--quiet", "--out", out, "--set", "max_epochs=1")
            self.assertTrue((self.folder / out / "model.safetensors").exists())
            return done.stderr
        self.train("first")
        lock = sqlite3.connect(self.store)
        lock.execute("BEGIN IMMEDIATE")
        self.assertIn("is locked by another process", problem("a"))
        lock.rollback()
        lock.execute("PRAGMA user_version = 99")
        lock.close()
        self.assertIn("was written by a later version of Lockstep", problem("b"))
        self.store.unlink()
        self.store.mkdir()
        self.assertIn("cannot be opened", problem("c"))
        shutil.rmtree(self.home)
        self.home.write_text("a file")
        self.assertIn("is not recorded", problem("d"))

    @unittest.skipIf(os.geteuid() != 0, "mounting needs root")
    def test_a_full_disk(self):
        self.home.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48k", "none", self.home],
                                 capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("no permission to mount")
        self.addCleanup(subprocess.run, ["umount", self.home], check=True)
        (self.home / "filler").write_bytes(b"x" * 40000)
        done = self.works("train", "job.toml", "--quiet", "--out", "a", "--set", "max_epochs=1")
        self.assertIn("cannot be written: the disk is full", done.stderr)

    def test_a_killed_run_is_interrupted(self):
        process = subprocess.Popen([COMMAND, "train", "job.toml", "--quiet", "--out", "a",
                                    "--set", "max_epochs=100000"], cwd=self.folder)
        try:
            deadline = time.monotonic() + 60
            while not (self.folder / "a/log.jsonl").exists() or not self.listed():
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            self.assertEqual(self.listed()[0]["state"], "running")
            self.assertIn("is running", self.run_command("runs", "rm", "1", "--files").stderr)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(60)
        self.assertEqual(self.listed()[0]["state"], "interrupted")

    def test_wrong_arguments(self):
        self.assertIn("`lits` is unknown; did you mean `list`?", self.run_command("runs", "lits").stderr)
        for wrong in (["show"], ["tag", "1"], ["note", "1"], ["list", "--files"], ["rm", "1", "--json"]):
            self.assertEqual(self.run_command("runs", *wrong).returncode, 2, wrong)


if __name__ == "__main__":
    unittest.main()
