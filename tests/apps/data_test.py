#!/usr/bin/env python3
"""Tests of the command on data of all kinds: image targets, tables, several inputs, unreadable images,
images of other sizes.

usage: data_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import json
import shutil
import struct
import unittest
import zlib

from small_job import table_job
from support import JOB, CommandTest


class Data(CommandTest):
    def test_images_to_images(self):
        self.write("""
[data]
train = "digits"
targets = "inputs"
resize = true
validation_fraction = 0.2
[noise]
salt_and_pepper = 0.1
[network]
input = { height = 16, width = 16, channels = 1, normalization = "rescale-zero-one" }
layers = [
  { type = "convolution2d", filters = 4, kernel = 3, stride = 2, padding = "same" },
  { type = "relu" },
  { type = "transposed_convolution2d", filters = 1, kernel = 4, stride = 2, padding = "same" },
  { type = "clipped_relu" },
]
loss = "mean_squared_error"
[training]
solver = "adam"
mini_batch_size = 20
max_epochs = 2
validation_frequency = "epoch"
validation_patience = 5
""")
        done = self.works("train", "job.toml")
        self.assertRegex(done.stdout, r"\Avalidation loss    0\.\d+ of 40 images\n")
        self.assertNotIn("accuracy", done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"iteration 16/16  elapsed 0:00:\d\d  loss 0\.\d{4}  rate 0\.001  .*"
                                      r"validation loss 0\.\d{4}  best 0\.\d{4}\n")
        result = json.loads(self.works("train", "job.toml", "--quiet", "--json", "--threads", "3").stdout)
        self.assertIn(result["digest"], done.stdout)
        self.assertIsNone(result["validation_accuracy"])
        self.assertFalse(result["out_of_patience"])
        self.assertEqual(result["network_iteration"], 16)

        evaluate = ("evaluate", "runs/job-1", "digits", "--resize", "--json")
        clean = json.loads(self.works(*evaluate, "--targets", "inputs").stdout)
        self.assertIsNone(clean["accuracy"])
        self.assertEqual(clean["observations"], 200)
        noisy = json.loads(self.works(*evaluate, "--targets", "inputs", "--salt-and-pepper", "0.5").stdout)
        self.assertGreater(noisy["loss"], clean["loss"])
        measured = json.loads(self.works(*evaluate, "--targets", "inputs", "--metrics", "rmse,mae").stdout)
        self.assertAlmostEqual(measured["metrics"]["rmse"] ** 2, clean["loss"], places=6)
        self.assertFalse((self.folder / "runs/job-1/confusion.json").exists())
        same = json.loads(self.works(*evaluate, "--targets", "digits").stdout)
        self.assertEqual(same["loss"], clean["loss"])
        self.fails(1, "error: [evaluate] the network outputs images, not labels\n"
                      "hint: set --targets to the folder of the target images, a .csv file, or \"inputs\"\n", *evaluate)

        self.fails(1, "error: [predict] the network outputs images\nhint: set --out to a folder for them\n",
                   "predict", "runs/job-1", "digits/3/00.png", "--resize")
        made = self.works("predict", "runs/job-1", "digits/3/00.png", "digits/4/00.png", "--resize",
                          "--out", "made").stdout.splitlines()
        self.assertEqual(made, ["digits/3/00.png\tmade/00.png", "digits/4/00.png\tmade/00-2.png"])
        self.fails(1, "error: [predict] made/00.png exists already\n"
                      "hint: set --out to a new folder, because files are not overwritten\n",
                   "predict", "runs/job-1", "digits/5/00.png", "--resize", "--out", "made")
        header = (self.folder / "made/00-2.png").read_bytes()[:26]
        self.assertEqual(struct.unpack(">8sI4sIIB", header[:25])[3:], (16, 16, 8))

    def test_tables(self):
        rows = "".join(f"{i}.5,2,small\n1{i},3e0,large\n" for i in range(10))
        (self.folder / "flowers.csv").write_text("length,width,kind\n" + rows)
        (self.folder / "found.csv").write_text("length,width\n3.4,2\n\n17,3\n")
        self.write(table_job("flowers.csv", 2, mini_batch_size=10, shard_size=3, max_epochs=40, initial_learning_rate=0.1))
        self.works("train", "job.toml", "--out", "out", "--quiet")
        result = json.loads(self.works("evaluate", "out", "flowers.csv", "--label-column", "kind", "--json").stdout)
        self.assertEqual((result["accuracy"], result["observations"]), (1.0, 20))
        lines = [line.split("\t") for line in self.works("predict", "out", "found.csv").stdout.splitlines()]
        self.assertEqual([line[:2] for line in lines],
                         [["found.csv line 2", "small"], ["found.csv line 4", "large"]])
        lines = self.works("predict", "out", "flowers.csv", "--label-column", "kind").stdout.splitlines()
        self.assertEqual([line.split("\t")[1] for line in lines], 10 * ["small", "large"])

        self.assertEqual(self.works("predict", "out", "flowers.csv").stdout.splitlines(), lines)
        self.assertIn("--label-column", self.run_command("predict", "out", "digits", "--label-column", "kind").stderr)
        self.assertIn("--resize", self.run_command("predict", "out", "found.csv", "--resize").stderr)
        self.assertIn("the label column `kind` is for .csv files, but builtin:digits contains images",
                      self.run_command("evaluate", "out", "builtin:digits", "--label-column", "kind").stderr)

    def test_two_inputs(self):
        digits = sorted(str(path.relative_to(self.shared / "digits"))
                        for path in (self.shared / "digits").glob("*/*.png"))
        rows = "".join(f"{i % 7},{digit[0]}\n" for i, digit in enumerate(digits))
        (self.folder / "measured.csv").write_text("first,second\n" + rows)
        self.write("""
[data]
train = ["digits", "measured.csv"]
[network]
layers = [
  { type = "image_input", height = 28, width = 28, channels = 1 },
  { type = "fully_connected", name = "seen", units = 12 },
  { type = "feature_input", features = 2, normalization = "z-score" },
  { type = "fully_connected", name = "known", units = 12 },
  { type = "concatenation", inputs = ["seen", "known"] },
  { type = "relu" },
  { type = "fully_connected", units = 10 },
  { type = "softmax" },
]
[training]
mini_batch_size = 20
max_epochs = 20
solver = "adam"
initial_learning_rate = 0.01
""")
        one = self.result("--threads", "1", "--out", "one")
        self.assertEqual(one["digest"], self.result("--workers", "2", "--out", "two")["digest"])
        self.works("verify", "one", "--iteration", "150")
        result = json.loads(self.works("evaluate", "one", "digits", "measured.csv", "--json").stdout)
        self.assertEqual(result["observations"], 200)
        self.assertGreater(result["accuracy"], 0.5)
        lines = self.works("predict", "one", "digits", "measured.csv").stdout.splitlines()
        right = [line.split("\t")[:2] for line in lines]
        self.assertEqual([name for name, _ in right], digits)
        self.assertEqual(sum(name[0] == label for name, label in right), round(200 * result["accuracy"]))
        (self.folder / "last.csv").write_text("first,second\n" + rows.splitlines()[-1] + "\n")
        last = self.works("predict", "one", "digits/" + digits[-1], "last.csv").stdout.rstrip("\n")
        self.assertEqual(last.split("\t")[1:], lines[-1].split("\t")[1:])
        self.assertIn("the network has 2 inputs, received 1 FILES",
                      self.run_command("predict", "one", "digits").stderr)
        self.assertIn("its inputs are 1x28x28, 2", self.run_command("evaluate", "one", "digits").stderr)
        self.assertIn("--crop is for networks with one input",
                      self.run_command("evaluate", "one", "digits", "measured.csv", "--crop").stderr)
        self.assertIn("--crop is for networks with one input",
                      self.run_command("predict", "one", "digits", "measured.csv", "--crop").stderr)
        (self.folder / "short.csv").write_text("first,second\n1,2\n")
        self.assertIn("short.csv has 1 observation, but digits has 200",
                      self.run_command("evaluate", "one", "digits", "short.csv").stderr.replace(
                          str(self.folder) + "/", ""))

    def test_bad_images_stop_the_run_or_are_left_out_and_named(self):
        (self.folder / "digits").unlink()
        shutil.copytree(self.shared / "digits", self.folder / "digits")
        sound = self.result("--out", "sound", "--set", "bad_images=skip")
        self.assertEqual(sound["skipped_images"], [])
        bad = self.folder.resolve() / "digits" / "3" / "bad.png"
        bad.write_bytes(b"")
        self.fails(1, f"error: [image] {bad}: the file is empty\n",
                   "train", "job.toml", "--out", "stopped", "--quiet")
        done = self.works("train", "job.toml", "--out", "out", "--json", "--quiet",
                          "--set", "bad_images=skip")
        self.assertEqual(done.stderr, f"note: 1 image cannot be read and is skipped: {bad}\n")
        result = json.loads(done.stdout)
        self.assertEqual([image["name"] for image in result["skipped_images"]], [str(bad)])
        self.assertEqual(result["digest"], sound["digest"])

    def copied_digits(self):
        (self.folder / "digits").unlink()
        shutil.copytree(self.shared / "digits", self.folder / "digits")

    def test_what_was_predicted_is_printed_although_images_cannot_be_read(self):
        self.copied_digits()
        self.result("--out", "out")
        every = self.works("predict", "out", "digits").stdout.splitlines()
        self.assertEqual(len(every), 200)
        (self.folder / "digits" / "3" / "00.png").write_bytes(b"no image")
        (self.folder / "digits" / "4" / "01.png").write_bytes(b"")
        (self.folder / "digits" / "5" / "gone.png").symlink_to("nowhere")
        left = [line for line in every if not line.startswith(("digits/3/00.png", "digits/4/01.png"))]
        for threads in ("1", "3"):
            done = self.run_command("predict", "out", "digits", "--threads", threads)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stdout.splitlines(), left)
            self.assertIn("error: [predict] 3 of 201 images cannot be read; the first: [image] digits/3/00.png: ",
                          done.stderr)
            self.assertIn("hint: --bad-images skip ", done.stderr)
        done = self.works("predict", "out", "digits", "--bad-images", "skip")
        self.assertEqual(done.stdout.splitlines(), left)
        self.assertEqual(done.stderr, "note: 3 images cannot be read and are skipped: "
                                      "digits/3/00.png, digits/4/01.png, digits/5/gone.png\n")
        told = json.loads(self.works("predict", "out", "digits", "--bad-images", "skip", "--json").stdout)
        self.assertEqual(len(told["predictions"]), 198)
        self.assertEqual([image["name"] for image in told["skipped_images"]],
                         ["digits/3/00.png", "digits/4/01.png", "digits/5/gone.png"])
        # Where nothing can be read, nothing is skipped.
        done = self.fails(1, "error: [image] digits/4/01.png: the file is empty\n",
                          "predict", "out", "digits/4/01.png", "--bad-images", "skip")

        done = self.run_command("evaluate", "out", "digits")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        (self.folder / "digits" / "5" / "gone.png").unlink()
        done = self.run_command("evaluate", "out", "digits")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("hint: ", done.stderr)
        done = self.works("evaluate", "out", "digits", "--bad-images", "skip")
        self.assertIn("images    198\n", done.stdout)
        self.assertIn("note: 2 images cannot be read and are skipped: ", done.stderr)
        told = json.loads(self.works("evaluate", "out", "digits", "--bad-images", "skip", "--json").stdout)
        self.assertEqual((told["observations"], len(told["skipped_images"])), (198, 2))
        for image in told["skipped_images"]:
            (self.folder / image["name"]).unlink()
        same = json.loads(self.works("evaluate", "out", "digits", "--json").stdout)
        self.assertEqual((same["accuracy"], same["loss"]), (told["accuracy"], told["loss"]))

    def test_the_classes_and_what_is_left_out_are_told(self):
        self.copied_digits()
        (self.folder / "digits" / "3" / "old.tif").write_bytes(b"II*\0....")
        (self.folder / "digits" / ".trash").mkdir()
        folder = self.folder.resolve() / "digits"
        exif = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
        png = (folder / "5" / "00.png").read_bytes()
        chunk = b"eXIf" + exif
        (folder / "5" / "00.png").write_bytes(
            png[:33] + struct.pack(">I", len(exif)) + chunk + struct.pack(">I", zlib.crc32(chunk)) + png[33:])
        left_out = f"note: {folder}: left out: 1 TIFF image (such as 3/old.tif), 1 hidden name (such as .trash)\n"
        turned = f"note: {folder}: 1 image (5/00.png) has an EXIF orientation, which is ignored: " \
                 "pixels are used as they are stored\n"
        done = self.works("train", "job.toml", "--out", "out")
        head = done.stderr.split("epoch 1/")[0]
        self.assertIn("10 classes: 0 (", head)
        self.assertIn("), 9 (", head)
        self.assertIn(left_out, head)
        self.assertIn(turned, head)
        weights = "training.class_weights={3=2}"
        done = self.works("train", "job.toml", "--check", "--set", weights)
        self.assertRegex(done.stdout, r"classes +10: 0 \(\d+, weight 1\), 1 .*, 3 \(\d+, weight 2\), ")
        self.assertIn(left_out + turned, done.stderr)
        for command in (("evaluate", "out", "digits"), ("predict", "out", "digits")):
            self.assertEqual(self.works(*command).stderr, (left_out + turned).replace(str(folder), "digits")
                             if command[0] == "predict" else left_out + turned)
        self.assertEqual(self.works("predict", "out", "digits/5/00.png").stderr,
                         turned.replace(f"{folder}: ", "").replace("(5/", "(digits/5/"))
        done = self.works("shard", "digits", "packed")
        self.assertEqual(done.stderr, (left_out + turned).replace(str(folder), "digits"))

    def test_labels_of_other_folders(self):
        self.copied_digits()
        (self.folder / "digits").rename(self.folder / "parts")
        shutil.copytree(self.folder / "parts", self.folder / "digits" / "train")
        shutil.copytree(self.folder / "parts", self.folder / "digits" / "test")
        done = self.run_command("train", "job.toml", "--out", "out", "--quiet")
        self.assertEqual(done.returncode, 1)
        self.assertIn("holds test and train: parts of a data set, not classes\nhint: name one of them, such as ",
                      done.stderr)
        sound = self.result("--out", "named", "--set", "data.train=digits/train")
        near = self.result("--out", "near", "--set", "data.labels=nearest", "--set", "data.train=parts")
        self.assertEqual(sound["iterations"], near["iterations"])
        done = self.run_command("evaluate", "named", "digits")
        self.assertIn("--labels nearest", done.stderr)
        done = self.works("evaluate", "named", "digits", "--labels", "nearest", "--json")
        self.assertEqual(json.loads(done.stdout)["observations"], 400)
        self.assertEqual(self.run_command("evaluate", "named", "digits", "--labels", "last").returncode, 2)
        packed = self.works("shard", "digits", "packed", "--labels", "nearest")
        self.assertIn('readers need the same rule: labels = "nearest" in [data]', packed.stderr)
        again = self.works("evaluate", "named", "packed", "--labels", "nearest", "--json")
        self.assertEqual((json.loads(again.stdout)["loss"], again.stderr), (json.loads(done.stdout)["loss"], ""))
        # The index knows the rule, and another one is said.
        (self.folder / "more.toml").write_text(JOB.replace("units = 10", "units = 20"))
        other = self.works("train", "more.toml", "--check", "--set", "data.train=packed", "--set", "data.labels=path")
        self.assertIn('its archives were written for labels = "nearest", and labels are read by another rule here: '
                      "400 images have another class, such as test/0/", other.stderr)
        # What is refused depends on its use, as in a folder.
        for name in ("digits", "packed"):
            self.assertIn("holds test and train: parts of a data set",
                          self.run_command("train", "job.toml", "--check", "--set", f"data.train={name}").stderr)
        self.assertEqual(len(self.works("predict", "named", "packed").stdout.splitlines()), 400)
        (self.folder / "digits" / "none").mkdir()
        self.works("shard", "digits", "packed")
        # Labels do not matter here.
        self.assertEqual(len(self.works("predict", "named", "digits").stdout.splitlines()), 400)

    def test_images_of_other_sizes_are_cut(self):
        self.result("--out", "out", "--set", "data.crop=random", "--set", "network.input.height=24")
        self.assertEqual(self.works("predict", "out", "digits/3/00.png").stdout,
                         self.works("predict", "out", "digits/3/00.png", "--crop").stdout)
        self.assertEqual(self.works("evaluate", "out", "digits").stdout,
                         self.works("evaluate", "out", "digits", "--crop").stdout)
        self.assertEqual(self.run_command("evaluate", "out", "digits", "--crop", "--resize").returncode,
                         2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
