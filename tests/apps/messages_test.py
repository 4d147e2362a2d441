#!/usr/bin/env python3
"""Messages of the command: they contain names of files and fields, and no text of internal libraries.
Names of all kinds are printed without control characters, while files keep them unchanged.

usage: messages_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import json
import os
import shutil
import struct
import subprocess
import unittest

from support import COMMAND, DigitsTest

DATA = '[data]\ntrain = "images"\n'
INPUT = "input = { height = 28, width = 28, channels = 1 }\n"
LAYERS = ('layers = [ { type = "fully_connected", units = 10, name = "scores" }, { type = "softmax" } ]\n')
NETWORK = "[network]\n" + INPUT + LAYERS
TRAINING = "[training]\nmini_batch_size = 20\nmax_epochs = 1\n"
GOOD = DATA + NETWORK + TRAINING

LIBRARIES = ("json.exception", "parse_error", "type_error", "out_of_range", "toml::", "terminate called",
             "basic_string", "what():", "cereal", "zmq", "gloo", "boost", "std::", "nlohmann", "mu::", "vector::",
             "filesystem error", "stoi", "stod", "bad_alloc", "bad_variant", "unexpected:", "this is a bug")


def with_training(line):
    return GOOD + line + "\n"


def with_layer(layer):
    return DATA + "[network]\n" + INPUT + "layers = [ %s, { type = \"softmax\" } ]\n" % layer + TRAINING


def bad_jobs():
    """Texts of job files, none of which may be trained; each with a name."""
    jobs = {
        "empty": "", "text": "no job\n", "only data": DATA, "only network": NETWORK,
        "bytes": b"\xff\xfe[data]\n", "bytes in text": b'[data]\ntrain = "im\xffages"\n' + (NETWORK + TRAINING).encode(),
        "zero bytes": b"\0" * 100, "bell": b"[data]\a\n", "open string": '[data]\ntrain = "images\n',
        "open table": "[data\n", "open list": GOOD + "x = [1, 2\n", "key twice": with_training("max_epochs = 2"),
        "table twice": GOOD + "[data]\ntrain = \"images\"\n", "no value": with_training("momentum ="),
        "deep": with_training("a = " + "[" * 5000), "huge number": with_training("seed = 99999999999999999999999"),
        "table as number": with_training("momentum = { a = 1 }"), "unknown table": GOOD + "[trainning]\n",
        "escape in a key": with_training('"a\\u001b[31m" = 1'), "line feed in a key": with_training('"a\\nb" = 1'),
        "unknown with quotes": with_training('"\\"" = 1'), "key of no characters": with_training('"" = 1'),
        "name of numbers": "name = 3\n" + GOOD, "name of folders": 'name = "a/b"\n' + GOOD,
        "name of nothing": 'name = ""\n' + GOOD, "name is a table": "[name]\na = 1\n" + GOOD,
        "data is text": 'data = "images"\n' + NETWORK + TRAINING, "data is a list": "data = [1]\n" + NETWORK + TRAINING,
        "network is a number": DATA.replace("[data]", "network = 1\n[data]") + TRAINING,
        "training is a flag": "training = true\n" + DATA + NETWORK,
        "variables is text": 'variables = "n"\n' + GOOD, "a variable is a list": "[variables]\nn = [1]\n" + GOOD,
        "a variable is a date": "[variables]\nn = 2024-01-01\n" + GOOD,
        "variables in a circle": '[variables]\na = "b"\nb = "a"\n' + GOOD,
        "a variable's syntax": '[variables]\na = "1 +"\n' + GOOD,
        "no layers": DATA + "[network]\n" + INPUT + "layers = []\n" + TRAINING,
        "layers is text": DATA + "[network]\n" + INPUT + 'layers = "all"\n' + TRAINING,
        "layers is a table": DATA + "[network]\n" + INPUT + "layers = { a = 1 }\n" + TRAINING,
        "a layer is a number": with_layer("3"), "a layer is text": with_layer('"relu"'),
        "a layer without a type": with_layer("{ units = 3 }"), "a type is a number": with_layer("{ type = 3 }"),
        "input is a list": DATA + "[network]\ninput = [28, 28, 1]\n" + LAYERS + TRAINING,
        "input without sizes": DATA + "[network]\ninput = {}\n" + LAYERS + TRAINING,
        "negative sizes": DATA + "[network]\ninput = { height = -1, width = 28, channels = 1 }\n" + LAYERS + TRAINING,
        "no data folder": GOOD.replace('"images"', '"nowhere"'), "a file as data": GOOD.replace('"images"', '"job.toml"'),
        "an address as data": GOOD.replace('"images"', '"s3://a/b"'),
        "unknown digits": GOOD.replace('"images"', '"builtin:cats"'), "data of nothing": GOOD.replace('"images"', '""'),
        "a csv that is none": GOOD.replace('"images"', '"empty.csv"'),
        "too many fractions": GOOD.replace(DATA, DATA + "validation_fraction = 0.7\ntest_fraction = 0.7\n"),
        "wrong count of classes": GOOD.replace("units = 10", "units = 3"),
        "date": with_training("initial_learning_rate = 2024-01-01"), "time": with_training("momentum = 07:32:00"),
        "both": with_training("l2 = 1979-05-27T07:32:00Z"), "dates in a list": with_training("class_weights = [1979-05-27]"),
        "a date as a name": "name = 1979-05-27\n" + GOOD, "a date as a size": GOOD.replace("units = 10", "units = 2024-01-01"),
    }
    for field in ("max_epochs", "mini_batch_size", "shard_size", "seed", "threads", "momentum", "initial_learning_rate",
                  "l2", "checkpoints_kept", "validation_frequency", "class_weights", "hosts", "worker_load", "metrics",
                  "freeze", "solver", "shuffle", "precision"):
        text = TRAINING.replace("max_epochs = 1\n", "") if field == "max_epochs" else TRAINING
        text = text.replace("mini_batch_size = 20\n", "") if field == "mini_batch_size" else text
        for kind, value in (("table", "{ a = 1 }"), ("odd text", '"1 + "'), ("nested list", "[[[]]]")):
            jobs[f"{field} is {kind}"] = DATA + NETWORK + text + f"{field} = {value}\n"
    for field, value in (("units", '"nothing"'), ("units", "0"), ("units", "1e300"), ("units", "[1, 2]"), ("name", "3"),
                         ("name", '"a b"'), ("name", '"a\\nb"'), ("inputs", "3"), ("inputs", '["nothing"]'),
                         ("inputs", "[[1]]"), ("shares", '"nothing"'), ("unheard_of", "1")):
        rest = "" if field == "units" else ", units = 10"
        jobs[f"layer's {field} = {value}"] = with_layer("{ type = \"fully_connected\"%s, %s = %s }" % (rest, field, value))
    return jobs


class Messages(DigitsTest):
    PER_CLASS = 4

    def setUp(self):
        super().setUp()
        shutil.copytree(self.shared / "digits", self.folder / "images")
        (self.folder / "empty.csv").write_text("")

    def put(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    def fails(self, done, *wanted):
        """Expects an error of the command itself, in whole lines, with these texts."""
        self.assertEqual(done.returncode, 1, (done.args, done.stderr))
        self.assertTrue(done.stderr.startswith("error: "), done.stderr)
        for line in done.stderr.splitlines():
            self.assertTrue(line.startswith(("error: ", "hint: ", "  ")), done.stderr)
        # Random names of folders may contain such a word.
        text = done.stderr.replace(self.folder.name, "").replace(self.shared.name, "")
        for word in LIBRARIES:
            self.assertNotIn(word, text)
        for c in done.stderr:
            self.assertTrue(c == "\n" or ord(c) >= 32, done.stderr)
        for part in wanted:
            self.assertIn(part, done.stderr)

    def test_every_error_of_a_job_names_the_job(self):
        jobs = bad_jobs()
        self.assertGreater(len(jobs), 100)
        for number, (name, text) in enumerate(jobs.items()):
            with self.subTest(name):
                job = self.put(f"job{number}.toml", text)
                done = self.run_command("train", job, "--out", f"run{number}", "--check")
                self.fails(done, job)

    def test_jobs_in_json(self):
        good = {"data": {"train": "images"},
                "network": {"input": {"height": 28, "width": 28, "channels": 1},
                            "layers": [{"type": "fully_connected", "units": 10}, {"type": "softmax"}]},
                "training": {"mini_batch_size": 20, "max_epochs": 1}}
        bad = ["", "[", "[]", "3", '{"a": 1e9999}', '{"data": 1}', '{"network": []}', '{"data": {"train": null}}',
               "{\"data\": {\"train\": \"\xff\"}}".encode("latin-1"), "[" * 100000]
        for table in good:
            for value in (None, 1, "text", [], [1], {"a": None}):
                bad.append(json.dumps({**good, table: value}))
        for number, text in enumerate(bad):
            with self.subTest(text if len(text) < 100 else text[:100]):
                job = self.put(f"job{number}.json", text)
                self.fails(self.run_command("train", job, "--out", "run", "--check"), job)

    def test_settings(self):
        self.put("job.toml", GOOD)
        for setting in ("max_epochs=2024-01-01", "momentum=07:32:00", "momentum=[", "momentum={}", "data=1",
                        "network.layers=3", "training.momentum.deeper=1", "=", "a", "data.train=a\x1b[31mb", "l2=1e999",
                        b"data.train=im\xffages", "solver=\n"):
            with self.subTest(setting):
                done = subprocess.run([COMMAND, "train", "job.toml", "--check", "--set", setting], cwd=self.folder,
                                      capture_output=True, timeout=60)
                self.assertEqual(done.returncode, 1)
                done.stderr = done.stderr.decode()
                self.fails(done, "job.toml")

    def test_damaged_files_of_a_run(self):
        self.put("job.toml", GOOD)
        self.assertEqual(self.run_command("train", "job.toml", "--out", "run", "--quiet").returncode, 0)
        run = self.folder / "run"
        (run / "model.safetensors").unlink()
        receipt, job = (run / "receipt.jsonl").read_text(), (run / "job.json").read_text()
        last = json.loads(receipt.splitlines()[-1])
        for number, line in enumerate(({**last, "iteration": "two"}, {**last, "chain": 3}, {"iteration": None}, [], 3)):
            with self.subTest(line):
                (run / "receipt.jsonl").write_text(receipt + json.dumps(line) + "\n")
                done = self.run_command("verify", "run", "--iteration", "2")
                if done.returncode != 0:
                    self.fails(done, "run")
                changed = "".join(receipt.splitlines(True)[:-1]) + json.dumps(line) + "\n"
                (run / "receipt.jsonl").write_text(changed)
                self.fails(self.run_command("train", "job.toml", "--out", "run", "--quiet", "--resume"), "receipt.jsonl")
        (run / "receipt.jsonl").write_text(receipt)
        for text in ("", "3", "[]", '{"training": 1}', '{"training": {"device": 3}}', '{"network": {"layers": [{"name": 3}]}}'):
            with self.subTest(text):
                (run / "job.json").write_text(text)
                self.fails(self.run_command("train", "job.toml", "--out", "run", "--quiet", "--resume"), "run")
        (run / "job.json").write_text(job)

    def test_damaged_headers_of_models(self):
        self.put("job.toml", GOOD)
        self.assertEqual(self.run_command("train", "job.toml", "--out", "run", "--quiet").returncode, 0)
        model = (self.folder / "run" / "model.safetensors").read_bytes()
        size, = struct.unpack("<Q", model[:8])
        header = json.loads(model[8:8 + size])
        about = header["__metadata__"]
        key = next(k for k in about if "network" in k)
        network = json.loads(about[key])
        changes = [{"__metadata__": 3}, {"__metadata__": {}}, {"__metadata__": {"format": 3}}]
        for value in (3, "text", [], {}, {"layers": 3}, {"layers": [3]}, {"layers": [{"type": 3}]},
                      {**network, "layers": [{**layer, "inputs": 3} for layer in network["layers"]]},
                      {**network, "layers": [{**layer, "name": ["a"]} for layer in network["layers"]]}, {**network, "loss": 3}):
            changes.append({"__metadata__": {**about, key: json.dumps(value)}})
        for number, change in enumerate(changes):
            with self.subTest(change):
                text = json.dumps({**header, **change}).encode()
                self.put("bad.safetensors", struct.pack("<Q", len(text)) + text + model[8 + size:])
                self.fails(self.run_command("evaluate", "bad.safetensors", "images"), "bad.safetensors")

    def test_changed_data_are_told_as_such(self):
        self.put("job.toml", GOOD)
        self.assertEqual(self.run_command("train", "job.toml", "--out", "run", "--quiet").returncode, 0)
        images = self.folder / "images"
        first, second = sorted((images / "3").iterdir())[:2]
        resume = ("train", "job.toml", "--out", "run", "--quiet", "--resume")
        kept = first.read_bytes()
        first.write_bytes(second.read_bytes())
        self.fails(self.run_command(*resume), f"the data differ from the run's: 1 changed (3/{first.name})\n")
        second.rename(images / "3" / "new.png")
        sorted((images / "4").iterdir())[0].unlink()
        self.fails(self.run_command(*resume), f"the data differ from the run's: 1 changed (3/{first.name}), "
                   f"1 added (3/new.png) and 2 removed (such as 3/{second.name})\n")
        # Runs without the observation list, as earlier versions made them.
        (self.folder / "run" / "observations").unlink()
        self.fails(self.run_command(*resume), "files were added, removed, renamed or relabeled")
        self.assertNotEqual(kept, first.read_bytes())

    def test_a_loss_that_is_not_a_number_leaves_the_last_good_values(self):
        # Without a bounding softmax the loss overflows after some iterations.
        self.put("job.toml", GOOD.replace('{ type = "softmax" }', '{ type = "fully_connected", units = 784 }, '
                                          '{ type = "reshape", size = [1, 28, 28] }')
                 .replace("[network]\n", '[network]\nloss = "mean_squared_error"\n')
                 .replace('train = "images"', 'train = "images"\ntargets = "inputs"')
                 .replace("max_epochs = 1", "max_epochs = 50") + "initial_learning_rate = 1e6\n")
        done = self.run_command("train", "job.toml", "--out", "run", "--quiet")
        self.fails(done, "is not a finite number")
        after = int(done.stderr.split("loss of iteration ")[1].split()[0]) - 1
        self.assertGreater(after, 0)
        self.assertIn(f"the values after iteration {after} are saved", done.stderr)
        done = self.run_command("predict", "run/model.safetensors", "images/3", "--out", "made")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_names_with_control_characters(self):
        name = "3\n\x1b[31merror: red\x07"
        (self.folder / "images" / "3").rename(self.folder / "images" / name)
        self.put("job.toml", GOOD)
        done = self.run_command("train", "job.toml", "--out", "run", "--confusion")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("\x1b[31m", done.stdout + done.stderr)
        self.assertNotIn("\x07", done.stdout + done.stderr)
        confusion = json.loads(self.run_command("evaluate", "run", "images", "--json", "--confusion").stdout)
        self.assertIn(name, confusion["confusion"]["classes"])
        done = self.run_command("predict", "run", "images")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 40)
        self.assertIn("3\\n\\x1b[31merror: red\\x07", done.stdout)
        predicted = json.loads(self.run_command("predict", "run", "images", "--json").stdout)
        self.assertTrue(any(p["file"].startswith("images/" + name) for p in predicted["predictions"]))
        broken = self.folder / "images" / name / "a\n\x1b]0;title.png"
        broken.write_bytes(b"no image")
        self.fails(self.run_command("train", "job.toml", "--out", "other", "--quiet"), "\\x1b]0;title.png")

    def test_class_names_that_are_not_text(self):
        images = os.fsencode(self.folder / "images")
        os.rename(images + b"/3", images + b"/caf\xe9")
        self.put("job.toml", GOOD)
        done = self.run_command("train", "job.toml", "--out", "run", "--quiet")
        self.fails(done, "caf\\xe9", "UTF-8", "rename")
        self.assertFalse((self.folder / "run").exists())
        os.rename(images + b"/caf\xe9", images + "/café".encode())
        for command in (("train", "job.toml", "--out", "run", "--quiet"), ("evaluate", "run", "images"),
                        ("predict", "run", "images")):
            done = self.run_command(*command)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.put("rows.csv", b"a,b,label\n1,2,x\n3,4,caf\xe9\n5,6,x\n7,8,caf\xe9\n")
        self.put("rows.toml", '[data]\ntrain = "rows.csv"\n[network]\nlayers = [ { type = "feature_input", features = 2 }, '
                 '{ type = "fully_connected", units = 2 }, { type = "softmax" } ]\n[training]\nmini_batch_size = 2\n')
        self.fails(self.run_command("train", "rows.toml", "--out", "run2", "--quiet"), "caf\\xe9")

    def test_an_older_profile_does_not_stay(self):
        self.put("job.toml", GOOD + "max_time = 1000\ncheckpoint_frequency = 1\ncheckpoint_frequency_unit = \"iteration\"\n")
        self.assertEqual(self.run_command("train", "job.toml", "--out", "run", "--quiet", "--profile").returncode, 0)
        profiles = [self.folder / "run" / name for name in ("profile.json", "trace.json")]
        self.assertTrue(all(p.exists() for p in profiles))
        self.assertEqual(self.run_command("train", "job.toml", "--out", "run", "--quiet", "--resume").returncode, 0)
        self.assertFalse(any(p.exists() for p in profiles))

    def test_a_preloaded_library_that_rounds_upwards_changes_nothing(self):
        self.put("up.c", "#include <fenv.h>\n#include <xmmintrin.h>\n__attribute__((constructor)) static void up(void) "
                 "{ fesetround(FE_UPWARD); _mm_setcsr(_mm_getcsr() | 0x8040); }\n")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", "up.so", "up.c", "-lm"], cwd=self.folder, check=True, timeout=60)
        self.put("job.toml", GOOD.replace("max_epochs = 1", "max_epochs = 3") +
                 'solver = "adam"\ninitial_learning_rate = 0.003\nlearning_rate_schedule = "piecewise"\n'
                 "drop_factor = 0.3\ndrop_period = 1\nl2 = 0.001\n[augmentation]\nrotation = [-10, 10]\n")
        plain = {}
        for name, more in (("threads", ("--threads", "2")), ("workers", ("--workers", "2", "--threads", "1"))):
            for preload in ("", str(self.folder / "up.so")):
                run = f"{name}-{bool(preload)}"
                # The address sanitizer wants to come first.
                options = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
                done = self.run_command("train", "job.toml", "--out", run, "--quiet", *more,
                                        LD_PRELOAD=preload, ASAN_OPTIONS=options)
                self.assertEqual(done.returncode, 0, done.stderr)
                receipt = (self.folder / run / "receipt.jsonl").read_bytes()
                self.assertEqual(plain.setdefault("receipt", receipt), receipt, run)


if __name__ == "__main__":
    unittest.main()
