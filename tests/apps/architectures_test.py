#!/usr/bin/env python3
"""Every job that `lockstep architecture` prints learns without changes.

usage: architectures_test.py PATH_OF_LOCKSTEP [unittest options]

Images are small here, as are mini-batches of deep networks. The learning rate is scaled with the mini-batch size.
"""

import json
import math
import re
import unittest

from support import CommandTest

# Image sizes, and the settings that shorten the job.
GRAY = ("--height", "16", "--width", "16", "--channels", "1", "--classes", "10")
DEEP = ("mini_batch_size=32", "initial_learning_rate=0.0125", "max_epochs=4")
# Adam's rate as printed suits a hundred epochs.
ADAM = ("mini_batch_size=32", "initial_learning_rate=3e-4", "max_epochs=4", "learning_rate_schedule=\"none\"",
        "schedule_epochs=[]")
SHORT = {
    "cnn": (GRAY, ("mini_batch_size=32", "max_epochs=4")),
    "convnext_tiny": (("--height", "32", "--width", "32", *GRAY[4:]), ADAM),
    "lenet5": ((), ("max_epochs=1", "data.validation_fraction=0.7")),
    "mlp": ((), ("max_epochs=1", "data.validation_fraction=0.7")),
    "resnet18": (GRAY, DEEP),
    "resnet20": (GRAY, DEEP),
    "resnet56": (GRAY, DEEP),
    "vit_tiny": ((*GRAY, "--patch", "4"), ADAM),
}
# They halve images five times and need more of them than a test has.
DEEPER = ["efficientnet_b0", "mobilenetv2", "resnet34", "resnet50"]
OF_PIXELS = ["unet"]  # classes of pixels: labels are images


# All layers of known networks on images with odd sizes.
LAYERS = """
[data]
train = "digits"
resize = true
[network]
input = { height = 15, width = 13, channels = 1 }
layers = [
  { type = "convolution2d", filters = 6, kernel = 3, stride = 2, padding = "same" },
  { type = "hard_swish", name = "first" },
  { type = "channel_normalization" },
  { type = "squeeze_excitation", ratio = 2, gate = "hard_sigmoid" },
  { type = "layer_scale", initial = 0.5 },
  { type = "stochastic_depth", probability = 0.3, name = "branch" },
  { type = "addition", inputs = ["first", "branch"] },
  { type = "upsampling2d", method = "bilinear" },
  { type = "hard_sigmoid" },
  { type = "upsampling2d", scale = [1, 2] },
  { type = "adaptive_average_pooling2d", size = [5, 3] },
  { type = "pixels_to_steps" },
  { type = "position_embedding", positions = 15 },
  { type = "transformer_block", heads = 2 },
  { type = "stochastic_depth", probability = 0.2 },
  { type = "global_average_pooling1d" },
  { type = "fully_connected", units = 10 },
  { type = "softmax" },
]
loss = "cross_entropy"
[training]
mini_batch_size = 60
shard_size = 7
max_epochs = 4
checkpoint_frequency = 3
"""


class Architectures(CommandTest):
    PER_CLASS = 30

    def test_layers_have_one_digest(self):
        """By any threads and workers, and stopped and resumed."""
        self.put("job.toml", LAYERS)

        def digest(out, *changes):
            settings = [word for change in changes for word in ("--set", change)]
            return json.loads(self.succeed("train", "job.toml", "--out", out, "--json", "--quiet", *settings))["digest"]

        whole = digest("whole")
        for changes in (["threads=1"], ["threads=2"], ["threads=5"], ["workers=2"]):
            self.assertEqual(digest("-".join(changes), *changes), whole, changes)
        self.assertNotEqual(digest("part", "max_epochs=2"), whole)
        done = self.succeed("train", "job.toml", "--out", "part", "--resume", "--json", "--quiet")
        self.assertEqual(json.loads(done)["digest"], whole)
        # What is drawn enters the result.
        self.put("job.toml", LAYERS.replace("probability = 0.3", "probability = 0.4"))
        self.assertNotEqual(digest("others"), whole)

    def losses(self, name):
        options, settings = SHORT[name]
        job = self.works("architecture", name, *options).stdout
        # The folder that the user has to set. Other fields stay as printed.
        (self.folder / "job.toml").write_text(job.replace("images/train", "digits"))
        changes = [word for setting in settings for word in ("--set", setting)]
        self.works("train", "job.toml", "--quiet", "--out", name, *changes)
        lines = (self.folder / name / "log.jsonl").read_text().splitlines()
        return [entry["loss"] for entry in map(json.loads, lines) if "learning_rate" in entry]

    def test_all_are_tried(self):
        names = re.findall(r"^(\w+)", self.works("architecture").stdout, re.M)
        self.assertEqual(names, sorted([*SHORT, *DEEPER, *OF_PIXELS]))

    def test_deeper_ones_compute(self):
        for name in DEEPER:
            job = self.works("architecture", name, *GRAY).stdout.replace("images/train", "digits")
            self.put(name + ".toml", job)
            self.works("train", name + ".toml", "--quiet", "--out", name, "--set", "mini_batch_size=32", "--set",
                       "max_iterations=2", "--set", "data.validation_fraction=0")
            lines = (self.folder / name / "log.jsonl").read_text().splitlines()
            losses = [entry["loss"] for entry in map(json.loads, lines) if "learning_rate" in entry]
            self.assertEqual([math.isfinite(loss) for loss in losses], [True, True], name)

    def test_are_short_and_accepted_at_any_size(self):
        for name in [*SHORT, *DEEPER]:
            for size in ("224", "32"):
                job = self.works("architecture", name, "--height", size, "--width", size, "--classes", "10").stdout
                self.assertLess(len(job.splitlines()), 160, name)
                self.put("job.toml", job.replace("images/train", "digits").replace("256", "64"))
                self.works("train", "job.toml", "--check")
        self.assertLess(len(self.works("architecture", "unet").stdout.splitlines()), 100)
        for wrong in (("unet", "--height", "100"), ("vit_tiny", "--width", "100"), ("unet", "--depth", "9")):
            self.assertIn("[" + wrong[0] + "]", self.refuse("architecture", *wrong))


def learns(name):
    def test(self):
        losses = self.losses(name)
        self.assertGreaterEqual(len(losses), 15)
        self.assertTrue(all(math.isfinite(loss) for loss in losses), losses)
        begin, end = (sum(part) / 4 for part in (losses[:4], losses[-4:]))
        self.assertLess(end, 0.75 * begin, losses)
        self.assertLess(max(losses), 2 * max(losses[0], math.log(10)), losses)
    return test


for architecture in SHORT:
    setattr(Architectures, f"test_{architecture}_learns", learns(architecture))


if __name__ == "__main__":
    unittest.main()
