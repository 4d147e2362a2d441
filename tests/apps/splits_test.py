#!/usr/bin/env python3
"""Splits by groups and by time, copies of images, and balanced classes.

usage: splits_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import json
import random
import shutil
import unittest

from small_job import table_job
from support import CommandTest


class Splits(CommandTest):
    def setUp(self):
        super().setUp()
        dice = random.Random(3)
        self.rows = [["patient", "day", "age", "dose", "ill"]]
        for i in range(240):
            ill = i % 4 == 0
            self.rows.append([f"p{dice.randrange(40)}", f"2024-{1 + i % 12:02}-{1 + i // 12:02}",
                              str(30 + 20 * ill + dice.randrange(9)), str(dice.randrange(5)), "yes" if ill else "no"])
        self.put_rows()

    def put_rows(self, rows=None):
        self.put("visits.csv", "\n".join(",".join(row) for row in rows or self.rows) + "\n")

    def job(self, data, **options):
        self.put("visits.toml", table_job("visits.csv", 2, data=data, **{
            "max_epochs": 3, "mini_batch_size": 16, "shard_size": 4, **options}))

    def train(self, out, *arguments):
        return self.works("train", "visits.toml", "--json", "--quiet", "--out", out, *arguments)

    def test_a_group_column_is_not_a_feature_and_is_said(self):
        self.job('validation_fraction = 0.25\ngroup_column = "patient"\nignored_columns = ["day"]\n')
        done = self.train("run")
        self.assertIn("the column `patient` of", done.stderr)
        self.assertIn("names groups, and is not a feature", done.stderr)
        # A file to predict needs no group.
        self.put("new.csv", "age,dose\n31,2\n55,1\n")
        self.assertIn("line 3", self.succeed("predict", "run", "new.csv"))
        self.works("evaluate", "run", "visits.csv")

    def test_the_bits_are_those_of_any_threads_and_of_a_stopped_run(self):
        self.job('validation_fraction = 0.25\ngroup_column = "patient"\nignored_columns = ["day"]\n',
                 sampling="balanced")
        self.train("one", "--threads", "1")
        receipt = (self.folder / "one/receipt.jsonl").read_bytes()
        for threads in ("2", "5"):
            self.train(threads, "--threads", threads)
            self.assertEqual((self.folder / threads / "receipt.jsonl").read_bytes(), receipt)
        self.train("workers", "--set", "workers=2")
        self.assertEqual((self.folder / "workers/receipt.jsonl").read_bytes(), receipt)
        stopped = self.run_command("train", "visits.toml", "--quiet", "--out", "parts", "--set", "max_time=0.001")
        self.assertEqual(stopped.returncode, 130, stopped.stderr)
        self.works("train", "--out", "parts", "--resume", "--quiet", "--set", "max_time=0")
        self.assertEqual((self.folder / "parts/receipt.jsonl").read_bytes(), receipt)
        self.train("all", "--set", "sampling=all")
        self.assertNotEqual((self.folder / "all/receipt.jsonl").read_bytes(), receipt)

    def test_groups_are_the_folds_of_cross_validation(self):
        self.job('group_column = "patient"\nignored_columns = ["day"]\n', max_epochs=1)
        self.works("cross-validate", "visits.toml", "--folds", "4", "--out", "folds", "--quiet")
        error = self.refuse("cross-validate", "visits.toml", "--folds", "60", "--out", "more", "--quiet")
        self.assertIn("groups, fewer than folds = 60", error)

    def test_time_holds_out_the_last_rows(self):
        self.job('validation_fraction = 0.25\ntime_column = "day"\nignored_columns = ["patient"]\n')
        done = self.train("run")
        self.assertIn("is the time by which rows are held out", done.stderr)
        # The rows in the order of time, split by hand, with the same training.
        rows = sorted(self.rows[1:], key=lambda row: row[1])
        held = {tuple(row) for row in rows[180:]}
        self.assertNotEqual(rows[179][1], rows[180][1])
        header = [self.rows[0]]
        for name, chosen in (("before", [r for r in self.rows[1:] if tuple(r) not in held]),
                             ("after", [r for r in self.rows[1:] if tuple(r) in held])):
            self.put(f"{name}.csv", "\n".join(",".join(row) for row in header + chosen) + "\n")
        self.put("by_hand.toml", table_job("before.csv", 2, data='validation = "after.csv"\n'
                                           'ignored_columns = ["patient", "day"]\n',
                                           max_epochs=3, mini_batch_size=16, shard_size=4))
        by_hand = self.works("train", "by_hand.toml", "--json", "--quiet", "--out", "by_hand")
        a, b = json.loads(done.stdout), json.loads(by_hand.stdout)
        self.assertTrue(a["validation_loss"] > 0)
        self.assertEqual(a["validation_loss"], b["validation_loss"])

    def test_wrong_columns_are_refused(self):
        usual = 'validation_fraction = 0.25\nignored_columns = ["day"]\n'
        for data, text in (
                (usual + 'group_column = "patients"\n', "no column `patients`"),
                ('validation_fraction = 0.25\ngroup_column = "ill"\nlabel_column = "ill"\n', "another use already"),
                ('validation_fraction = 0.25\ngroup_column = "patient"\ntime_column = "day"\n', "cannot both be given"),
                ('header = false\nvalidation_fraction = 0.25\ngroup_column = "patient"\n', "columns have no names"),
                ('validation_fraction = 0.25\ntime_column = "patient"\nignored_columns = ["day"]\n',
                 "is neither a number nor a date"),
                ('folds = 3\ntime_column = "day"\nignored_columns = ["patient"]\n', "folds are drawn at random"),
                ('validation_fraction = 0.001\ngroup_column = "patient"\nignored_columns = ["day"]\n',
                 "validation_fraction leaves no")):
            self.job(data)
            self.assertIn(text, self.refuse("train", "visits.toml", "--check"), data)
        self.job(usual + 'group_column = "patient"\n')
        self.put_rows(self.rows[:5] + [["", *self.rows[5][1:]]] + self.rows[6:])
        error = self.refuse("train", "visits.toml", "--check")
        self.assertIn("line 6", error)
        self.assertIn("the group is missing", error)
        self.job('validation_fraction = 0.25\ntime_column = "day"\nignored_columns = ["patient"]\n')
        self.put_rows(self.rows[:9] + [["p1", "17", *self.rows[9][2:]]] + self.rows[10:])
        error = self.refuse("train", "visits.toml", "--check")
        self.assertIn("line 10", error)
        self.assertIn("is a number, but other rows have dates", error)
        for field in ("group_column", "time_column"):
            self.assertIn(f"{field} is not for images without a table of targets",
                          self.refuse("train", "job.toml", "--check", "--set", f"data.{field}=x"))

    def test_copies_of_images_stay_on_one_side(self):
        shutil.copytree(self.shared / "digits", self.folder / "photos")
        train = ("train", "job.toml", "--quiet", "--set", "data.train=photos", "--set", "max_epochs=1")
        before = self.works(*train, "--out", "before")
        self.assertNotIn("cop", before.stderr)
        for label in range(3):
            images = sorted((self.folder / f"photos/{label}").iterdir())
            for i, image in enumerate(images[:4]):
                shutil.copy(image, image.with_name(f"zz{i}{image.suffix}"))
        done = self.works(*train, "--out", "after")
        self.assertIn("12 images are copies of others with the same bytes; copies are kept on one side", done.stderr)
        again = self.works(*train, "--out", "again", "--threads", "3")
        self.assertEqual((self.folder / "after/receipt.jsonl").read_bytes(),
                         (self.folder / "again/receipt.jsonl").read_bytes())
        self.works("cross-validate", "job.toml", "--folds", "2", "--quiet", "--set", "data.train=photos",
                   "--set", "max_epochs=1", "--out", "folds")

    def test_balanced_sampling_is_for_classes(self):
        self.job('target_columns = ["age"]\nignored_columns = ["day", "patient", "ill"]\n', sampling="balanced")
        text = (self.folder / "visits.toml").read_text()
        text = text.replace("features = 2", "features = 1").replace("units = 2", "units = 1")
        text = text.replace('  { type = "softmax" },\n', "").replace("[network]", '[network]\nloss = "mean_squared_error"')
        self.put("visits.toml", text)
        self.assertIn('sampling = "balanced" needs observations with classes',
                      self.refuse("train", "visits.toml", "--check"))
        self.assertIn('shuffle is "never"', self.refuse("train", "job.toml", "--check", "--set", "sampling=balanced",
                                                        "--set", "shuffle=never"))
        self.assertIn("sampling", self.refuse("train", "job.toml", "--check", "--set", "sampling=fair"))


if __name__ == "__main__":
    unittest.main()
