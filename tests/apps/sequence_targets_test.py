#!/usr/bin/env python3
"""Jobs whose sequences have targets: by step, by sequence, and the next step.

usage: sequence_targets_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import json
import math
import pathlib
import struct
import unittest

from predict_test import read_npy
from support import CommandTest

JOB = """
[data]
train = "waves"
{data}
[network]
loss = "{loss}"
layers = [
  {{ type = "sequence_input", channels = {channels} }},
  {{ type = "lstm", units = 12{lstm} }},
  {{ type = "fully_connected", units = {units} }},
{end}]
[training]
solver = "adam"
initial_learning_rate = 0.02
mini_batch_size = 5
max_epochs = {epochs}
{training}
"""
SOFTMAX = '  { type = "softmax" },\n'


class SequenceTargets(CommandTest):
    def waves(self, folder="waves", count=20, order=("x", "y", "kind", "force"), values=None):
        """Steps of x and y, whose class says whether x grows, and whose force depends on both."""
        for i in range(count):
            lines = [",".join(order)]
            for t in range(6 + 5 * i % 13):
                x, y = math.sin(0.7 * t + i), math.cos(0.4 * t + 2 * i)
                row = {"x": x, "y": y, "kind": "up" if x > 0 else "down", "force": 0.5 * x - y}
                row.update(values or {})
                lines.append(",".join(str(row[name]) for name in order))
            self.put(f"{folder}/{i:02}.csv", "\n".join(lines) + "\n")

    def job(self, data, channels=2, units=1, lstm="", end="", epochs=2, training="", name="job.toml"):
        text = JOB.format(
            loss="cross_entropy" if end else "mean_squared_error", data=data, channels=channels, units=units, lstm=lstm, end=end, epochs=epochs, training=training)
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def labels(self, epochs=2, data="", **more):
        return self.job('label_column = "kind"\n' + data, units=2, end=SOFTMAX, epochs=epochs, **more)

    def evaluated(self, *arguments):
        return json.loads(self.succeed("evaluate", "run", *arguments, "--json"))

    def predicted(self, *arguments):
        """The outputs of each step, by file."""
        found = {}
        for entry in json.loads(self.succeed("predict", "run", *arguments, "--json"))["predictions"]:
            found.setdefault(entry["file"].split(" step ")[0], []).append(entry)
        return found

    def test_a_column_has_the_classes_of_steps(self):
        self.waves(order=("x", "y", "kind"))
        said = self.succeed("train", self.labels(data="validation_fraction = 0.2"), "--check")
        self.assertIn("2: down, up", said)
        self.succeed("train", self.labels(epochs=25, data="validation_fraction = 0.2"), "--out", "run")
        self.waves("test", order=("kind", "y", "x"))  # in another order
        result = self.evaluated("test")
        self.assertGreater(result["accuracy"], 0.9)
        found = self.predicted("test")
        self.assertEqual(len(found), 20)
        right = total = 0
        for i in range(20):
            steps = found[f"test/{i:02}.csv"]
            self.assertEqual(len(steps), 6 + 5 * i % 13)
            for t, step in enumerate(steps):
                right += step["top"][0]["class"] == ("up" if math.sin(0.7 * t + i) > 0 else "down")
                total += 1
        self.assertAlmostEqual(result["accuracy"], right / total, places=6)
        # Without the column, and with another one.
        self.waves("bare", order=("x", "y"))
        self.assertEqual(len(self.predicted("bare")), 20)
        self.assertIn("no column `kind`", self.refuse("evaluate", "run", "bare"))
        self.waves("other", order=("x", "y", "sort", "kind"), values={"sort": 0})
        self.assertIn("`sort`", self.refuse("evaluate", "run", "other"))

    def test_classes_of_other_parts_are_those_of_the_training(self):
        self.waves(order=("x", "y", "kind"))
        self.waves("other", count=2, order=("x", "y", "kind"), values={"kind": "down"})
        self.succeed("train", self.labels(data='validation = "other"'), "--out", "run")
        self.put("other/00.csv", "x,y,kind\n1,2,down\n1,2,dwn\n")
        said = self.refuse("train", self.labels(data='validation = "other"'), "--check")
        self.assertIn("00.csv, step 2: the class `dwn` is not among the 2 classes", said)
        self.assertIn("did you mean", said)
        self.assertIn("`dwn`", self.refuse("evaluate", "run", "other"))

    def test_columns_have_numbers_of_steps(self):
        self.waves(order=("x", "y", "force"))
        job = self.job('target_columns = "force"\nvalidation_fraction = 0.2', epochs=40, training='metrics = "rmse"')
        self.assertIn("none: the targets are numbers", self.succeed("train", job, "--check"))
        self.succeed("train", job, "--out", "run")
        self.waves("test", count=7, order=("force", "y", "x"))
        result = self.evaluated("test", "--metrics", "rmse,mae")
        self.assertLess(result["metrics"]["rmse"], 0.2)
        squares = []
        for name, steps in self.predicted("test").items():
            i = int(name[-6:-4])
            for t, step in enumerate(steps):
                force = 0.5 * math.sin(0.7 * t + i) - math.cos(0.4 * t + 2 * i)
                squares.append((step["outputs"][0] - force) ** 2)
        self.assertAlmostEqual(result["metrics"]["rmse"], math.sqrt(sum(squares) / len(squares)), places=5)
        # Several targets in the order that the job names.
        self.succeed("train", self.job('target_columns = ["y", "x"]', channels=1, units=2, epochs=1), "--out", "two")
        said = self.refuse("train", self.job('target_columns = ["froce"]'), "--check")
        self.assertIn("no column `froce`", said)
        self.assertIn("`force`", said)
        said = self.refuse("train", self.job('target_columns = ["x", "y", "force"]'), "--check")
        self.assertIn("no inputs", said)

    def test_each_sequence_has_an_array_of_its_steps(self):
        self.waves(order=("x", "y"))
        self.succeed("train", self.job('targets = "next_step"', units=2, epochs=1), "--out", "run")
        self.succeed("predict", "run", "waves", "--arrays", "--out", "arrays")
        found = self.predicted("waves")
        self.assertEqual(len(found), 20)
        for name, steps in found.items():
            shape, values = read_npy(self.folder / "arrays" / (pathlib.Path(name).stem + ".npy"))
            self.assertEqual(shape, (len(steps), 2), name)
            for value, printed in zip(values, sum((step["outputs"] for step in steps), [])):
                self.assertAlmostEqual(value, printed, places=5)
        said = self.refuse("predict", "run", "waves", "--out", "printed")
        self.assertIn("the results of this network are printed", said)
        self.assertIn("--arrays", said)
        self.assertIn("outputs are arrays of steps x 2", self.refuse("predict", "run", "waves", "--arrays"))

    def test_the_next_step_is_the_target(self):
        self.waves(order=("x", "y"))
        job = self.job('targets = "next_step"\nvalidation_fraction = 0.2', units=2, epochs=40)
        self.succeed("train", job, "--out", "run")
        self.waves("test", count=3, order=("y", "x"))
        loss = self.evaluated("test")["loss"]
        self.assertLess(loss, 0.1)
        # All steps are predicted, also that after the last one.
        found = self.predicted("test")
        squares = []
        for i in range(3):
            steps = found[f"test/{i:02}.csv"]
            self.assertEqual(len(steps), 6 + 5 * i % 13)
            for t, step in enumerate(steps[:-1]):
                right = math.sin(0.7 * (t + 1) + i), math.cos(0.4 * (t + 1) + 2 * i)
                squares += [(a - b) ** 2 for a, b in zip(step["outputs"], right)]
        self.assertAlmostEqual(loss, sum(squares) / len(squares), places=5)
        self.put("waves/00.csv", "x,y\n1,2\n")
        self.assertIn("00.csv has one step", self.refuse("train", job, "--check"))

    def test_the_page_of_models_has_the_gates_of_recurrent_layers(self):
        self.waves(order=("x", "y"))
        job = self.job('targets = "next_step"', units=2, epochs=2)
        for cell in ("lstm", "gru"):
            text = (self.folder / job).read_text(encoding="utf-8").replace('"lstm"', f'"{cell}"')
            self.put(f"{cell}.toml", text)
            self.succeed("train", f"{cell}.toml", "--out", cell, "--quiet")
            steps = [[float(x) for x in line.split(",")]
                     for line in (self.folder / "waves/03.csv").read_text(encoding="utf-8").split()[1:]]
            printed = json.loads(self.succeed("predict", cell, "waves/03.csv", "--json"))["predictions"]
            for mine, entry in zip(self.by_the_page(cell, steps), printed, strict=True):
                for a, b in zip(mine, entry["outputs"], strict=True):
                    self.assertAlmostEqual(a, b, places=4, msg=cell)

    def by_the_page(self, cell, steps):
        """The results of a network of one recurrent layer, by the formulas of docs/model-file.md."""
        data = (self.folder / cell / "model.safetensors").read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])

        def of(name):
            begin, end = header[name]["data_offsets"]
            values = struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin:8 + size + end])
            width = (header[name]["shape"] + [1])[1]
            rows = [values[i:i + width] for i in range(0, len(values), width)]
            return rows if len(header[name]["shape"]) > 1 else list(values)

        def product(rows, x):
            return [sum(a * b for a, b in zip(row, x, strict=True)) for row in rows]

        def logistic(x):
            return 1 / (1 + math.exp(-x))
        weights, recurrent, bias = (of(f"{cell}_1.{name}") for name in ("weights", "recurrent_weights", "bias"))
        units = len(recurrent[0])
        h, c = [0.0] * units, [0.0] * units
        for step in steps:
            x = [(v - o) * f for v, o, f in zip(step, of("sequence_input_1.offset"), of("sequence_input_1.factor"))]
            given = [a + b for a, b in zip(product(weights, x), bias)]
            kept = product(recurrent, h)
            gate = [slice(k * units, (k + 1) * units) for k in range(4)]
            if cell == "lstm":
                i, f, g, o = ([a + b for a, b in zip(given[part], kept[part])] for part in gate)
                c = [logistic(f[k]) * c[k] + logistic(i[k]) * math.tanh(g[k]) for k in range(units)]
                h = [logistic(o[k]) * math.tanh(c[k]) for k in range(units)]
            else:
                kept = [a + b for a, b in zip(kept, of("gru_1.recurrent_bias"))]
                r, z = ([logistic(a + b) for a, b in zip(given[part], kept[part])] for part in gate[:2])
                n = [math.tanh(a + b * c) for a, b, c in zip(given[gate[2]], r, kept[gate[2]])]
                h = [(1 - z[k]) * n[k] + z[k] * h[k] for k in range(units)]
            yield [a + b for a, b in zip(product(of("fully_connected_1.weights"), h), of("fully_connected_1.bias"))]

    def test_a_folder_has_the_targets(self):
        self.waves(order=("x", "y"))
        self.waves("forces", order=("force",))
        job = self.job('targets = "forces"\nvalidation_fraction = 0.2', epochs=40)
        self.succeed("train", job, "--out", "run")
        by_folder = self.evaluated("waves", "--targets", "forces")
        self.assertLess(by_folder["loss"], 0.1)
        said = self.refuse("evaluate", "run", "waves")
        self.assertIn("learned numbers from a folder of targets", said)
        self.assertIn("set --targets to a folder", said)
        # The same numbers in columns give the same network.
        self.waves(order=("x", "y", "force"))
        job = self.job('target_columns = "force"\nvalidation_fraction = 0.2', epochs=40, name="columns.toml")
        self.succeed("train", job, "--out", "columns")
        losses = [json.loads(self.succeed("evaluate", run, "waves", "--targets", "forces", "--json"))["loss"]
                  for run in ("run", "columns")]
        self.assertEqual(losses[0], losses[1])
        self.put("forces/03.csv", "force\n1\n2\n")
        self.waves(order=("x", "y"))
        job = "job.toml"
        said = self.refuse("train", job, "--check")
        self.assertIn("03.csv", said)
        self.assertIn("but the target has 2", said)
        (self.folder / "forces/03.csv").unlink()
        self.assertIn("03.csv", self.refuse("train", job, "--check"))

    def test_a_sequence_has_one_target(self):
        self.waves(order=("x", "y"))
        for i in range(20):
            self.put(f"means/{i:02}.csv", f"{math.sin(i)}\n")
        job = self.job('targets = "means"', lstm=', output = "last"', epochs=3)
        self.succeed("train", job, "--out", "run")
        self.assertEqual(len(self.predicted("waves/00.csv")["waves/00.csv"]), 1)
        self.put("means/07.csv", "1\n2\n")
        said = self.refuse("train", job, "--check")
        self.assertIn("07.csv", said)
        self.assertIn("one result for a sequence", said)

    def test_sequences_are_their_own_targets(self):
        self.waves(order=("x", "y"))
        self.succeed("train", self.job('targets = "inputs"', units=2, epochs=30), "--out", "run")
        self.assertLess(self.evaluated("waves")["loss"], 0.1)

    def test_what_does_not_fit_is_refused(self):
        self.waves()
        whole = ', output = "last"'
        cases = [
            (self.labels, {"lstm": whole}, "gives one result for a sequence"),
            (self.job, {"data": 'targets = "next_step"', "lstm": whole}, "gives one result for a sequence"),
            (self.job, {"data": 'targets = "next_step"\ntarget_columns = "force"'}, "in two ways"),
            (self.job, {"data": 'label_column = "kind"\ntarget_columns = "force"'}, "in two ways"),
            (self.job, {"data": 'target_columns = "force"\nheader = false'}, "00.csv"),
            (self.job, {"data": ""}, "outside the folders of classes"),
        ]
        for make, options, expected in cases:
            self.assertIn(expected, self.refuse("train", make(**options), "--check"), options)
        self.waves(order=("x", "y"))
        self.assertIn("nothing", self.refuse("train", self.job('targets = "nothing"'), "--check"))
        said = self.refuse("train", self.labels(), "--check")
        self.assertIn("no column `kind`", said)

    def test_one_digest_whole_and_in_segments(self):
        self.waves(order=("x", "y", "force", "kind"))
        for name, data, units, end in (("numbers", 'target_columns = "force"', 1, ""),
                                       ("classes", 'label_column = "kind"', 2, SOFTMAX)):
            self.waves(order=("x", "y", "force") if name == "numbers" else ("x", "y", "kind"))
            for segments in ("", "sequence_length = 4\n"):
                digests = set()
                for threads in (1, 2, 5):
                    out = f"{name}{len(segments)}-{threads}"
                    job = self.job(data, units=units, end=end, lstm=", carry_state = true",
                                   training=segments + f"threads = {threads}")
                    digests.add(json.loads(self.succeed("train", job, "--out", out, "--json", "--quiet"))["digest"])
                self.assertEqual(len(digests), 1, name + segments)


if __name__ == "__main__":
    unittest.main()
