#!/usr/bin/env python3
"""Losses and layers that are expressions: the law, and the way through checkpoints, models and all commands.

usage: expressions_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import filecmp
import json
import unittest

from support import CommandTest

# The batch axis has 7 and 8 rows in a shard, and 8 channels.
JOB = """
[data]
train = "digits"
validation_fraction = 0.2
test_fraction = 0.1
{data}
[network]
input = {{ height = 28, width = 28, channels = 1, normalization = "rescale-zero-one" }}
layers = [
  {{ type = "convolution2d", filters = 8, kernel = 5, stride = 2 }},
  {{ type = "function", name = "gate", expression = "x * sigmoid(1.7 * x)" }},
  {{ type = "function", expression = "x1 - mean(x2, axis=[1, 2], keep_dims=1)", inputs = ["gate", "gate"] }},
{end}]
loss = "{loss}"

[training]
mini_batch_size = 50
shard_size = 8
max_epochs = 2
{options}"""
CLASSES = '  { type = "fully_connected", units = 10 },\n  { type = "softmax" },\n'
LOGITS = '  { type = "fully_connected", units = 10 },\n'
IMAGES = ('  { type = "transposed_convolution2d", filters = 1, kernel = 5, stride = 2, padding = "same" },\n'
          '  { type = "function", expression = "sigmoid(x)" },\n')
MIXED = "cross_entropy(output, target) + 0.1 * mean(square(output - one_hot(target, 10)))"
HUBER = "huber(output, target, delta=0.1) + 0.01 * mean(abs(output))"


class Expressions(CommandTest):
    def job(self, loss, end=CLASSES, data="", options=""):
        self.write(JOB.format(loss=loss, end=end, data=data, options=options))

    def images(self, loss, options=""):
        # 24 x 24: the output of a transposed convolution after one of stride 2.
        self.job(loss, IMAGES, 'targets = "inputs"\nresize = true\n', options)
        job = (self.folder / "job.toml").read_text().replace("height = 28, width = 28", "height = 24, width = 24")
        self.write(job.replace("kernel = 5, stride = 2 }", 'kernel = 5, stride = 2, padding = "same" }', 1))

    def receipt(self, out, *arguments):
        self.works("train", "job.toml", "--quiet", "--out", out, *arguments)
        return (self.folder / out / "receipt.jsonl").read_bytes()

    def losses(self, out):
        lines = (self.folder / out / "receipt.jsonl").read_text().splitlines()
        return [entry["loss"] for entry in map(json.loads, lines) if "loss" in entry]

    def check_law(self):
        one = self.receipt("one", "--threads", "1")
        self.assertEqual(self.receipt("three", "--threads", "3"), one)
        self.assertEqual(self.receipt("workers", "--workers", "2"), one)
        self.works("train", "job.toml", "--quiet", "--out", "parts", "--set", "max_iterations=3")
        self.works("train", "--out", "parts", "--resume", "--quiet", "--workers", "2", "--set", "max_iterations=0")
        self.assertEqual((self.folder / "parts/receipt.jsonl").read_bytes(), one)
        self.assertTrue(filecmp.cmp(self.folder / "parts/model.safetensors", self.folder / "one/model.safetensors",
                                    shallow=False))
        self.works("verify", "one", "--iteration", "2")
        losses = self.losses("one")
        self.assertLess(losses[-1], losses[0])

    def test_the_law_for_labels(self):
        self.job(MIXED)
        self.works("train", "job.toml", "--check")
        self.check_law()
        evaluated = json.loads(self.works("evaluate", "one/model.safetensors", "digits", "--json").stdout)
        self.assertGreater(evaluated["accuracy"], 0.1)
        predicted = self.works("predict", "one/model.safetensors", "digits").stdout
        self.assertEqual(predicted, self.works("predict", "workers/model.safetensors", "digits").stdout)
        self.assertIn("x \\* sigmoid(1.7 \\* x)".replace("\\", ""),
                      json.dumps(json.loads((self.folder / "one/job.json").read_text())))

    def test_the_law_for_targets(self):
        self.images(HUBER)
        self.works("train", "job.toml", "--check")
        self.check_law()
        evaluated = json.loads(self.works("evaluate", "one/model.safetensors", "digits", "--targets", "inputs",
                                          "--json").stdout)
        self.assertGreater(evaluated["loss"], 0)

    def test_expressions_of_a_built_in_loss_have_its_bits(self):
        for named, expression, make in (("cross_entropy", "cross_entropy(output, target)", self.job),
                                        ("mean_squared_error", "mse(output, target)", self.images)):
            make(named)
            built_in = self.result("--out", named)
            make(expression)
            own = self.result("--out", named + "_own")
            self.assertEqual(own["digest"], built_in["digest"])
            self.assertEqual(self.losses(named + "_own"), self.losses(named))
            self.assertEqual(own["validation_loss"], built_in["validation_loss"])

    def test_class_weights_weigh_an_expression(self):
        weights = "class_weights = { 1 = 2.0 }\n"
        results = []
        for loss in ("cross_entropy", "cross_entropy(output, target)"):
            self.job(loss, options=weights)
            results.append(self.result()["digest"])
        self.assertEqual(*results)

    def test_sweeps_vary_the_loss(self):
        self.job("cross_entropy")
        with open(self.folder / "job.toml", "a", encoding="utf-8") as job:
            job.write('\n[sweep]\nmethod = "grid"\n[sweep.parameters]\n'
                      '"network.loss" = ["cross_entropy", "cross_entropy(output, target)", '
                      '"l1(output, one_hot(target, 10))"]\n')
        self.works("sweep", "job.toml", "--out", "swept", "--quiet")
        lines = (self.folder / "swept/trials.csv").read_text().splitlines()
        self.assertEqual(len(lines), 4)
        self.assertIn("l1(output, one_hot(target, 10))", lines[3])

    def test_a_setting_is_a_loss(self):
        self.job("cross_entropy")
        self.receipt("set", "--set", "network.loss=softmax_cross_entropy(output, labels=target)")
        self.job("softmax_cross_entropy(output, labels=target)")
        self.assertEqual(self.receipt("written"), (self.folder / "set/receipt.jsonl").read_bytes())

    def test_a_checkpoint_belongs_to_its_loss(self):
        self.job(MIXED)
        self.receipt("one", "--set", "max_iterations=3")
        done = self.run_command("train", "--out", "one", "--resume", "--set",
                                "network.loss=cross_entropy(output, target) * 2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("network.loss", done.stderr)

    def test_errors_show_the_place(self):
        self.job("hubber(output, target)")
        self.fails(1, "error: job.toml: [network] loss, column 1: unknown function `hubber`\n"
                      "    hubber(output, target)\n"
                      "    ^~~~~~\n"
                      "hint: did you mean `huber`?\n", "train", "job.toml", "--check")
        self.job("square(output - one_hot(target, 10))")
        self.fails(1, "error: job.toml: [network] loss, column 1: a loss is one number for each observation, but the "
                      "expression gives an array of 10\n"
                      "    square(output - one_hot(target, 10))\n"
                      "    ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~\n"
                      "hint: average them: mean(...)\n", "train", "job.toml", "--check")
        self.job("mse(output, target)")
        self.fails(1, "error: job.toml: [training] images with labels need a loss of labels, such as cross_entropy, but the network "
                      "has mse(output, target)\n"
                      "hint: in an expression, cross_entropy(output, target) and one_hot(target, classes) take "
                      "labels\n", "train", "job.toml", "--check")
        self.images("cross_entropy(output, target)")
        self.fails(1, "error: job.toml: [training] images and arrays as targets need a loss of numbers, such as mean_squared_error, but "
                      "the network has cross_entropy(output, target)\n"
                      "hint: an expression that takes `target` for labels needs labels\n",
                   "train", "job.toml", "--check")
        self.job("cross_entropy", '  { type = "function", name = "odd", expression = "x +* 2" },\n' + CLASSES)
        done = self.run_command("train", "job.toml", "--check")
        self.assertEqual(done.returncode, 1)
        self.assertIn("  odd: [function] expression, column 4: expected a number, a name or `(`, received `*` "
                      "(layer's input: 8x12x12)\n"
                      "    x +* 2\n"
                      "       ^\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
