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
ADAM = ("mini_batch_size=32", "initial_learning_rate=1e-3", "max_epochs=4", "learning_rate_schedule=\"none\"",
        "schedule_epochs=[]")
SHORT = {
    "cnn": (GRAY, ("mini_batch_size=32", "max_epochs=4")),
    "convnext_tiny": (GRAY, ADAM),
    "efficientnet_b0": (GRAY, DEEP),
    "lenet5": ((), ("max_epochs=1", "data.validation_fraction=0.7")),
    "mlp": ((), ("max_epochs=1", "data.validation_fraction=0.7")),
    "mobilenetv2": (GRAY, DEEP),
    "resnet18": (GRAY, DEEP),
    "resnet20": (GRAY, DEEP),
    "resnet34": (GRAY, DEEP),
    "resnet50": (GRAY, DEEP),
    "resnet56": (GRAY, DEEP),
    "vit_tiny": ((*GRAY, "--patch", "4"), ADAM),
}
OF_PIXELS = ["unet"]  # classes of pixels: labels are images


class Architectures(CommandTest):
    PER_CLASS = 30

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
        self.assertEqual(names, sorted([*SHORT, *OF_PIXELS]))

    def test_are_accepted_at_any_size(self):
        for name in [*SHORT, *OF_PIXELS]:
            for size in ("224", "32"):
                job = self.works("architecture", name, "--height", size, "--width", size, "--classes", "10").stdout
                self.assertLess(len(job.splitlines()), 190, name)


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
