#!/usr/bin/env python3
"""Errors of users, one test each: the command prints `error:` with the name of the file, field or
layer, exits with 1, does not crash, and leaves existing files unchanged.

usage: bad_input_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import hashlib
import json
import resource
import shutil
import signal
import struct
import subprocess
import time
import unittest
import zlib

from support import COMMAND, DigitsTest

DATA = """
[data]
train = "images"
validation_fraction = 0.25
"""
NETWORK = """
[network]
input = { height = 28, width = 28, channels = 1 }
layers = [
  { type = "convolution2d", filters = 4, kernel = 5, stride = 2, name = "stem" },
  { type = "batch_normalization" },
  { type = "relu" },
  { type = "fully_connected", units = 10, name = "scores" },
  { type = "softmax" },
]
"""
TRAINING = """
[training]
mini_batch_size = 20
max_epochs = 2
"""


def png(width, height, data=b""):
    """A gray PNG whose header has this size."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))


def contents(folder):
    """Digests of all files, to detect losses."""
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(folder.rglob("*")) if p.is_file() and p.name != "lock"}


class BadInput(DigitsTest):
    PER_CLASS = 8

    def setUp(self):
        super().setUp()
        shutil.copytree(self.shared / "digits", self.folder / "images")
        self.image = sorted((self.folder / "images" / "3").iterdir())[2]
        self.name = "images/3/" + self.image.name
        self.out = self.folder / "run"
        self.job()

    def job(self, data=DATA, network=NETWORK, training=TRAINING):
        self.write(data + network + training)

    def train(self, *arguments, **options):
        return self.run_command("train", "job.toml", "--out", self.out, "--quiet", *arguments, **options)

    def good_run(self):
        done = self.train()
        self.assertEqual(done.returncode, 0, done.stderr)

    def refused(self, done, *words):
        """Checks that the run was refused with a clear message, and returns the message."""
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(errors), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertNotIn("terminate", done.stderr)
        return done.stderr

    # ---- data ----

    def test_an_empty_folder(self):
        shutil.rmtree(self.folder / "images")
        (self.folder / "images").mkdir()
        self.refused(self.train(), "images holds no", "PNG")
        self.assertFalse(self.out.exists())

    def test_a_class_without_images(self):
        (self.folder / "images" / "none").mkdir()
        self.refused(self.train(), "images/none")

    def test_a_truncated_image(self):
        self.image.write_bytes(self.image.read_bytes()[:60])
        self.refused(self.train(), self.name)

    def test_a_corrupt_image(self):
        content = bytearray(self.image.read_bytes())
        content[50] ^= 0xff
        self.image.write_bytes(content)
        self.refused(self.train(), self.name)

    def test_an_image_of_no_bytes(self):
        self.image.write_bytes(b"")
        self.refused(self.train(), self.name)

    def test_an_image_of_huge_dimensions(self):
        self.image.write_bytes(png(2000000000, 2000000000))
        self.refused(self.train(), self.name, "2000000000")

    def test_bad_images_may_be_left_out_with_a_count(self):
        self.image.write_bytes(b"")
        other = sorted((self.folder / "images" / "5").iterdir())[1]
        other.write_bytes(png(2000000000, 1))
        done = self.train("--set", "data.bad_images=skip")
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("2 images", self.name, "images/5/" + other.name):
            self.assertIn(word, done.stdout + done.stderr)

    def test_images_of_differing_size(self):
        self.image.write_bytes(png(5, 7, bytes(42)))
        self.refused(self.train(), "3/" + self.image.name, str(self.folder / "images"), "resize")

    def test_a_label_only_in_validation(self):
        shutil.copytree(self.folder / "images", self.folder / "held")
        shutil.copytree(self.folder / "held" / "3", self.folder / "held" / "unseen")
        self.job(data='[data]\ntrain = "images"\nvalidation = "held"\n')
        self.refused(self.train(), "unseen")

    def test_a_loop_of_symbolic_links(self):
        (self.folder / "images" / "3" / "loop").symlink_to(self.folder / "images")
        done = self.train()
        self.assertIn(done.returncode, (0, 1), done.stderr)  # it ends

    def test_links_that_lead_to_themselves(self):
        (self.folder / "a").symlink_to(self.folder / "b")
        (self.folder / "b").symlink_to(self.folder / "a")
        self.job(data='[data]\ntrain = "a"\n')
        self.refused(self.train(), "/a")

    def test_a_test_set_that_cannot_be_read_costs_no_model(self):
        shutil.copytree(self.folder / "images", self.folder / "last")
        sorted((self.folder / "last" / "3").iterdir())[0].write_bytes(b"no image")
        self.job(data=DATA + 'test = "last"\n')
        self.refused(self.train(), "last")
        self.assertTrue((self.out / "model.safetensors").exists())

    # ---- job files ----

    def test_a_misspelled_option(self):
        self.refused(self.train("--set", "training.momentun=0.8"), "momentun", "`momentum`")

    def test_a_misspelled_layer(self):
        self.job(network=NETWORK.replace('"relu"', '"rleu"'))
        self.refused(self.train(), "rleu", "`relu`")

    def test_a_misspelled_solver(self):
        self.refused(self.train("--set", "solver=adm"), "solver", "adm", "adam")

    def test_a_value_of_the_wrong_type(self):
        self.refused(self.train("--set", 'momentum="much"'), "momentum")
        self.refused(self.train("--set", "max_epochs=[1, 2]"), "max_epochs")
        self.refused(self.train("--set", "deterministic=3"), "deterministic")

    def test_a_value_out_of_range(self):
        self.refused(self.train("--set", "momentum=1.5"), "momentum", "1.5")
        self.refused(self.train("--set", "mini_batch_size=0"), "mini_batch_size")
        self.refused(self.train("--set", "initial_learning_rate=-1"), "initial_learning_rate")

    def test_expressions_that_go_in_circles(self):
        self.job(data='[variables]\na = "b + 1"\nb = "a + 1"\n' + DATA)
        self.refused(self.train(), "a", "b")

    def test_expressions_that_overflow(self):
        self.job(network=NETWORK.replace("filters = 4", 'filters = "10 ^ 400"'))
        self.refused(self.train(), "filters")
        self.job(network=NETWORK.replace("filters = 4", 'filters = "2 ^ 62"'))
        self.refused(self.train(), "filters")

    def test_metrics_of_nothing(self):
        self.job(data='[data]\ntrain = "images"\n')
        self.refused(self.train("--set", 'metrics=["f1"]'), "metrics")
        self.job()
        self.refused(self.train("--set", 'metrics=["f2"]'), "f2", "f1")

    def test_sizes_that_do_not_fit(self):
        self.job(network=NETWORK.replace("kernel = 5", "kernel = 50"))
        self.refused(self.train(), "stem")
        self.job(network=NETWORK.replace("units = 10", "units = 7"))
        self.refused(self.train(), "7", "10")

    def test_a_mini_batch_larger_than_the_data(self):
        self.refused(self.train("--set", "mini_batch_size=1000"), "mini_batch_size", "1000")

    def test_damaged_job_files(self):
        whole = (self.folder / "job.toml").read_text()
        for text in ("", "[", whole[:len(whole) // 2], "\0" * 100, "[network]\nlayers = 3", "x" * 100000):
            (self.folder / "job.toml").write_text(text)
            self.refused(self.train(), "job.toml")

    def test_a_hostile_job_file(self):
        self.job(network='[network]\ninput = { height = 8, width = 8, channels = 1 }\n' +
                 'layers = [{ repeat = 1000000000, layers = [{ type = "relu" }] }]\n')
        self.refused(self.train(), "repeat")
        (self.folder / "job.toml").write_text("a = " + "[" * 100000)
        self.refused(self.train(), "job.toml")

    # ---- while training ----

    def test_a_loss_that_is_not_a_number(self):
        done = self.train("--set", "initial_learning_rate=1e30", "--set", "max_epochs=50", "--set",
                          "checkpoint_frequency=1", "--set", "checkpoints_kept=100")
        said = self.refused(done, "iteration")
        kept = sorted((self.out / "checkpoints").iterdir())
        self.assertTrue(kept, "the last good checkpoint stays")
        last = json.loads((self.out / "receipt.jsonl").read_text().splitlines()[-1])["iteration"]
        self.assertIn(f"iteration {last + 1}", said)
        self.assertIn(f"{last:08}", kept[-1].name)

    def test_a_folder_that_cannot_be_written(self):
        (self.folder / "file").write_text("in the way")
        self.refused(self.run_command("train", "job.toml", "--quiet", "--out", "file/run"), "file/run")
        self.refused(self.run_command("train", "job.toml", "--quiet", "--out", "/proc/nothing/run"), "/proc/nothing")

    def test_a_folder_that_vanishes(self):
        process = subprocess.Popen(
            [COMMAND, "train", "job.toml", "--out", str(self.out), "--quiet", "--set", "max_epochs=100000", "--set",
             "checkpoint_frequency=20"], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            end = time.monotonic() + 60
            while not list(self.out.glob("checkpoints/*.safetensors")):
                self.assertLess(time.monotonic(), end)
                time.sleep(0.01)
            # A file takes the folder's place, so that the folder cannot be made again.
            self.out.rename(self.folder / "moved")
            self.out.write_text("in the way")
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
        self.assertEqual(process.returncode, 1, said)
        self.assertIn("error: ", said)
        self.assertIn(str(self.out), said)
        # The moved run is complete and can be resumed.
        self.out.unlink()
        (self.folder / "moved").rename(self.out)
        done = self.train("--resume", "--set", "max_time=1", "--set", "max_epochs=100000", "--set",
                          "checkpoint_frequency=20")
        self.assertEqual(done.returncode, 130, done.stderr)  # stopped by max_time
        self.assertIn('"resumed"', (self.out / "log.jsonl").read_text())

    def test_a_full_disk(self):
        self.good_run()
        kept = contents(self.out)

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writes fail, as on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))

        done = self.run_command("train", "job.toml", "--quiet", "--out", self.folder / "full", preexec_fn=limit)
        self.refused(done, "full/", "File too large")
        # An existing run loses nothing when there is no space to continue.
        said = self.refused(self.train("--resume", preexec_fn=limit), str(self.out), "File too large")
        self.assertNotIn("another job", said)
        left = contents(self.out)
        for files in (left, kept):
            for name in ("log.jsonl", "run.json"):  # they record the last start
                del files[name]
        self.assertEqual(left, kept)

    def test_two_runs_into_one_folder(self):
        first = subprocess.Popen([COMMAND, "train", "job.toml", "--out", str(self.out), "--quiet", "--set",
                                  "max_epochs=100000"], cwd=self.folder, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 60
            while not (self.out / "receipt.jsonl").exists():
                self.assertLess(time.monotonic(), end)
                time.sleep(0.01)
            self.refused(self.train("--resume"), str(self.out), "another process")
        finally:
            first.kill()
            first.wait()

    # ---- changed output files ----

    def damaged(self, path):
        """The file, damaged in several ways."""
        whole = path.read_bytes()
        header = int.from_bytes(whole[:8], "little")
        yield "empty", b""
        yield "cut", whole[:len(whole) // 2]
        yield "a bit of the tensors", whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:]
        yield "a header of 2^63 bytes", struct.pack("<Q", 1 << 63) + whole[8:]
        yield "a header longer than the file", struct.pack("<Q", len(whole)) + whole[8:]
        text = json.loads(whole[8:8 + header])
        first = next(k for k in text if k != "__metadata__")
        for what, offsets in (("beyond the end", [0, len(whole) * 2]), ("backwards", [8, 0]),
                              ("overlapping", [0, 10 ** 18])):
            text[first]["data_offsets"] = offsets
            body = json.dumps(text).encode()
            yield what, struct.pack("<Q", len(body)) + body + whole[8 + header:]

    def test_damaged_models(self):
        self.good_run()
        model = self.out / "model.safetensors"
        for what, content in self.damaged(model):
            with self.subTest(what):
                bad = self.folder / "bad.safetensors"
                bad.write_bytes(content)
                self.refused(self.run_command("evaluate", bad, "images"), "bad.safetensors")

    def test_damaged_checkpoints(self):
        self.good_run()
        for what in [name for name, _ in self.damaged(sorted((self.out / "checkpoints").iterdir())[-1])]:
            with self.subTest(what):
                again = self.folder / ("again " + what)
                shutil.copytree(self.out, again)
                (again / "model.safetensors").unlink()
                newest = sorted((again / "checkpoints").iterdir())[-1]
                newest.write_bytes(dict(self.damaged(newest))[what])
                done = self.run_command("train", "job.toml", "--out", again, "--resume")
                # The checkpoint before it is used, the damaged one is named and kept, and the end
                # is the same.
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(newest.name, done.stdout + done.stderr)
                self.assertTrue(newest.with_name(newest.name + ".damaged").exists())
                self.assertEqual((again / "receipt.jsonl").read_bytes(), (self.out / "receipt.jsonl").read_bytes())

    def test_a_checkpoint_of_another_network(self):
        self.good_run()
        kept = contents(self.out)
        self.job(network=NETWORK.replace("filters = 4", "filters = 5"))
        self.refused(self.train("--resume"), "filters", "5", "4")
        self.assertEqual(contents(self.out), kept)

    def test_a_model_that_is_none(self):
        self.refused(self.run_command("evaluate", self.image, "images"), self.image.name)
        self.refused(self.run_command("evaluate", "/dev/null", "images"), "/dev/null")


if __name__ == "__main__":
    unittest.main(verbosity=2)
