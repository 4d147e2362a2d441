#!/usr/bin/env python3
"""Cross-validation by the command.

usage: cross_validate_test.py COMMAND [unittest options]
"""

import json
import math
import statistics
import unittest

from support import CommandTest


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


if __name__ == "__main__":
    unittest.main()
