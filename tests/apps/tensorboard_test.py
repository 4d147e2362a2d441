#!/usr/bin/env python3
"""`lockstep train --tensorboard`: event files, read by an independent reader and, with --tensorboard, by
TensorBoard itself (scripts/tensorboard_test installs it).

usage: tensorboard_test.py PATH_OF_LOCKSTEP [--tensorboard]
"""

import io
import json
import math
import sys
import unittest

from support import JOB, CommandTest
from tensorboard_reader import events

WITH_TENSORBOARD = "--tensorboard" in sys.argv and not sys.argv.remove("--tensorboard")
HISTOGRAM = "convolution2d_1.weights"


class TensorBoardTest(CommandTest):
    def train(self, *arguments, **others):
        done = self.run_command("train", "job.toml", "--out", "run", "--tensorboard", *arguments, **others)
        return done, sorted((self.folder / "run").glob("events.out.tfevents.*"))

    def log(self):
        return [json.loads(line) for line in (self.folder / "run" / "log.jsonl").read_text().splitlines()]

    def test_events_say_what_the_log_says(self):
        done, files = self.train("--histograms", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(files), 1)
        result = json.loads(done.stdout)
        read = list(events(files[0]))
        scalars = {(tag, step): value for step, tag, value in read if isinstance(value, float)}
        iterations = [line for line in self.log() if "in_epoch" in line]
        self.assertEqual(len(iterations), 6)
        for line in iterations:
            for name in ("loss", "accuracy", "learning_rate"):
                self.assertAlmostEqual(scalars[f"training/{name}", line["iteration"]], line[name], 5)
            self.assertGreater(scalars["training/observations_per_second", line["iteration"]], 0)
        validations = [line for line in self.log() if "validation_loss" in line]
        self.assertTrue(validations)
        for line in validations:
            for name in ("loss", "accuracy"):
                self.assertAlmostEqual(scalars[f"validation/{name}", line["iteration"]],
                                       line[f"validation_{name}"], 5)
        self.assertAlmostEqual(scalars["test/loss", 6], result["test_loss"], 5)
        self.assertAlmostEqual(scalars["test/accuracy", 6], result["test_accuracy"], 5)

        histograms = {(tag, step): value for step, tag, value in read if isinstance(value, dict)}
        of_weights = [value for (tag, _), value in sorted(histograms.items()) if tag == HISTOGRAM]
        self.assertEqual(len(of_weights), 3)  # a checkpoint each epoch
        for h in of_weights:
            self.assertEqual(h["num"], 4 * 25)
            self.assertEqual(sum(h["counts"]), 4 * 25)
            self.assertEqual(h["limits"], sorted(h["limits"]))
            self.assertEqual(h["limits"][-1], h["max"])
            self.assertLess(h["min"], h["max"])
            self.assertLessEqual(h["sum"] ** 2, h["sum_squares"] * h["num"] * (1 + 1e-9))

        images = {tag: value for _, tag, value in read if isinstance(value, tuple)}
        texts = {tag: value for _, tag, value in read if isinstance(value, str)}
        for part, count in (("validation", 40), ("test", 20)):
            height, width, png = images[f"confusion/{part}"]
            self.assertEqual((height, width), (24 + 10 * 44 + 1,) * 2)
            self.assertTrue(png.startswith(b"\x89PNG"))
            rows = texts[f"confusion/{part}/classes"].splitlines()[2:]
            self.assertEqual(sum(int(row.split("|")[3]) for row in rows), count)

    def test_a_resumed_run_replaces_the_steps_after_it(self):
        job = JOB.replace("max_epochs = 3", "max_epochs = 2")
        self.write(job)
        done, first = self.train("--set", "checkpoint_frequency=1")
        self.assertEqual(done.returncode, 0, done.stderr)
        done, both = self.train("--resume", "--set", "max_epochs=3", "--set", "checkpoint_frequency=1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(both), 2)
        later = [path for path in both if path not in first]
        read = list(events(later[0]))
        self.assertEqual(read[0][:2], (5, "start"))
        self.assertEqual([step for step, tag, _ in read if tag == "training/loss"], [5, 6])
        if WITH_TENSORBOARD:
            steps = [e.step for e in self.accumulated().Scalars("training/loss")]
            self.assertEqual(steps, [1, 2, 3, 4, 5, 6])

    def test_class_names_are_text(self):
        digits = self.folder / "digits"
        digits.unlink()
        names = ["a|b", "<script>alert(1)</script>", "[x](javascript:y)", "d"]
        for name, source in zip(names, sorted((self.shared / "digits").iterdir())):
            (digits / name.replace("/", "⁄")).mkdir(parents=True)
            for file in source.iterdir():
                (digits / name.replace("/", "⁄") / file.name).symlink_to(file)
        self.write(JOB.replace("units = 10", "units = 4"))
        done, files = self.train()
        self.assertEqual(done.returncode, 0, done.stderr)
        text = next(value for _, tag, value in events(files[0]) if tag == "confusion/test/classes")
        self.assertEqual(len(text.splitlines()), 6)
        self.assertIn("a\\|b", text)
        self.assertIn("&lt;script\\>", text)
        self.assertIn("\\[x\\]\\(javascript", text)

    def test_options(self):
        done = self.run_command("train", "job.toml", "--histograms")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--tensorboard", done.stderr)

    def accumulated(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        accumulator = EventAccumulator(str(self.folder / "run"), size_guidance={"images": 0, "histograms": 0})
        accumulator.Reload()
        return accumulator

    @unittest.skipUnless(WITH_TENSORBOARD, "scripts/tensorboard_test runs it")
    def test_tensorboard_reads_them(self):
        done, files = self.train("--histograms")
        self.assertEqual(done.returncode, 0, done.stderr)
        accumulator = self.accumulated()
        read = list(events(files[0]))
        tags = accumulator.Tags()
        for kind, name in ((float, "scalars"), (tuple, "images"), (dict, "histograms")):
            self.assertEqual(sorted(tags[name]), sorted({tag for _, tag, v in read if isinstance(v, kind)}))
        for tag in tags["scalars"]:
            self.assertEqual([(e.step, e.value) for e in accumulator.Scalars(tag)],
                             [(step, v) for step, t, v in read if t == tag])
        for event in accumulator.Histograms(HISTOGRAM):
            self.assertEqual(event.histogram_value.num, 100)
            self.assertTrue(math.isfinite(event.histogram_value.min))
        from PIL import Image
        image = accumulator.Images("confusion/test")[0]
        self.assertEqual(Image.open(io.BytesIO(image.encoded_image_string)).size, (image.width, image.height))
        self.assertIn("| number | class |", accumulator.Tensors("confusion/test/classes")[0]
                      .tensor_proto.string_val[0].decode())


if __name__ == "__main__":
    unittest.main()
