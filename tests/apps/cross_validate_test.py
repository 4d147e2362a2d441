#!/usr/bin/env python3
"""Cross-validation by the command.

usage: cross_validate_test.py COMMAND [unittest options]
"""

import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import unittest

from support import COMMAND, CommandTest


def children_of(pid):
    return [int(word) for tasks in pathlib.Path(f"/proc/{pid}/task").glob("*/children")
            for word in tasks.read_text(encoding="ascii").split()]


class CrossValidation(CommandTest):
    def folds(self, *arguments):
        done = self.works("cross-validate", "job.toml", "--folds", "3", "--json", "--quiet", *arguments)
        return json.loads(done.stdout)

    def test_each_fold_is_a_run_and_the_table_has_mean_and_deviation(self):
        found = self.folds("--out", "folds", "--set", "metrics=f1")
        self.assertEqual(len(found["folds"]), 3)
        for name in ("loss", "accuracy", "f1"):
            values = [fold[name] for fold in found["folds"]]
            self.assertTrue(math.isclose(found["mean"][name], statistics.mean(values), abs_tol=1e-12))
            self.assertTrue(math.isclose(found["deviation"][name], statistics.stdev(values), abs_tol=1e-12))
        self.assertNotEqual(found["folds"][0]["loss"], found["folds"][1]["loss"])
        # A fold is the run of `train` with these settings, whatever computes it.
        self.result("--out", "second", "--threads", "3", "--set", "validation_fraction=0", "--set", "data.folds=3",
                    "--set", "data.fold=2", "--set", "metrics=f1")
        self.assertEqual((self.folder / "second/receipt.jsonl").read_bytes(),
                         (self.folder / "folds/fold-2/receipt.jsonl").read_bytes())
        # The same command continues what is there, with the same table.
        self.assertEqual(self.folds("--out", "folds", "--set", "metrics=f1"), found)
        table = self.works("cross-validate", "job.toml", "--folds", "3", "--quiet", "--out", "folds",
                           "--set", "metrics=f1").stdout
        lines = table.splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["fold", "1", "2", "3", "mean", "deviation"])
        self.assertIn("validation accuracy", lines[0])

    def test_a_stopped_one_is_continued(self):
        whole = self.folds("--out", "whole")
        said = self.works("cross-validate", "job.toml", "--folds", "2", "--out", "told", "--set", "max_epochs=1").stderr
        self.assertIn("data.validation_fraction is not used", said)
        stopped = self.run_command("cross-validate", "job.toml", "--folds", "3", "--quiet", "--out", "parts",
                                   "--set", "max_time=0.001")
        self.assertEqual(stopped.returncode, 130, stopped.stderr)
        self.assertIn("stopped in fold 1", stopped.stderr)
        self.assertEqual(self.folds("--out", "parts")["folds"], whole["folds"])

    def test_what_cannot_be_folded_is_refused(self):
        done = self.run_command("cross-validate", "job.toml", "--folds", "181", "--quiet", "--set", "max_epochs=1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("fewer than folds = 181", done.stderr)
        for settings, text in ((("data.folds=3",), "folds takes the validation data from the training data"),
                               (("data.folds=1", "validation_fraction=0"), "name no part to validate"),
                               (("data.folds=3", "data.fold=4", "validation_fraction=0"), "name no part to validate")):
            done = self.run_command("train", "job.toml", "--check",
                                    *(word for setting in settings for word in ("--set", setting)))
            self.assertEqual(done.returncode, 1, settings)
            self.assertIn(text, done.stderr)

    # Folds at once, on worker processes.

    LONG = ("--folds", "3", "--set", "max_epochs=25", "--set", "checkpoint_frequency=5")

    def table(self, out, *arguments):
        return self.works("cross-validate", "job.toml", "--out", out, *arguments).stdout

    def begin(self, out, *arguments):
        return subprocess.Popen([COMMAND, "cross-validate", "job.toml", "--out", out, *map(str, arguments)],
                                cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def assert_same_folds(self, here, there, folds=(1, 2, 3)):
        for fold in folds:
            for name in ("receipt.jsonl", "model.safetensors", "confusion.json", "observations"):
                self.assertEqual((self.folder / here / f"fold-{fold}" / name).read_bytes(),
                                 (self.folder / there / f"fold-{fold}" / name).read_bytes(), (fold, name))

    def test_folds_at_once_give_the_same_bytes(self):
        one = self.table("own", "--folds", "3", "--quiet", "--set", "metrics=f1")
        for workers in (1, 2, 4):
            name = f"at-once-{workers}"
            self.assertEqual(self.table(name, "--folds", "3", "--quiet", "--set", "metrics=f1", "--workers", workers),
                             one)
            self.assert_same_folds("own", name)
        self.assertEqual(self.table("fixed", "--folds", "3", "--quiet", "--set", "metrics=f1", "--workers", 2,
                                    "--threads", 3), one)
        # What one process has begun, workers continue, and the other way round.
        self.run_command("cross-validate", "job.toml", "--folds", "3", "--quiet", "--out", "mixed", "--set",
                         "metrics=f1", "--set", "max_time=0.001", "--workers", "3")
        self.assertEqual(self.table("mixed", "--folds", "3", "--quiet", "--set", "metrics=f1"), one)
        self.assertEqual(self.table("mixed", "--folds", "3", "--quiet", "--set", "metrics=f1", "--workers", 2), one)

    def test_the_fold_of_a_killed_worker_is_continued(self):
        one = self.table("own", *self.LONG, "--quiet")
        process = self.begin("killed", *self.LONG, "--workers", 2)
        said, killed = [], 0
        for line in process.stderr:
            said.append(line)
            if killed < 3 and line.startswith("fold ") and ": iteration " in line:
                for worker in children_of(process.pid)[:1 + killed % 2]:
                    os.kill(worker, signal.SIGKILL)
                    killed += 1
        table = process.stdout.read()
        self.assertEqual(process.wait(timeout=300), 0, "".join(said))
        process.stdout.close(), process.stderr.close()
        self.assertGreaterEqual(killed, 3)
        self.assertRegex("".join(said), r"fold \d: note: .*SIGKILL.*; another worker continues the fold")
        self.assertRegex("".join(said), r"fold 3: iteration \d+ of 50, epoch \d+, loss [\d.]+, validation loss "
                                        r"[\d.]+, accuracy [\d.]+ %")
        self.assertEqual(table, one)
        self.assert_same_folds("own", "killed")

    def test_stopped_ones_at_once_are_continued(self):
        # Long enough that the folds hear of the stop.
        long = (*self.LONG[:3], "max_epochs=300", *self.LONG[4:])
        one = self.table("own", *long, "--quiet")
        process = self.begin("parts", *long, "--workers", 2)
        for line in process.stderr:
            if ": iteration " in line:
                break
        process.send_signal(signal.SIGINT)
        table, said = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 130, said)
        self.assertEqual(table, "")
        self.assertRegex(said, r"stopped in fold 1\nhint: the same command with --out parts continues it")
        self.assertFalse((self.folder / "parts/fold-3").exists())
        self.assertEqual(self.table("parts", *long, "--quiet", "--workers", 3), one)
        self.assert_same_folds("own", "parts")

    def test_a_fold_that_fails_is_named(self):
        self.works("train", "job.toml", "--quiet", "--out", "other", "--set", "max_epochs=1")
        for name, workers in (("own", ()), ("at-once", ("--workers", "3"))):
            (self.folder / name).mkdir()
            (self.folder / name / "fold-2").symlink_to(self.folder / "other")
            done = self.run_command("cross-validate", "job.toml", "--folds", "3", "--quiet", "--out", name, *workers)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("[cross-validate] fold 2: [run]", done.stderr)
            self.assertEqual(done.stdout, "")
            self.assertTrue((self.folder / name / "fold-1/confusion.json").exists())  # it has finished
        self.assert_same_folds("own", "at-once", [1])


if __name__ == "__main__":
    unittest.main()
