#!/usr/bin/env python3
"""What commit 41b540c wrote (tests/apps/earlier) loads, or is refused with the way on.

usage: earlier_files_test.py PATH_OF_LOCKSTEP [unittest options]

The command of that commit wrote the files in a folder that held job.toml, with an empty HOME and no
other environment. Of the batch job, only small files are kept:

  lockstep export-digits digits --per-class 3
  lockstep train job.toml --out run --threads 2 --set training.max_iterations=30    # then runs.sqlite
  lockstep predict run/model.safetensors digits > predictions.txt
  lockstep submit job.toml --threads 1 --set training.max_iterations=10
"""

import pathlib
import shutil
import unittest

from support import DigitsTest

EARLIER = pathlib.Path(__file__).resolve().parent / "earlier"


class EarlierFiles(DigitsTest):
    PER_CLASS = 3

    def setUp(self):
        super().setUp()
        shutil.copytree(EARLIER, self.folder, dirs_exist_ok=True)
        self.home = {"LOCKSTEP_HOME": str(self.folder / "home")}

    def works(self, *arguments):
        done = self.run_command(*arguments, **self.home)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_model_predicts_the_same(self):
        before = (EARLIER / "predictions.txt").read_text().split("\n")
        now = self.works("predict", "run/model.safetensors", self.shared / "digits").split("\n")
        self.assertEqual(len(now), len(before))
        for old, new in zip(before[:-1], now):
            (old_name, old_class, old_score), (name, new_class, new_score) = old.split("\t"), new.split("\t")
            self.assertTrue(name.endswith(old_name), name)
            self.assertEqual(new_class, old_class)
            self.assertAlmostEqual(float(new_score), float(old_score), delta=0.001)
        # As that commit's `evaluate` printed.
        self.assertIn("accuracy  86.67 %", self.works("evaluate", "run/model.safetensors", self.shared / "digits"))
        self.assertIn("leaky_relu_1", self.works("summary", "run/model.safetensors"))

    def test_a_run_goes_on_if_other_numerics_are_allowed(self):
        receipt = self.folder / "run/receipt.jsonl"
        before = receipt.read_bytes()
        more = ["train", "--out", "run", "--resume", "--threads", "2", "--set", "training.max_iterations=40"]
        done = self.run_command(*more, **self.home)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("was computed with other numerics: ", done.stderr)
        self.assertIn("set allow_other_numerics = true to continue anyway", done.stderr)
        self.assertEqual(receipt.read_bytes(), before)
        said = self.works(*more, "--set", "training.allow_other_numerics=true")
        self.assertIn("iterations           40", said)
        after = receipt.read_bytes()
        self.assertTrue(after.startswith(before))
        self.assertEqual(after.count(b"\n"), 40)

    def test_its_folder_is_reported_and_starts_another_training(self):
        self.assertIn("30 in the receipt", self.works("info", "run"))
        self.works("report", "run")
        page = (self.folder / "run/report.html").read_text(encoding="utf-8")
        self.assertIn("0.861", page)
        self.works("train", "job.toml", "--out", "other", "--initial-model", "run", "--set", "training.max_iterations=2")

    def test_the_store_of_runs_lists_it(self):
        store = self.folder / "home"
        store.mkdir()
        shutil.copy(EARLIER / "runs.sqlite", store / "runs.sqlite")
        listed = self.works("runs", "list", "--csv")
        self.assertIn("earlier", listed)
        self.assertIn("0.861", listed)
        self.assertIn("training.initial_learning_rate", self.works("runs", "show", "1"))
        # And new runs follow.
        self.works("train", "job.toml", "--out", "next", "--set", "training.max_iterations=2")
        self.assertEqual(len(self.works("runs", "list", "--csv").splitlines()), 3)

    def test_a_batch_job_is_listed_and_fetched(self):
        jobs = self.folder / "home/jobs"
        jobs.mkdir(parents=True)
        shutil.copytree(EARLIER / "jobs/1", jobs / "1")
        self.assertIn("earlier  training  finished", self.works("jobs", "list"))
        self.assertIn("finished", self.works("jobs", "show", "1"))
        self.works("jobs", "fetch", "1", "--out", "fetched")
        self.assertEqual((self.folder / "fetched/model.safetensors").read_bytes(),
                         (EARLIER / "jobs/1/run/model.safetensors").read_bytes())


if __name__ == "__main__":
    unittest.main()
