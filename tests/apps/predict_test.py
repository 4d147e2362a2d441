#!/usr/bin/env python3
"""`lockstep predict` of networks whose outputs are not scores of classes: those that a program trained
with a loss of its own. And what needs memory for many classes.

usage: predict_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import ast
import json
import os
import pathlib
import random
import re
import resource
import struct
import subprocess
import sys
import unittest
import zlib

from small_job import table_job
from support import CommandTest


def write_model(path, layers, tensors, classes=()):
    """A model file as the library writes it, without a digest. `tensors`: {name: (shape, values)}."""
    network = [{"name": name, "inputs": list(inputs), **fields} for name, inputs, fields in layers]
    header = {"__metadata__": {"lockstep.format": "1", "lockstep.classes": json.dumps(list(classes)),
                               "lockstep.network": json.dumps({"layers": network, "loss": "cross_entropy"})}}
    data = b""
    for name, (shape, values) in tensors.items():
        part = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_npy(path):
    """The shape and the values of a file of NumPy's format 1.0 that holds little-endian floats."""
    data = path.read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    size = struct.unpack("<H", data[8:10])[0]
    assert (10 + size) % 64 == 0 and data[9 + size:10 + size] == b"\n"
    header = ast.literal_eval(data[10:10 + size].decode())
    assert header["descr"] == "<f4" and not header["fortran_order"], header
    return header["shape"], list(struct.unpack(f"<{(len(data) - 10 - size) // 4}f", data[10 + size:]))


class Predict(CommandTest):
    PER_CLASS = 1
    PIXELS = [0, 10, 20, 30, 200, 255]  # of an image of 2 x 3

    def setUp(self):
        super().setUp()
        (self.folder / "a.pgm").write_bytes(b"P5\n3 2\n255\n" + bytes(self.PIXELS))

    def model(self, filters, classes=(), dense=False):
        """A network that makes `filters` maps, or vectors, of the pixels."""
        layers = [("in", (), {"type": "image_input", "height": 2, "width": 3, "channels": 1, "normalization": "none"})]
        tensors = {"in.offset": ([1], [0]), "in.factor": ([1], [1])}
        if dense:
            layers.append(("out", ("in",), {"type": "fully_connected", "units": filters}))
            tensors["out.weights"] = ([filters, 6], [k + 1 if i == k else 0 for k in range(filters) for i in range(6)])
        else:
            layers.append(("out", ("in",), {"type": "convolution2d", "filters": filters, "kernel": [1, 1]}))
            tensors["out.weights"] = ([filters, 1, 1, 1], [k + 1 for k in range(filters)])
        tensors["out.bias"] = ([filters], [0.5] * filters)
        write_model(self.folder / "model.safetensors", layers, tensors, classes)

    def test_the_example_program_reads_models(self):
        page = (pathlib.Path(__file__).parents[2] / "docs/model-file.md").read_text(encoding="utf-8")
        program = re.search(r"^```python\n(.*?)^```", page, re.M | re.S).group(1)
        (self.folder / "reader.py").write_text(program, encoding="utf-8")
        chance = random.Random(1)
        rows = [(kind, *(chance.gauss(kind, 1) for _ in range(3))) for kind in (0, 2, 4) for _ in range(20)]
        (self.folder / "train.csv").write_text("a,kind,b,c\n" + "".join(
            f"{a},k{kind},{b},{c}\n" for kind, a, b, c in rows), encoding="utf-8")
        (self.folder / "other.csv").write_text("c,b,a\n" + "".join(
            f"{c},{b},{a}\n" for _, a, b, c in rows), encoding="utf-8")
        self.write("""
[data]
train = "train.csv"
label_column = "kind"
[network]
layers = [
  { type = "feature_input", features = 3, normalization = "z-score" },
  { type = "fully_connected", units = 5 },
  { type = "relu" },
  { type = "fully_connected", units = 3 },
  { type = "softmax" },
]
[training]
mini_batch_size = 20
""")
        self.works("train", "job.toml", "--quiet", "--out", "run")
        mine = subprocess.run([sys.executable, "reader.py", "run/model.safetensors", "other.csv"], cwd=self.folder,
                              capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
        theirs = [line.split("\t")[1:] for line in self.works("predict", "run", "other.csv").stdout.splitlines()]
        self.assertEqual([line.split("\t")[0] for line in mine], [label for label, _ in theirs])
        for line, (_, score) in zip(mine, theirs):
            self.assertAlmostEqual(float(line.split("\t")[1]), float(score), delta=2e-4)
        # The column of the labels is known, too.
        self.assertRegex(self.works("evaluate", "run", "train.csv").stdout, r"rows +60\n")

    def test_a_model_remembers_how_its_images_were_read(self):
        job = (self.folder / "job.toml").read_text()
        for how in ("resize = true", 'crop = "random"', 'crop = "center"\nresize_shorter = 26'):
            self.write(job.replace("height = 28, width = 28", "height = 20, width = 24")
                       .replace("[data]", "[data]\nlabels = \"nearest\"\n" + how))
            name = how.split()[0]
            run = name + str(len(how))
            self.works("train", "job.toml", "--quiet", "--out", run, "--set", "max_epochs=1", "--set",
                       "validation_fraction=0", "--set", "test_fraction=0", "--set", "mini_batch_size=5")
            model = self.folder / run / "model.safetensors"
            size = struct.unpack("<Q", model.read_bytes()[:8])[0]
            metadata = json.loads(model.read_bytes()[8:8 + size])["__metadata__"]
            self.assertEqual(json.loads(metadata["lockstep.preparation"]), dict(images=name, labels="nearest", **({"resize_shorter": 26} if "26" in how else {})))
            for arguments in (("evaluate", run, "digits"), ("predict", run, "digits", "--top", "3"),
                              ("predict", model, "digits/7")):
                self.assertEqual(self.works(*arguments).stdout, self.works(*arguments, "--" + name).stdout)
            other = {"resize": "--crop", "crop": "--resize"}[name]  # an option takes precedence
            self.assertNotEqual(self.works("predict", run, "digits").stdout,
                                self.works("predict", run, "digits", other).stdout)
            if name == "crop":
                side = self.works("predict", run, "digits", "--resize-shorter", "25").stdout
                self.assertNotEqual(self.works("predict", run, "digits").stdout, side)
            else:
                failed = self.run_command("predict", run, "digits", "--resize-shorter", "25")
                self.assertEqual(failed.returncode, 1)
                self.assertIn("is for images that are cropped afterwards", failed.stderr)

    def test_a_table_is_not_an_image(self):
        self.model(3, ["a", "b", "c"], dense=True)
        (self.folder / "rows.csv").write_text("a,b\n1,2\n")
        for files in (["rows.csv"], ["a.pgm", "rows.csv"]):
            done = self.run_command("predict", "model.safetensors", *files)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("the model takes images, received the table rows.csv", done.stderr)

    def test_images_are_turned_by_their_orientation_as_in_the_training(self):
        exif = b"II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0"
        chunk = struct.pack(">I", len(exif)) + b"eXIf" + exif + struct.pack(">I", zlib.crc32(b"eXIf" + exif))
        for image in (self.folder / "digits").rglob("*.png"):
            turned = self.folder / "turned" / image.relative_to(self.folder / "digits")
            turned.parent.mkdir(parents=True, exist_ok=True)
            turned.write_bytes(image.read_bytes()[:33] + chunk + image.read_bytes()[33:])
        self.works("train", "job.toml", "--quiet", "--out", "by_exif", "--set", "max_epochs=1", "--set", "mini_batch_size=5",
                   "--set", "validation_fraction=0", "--set", "test_fraction=0", "--set", 'data.orientation="exif"')
        seen = self.works("predict", "by_exif", "turned")
        self.assertNotIn("EXIF", seen.stderr)
        self.assertEqual(seen.stdout, self.works("predict", "by_exif", "turned", "--orientation", "exif").stdout)
        stored = self.works("predict", "by_exif", "turned", "--orientation", "stored")
        self.assertIn("have an EXIF orientation, which is ignored", stored.stderr)
        self.assertEqual(stored.stdout.replace("turned/", "digits/"), self.works("predict", "by_exif", "digits").stdout)
        self.assertNotEqual(seen.stdout, stored.stdout)
        evaluated = [self.works("evaluate", "by_exif", "turned", "--json", *more).stdout
                     for more in ((), ("--orientation", "exif"), ("--orientation", "stored"))]
        losses = [json.loads(text)["loss"] for text in evaluated]
        self.assertEqual(losses[0], losses[1])
        self.assertNotEqual(losses[0], losses[2])
        failed = self.run_command("predict", "by_exif", "turned", "--orientation", "exfi")
        self.assertNotEqual(failed.returncode, 0)
        self.assertIn("did you mean `exif`?", failed.stderr)

    def test_maps_are_arrays(self):
        for classes in ((), ("sky", "sea")):
            self.model(2, classes)
            for arrays, what in (((), " gives a class for each pixel"), (("--arrays",), "'s outputs are arrays of 2x2x3")):
                failed = self.run_command("predict", "model.safetensors", "a.pgm", *arrays)
                self.assertEqual(failed.returncode, 1)
                self.assertTrue(failed.stderr.endswith(f"error: [predict] the network{what}\n"
                                                       "hint: set --out to a folder for them\n"), failed.stderr)
            out = f"maps{len(classes)}"
            done = self.works("predict", "model.safetensors", "a.pgm", "--out", out)
            self.assertEqual(done.stdout, f"a.pgm\t{out}/a.png\n")
            done = self.works("predict", "model.safetensors", "a.pgm", "--out", out, "--arrays")
            self.assertEqual(done.stdout, f"a.pgm\t{out}/a.npy\n")
            shape, values = read_npy(self.folder / out / "a.npy")
            self.assertEqual(shape, (2, 2, 3))
            self.assertEqual(values, [k * p + 0.5 for k in (1, 2) for p in self.PIXELS])

    def test_images_are_arrays_if_wanted(self):
        self.model(1)
        self.works("predict", "model.safetensors", "a.pgm", "--out", "images")
        self.assertTrue((self.folder / "images" / "a.png").exists())
        done = self.works("predict", "model.safetensors", "a.pgm", "--out", "arrays", "--arrays", "--json")
        self.assertEqual(json.loads(done.stdout),
                         {"predictions": [{"file": "a.pgm", "array": "arrays/a.npy"}], "skipped_images": []})
        self.assertEqual(read_npy(self.folder / "arrays" / "a.npy"), ((1, 2, 3), [p + 0.5 for p in self.PIXELS]))

    def test_vectors_that_are_not_scores_are_printed_in_full(self):
        self.model(3, classes=("a", "b"), dense=True)
        self.assertEqual(self.works("predict", "model.safetensors", "a.pgm").stdout, "a.pgm\t0.5\t20.5\t60.5\n")
        done = self.works("predict", "model.safetensors", "a.pgm", "--json")
        self.assertEqual(json.loads(done.stdout),
                         {"predictions": [{"file": "a.pgm", "outputs": [0.5, 20.5, 60.5]}], "skipped_images": []})
        self.model(2, classes=("a", "b"), dense=True)
        self.assertEqual(self.works("predict", "model.safetensors", "a.pgm").stdout, "a.pgm\tb\t20.5000\n")


CLASSES = 6000
JOB = table_job("many.csv", CLASSES, data="validation_fraction = 0.5\n", mini_batch_size=100, max_epochs=1, threads=1,
                initial_learning_rate=0.001)


@unittest.skipIf("SAN_OPTIONS" in " ".join(os.environ), "sanitizers take memory of their own")
class ManyClasses(CommandTest):
    """A table of all pairs of classes would have 288 MB, and 1.6 GB as JSON."""

    PER_CLASS = 1

    def setUp(self):
        super().setUp()
        dice = random.Random(1)
        rows = (f"{dice.random():.4f},{dice.random():.4f},c{c:04}" for c in range(CLASSES) for _ in range(2))
        (self.folder / "many.csv").write_text("x,y,kind\n" + "\n".join(rows) + "\n")
        self.write(JOB)

    def train(self, mib, out):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))
        return self.run_command("train", "job.toml", "--quiet", "--out", out, "--tensorboard", preexec_fn=limit)

    def test_confusion_has_the_pairs_that_occur(self):
        done = self.train(700, "run")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        confusion = json.loads((self.folder / "run" / "confusion.json").read_text())["validation"]
        self.assertEqual(confusion["version"], 2)
        self.assertEqual(len(confusion["classes"]), CLASSES)
        self.assertEqual(sum(confusion["cells"]["count"]), CLASSES)
        self.assertLess((self.folder / "run" / "report.html").stat().st_size, 5 << 20)
        checked = self.works("train", "job.toml", "--check").stdout
        self.assertRegex(checked, r"memory .*about \d+ MiB: values .*, evaluation [1-9]")
        table = self.works("evaluate", "run", "many.csv", "--confusion").stdout
        self.assertIn("the 100 of 6000 classes with the most errors:\n", table)
        self.assertIn("the most frequent errors:\n", table)

    def test_memory_that_runs_out_anywhere_is_the_message(self):
        finished = 0
        for mib in (110, 120, 130, 200, 700):
            done = self.train(mib, f"run{mib}")
            if done.returncode == 0:
                finished += 1
                continue
            self.assertEqual(done.returncode, 1, (mib, done.stderr))
            # The last: a thread has found no room for its stack.
            self.assertRegex(done.stderr, r"error: (there is not enough memory|"
                             r"\[memory\] the system has refused|"
                             r"system error: Resource temporarily unavailable\nhint: .*memory)", mib)
            self.assertNotIn("terminate", done.stderr, mib)
        self.assertGreater(finished, 0)

    def test_memory_that_runs_out_after_the_training_leaves_the_model(self):
        # AUC keeps all scores: 12,000 x 6,000 floats.
        self.write(JOB.replace('validation_fraction = 0.5', 'test = "many.csv"')
                   .replace("max_epochs", 'metrics = ["auc"]\nmax_epochs'))
        done = self.train(400, "run")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"\Aerror: (there is not enough memory|\[memory\] the system has refused).*; the training "
                                      r"has finished, and its network is saved in run/model.safetensors: only its "
                                      r"evaluation is missing\n")
        state = json.loads((self.folder / "run" / "state.json").read_text())
        self.assertEqual(state["state"], "failed")
        self.assertIn("memory", state["reason"])
        self.assertEqual(self.run_command("predict", "run", "many.csv", "--label-column", "kind").returncode, 0)


if __name__ == "__main__":
    unittest.main()
