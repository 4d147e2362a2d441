#!/usr/bin/env python3
"""Numbers as targets: columns of tables, and tables next to images.

usage: table_targets_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import json
import math
import random
import unittest

from houses import HouseTest

JOB = """
[data]
train = "{train}"
{data}
[network]
loss = "{loss}"
layers = [
  {{ type = "feature_input", features = {features} }},
  {{ type = "fully_connected", units = {units} }},
{end}]
[training]
solver = "adam"
initial_learning_rate = 0.1
mini_batch_size = 20
max_epochs = {epochs}
{training}
"""

IMAGES = """
[data]
train = "photos"
targets = "{targets}"
{data}
[network]
loss = "mean_squared_error"
input = {{ height = 4, width = 5, channels = 1 }}
layers = [{{ type = "fully_connected", units = {units} }}]
[training]
solver = "adam"
initial_learning_rate = 0.02
mini_batch_size = 10
max_epochs = 200
"""


class TableTargets(HouseTest):
    def job(self, data="", features=5, units=1, end="", epochs=60, loss="mean_squared_error", train="houses.csv",
            training="", name="job.toml"):
        text = JOB.format(train=train, data=data, features=features, units=units, end=end, epochs=epochs, loss=loss,
                          training=training)
        self.put(name, text)
        return name

    def houses(self, more="", **options):
        return self.job('target_columns = "price"\ncategories = "city"\nignored_columns = "id"\n' + more, **options)

    def test_a_column_is_learned(self):
        self.table()
        self.assertIn("none: the targets are numbers", self.succeed("train", self.houses(), "--check"))
        self.succeed("train", self.houses("validation_fraction = 0.2", training='metrics = "rmse"'), "--out", "run")
        # Columns in another order, without the one that is left out.
        self.table("test.csv", 50, ("price", "city", "age", "rooms"), seed=2)
        result = self.evaluated("test.csv", "--metrics", "rmse,mae")
        self.assertLess(result["metrics"]["rmse"], 0.3)
        lines = (self.folder / "test.csv").read_text(encoding="utf-8").splitlines()[1:]
        errors = [float(line.split(",")[0]) - got[0] for line, got in zip(lines, self.predicted("test.csv"))]
        self.assertEqual(len(errors), 50)
        rmse = math.sqrt(sum(error * error for error in errors) / len(errors))
        self.assertAlmostEqual(result["metrics"]["rmse"], rmse, places=4)
        # The target need not be there, and counts for nothing if it is.
        self.table("bare.csv", 50, ("rooms", "age", "city"), seed=2)
        self.assertEqual(self.predicted("bare.csv"), self.predicted("test.csv"))
        said = self.run_command("predict", "run", "test.csv").stderr
        self.assertIn("the column `price` has targets and is left out", said)
        self.assertIn("there is no column `price`", self.refuse("evaluate", "run", "bare.csv"))

    def test_targets_are_learned_scaled(self):
        def values(i, row):
            return {"price": 1e6 + 1e5 * row["price"], "rent": row["price"] / 1e4}

        order = ("rooms", "age", "city", "price", "rent")
        self.table(order=order, values=values)
        self.table("test.csv", 50, order, seed=2, values=values)
        scaled = ('target_columns = ["price", "rent"]\ncategories = "city"\nvalidation_fraction = 0.2\n'
                  'target_scaling = "z-score"')
        digests = {}
        for threads in (1, 2, 5):
            job = self.job(scaled, units=2, training=f'metrics = "rmse"\nthreads = {threads}')
            done = self.run_command("train", job, "--out", f"run{threads}", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("the targets are learned scaled (z-score)", done.stderr)
            digests[threads] = json.loads(done.stdout)["digest"]
        self.assertEqual(len(set(digests.values())), 1)
        (self.folder / "run1").rename(self.folder / "run")
        result = self.evaluated("test.csv", "--metrics", "rmse,mae")
        self.assertLess(result["loss"], 0.05)
        lines = (self.folder / "test.csv").read_text(encoding="utf-8").splitlines()[1:]
        squares = 0
        for line, (price, rent) in zip(lines, self.predicted("test.csv")):
            wanted = [float(field) for field in line.split(",")[3:]]
            self.assertAlmostEqual(price, wanted[0], delta=6e4)
            self.assertAlmostEqual(rent, wanted[1], delta=6e-5)
            squares += (price - wanted[0]) ** 2 + (rent - wanted[1]) ** 2
        rmse = math.sqrt(squares / (2 * len(lines)))
        self.assertAlmostEqual(result["metrics"]["rmse"], rmse, delta=1e-4 * rmse)
        # Without, the targets are too far away.
        plain = self.job(scaled.replace("z-score", "none"), units=2, name="plain.toml")
        self.succeed("train", plain, "--out", "plain")
        far = json.loads(self.succeed("evaluate", "plain", "test.csv", "--metrics", "rmse", "--json"))
        self.assertGreater(far["metrics"]["rmse"], 10 * rmse)
        # A model that goes on with other targets has their scaling, or keeps its own.
        self.table("cheap.csv", order=order, values=lambda i, row: {"price": 1 + row["price"] / 100, "rent": row["age"]})
        more = '[data]\ntrain = "cheap.csv"\n' + scaled + '\n[network]\nfrom = "run"\n'
        training = '[training]\nsolver = "adam"\ninitial_learning_rate = 0.1\nmini_batch_size = 20\nmax_epochs = 60\n'
        self.put("more.toml", more + training)
        self.succeed("train", "more.toml", "--out", "more")
        cheap = json.loads(self.succeed("evaluate", "more", "cheap.csv", "--metrics", "rmse", "--json"))
        self.assertLess(cheap["metrics"]["rmse"], 3)
        self.put("kept.toml", more + 'keep_statistics = "target_*"\n' + training.replace("60", "1"))
        self.succeed("train", "kept.toml", "--out", "kept")
        kept = json.loads(self.succeed("evaluate", "kept", "cheap.csv", "--metrics", "rmse", "--json"))
        self.assertGreater(kept["metrics"]["rmse"], 1000)

    def test_scaling_is_for_numbers(self):
        self.table()
        cases = [(self.houses('target_scaling = "zscore"', name="word.toml"), "z-score"),
                 (self.job('label_column = "city"\nignored_columns = "id"\ntarget_scaling = "z-score"', units=3,
                           end='  { type = "softmax" },\n', loss="cross_entropy", name="loss.toml"),
                  "but the loss takes labels"),
                 (self.job('label_column = "city"\nignored_columns = "id"\ntarget_scaling = "z-score"', features=3,
                           units=3, name="labels.toml"), "but the data has labels")]
        for job, expected in cases:
            self.assertIn(expected, self.refuse("train", job, "--check"))

    def test_several_columns_are_learned_in_their_order(self):
        self.table(order=("double", "rooms", "age", "price"))
        self.succeed("train", self.job('target_columns = ["price", "double"]', features=2, units=2), "--out", "run")
        self.table("test.csv", 20, ("price", "age", "double", "rooms"), seed=3)
        for price, double in self.predicted("test.csv"):
            self.assertAlmostEqual(double / price if abs(price) > 3 else 2, 2, delta=0.5)
        # The targets of the file are matched by name, too.
        rows = [line.split(",") for line in (self.folder / "test.csv").read_text(encoding="utf-8").splitlines()[1:]]
        squares = [(float(right) - got) ** 2 for row, outputs in zip(rows, self.predicted("test.csv"))
                   for right, got in zip((row[0], row[2]), outputs)]
        rmse = self.evaluated("test.csv", "--metrics", "rmse")["metrics"]["rmse"]
        self.assertAlmostEqual(rmse, math.sqrt(sum(squares) / len(squares)), places=4)

    def test_other_targets_and_categories_than_those_of_the_first_model_are_told(self):
        self.table(order=("double", "rooms", "age", "price"))
        two = 'target_columns = ["price", "double"]'
        self.succeed("train", self.job(two, features=2, units=2, epochs=1), "--out", "run")
        text = JOB.format(train="houses.csv", data='target_columns = ["double", "price"]', features=2, units=2, end="",
                          epochs=1, loss="mean_squared_error", training="")
        begin, end = text.index("loss ="), text.index("[training]")
        text = text[:begin] + 'from = "run"\n' + text[end:]
        self.put("next.toml", text)
        said = self.works("train", "next.toml", "--out", "next").stderr
        self.assertIn("are in another order: `price`, `double`, those of this job `double`, `price`: values of the last "
                      "layer are taken by position", said)
        self.table("cities.csv")
        self.put("turned.csv", (self.folder / "cities.csv").read_text(encoding="utf-8").replace("Oslo", "Arendal"))
        self.succeed("train", self.houses(train="cities.csv", epochs=1), "--out", "cities")
        self.put("next.toml", text.replace("houses.csv", "turned.csv").replace('from = "run"', 'from = "cities"').replace(
            'target_columns = ["double", "price"]', 'target_columns = "price"\ncategories = "city"\nignored_columns = "id"'))
        said = self.works("train", "next.toml", "--check").stderr
        self.assertIn("`city=Oslo` in the model alone, `city=Arendal` in the job alone: values of columns are taken by "
                      "position", said)

    def test_a_run_continues_with_reordered_columns(self):
        order = ["id", "rooms", "age", "city", "price", "double"]
        data = 'target_columns = ["price", "double"]\ncategories = "city"\nignored_columns = "id"'
        self.table(order=order)
        self.succeed("train", self.job(data, units=2, epochs=3), "--out", "whole", "--quiet")
        self.succeed("train", "job.toml", "--out", "run", "--quiet", "--set", "max_epochs=1")
        self.table(order=order[::-1])
        done = self.works("train", "job.toml", "--out", "run", "--quiet", "--resume")
        self.assertIn("they are matched by name", done.stderr)
        self.assertEqual(*((self.folder / name / "receipt.jsonl").read_bytes() for name in ("run", "whole")))

    def test_categories_are_those_of_the_training(self):
        self.table()
        self.succeed("train", self.houses(epochs=1), "--out", "run")
        self.put("one.csv", "rooms,age,city\n3,20,Oslo\n")
        self.put("two.csv", "city,rooms,age\nBodo,3,20\nOslo,3,20\n")
        self.assertEqual(self.predicted("one.csv")[0], self.predicted("two.csv")[1])
        self.put("new.csv", "rooms,age,city\n3,20,Rome\n")
        said = self.run_command("predict", "run", "new.csv").stderr
        self.assertIn("`city=Rome`, which the training did not have", said)
        said = self.refuse("train", self.houses(features=3), "--check")
        self.assertIn("5", said)
        said = self.refuse("train", self.job('target_columns = "price"\nignored_columns = "id"'), "--check")
        self.assertIn("(city)", said)
        self.assertIn("`categories`", said)

    def layers_of(self, run):
        return json.loads((self.folder / run / "job.json").read_text(encoding="utf-8"))["network"]["layers"]

    def test_categories_are_embedded(self):
        self.table()
        data = 'category_encoding = "embedding"\nvalidation_fraction = 0.2'
        digests = set()
        for threads in (1, 2, 5):
            job = self.houses(data, training=f'metrics = "rmse"\nthreads = {threads}')
            digests.add(json.loads(self.succeed("train", job, "--out", f"run{threads}", "--json", "--quiet"))["digest"])
        self.assertEqual(len(digests), 1)
        (self.folder / "run1").rename(self.folder / "run")
        self.table("test.csv", 50, ("price", "city", "age", "rooms"), seed=2)
        self.assertLess(self.evaluated("test.csv", "--metrics", "rmse")["metrics"]["rmse"], 0.3)
        layer = self.layers_of("run")[1]
        self.assertEqual((layer["type"], layer["first"], layer["categories"], layer["units"]),
                         ("category_embedding", [2], [3], [2]))
        # The prediction is that of the model's tensors.
        tensors = self.tensors("run/model.safetensors")
        vectors, out = tensors["feature_input_1_categories.weights_1"], tensors["fully_connected_1.weights"]
        offset, factor = tensors["feature_input_1.offset"], tensors["feature_input_1.factor"]
        bias = tensors["fully_connected_1.bias"][0]
        self.assertEqual((offset[2:], factor[2:]), ([0, 0, 0], [1, 1, 1]))
        self.put("some.csv", "rooms,age,city\n3,20,Oslo\n5,7,Bergen\n3,20,Rome\n")
        for (rooms, age, city), (got,) in zip(((3, 20, "Oslo"), (5, 7, "Bergen"), (3, 20, "Rome")),
                                              self.predicted("some.csv")):
            place = ["Bergen", "Bodo", "Oslo", "Rome"].index(city)
            vector = vectors[2 * place:2 * place + 2] if place < 3 else [0, 0]
            seen = [(rooms - offset[0]) * factor[0], (age - offset[1]) * factor[1]] + vector
            self.assertAlmostEqual(got, bias + sum(a * b for a, b in zip(seen, out)), places=4)
        # Stopped and resumed, and with workers.
        job = self.houses(data, training='metrics = "rmse"')
        self.succeed("train", job, "--out", "part", "--quiet", "--set", "max_epochs=20")
        done = self.succeed("train", job, "--out", "part", "--resume", "--json", "--quiet")
        digests.add(json.loads(done)["digest"])
        done = self.succeed("train", job, "--out", "workers", "--set", "workers=2", "--json", "--quiet")
        digests.add(json.loads(done)["digest"])
        self.assertEqual(len(digests), 1)

    def test_embedding_is_for_categories(self):
        self.table()
        none = 'target_columns = "price"\nignored_columns = ["city", "id"]\n'
        cases = [(none + 'category_encoding = "embedding"', "no column is a category"),
                 (none + "embedding_size = 3", 'category_encoding is "one-hot"'),
                 (none + 'category_encoding = "embeding"', "embedding")]
        for data, expected in cases:
            self.assertIn(expected, self.refuse("train", self.job(data, features=2), "--check"), data)
        self.succeed("train", self.houses('category_encoding = "embedding"\nembedding_size = 7', epochs=1), "--out", "run")
        self.assertEqual(self.layers_of("run")[1]["units"], [7])
        # Another table has other categories.
        self.put("more.toml", '[data]\ntrain = "cut.csv"\ntarget_columns = "price"\ncategories = "city"\n'
                 'category_encoding = "embedding"\nignored_columns = "id"\n[network]\nfrom = "run"\n')
        lines = (self.folder / "houses.csv").read_text(encoding="utf-8").replace("Bodo", "Bergen")
        self.put("cut.csv", lines)
        self.assertIn("has categories [3]", self.refuse("train", "more.toml", "--check"))
        self.put("cut.csv", lines.replace("Bergen", "Bodo", 40))
        self.succeed("train", "more.toml", "--out", "more", "--set", "max_epochs=1")

    def test_missing_values(self):
        def gaps(i, row):
            return {"age": ""} if i == 3 else {"age": "NA"} if i == 5 else {}

        self.table(values=gaps)
        said = self.refuse("train", self.houses(), "--check")
        self.assertIn("line 5, column 3 (age): a number is missing", said)
        self.assertIn('missing = "mean"', said)
        done = self.run_command("train", self.houses('missing = "mean"', epochs=3), "--out", "run")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 values of `age` missing and filled in with the mean", done.stderr)
        ages = [line.split(",")[2] for line in (self.folder / "houses.csv").read_text(encoding="utf-8").splitlines()]
        ages = [float(age) for age in ages[1:] if age not in ("", "NA")]
        mean = sum(ages) / len(ages)
        # Also in other files the mean is that of the training.
        self.put("gap.csv", "rooms,age,city\n3,,Oslo\n3,80,Oslo\n")
        self.put("full.csv", f"rooms,age,city\n3,{mean!r},Oslo\n3,80,Oslo\n")
        for (one,), (other,) in zip(self.predicted("gap.csv"), self.predicted("full.csv")):
            self.assertAlmostEqual(one, other, places=5)
        self.assertIn("one input of 6", self.refuse("train", self.houses('missing = "flag"'), "--check"))
        self.succeed("train", self.houses('missing = "flag"', features=6, epochs=3), "--out", "flagged")
        self.assertEqual(len(self.succeed("predict", "flagged", "full.csv").splitlines()), 2)
        self.table("test.csv", 9, ("price", "rooms", "age", "city"), values=lambda i, row: {"price": ""} if i else {})
        self.assertIn("line 3, column 1 (price): the target is missing", self.refuse("evaluate", "run", "test.csv"))

    def test_several_classes_at_once(self):
        def kinds(i, row):
            return {"big": int(row["rooms"] > 5), "old": int(row["age"] > 45)}

        self.table(order=("rooms", "age", "big", "old"), values=kinds)
        loss = "binary_cross_entropy_with_logits(output, target)"
        self.succeed("train", self.job('target_columns = ["big", "old"]', features=2, units=2, loss=loss), "--out",
                     "run")
        lines = (self.folder / "houses.csv").read_text(encoding="utf-8").splitlines()[1:]
        right = sum((big > 0) == (line.split(",")[2] == "1") for line, (big, old) in zip(
            lines, self.predicted("houses.csv")))
        self.assertGreater(right, 0.9 * len(lines))

    def test_images_have_rows(self):
        lines = ["file,light,half"]
        for i in range(40):
            value = 6 * i
            self.put(f"photos/{i % 3}/{i:02}.pgm", b"P5 5 4 255\n" + bytes([value]) * 20)
            lines.append(f"{i % 3}/{i:02}{'.pgm' if i % 2 else ''},{value / 100},{value / 200}")
        random.Random(1).shuffle(lines[1:])
        self.put("light.csv", "\n".join(lines) + "\n")
        self.put("job.toml", IMAGES.format(targets="light.csv", data='target_columns = "light"\n'
                                           'validation_fraction = 0.2', units=1))
        self.succeed("train", "job.toml", "--out", "run")
        result = self.evaluated("photos", "--targets", "light.csv", "--metrics", "rmse")
        self.assertLess(result["metrics"]["rmse"], 0.1)
        value = json.loads(self.succeed("predict", "run", "photos/1/13.pgm", "--json"))["predictions"][0]["outputs"][0]
        self.assertAlmostEqual(value, 0.78, delta=0.2)
        self.put("job.toml", IMAGES.format(targets="light.csv", data="", units=2))
        self.succeed("train", "job.toml", "--check")
        self.put("job.toml", IMAGES.format(targets="light.csv", data='target_columns = "lihgt"', units=1))
        said = self.refuse("train", "job.toml", "--check")
        self.assertIn("no column `lihgt`", said)
        self.assertIn("`light`", said)
        self.put("job.toml", IMAGES.format(targets="light.csv", data="", units=2))
        self.put("light.csv", "\n".join(lines + [lines[1]]) + "\n")
        self.assertIn("two rows for `0/00`", self.refuse("train", "job.toml", "--check"))
        self.put("light.csv", "\n".join(lines[:30]) + "\n")
        self.assertIn("has no row in", self.refuse("train", "job.toml", "--check"))

    def test_groups_of_images_stay_on_one_side(self):
        lines = ["file,light,patient"]
        for i in range(40):
            self.put(f"photos/{i:02}.pgm", b"P5 5 4 255\n" + bytes([6 * i, i]) * 10)
            lines.append(f"{i:02},{6 * i / 100},patient {i % 9}")
        self.put("light.csv", "\n".join(lines) + "\n")
        self.put("job.toml", IMAGES.format(targets="light.csv", data='group_column = "patient"', units=1))
        few = ("--set", "max_epochs=2", "--quiet")
        done = self.works("train", "job.toml", "--out", "run", "--set", "validation_fraction=0.25", *few)
        self.assertIn("light.csv names groups, and is not a target", done.stderr)
        self.evaluated("photos", "--targets", "light.csv", "--metrics", "rmse")
        self.works("cross-validate", "job.toml", "--folds", "3", "--out", "folds", *few)
        self.assertIn("9 groups, fewer than folds = 10",
                      self.refuse("cross-validate", "job.toml", "--folds", "10", "--out", "more", *few))
        receipt = (self.folder / "run/receipt.jsonl").read_bytes()
        self.works("train", "job.toml", "--out", "again", "--set", "validation_fraction=0.25", "--threads", "1", *few)
        self.assertEqual((self.folder / "again/receipt.jsonl").read_bytes(), receipt)

    def test_what_does_not_fit_is_refused(self):
        self.table()
        cases = [('target_columns = "prise"', "no column `prise`"),
                 ('target_columns = "price"\nlabel_column = "city"', "both given"),
                 ('target_columns = "price"\ncategories = ["city", "city"]', "another use already"),
                 ('target_columns = "price"\nignored_columns = "price"', "another use already"),
                 ('target_columns = ["price", "price"]', "another use already"),
                 ('target_columns = "price"\nheader = false', "numbers"),
                 ('target_columns = ["price"]\nignored_columns = ["rooms", "age", "city", "id"]', "no column is left"),
                 ('target_columns = "price"\nmissing = "maen"', "maen")]
        for data, expected in cases[:5] + cases[6:]:
            self.assertIn(expected, self.refuse("train", self.job(data), "--check"), data)
        for data in ('target_columns = "price"', 'categories = "city"', 'time_column = "age"\nvalidation_fraction = 0.2', ""):
            said = self.refuse("train", self.job(data, train="nope.csv"), "--check")
            self.assertIn("nope.csv does not exist", said)
        self.put("photos/a/1.pgm", b"P5 5 4 255\n" + bytes(20))
        self.put("job.toml", IMAGES.format(targets="nope.csv", data='target_columns = "price"', units=1))
        self.assertIn("nope.csv does not exist", self.refuse("train", "job.toml", "--check"))
        self.put("prices.csv", "file,price\na/1.pgm,3\n")
        self.put("job.toml", IMAGES.format(targets="prices.csv", data="header = false", units=1))
        self.assertIn("header = false is not for a table of targets", self.refuse("train", "job.toml", "--check"))
        self.put("job.toml", IMAGES.format(targets="", data='target_columns = "price"', units=1))
        self.assertIn("target_columns needs a table", self.refuse("train", "job.toml", "--check"))
        self.put("job.toml", IMAGES.format(targets="", data='categories = "price"', units=1))
        self.assertIn("categories is not for images", self.refuse("train", "job.toml", "--check"))

    def test_one_digest(self):
        self.table(values=lambda i, row: {"age": ""} if i % 9 == 0 else {})
        digests = set()
        for threads in (1, 2, 5):
            job = self.houses('missing = "flag"\nvalidation_fraction = 0.25', features=6, epochs=3,
                              training=f"threads = {threads}")
            done = self.succeed("train", job, "--out", f"run{threads}", "--json", "--quiet")
            digests.add(json.loads(done)["digest"])
        self.assertEqual(len(digests), 1)


if __name__ == "__main__":
    unittest.main()
