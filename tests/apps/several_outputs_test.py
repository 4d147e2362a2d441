#!/usr/bin/env python3
"""Networks with several outputs: classes and numbers of tables, and of tables next to images.

usage: several_outputs_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import json
import math
import unittest

from houses import HouseTest
from predict_test import read_npy


class SeveralOutputs(HouseTest):
    def named(self, *arguments):
        """The results of a network with several outputs: {"kind": {"top": [...]}, ...} of each row."""
        return [entry["outputs"] for entry in json.loads(self.succeed(
            "predict", "run", *arguments, "--top", "9", "--json"))["predictions"]]

    @staticmethod
    def best(output):
        return output["top"][0]["class"]

    HEADS = """[data]
train = "houses.csv"
target_columns = ["price", "kind"]
categories = "kind"
ignored_columns = "city"
validation_fraction = 0.2
[network]
layers = [
  {{ type = "feature_input", features = 2, normalization = "z-score" }},
  {{ type = "fully_connected", units = 16, name = "trunk" }},
  {{ type = "tanh", name = "tanh" }},
  {{ type = "fully_connected", units = 1, name = "price", inputs = ["tanh"] }},
  {{ type = "fully_connected", units = {units}, name = "kind", inputs = ["tanh"] }},
]
{outputs}
[training]
solver = "adam"
initial_learning_rate = 0.05
mini_batch_size = 20
max_epochs = 60
metrics = {metrics}
"""
    OUTPUTS = 'outputs = [{ layer = "price", weight = 0.5 }, { layer = "kind", loss = "cross_entropy" }]'

    def heads(self, units=3, outputs=OUTPUTS, metrics='["price: rmse", "kind: accuracy"]', name="heads.toml"):
        self.put(name, self.HEADS.format(units=units, outputs=outputs, metrics=metrics))
        return name

    def test_several_outputs(self):
        def values(i, row):
            return {"price": row["rooms"] - 0.1 * row["age"],
                    "kind": "old" if row["age"] > 60 else "big" if row["rooms"] > 5 else "usual"}

        order = ("rooms", "age", "city", "price", "kind")
        self.table(order=order, values=values)
        digests = set()
        for threads in (1, 2, 5):
            done = self.succeed("train", self.heads(), "--out", f"run{threads}", "--set", f"threads={threads}", "--json",
                                "--quiet")
            digests.add(json.loads(done)["digest"])
        self.assertEqual(len(digests), 1)
        (self.folder / "run1").rename(self.folder / "run")
        # The order of columns and rows, and which texts there are, do not matter.
        order = ("kind", "price", "age", "rooms")
        self.table("test.csv", 60, order, seed=2, values=values)
        content = (self.folder / "test.csv").read_text(encoding="utf-8").splitlines()
        lines = [line for line in content[1:] if not line.startswith("old")]
        self.put("test.csv", "\n".join([content[0]] + lines) + "\n")
        result = self.evaluated("test.csv", "--metrics", "kind: accuracy,kind: f1")
        self.assertEqual(list(result["metrics"]), ["price: rmse", "kind: accuracy", "kind: f1"])
        predicted = self.named("test.csv")
        right, squares = 0, 0
        for line, outputs in zip(lines, predicted):
            kind, price = line.split(",")[:2]
            self.assertEqual((list(outputs), list(outputs["price"])), (["price", "kind"], ["values"]))
            scores = {entry["class"]: entry["score"] for entry in outputs["kind"]["top"]}
            self.assertEqual(sorted(scores), ["big", "old", "usual"])
            self.assertEqual(list(scores.values()), sorted(scores.values(), reverse=True))
            self.assertAlmostEqual(sum(scores.values()), 1, places=4)
            right += self.best(outputs["kind"]) == kind
            squares += (outputs["price"]["values"]["price"] - float(price)) ** 2
        self.assertAlmostEqual(result["metrics"]["kind: accuracy"], right / len(lines), places=6)
        self.assertGreater(right / len(lines), 0.8)
        self.assertAlmostEqual(result["metrics"]["price: rmse"], math.sqrt(squares / len(lines)), places=4)
        self.assertLess(result["metrics"]["price: rmse"], 1)
        # Predictions need no targets.
        self.put("bare.csv", "\n".join(["age,rooms"] + [",".join(line.split(",")[2:]) for line in lines]) + "\n")
        self.assertEqual(self.named("bare.csv"), predicted)
        text = self.succeed("predict", "run", "bare.csv").splitlines()
        self.assertEqual(len(text), len(lines))
        fields = text[0].split("\t")
        self.assertEqual(fields[1::2] + [fields[4]], ["price", "kind", fields[5], self.best(predicted[0]["kind"])])
        self.assertAlmostEqual(float(fields[2]), predicted[0]["price"]["values"]["price"], places=5)
        self.assertAlmostEqual(float(fields[5]), predicted[0]["kind"]["top"][0]["score"], places=4)
        text = self.succeed("predict", "run", "bare.csv", "--top", "2").splitlines()
        self.assertEqual(len(text[0].split("\t")), 8)
        text = self.succeed("evaluate", "run", "test.csv")
        self.assertRegex(text, r"price: rmse +\d")
        self.assertRegex(text, r"kind: accuracy +\d+\.\d\d %")
        self.put("test.csv", "\n".join([content[0], lines[0], "castle,1,2,3"]) + "\n")
        self.assertIn("kind=castle", self.refuse("evaluate", "run", "test.csv"))
        # Stopped and resumed.
        self.succeed("train", self.heads(), "--out", "part", "--quiet", "--set", "max_epochs=20")
        done = self.succeed("train", self.heads(), "--out", "part", "--resume", "--json", "--quiet")
        self.assertIn(json.loads(done)["digest"], digests)
        cases = [(dict(units=2), "are of 4, but the network's output is of 3"),
                 (dict(metrics='"kind: rmse"'), "regression metric"),
                 (dict(metrics='"sort: accuracy"'), "`sort`"),
                 (dict(outputs=self.OUTPUTS.replace('"price"', '"prize"')), "prize"),
                 (dict(outputs=self.OUTPUTS.replace("cross_entropy", "cross_entrpy")), "cross_entrpy"),
                 (dict(outputs=self.OUTPUTS.replace("weight", "wight")), "wight"),
                 (dict(outputs=self.OUTPUTS.replace("0.5", "-1")), "weight"),
                 (dict(outputs=self.OUTPUTS + '\nloss = "mean_squared_error"'), "both given"),
                 (dict(outputs='outputs = "price"'), "list of tables"),
                 (dict(outputs='outputs = [{ layer = "price" }, { weight = 2 }]'), "outputs[1] has no layer"),
                 (dict(outputs='outputs = [{ layer = "price" }, { layer = "price" }]'), "named twice")]
        for change, expected in cases:
            self.assertIn(expected, self.refuse("train", self.heads(**change), "--check"), change)

    def check_metrics(self, result, names, rows, scale, weight):
        """Compares what evaluate() gives with the predictions: the outputs of each row, its number and its class.
        Returns accuracy and root-mean-square error."""
        number, kind = names
        right, squares, loss = 0, 0, 0
        for outputs, value, label in rows:
            scores = {one["class"]: one["score"] for one in outputs[kind]["top"]}
            self.assertAlmostEqual(sum(scores.values()), 1, places=4)
            error = outputs[number]["values"][number] - value
            right += self.best(outputs[kind]) == label
            squares += error ** 2
            loss += 0.5 * (error / scale) ** 2 - weight * math.log(scores[label])
        accuracy, rmse = right / len(rows), math.sqrt(squares / len(rows))
        self.assertAlmostEqual(result["metrics"][f"{number}: rmse"], rmse, delta=1e-4 * rmse)
        self.assertAlmostEqual(result["metrics"][f"{kind}: accuracy"], accuracy, places=6)
        self.assertAlmostEqual(result["loss"], loss / len(rows), delta=1e-4 * result["loss"])
        return accuracy, rmse

    def test_outputs_that_do_not_fit_their_columns_are_refused(self):
        def values(i, row):
            return {"kind": "old" if row["age"] > 60 else "big", "cheap": int(row["price"] < 5)}

        self.table(order=("rooms", "age", "city", "price", "kind"), values=values)
        swapped = 'outputs = [{ layer = "kind", loss = "cross_entropy" }, { layer = "price" }]'
        error = self.refuse("train", self.heads(2, swapped), "--check")
        self.assertIn("the outputs do not fit the target columns: kind: price, kind=big; price: kind=old, which "
                      "divides the classes of `kind`", error)
        self.assertIn("outputs take the columns of target_columns in order", error)
        # An output with classes that share it with a number.
        self.table(order=("rooms", "age", "city", "price", "kind", "cheap"), values=values)
        job = self.HEADS.format(units=3, outputs=self.OUTPUTS,
                                metrics="[]").replace('"price", "kind"]', '"cheap", "price", "kind"]')
        self.put("mixed.toml", job)
        error = self.refuse("train", "mixed.toml", "--check")
        self.assertIn("where kind has the loss cross_entropy", error)
        # A number under a loss of classes: its probability would be 1.
        self.table(order=("rooms", "age", "city", "price", "cheap"), values=values)
        job = self.HEADS.format(units=1, outputs=self.OUTPUTS, metrics="[]").replace('"price", "kind"]', '"price", "cheap"]')
        self.put("one.toml", job.replace('categories = "kind"\n', ""))
        error = self.refuse("train", "one.toml", "--check")
        self.assertIn("the output `kind` has the loss cross_entropy, but one number", error)
        self.assertIn("binary_cross_entropy", error)

    def test_a_second_softmax_is_said(self):
        def values(i, row):
            return {"kind": "old" if row["age"] > 60 else "big"}

        self.table(order=("rooms", "age", "city", "price", "kind"), values=values)
        job = self.HEADS.format(units=2, outputs=self.OUTPUTS.replace('"kind"', '"scores"'), metrics="[]")
        head = 'name = "kind", inputs = ["tanh"] },'
        self.assertIn(head, job)
        self.put("twice.toml", job.replace(head, head + ' { type = "softmax", name = "scores", inputs = ["kind"] },'))
        said = self.run_command("train", "twice.toml", "--check").stderr
        self.assertIn("the output `scores` ends in softmax, and its loss cross_entropy adds another one", said)
        self.put("once.toml", job.replace('"scores"', '"kind"'))
        self.assertNotIn("softmax", self.run_command("train", "once.toml", "--check").stderr)

    def test_an_output_has_several_numbers(self):
        self.table(order=("rooms", "age", "price", "double"), rows=60)
        outputs = 'outputs = [{ layer = "money" }]'
        job = self.HEADS.replace('"price", "kind"', '"price", "double"').replace('categories = "kind"\n', "")
        job = job.replace('units = 1, name = "price"', 'units = 2, name = "money"').replace(
            'ignored_columns = "city"\n', "").replace(
            '  {{ type = "fully_connected", units = {units}, name = "kind", inputs = ["tanh"] }},\n', "")
        self.put("job.toml", job.format(units=0, outputs=outputs, metrics='"money: mae"').replace("= 60", "= 2"))
        self.succeed("train", "job.toml", "--out", "run", "--quiet")
        self.put("one.csv", "rooms,age\n3,20\n")
        (outputs,) = self.named("one.csv")
        self.assertEqual({name: list(output["values"]) for name, output in outputs.items()},
                         {"money": ["price", "double"]})
        fields = self.succeed("predict", "run", "one.csv").split("\t")
        self.assertEqual(fields[1::2], ["money: price", "money: double"])
        self.assertAlmostEqual(float(fields[4]), outputs["money"]["values"]["double"], places=4)

    def test_an_initial_model_keeps_the_order_of_targets(self):
        self.table(order=("rooms", "age", "city", "price", "kind"), rows=60,
                   values=lambda i, row: {"kind": ("big", "old", "usual")[i % 3]})
        self.succeed("train", self.heads(), "--out", "run", "--quiet", "--set", "max_epochs=1")
        self.succeed("train", "heads.toml", "--out", "next", "--quiet", "--set", "max_epochs=1", "--initial-model", "run")
        turned = self.HEADS.replace('["price", "kind"]\ncategories', '["kind", "price"]\ncategories')
        outputs = 'outputs = [{ layer = "kind", loss = "cross_entropy" }, { layer = "price", weight = 0.5 }]'
        self.put("turned.toml", turned.format(units=3, outputs=outputs, metrics="[]"))
        self.succeed("train", "turned.toml", "--check")
        said = self.refuse("train", "turned.toml", "--out", "turned", "--initial-model", "run")
        self.assertIn("are `price`, `kind=big`, `kind=old`, `kind=usual`, those of this job `kind=big`, `kind=old`, "
                      "`kind=usual`, `price`", said)
        self.assertIn("give target_columns in the order of the model", said)

    def test_numbers_of_several_outputs_are_scaled(self):
        def values(i, row):
            return {"price": 1e6 + 1e5 * row["price"], "kind": "old" if row["age"] > 60 else "usual"}

        order = ("rooms", "age", "city", "price", "kind")
        self.table(order=order, values=values)
        scaling = 'target_scaling = "z-score"\n[network]'
        text = self.HEADS.replace("[network]", scaling).replace(
            'categories = "kind"\nignored_columns = "city"', 'categories = ["kind", "city"]').replace(
            "features = 2", "features = 5")
        self.put("heads.toml", text.format(units=2, outputs=self.OUTPUTS, metrics='["price: rmse", "kind: accuracy"]'))
        digests = set()
        for threads in (1, 2, 5):
            done = self.run_command("train", "heads.toml", "--out", f"run{threads}", "--set", f"threads={threads}",
                                    "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("the targets are learned scaled (z-score)", done.stderr)
            digests.add(json.loads(done.stdout)["digest"])
        self.assertEqual(len(digests), 1)
        (self.folder / "run1").rename(self.folder / "run")
        state = self.tensors("run/model.safetensors")
        self.assertEqual((state["target_scaling.offset"][1:], state["target_scaling.scale"][1:]), ([0, 0], [1, 1]))
        self.assertGreater(state["target_scaling.offset"][0], 5e5)
        self.table("test.csv", 50, order, seed=2, values=values)
        result = self.evaluated("test.csv")
        lines = (self.folder / "test.csv").read_text(encoding="utf-8").splitlines()[1:]
        rows = [(outputs, float(line.split(",")[3]), line.split(",")[4])
                for line, outputs in zip(lines, self.named("test.csv"))]
        accuracy, rmse = self.check_metrics(result, ("price", "kind"), rows, state["target_scaling.scale"][0], 1)
        self.assertGreater(accuracy, 0.8)
        self.assertLess(rmse, 1e5)
        # Stopped and resumed.
        self.succeed("train", "heads.toml", "--out", "part", "--quiet", "--set", "max_epochs=20")
        done = self.succeed("train", "heads.toml", "--out", "part", "--resume", "--json", "--quiet")
        self.assertIn(json.loads(done)["digest"], digests)
        classes = text.replace('["price", "kind"]', '"kind"').replace('["kind", "city"]', '["kind", "city"]').replace(
            'ignored_columns = "city"', "").replace("features = 5", "features = 6")
        self.put("heads.toml", classes.format(
            units=2, outputs='outputs = [{ layer = "kind", loss = "cross_entropy" }]', metrics='"kind: accuracy"')
            .replace('  { type = "fully_connected", units = 1, name = "price", inputs = ["tanh"] },\n', ""))
        self.assertIn("all outputs learn classes", self.refuse("train", "heads.toml", "--check"))

    OBJECTS = """[data]
train = "photos"
targets = "objects.csv"
{data}
[network]
input = {{ height = 4, width = 5, channels = 1, normalization = "z-score" }}
layers = [
  {{ type = "fully_connected", units = 12, name = "trunk" }},
  {{ type = "tanh", name = "tanh" }},
  {{ type = "fully_connected", units = 1, name = "size", inputs = ["tanh"] }},
  {{ type = "fully_connected", units = 3, name = "sort", inputs = ["tanh"] }},
]
outputs = [{{ layer = "size" }}, {{ layer = "sort", loss = "cross_entropy" }}]
[training]
solver = "adam"
initial_learning_rate = 0.02
mini_batch_size = 10
max_epochs = 100
metrics = ["size: rmse", "sort: accuracy"]
"""

    def objects(self, folder, table, count, kinds=("bar", "dot", "rim")):
        """Images that are bright on the left, in the middle or on the right, next to their kinds and sizes."""
        lines = ["file,kind,note,size"]
        for i in range(count):
            kind, light = kinds[i % len(kinds)], 60 + 37 * i % 190
            first = {"bar": 0, "dot": 2, "rim": 4}.get(kind, 0)
            row = bytes(light if first <= x <= first + 1 else 0 for x in range(5))
            self.put(f"{folder}/{i:02}.pgm", b"P5 5 4 255\n" + 4 * row)
            lines.append(f"{i:02},{kind},number {i},{light / 100}")
        self.put(table, "\n".join(lines) + "\n")

    def test_images_have_kinds_and_sizes(self):
        self.objects("photos", "objects.csv", 60)
        self.objects("more", "more.csv", 8, ("dot", "bar"))
        job = 'target_columns = ["size", "kind"]\ncategories = "kind"\n'
        more = 'validation = "more"\nvalidation_targets = "more.csv"\n'
        self.put("job.toml", self.OBJECTS.format(data=job + more))
        digests = set()
        for threads in (1, 3):
            done = self.succeed("train", "job.toml", "--out", f"run{threads}", "--json", "--quiet", "--set",
                                f"threads={threads}")
            digests.add(json.loads(done)["digest"])
        self.assertEqual(len(digests), 1)
        (self.folder / "run1").rename(self.folder / "run")
        # A table without one of the kinds, and its columns in another order.
        lines = [line.split(",") for line in (self.folder / "more.csv").read_text(encoding="utf-8").splitlines()]
        self.put("turned.csv", "\n".join(f"{file},{size},{kind}" for file, kind, _, size in lines) + "\n")
        result = self.evaluated("more", "--targets", "turned.csv")
        self.assertEqual(result, {**self.evaluated("more", "--targets", "more.csv"), "seconds": result["seconds"]})
        squares, right = 0, 0
        for (_, kind, _, size), outputs in zip(lines[1:], self.named("more")):
            self.assertEqual(sorted(entry["class"] for entry in outputs["sort"]["top"]), ["bar", "dot", "rim"])
            right += self.best(outputs["sort"]) == kind
            squares += (outputs["size"]["values"]["size"] - float(size)) ** 2
        self.assertEqual(result["metrics"]["sort: accuracy"], right / 8)
        self.assertEqual(right, 8)
        self.assertAlmostEqual(result["metrics"]["size: rmse"], math.sqrt(squares / 8), places=5)
        self.assertLess(result["metrics"]["size: rmse"], 0.3)
        # Stopped and resumed; and with a part of the training images for validation.
        self.succeed("train", "job.toml", "--out", "part", "--quiet", "--set", "max_epochs=20")
        done = self.succeed("train", "job.toml", "--out", "part", "--resume", "--json", "--quiet")
        self.assertIn(json.loads(done)["digest"], digests)
        self.put("split.toml", self.OBJECTS.format(data=job + "validation_fraction = 0.2\n"))
        self.succeed("train", "split.toml", "--out", "split", "--quiet")
        for data, expected in ((job.replace('"kind"]', '"knid"]'), "no column `knid`"),
                               (job.replace('"size", "kind"', '"size"'), "`kind` is not a target"),
                               (job.replace('categories = "kind"', ""), "(kind)"),
                               (job + 'missing = "mean"', "missing is not for images"),
                               (job + 'category_encoding = "embedding"', "category_encoding is not for images")):
            self.put("job.toml", self.OBJECTS.format(data=data))
            self.assertIn(expected, self.refuse("train", "job.toml", "--check"), data)
        self.objects("more", "more.csv", 8, ("dot", "rum"))
        self.put("job.toml", self.OBJECTS.format(data=job + more))
        for said in (self.refuse("train", "job.toml", "--check"),
                     self.refuse("evaluate", "run", "more", "--targets", "more.csv")):
            self.assertIn("`kind=rum`, which the training did not have", said)
            self.assertIn("did you mean `kind=rim`?", said)
        self.put("more.csv", (self.folder / "more.csv").read_text(encoding="utf-8").replace("file,", ","))
        self.assertIn("has no name", self.refuse("evaluate", "run", "more", "--targets", "more.csv"))

    STEPS = """[data]
train = "waves"
target_columns = ["force", "kind"]
categories = "kind"
validation_fraction = 0.2
{data}
[network]
layers = [
  {{ type = "sequence_input", channels = 2 }},
  {{ type = "lstm", units = 12, name = "lstm" }},
  {{ type = "fully_connected", units = 1, name = "force", inputs = ["lstm"] }},
  {{ type = "fully_connected", units = 2, name = "way", inputs = ["{way}"] }},
]
outputs = [{{ layer = "force", weight = 0.5 }}, {{ layer = "way", loss = "cross_entropy", weight = 2 }}]
[training]
solver = "adam"
initial_learning_rate = 0.02
mini_batch_size = 5
max_epochs = 30
metrics = ["force: rmse", "way: accuracy"]
"""

    @staticmethod
    def wave(i, t):
        x, y = math.sin(0.7 * t + i), math.cos(0.4 * t + 2 * i)
        return x, y, 300 * (0.5 * x - y), "up" if x > 0 else "down"

    def waves(self, folder, count, columns=(0, 1, 2, 3), header=True, only=None):
        for i in range(count):
            steps = [self.wave(i, t) for t in range(6 + 5 * i % 13)]
            rows = [["x", "y", "force", "kind"]] * header + [s for s in steps if only in (None, s[3])]
            self.put(f"{folder}/{i:02}.csv", "".join(",".join(str(row[k]) for k in columns) + "\n" for row in rows))

    def test_outputs_by_step(self):
        self.waves("waves", 20)
        self.put("job.toml", self.STEPS.format(data='target_scaling = "z-score"', way="lstm"))
        digests = set()
        for threads in (1, 2, 5):
            done = self.succeed("train", "job.toml", "--out", f"run{threads}", "--json", "--quiet", "--set",
                                f"threads={threads}")
            digests.add(json.loads(done)["digest"])
        self.succeed("train", "job.toml", "--out", "part", "--quiet", "--set", "max_epochs=11")
        done = self.succeed("train", "job.toml", "--out", "part", "--resume", "--json", "--quiet")
        self.assertEqual(digests, {json.loads(done)["digest"]})
        (self.folder / "run1").rename(self.folder / "run")
        self.waves("test", 7)
        result = self.evaluated("test")
        scale = self.tensors("run/model.safetensors")["target_scaling.scale"]
        self.assertEqual(scale[1:], [1, 1])
        predicted = json.loads(self.succeed("predict", "run", "test", "--top", "2", "--json"))["predictions"]
        wanted = [(f"test/{i:02}.csv step {t + 1}", *self.wave(i, t)[2:])
                  for i in range(7) for t in range(6 + 5 * i % 13)]
        self.assertEqual([entry["file"] for entry in predicted], [name for name, *_ in wanted])
        rows = [(entry["outputs"], force, kind) for entry, (_, force, kind) in zip(predicted, wanted)]
        accuracy, rmse = self.check_metrics(result, ("force", "way"), rows, scale[0], 2)
        self.assertGreater(accuracy, 0.9)
        self.assertLess(rmse, 100)
        self.succeed("predict", "run", "test", "--arrays", "--out", "arrays")
        for i in range(7):  # all outputs of a step side by side
            self.assertEqual(read_npy(self.folder / f"arrays/{i:02}.npy")[0], (6 + 5 * i % 13, 3))
        # Files without targets, in another order, and without names.
        for columns, header in (((1, 0), True), ((3, 1, 0), True), ((0, 1), False)):
            self.waves("bare", 7, columns, header)
            found = self.named("bare", *([] if header else ["--no-header"]))
            self.assertEqual(found, [entry["outputs"] for entry in predicted], columns)
        # Files that lack a kind, and one that has another.
        self.waves("ups", 7, (3, 0, 2, 1), only="up")
        self.assertGreater(self.evaluated("ups")["metrics"]["way: accuracy"], 0.5)
        self.put("ups/03.csv", "x,y,force,kind\n1,2,3,upp\n")
        said = self.refuse("evaluate", "run", "ups")
        self.assertIn("03.csv has `kind=upp`, which the training did not have", said)
        self.assertIn("`kind=up`", said)
        for data, expected in (('categories = "sort"', "`sort` is not one of the targets by step"),
                               ('label_column = "kind"\ncategories = "kind"', "in two ways"),
                               ('categories = ""', "(kind)")):
            self.put("job.toml", self.STEPS.format(data="", way="lstm").replace('categories = "kind"', data))
            self.assertIn(expected, self.refuse("train", "job.toml", "--check"), data)

    def test_outputs_by_step_and_by_sequence_are_refused(self):
        self.waves("waves", 6)
        head = 'inputs = ["lstm"] },'
        last = head + '\n  { type = "last_step", name = "last", inputs = ["lstm"] },'
        self.put("job.toml", self.STEPS.format(data="", way="last").replace(head, last))
        said = self.refuse("train", "job.toml", "--check")
        self.assertIn("some of its inputs are sequences, but input 2 is not", said)
        self.assertIn("all outputs are by step, or all by sequence", said)


if __name__ == "__main__":
    unittest.main()
