#!/usr/bin/env python3
"""Trainings that begin with the network of another one: [network] from.

usage: fine_tuning_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import json
import math
import re
import shutil
import struct
import subprocess
import unittest

from support import COMMAND, CommandTest

FIRST = """
[data]
train = "kinds"
[network]
input = {{ height = 8, width = 8, channels = 1, normalization = "z-score" }}
layers = [
  {{ type = "convolution2d", filters = 4, kernel = 3, name = "stem/conv" }},
  {{ type = "batch_normalization", name = "stem/norm" }},
  {{ type = "relu" }},
  {{ type = "fully_connected", units = {units}, name = "head" }},
  {{ type = "softmax" }},
]
[training]
initial_learning_rate = 0.05
mini_batch_size = 12
max_epochs = 4
"""

SECOND = """
[data]
train = "kinds"
[network]
from = "{model}"
{network}
[training]
initial_learning_rate = 0.05
mini_batch_size = 12
max_epochs = {epochs}
{training}
"""


def tensors_of(path):
    """The tensors of a safetensors file as lists of bytes, and its header."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    body = data[8 + length:]
    return {name: body[t["data_offsets"][0]:t["data_offsets"][1]] for name, t in header.items()}, header, metadata


def write_tensors(path, tensors):
    """A safetensors file of name: (shape, bytes), without metadata."""
    header, body = {}, b""
    for name, (shape, data) in tensors.items():
        kind = "I64" if not shape and len(data) == 8 else "F32"
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def write_kinds(folder, count):
    for kind in range(count):
        (folder / f"kinds/{kind}").mkdir(parents=True, exist_ok=True)
        for i in range(12):
            pixels = bytes((37 * kind * x + 11 * y + 5 * i) % 256 for y in range(8) for x in range(8))
            (folder / f"kinds/{kind}/{i}.pgm").write_bytes(b"P5 8 8 255\n" + pixels)


class FineTuning(CommandTest):
    PER_CLASS = 1  # digits, which no test here reads

    @classmethod
    def setUpClass(cls):
        """Trains the model that most tests begin with."""
        super().setUpClass()
        write_kinds(cls.shared, 3)
        (cls.shared / "first.toml").write_text(FIRST.format(units=3), encoding="utf-8")
        done = subprocess.run([COMMAND, "train", "first.toml", "--out", "run", "--quiet"], cwd=cls.shared,
                              capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr

    def kinds(self, count):
        write_kinds(self.folder, count)

    def refuse_network(self, network, training="", model="run", **more):
        job = self.second(network, training=training, model=model, **more)
        done = self.run_command("train", job, "--check")
        self.assertIn(done.returncode, (1, 2), done.stdout)
        return done.stderr

    def first(self):
        shutil.copytree(self.shared / "run", self.folder / "run")
        self.kinds(5)

    def second(self, network="", training="", epochs=1, model="run", name="second.toml"):
        self.put(name, SECOND.format(network=network, training=training, epochs=epochs, model=model))
        return name

    def values(self, run):
        return tensors_of(self.folder / run / "model.safetensors")[0]

    HEAD = 'replace = [{ type = "fully_connected", units = 5 }, { type = "softmax" }]'

    def test_a_new_head(self):
        self.first()
        job = self.second(self.HEAD, training='freeze = "stem*"')
        done = self.works("train", job, "--out", "tuned")
        self.assertIn("the network begins with", done.stderr)
        self.assertIn("not taken: head.bias, head.weights", done.stderr)
        before, after = self.values("run"), self.values("tuned")
        self.assertEqual(before["stem/conv.weights"], after["stem/conv.weights"])
        self.assertEqual(before["stem/norm.scale"], after["stem/norm.scale"])
        self.assertNotIn("head.weights", after)
        self.assertEqual(len(after["fully_connected_1.weights"]), 5 * 4 * 36 * 4)
        # Whatever reads the run knows its network.
        self.works("evaluate", "tuned", "kinds")
        self.assertIn("fully_connected", self.works("summary", "tuned").stdout)

    def test_what_fits_is_taken(self):
        self.first()
        layers = FIRST.split("[network]")[1].split("[training]")[0].format(units=5)
        done = self.works("train", self.second(layers, epochs=0 + 1), "--out", "tuned")
        self.assertIn("new: head.weights (5x144, there 3x144), head.bias (5, there 3)", done.stderr.replace(" x ", "x"))

    def test_statistics_are_kept_or_computed(self):
        self.first()
        self.works("train", self.second(self.HEAD), "--out", "new")
        kept = self.second(self.HEAD + '\nkeep_statistics = ["*"]', name="kept.toml")
        done = self.works("train", kept, "--out", "kept")
        self.assertNotIn("statistics of this training", done.stderr)
        before, new, after = self.values("run"), self.values("new"), self.values("kept")
        for name in ("stem/norm.mean", "stem/norm.variance", "input.offset", "input.factor"):
            self.assertEqual(before[name], after[name], name)
            self.assertNotEqual(before[name], new[name], name)

    def test_rates_by_pattern_and_depth(self):
        self.first()

        def factors(network):
            self.second(self.HEAD + "\n" + network)
            run = "rates-" + str(len(list(self.folder.iterdir())))
            self.works("train", "second.toml", "--out", run, "--quiet")
            layers = json.loads((self.folder / run / "job.json").read_text(encoding="utf-8"))["network"]["layers"]
            return [layer.get("learning_rate_factor", layer.get("weights_learning_rate_factor")) for layer in layers
                    if any(field.endswith("learning_rate_factor") for field in layer)]

        self.assertEqual(factors('learning_rate_factors = { "stem*" = 0.1 }'), [0.1, 0.1, 1])
        # A name wins over patterns, in any order of their bytes.
        for pattern in ("stem?norm", "*norm", "stem*", "*/n*"):
            rest = [1 if pattern != "stem*" else 0.1, 0.5, 1]
            self.assertEqual(factors(f'learning_rate_factors = {{ "stem/norm" = 0.5, "{pattern}" = 0.1 }}'), rest)
            self.assertEqual(factors(f'learning_rate_factors = {{ "{pattern}" = 0.1, "stem/norm" = 0.5 }}'), rest)
        self.assertEqual(factors('learning_rate_factors = { "stem*" = 0.1, "*norm" = 0.1 }'), [0.1, 0.1, 1])
        said = self.refuse_network(self.HEAD + '\nlearning_rate_factors = { "stem*" = 0.1, "*norm" = 0.2 }')
        self.assertIn("the layer `stem/norm` has two factors, 0.2 by `*norm` and 0.1 by `stem*`", said)
        self.assertEqual(factors("layer_decay = 0.5"), [0.25, 0.5, 1])
        self.assertEqual(factors('layer_decay = 0.5\nlearning_rate_factors = { "stem/c*" = 4 }'), [1, 0.5, 1])

    def test_a_run_goes_on(self):
        self.first()
        job = self.second(self.HEAD, epochs=4, training="checkpoint_frequency = 2")
        whole = json.loads(self.works("train", job, "--out", "whole", "--json", "--quiet").stdout)
        self.works("train", job, "--out", "part", "--quiet", "--set", "max_epochs=2")
        done = self.works("train", job, "--out", "part", "--resume", "--json", "--quiet")
        self.assertEqual(json.loads(done.stdout)["digest"], whole["digest"])
        digests = {json.loads(self.works("train", job, "--out", f"t{n}", "--json", "--quiet", "--set",
                                           f"threads={n}").stdout)["digest"] for n in (1, 5)}
        self.assertEqual(digests, {whole["digest"]})
        done = self.works("train", job, "--out", "two", "--json", "--quiet", "--set", "workers=2")
        self.assertEqual(json.loads(done.stdout)["digest"], whole["digest"])

    def test_tensors_of_pytorch(self):
        """Names of PyTorch are those of layers, with its words for values."""
        self.first()
        tensors, header, _ = tensors_of(self.folder / "run/model.safetensors")
        names = {"stem/conv.weights": "stem/conv.weight", "stem/conv.bias": "stem/conv.bias",
                 "stem/norm.scale": "stem/norm.weight", "stem/norm.shift": "stem/norm.bias",
                 "stem/norm.mean": "stem/norm.running_mean", "stem/norm.variance": "stem/norm.running_var"}
        torch = {new: (header[old]["shape"], tensors[old]) for old, new in names.items()}
        torch["stem/norm.num_batches_tracked"] = ([], bytes(8))
        write_tensors(self.folder / "torch.safetensors", torch)
        layers = FIRST.split("[network]")[1].split("[training]")[0].format(units=5)
        job = self.second(layers, model="torch.safetensors", training='freeze = "stem*"')
        done = self.works("train", job, "--out", "tuned")
        self.assertIn("begins with 6 values", done.stderr)
        self.assertEqual(self.values("tuned")["stem/conv.weights"], tensors["stem/conv.weights"])
        self.assertIn("no description of a network", self.refuse_network("", model="torch.safetensors"))

    def check_tensors_of_torchvision(self, architecture, names, first):
        """They are matched in the order of the layers, whatever their order in the file."""
        job = self.works("architecture", architecture, "--height", "32", "--width", "32", "--classes", "3").stdout
        described = job[job.index("[network]"):job.index("[training]")]
        # Narrower layers have the same order.
        described = re.sub(r"(filters|groups) = (\d+)", lambda m: f"{m[1]} = {int(m[2]) // 8}", described)
        self.kinds(3)
        job = '[data]\ntrain = "kinds"\nresize = true\n' + described.replace("[network]", "[network]\nFROM")
        training = "[training]\nmini_batch_size = 36\nmax_epochs = 1\ninitial_learning_rate = 1e-30\nthreads = 1\n"
        self.put("first.toml", job.replace("FROM", "") + training)
        self.works("train", "first.toml", "--out", "own", "--quiet")
        tensors, header, _ = tensors_of(self.folder / "own/model.safetensors")
        summary = json.loads((self.folder / "own/job.json").read_text(encoding="utf-8"))["network"]["layers"]
        layers = [layer["name"] for layer in summary if any(name.startswith(layer["name"] + ".") for name in tensors)]
        layers.remove("input")
        self.assertEqual(len(layers), len(names))
        words = {"weights": "weight", "scale": "weight", "shift": "bias", "bias": "bias", "mean": "running_mean",
                 "variance": "running_var", "reduce_weights": "fc1.weight", "reduce_bias": "fc1.bias",
                 "expand_weights": "fc2.weight", "expand_bias": "fc2.bias"}
        torch = {}
        for number, (layer, name) in enumerate(zip(layers, names)):
            for value in [key for key in tensors if key.startswith(layer + ".") and key.rsplit(".", 1)[0] == layer]:
                shape, data = header[value]["shape"], tensors[value]
                # Other values than a new network of this seed would have, and others in each layer. Those of
                # filters have the mean 0, or the network's gradients grow without limit.
                more = 0.001 * number if len(shape) == 1 else 0
                data = struct.pack(f"<{len(data) // 4}f", *(0.5 * x + more for x in struct.unpack(
                    f"<{len(data) // 4}f", data)))
                word = words[value.rsplit(".", 1)[1]]
                if word in ("fc1.weight", "fc2.weight"):  # convolutions there
                    shape = [*shape, 1, 1]
                torch[f"{name}.{word}"] = (shape, data)
        write_tensors(self.folder / "torch.safetensors", dict(sorted(torch.items())))
        self.put("second.toml", job.replace("FROM", 'from = "torch.safetensors"\nkeep_statistics = ["*"]') + training)
        done = self.works("train", "second.toml", "--out", "taken")
        self.assertIn(f"from `{first}` for", done.stderr)
        self.assertNotIn("new:", done.stderr)
        self.assertNotIn("not taken:", done.stderr)
        taken = self.values("taken")
        compared = 0
        for layer, name in zip(layers, names):
            for value, word in words.items():
                if f"{layer}.{value}" in taken and f"{name}.{word}" in torch:
                    self.assertEqual(taken[f"{layer}.{value}"], torch[f"{name}.{word}"][1], name)
                    compared += 1
        self.assertEqual(compared, len(torch))
        offset = struct.unpack("<3f", taken["input.offset"])
        self.assertAlmostEqual(offset[0], 255 * 0.485, places=3)

    def test_tensors_of_16_bits(self):
        """Their values are taken exactly, the smallest and the largest ones, too."""
        self.first()
        _, header, _ = tensors_of(self.folder / "run/model.safetensors")
        halves = [0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x8000, 0x3c01, 0x2e66]
        brain = [0x0001, 0x8080, 0x7f7f, 0xff7f, 0x8000, 0x3f81, 0x0100, 0x4049]
        values = {"stem/conv.weights": ("F16", [halves[i % 8] for i in range(36)]),
                  "stem/norm.shift": ("BF16", brain[:4]), "stem/conv.bias": ("BF16", brain[4:])}

        def write(values):
            text, body = {}, b""
            for name, (kind, numbers) in values.items():
                data = struct.pack(f"<{len(numbers)}H", *numbers)
                text[name] = {"dtype": kind, "shape": header[name]["shape"],
                              "data_offsets": [len(body), len(body) + len(data)]}
                body += data
            text = json.dumps(text).encode()
            (self.folder / "half.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)

        write(values)
        layers = FIRST.split("[network]")[1].split("[training]")[0].format(units=5)
        job = self.second(layers, model="half.safetensors")
        done = self.works("train", job, "--check")
        self.assertIn("3 tensors of 16 bits converted to fp32", done.stderr + done.stdout)
        small = [0x3c01, 0x8001, 0x2e66, 0x03ff]
        write({"stem/conv.weights": ("F16", [small[i % 4] for i in range(36)]),
               "stem/norm.shift": ("BF16", [0x3f81, 0x8001, 0x0100, 0x4049])})
        job = self.second(layers, model="half.safetensors", training='freeze = "stem*"')
        self.works("train", job, "--out", "tuned", "--quiet")
        taken = self.values("tuned")
        self.assertEqual(taken["stem/conv.weights"], struct.pack(
            "<36f", *struct.unpack("<36e", struct.pack("<36H", *(small[i % 4] for i in range(36))))))
        self.assertEqual(taken["stem/norm.shift"], struct.pack("<4I", *(x << 16 for x in [0x3f81, 0x8001, 0x0100, 0x4049])))
        write({"stem/norm.shift": ("F8_E5M2", [0, 0, 0, 0])})
        self.assertIn("F16, BF16", self.refuse_network(layers, model="half.safetensors"))

    def test_tensors_of_a_resnet_of_torchvision(self):
        names = ["conv1", "bn1"]
        for stage in range(1, 5):
            for block in range(2):
                parts = ["conv1", "bn1", "conv2", "bn2"]
                parts += ["downsample.0", "downsample.1"] if stage > 1 and block == 0 else []
                names += [f"layer{stage}.{block}.{part}" for part in parts]
        self.check_tensors_of_torchvision("resnet18", [*names, "fc"], "conv1")

    def test_tensors_of_an_efficientnet_of_torchvision(self):
        """Sorted as texts, classifier.1 is first; fc1 and fc2 are one layer."""
        names = ["features.0.0", "features.0.1"]
        for stage, blocks in enumerate([1, 2, 2, 3, 3, 4, 1], 1):
            for block in range(blocks):
                widened = ["0.0", "0.1"] if stage > 1 else []
                k = 1 if stage > 1 else 0
                parts = [*widened, f"{k}.0", f"{k}.1", f"{k + 1}", f"{k + 2}.0", f"{k + 2}.1"]
                names += [f"features.{stage}.{block}.block.{part}" for part in parts]
        names += ["features.8.0", "features.8.1", "classifier.1"]
        self.check_tensors_of_torchvision("efficientnet_b0", names, "features.0.0")

    def validation_losses(self, run):
        lines = (self.folder / run / "log.jsonl").read_text(encoding="utf-8").splitlines()
        return [line["validation_loss"] for line in map(json.loads, lines) if "validation_loss" in line]

    def test_results_of_frozen_layers_are_kept(self):
        self.first()
        training = 'freeze = "stem*"\nshard_size = 6\ncheck_frequency = 2'
        job = self.second(self.HEAD + '\nkeep_statistics = ["*"]', training=training, epochs=3)
        digests, told = set(), []
        text = (self.folder / job).read_text(encoding="utf-8")
        self.put(job, text.replace('train = "kinds"', 'train = "kinds"\nvalidation = "kinds"'))
        losses = set()
        for more in ((), ("keep_features=never",), ("threads=5",), ("workers=2", "worker_load=[1, 2]"), ("cache_mib=0",)):
            options = [word for option in more for word in ("--set", option)]
            run = f"run-{len(told)}"
            done = self.works("train", job, "--out", run, "--json", *options)
            told.append(done.stderr)
            digests.add(json.loads(done.stdout)["digest"])
            losses.add(tuple(self.validation_losses(run)))
        self.assertEqual(len(digests), 1)
        self.assertEqual([len(of) for of in losses], [3])
        validations = "validations keep the results of frozen layers: 0.0 MiB for 60 of 60 observations"
        self.assertEqual([validations in text for text in told], [True, False, True, True, False])
        self.assertIn("validations compute the results of frozen layers each time, because images leave no room in "
                      "cache_mib = 0", told[4])
        # 60 images of 4 channels of 6 x 6.
        said = "the results of frozen layers are kept: 0.0 MiB for 60 of 60 observations"
        self.assertEqual([said in text for text in told], [True, False, True, True, False])
        self.assertNotIn("frozen layers", told[1])
        self.assertIn("computed in each iteration, because the images leave no room in cache_mib = 0", told[4])
        # A run goes on without them, or with them.
        for first, then in (("never", "auto"), ("auto", "never")):
            run = "resumed-" + first
            self.works("train", job, "--out", run, "--quiet", "--set", f"keep_features={first}", "--set", "max_epochs=1")
            done = self.works("train", job, "--out", run, "--resume", "--json", "--set", f"keep_features={then}")
            self.assertEqual({json.loads(done.stdout)["digest"]}, digests)
            self.assertEqual(said in done.stderr, then == "auto")
        self.put("augmented.toml", (self.folder / job).read_text(encoding="utf-8") + "[augmentation]\nreflect_x = true\n")
        done = self.works("train", "augmented.toml", "--out", "augmented")
        self.assertIn("frozen layers are computed in each iteration, because the training data is augmented", done.stderr)
        self.assertIn("keep_features", self.refuse_network(self.HEAD, training='keep_features = "yes"'))

    def reference(self, start, solver, first_epoch):
        """Two epochs in double: layer a learns from an epoch on."""
        value = {name: struct.unpack(f"<{len(data) // 4}f", data) for name, data in start.items()}
        scale, offset = value["input.factor"][0], value["input.offset"][0]
        examples = []
        for kind in range(5):
            for path in sorted((self.folder / f"kinds/{kind}").iterdir(), key=lambda path: path.name):
                examples.append(([(p - offset) * scale for p in path.read_bytes()[-64:]], kind))
        w = {"a": [list(value["a.weights"][64 * i:64 * i + 64]) for i in range(3)],
             "b": [list(value["b.weights"][3 * i:3 * i + 3]) for i in range(5)]}
        bias = {"a": list(value["a.bias"]), "b": list(value["b.bias"])}
        rows = {layer: [row + [b] for row, b in zip(w[layer], bias[layer])] for layer in w}  # the bias comes last
        state = {layer: [[[0.0, 0.0] for _ in row] for row in rows[layer]] for layer in rows}
        steps = {"a": 0, "b": 0}
        for epoch in (1, 2):
            for at in range(0, 60, 12):
                gradient = {layer: [[0.0] * len(row) for row in rows[layer]] for layer in rows}
                for x, kind in examples[at:at + 12]:
                    x = [*x, 1.0]
                    sums = [sum(v * z for v, z in zip(row, x)) for row in rows["a"]]
                    hidden = [max(v, 0.0) for v in sums] + [1.0]
                    out = [sum(v * z for v, z in zip(row, hidden)) for row in rows["b"]]
                    largest = max(out)
                    powers = [math.exp(v - largest) for v in out]
                    slope = [p / sum(powers) - (k == kind) for k, p in enumerate(powers)]
                    for k in range(5):
                        for j in range(4):
                            gradient["b"][k][j] += slope[k] * hidden[j] / 12
                    for j in range(3):
                        back = sum(slope[k] * rows["b"][k][j] for k in range(5)) if sums[j] > 0 else 0.0
                        for i in range(65):
                            gradient["a"][j][i] += back * x[i] / 12
                for layer in rows:
                    if layer == "a" and epoch < first_epoch:
                        continue
                    steps[layer] += 1
                    t = steps[layer]
                    for row, g_row, s_row in zip(rows[layer], gradient[layer], state[layer]):
                        for i, g in enumerate(g_row):
                            if solver == "sgdm":
                                s_row[i][0] = 0.9 * s_row[i][0] + g
                                row[i] -= 0.01 * s_row[i][0]
                            else:
                                s_row[i][0] = 0.9 * s_row[i][0] + 0.1 * g
                                s_row[i][1] = 0.999 * s_row[i][1] + 0.001 * g * g
                                root = math.sqrt(s_row[i][1] / (1 - 0.999 ** t))
                                row[i] -= 0.01 * s_row[i][0] / (1 - 0.9 ** t) / (root + 1e-8)
        return rows

    def test_frozen_layers_learn_from_an_epoch_on(self):
        self.kinds(5)
        layers = ('layers = [{ type = "fully_connected", units = 3, name = "a" }, { type = "relu" },\n'
                  '  { type = "fully_connected", units = 5, name = "b" }, { type = "softmax" }]\n')
        head, end = FIRST.format(units=5).split("layers = [")
        end = end[end.index("[training]"):].replace("0.05", "1e-30").replace("max_epochs = 4", "max_epochs = 1")
        self.put("first.toml", head + layers + end)
        self.works("train", "first.toml", "--out", "run", "--quiet")
        start = self.values("run")
        more_threads, more_workers = ("threads=5",), ("workers=2",)
        for solver, variants, stops in (("sgdm", [more_threads], [7]),
                                        ("adam", [("keep_features=never",), more_threads, more_workers], [5, 7])):
            training = (f'solver = "{solver}"\nl2 = 0\nshuffle = "never"\nfreeze = "a"\nunfreeze = "a:2"\n'
                        "squared_gradient_decay = 0.999\nshard_size = 5")
            job = self.second('keep_statistics = ["*"]', training=training, epochs=2)
            text = (self.folder / job).read_text(encoding="utf-8").replace("= 0.05", "= 0.01")
            self.put(job, text)
            digests = set()
            for number, more in enumerate(((), *variants)):
                options = [word for option in more for word in ("--set", option)]
                done = self.works("train", job, "--out", f"{solver}-{number}", "--json", "--quiet", *options)
                digests.add(json.loads(done.stdout)["digest"])
            # Stopped at the end of the first epoch, and in the second one.
            for stop in stops:
                run = f"{solver}-stop-{stop}"
                self.works("train", job, "--out", run, "--quiet", "--set", f"max_iterations={stop}")
                done = self.works("train", job, "--out", run, "--resume", "--json", "--quiet")
                digests.add(json.loads(done.stdout)["digest"])
            self.assertEqual(len(digests), 1)
            learned = {name: struct.unpack(f"<{len(data) // 4}f", data)
                       for name, data in self.values(f"{solver}-0").items()}
            rows = self.reference(start, solver, 2)
            for layer, count in (("a", 64), ("b", 3)):
                expected = [row[i] for row in rows[layer] for i in range(count)]
                for one, other in zip(learned[layer + ".weights"], expected):
                    self.assertAlmostEqual(one, other, delta=2e-5)
                for one, other in zip(learned[layer + ".bias"], [row[-1] for row in rows[layer]]):
                    self.assertAlmostEqual(one, other, delta=2e-5)
            # The test would notice if the layer learned from the first epoch on.
            early = self.reference(start, solver, 1)
            self.assertGreater(max(abs(one[0] - other[0]) for one, other in zip(early["a"], rows["a"])), 1e-3)

    def test_wrong_unfreezing_is_refused(self):
        self.first()
        for unfreeze, told in (("stem:2", "`stem`, which is not a layer"), ("fully*:2", "`freeze` holds no parameter"),
                               ("stem*:3", "max_epochs = 2, received 3"), ("stem*", "LAYERS:EPOCH"),
                               ("stem*:1", "epochs from 2 on")):
            training = f'freeze = "stem*"\nunfreeze = "{unfreeze}"'
            self.assertIn(told, self.refuse_network(self.HEAD, training=training, epochs=2), unfreeze)

    def test_averages_of_a_checkpoint_are_taken(self):
        self.kinds(3)
        self.put("first.toml", FIRST.format(units=3))
        self.works("train", "first.toml", "--out", "plain", "--quiet")
        self.works("train", "first.toml", "--out", "run", "--quiet", "--set", "average_decay=0.5")
        newest = sorted((self.folder / "run/checkpoints").iterdir())[-1]
        done = self.works("train", "first.toml", "--out", "next", "--initial-model", newest, "--save-initial", "--set",
                          "max_epochs=1")
        self.assertIn("note: the initial checkpoint has moving averages of its parameters", done.stderr)
        initial = tensors_of(self.folder / "next/initial.safetensors")[0]
        for name in ("head.weights", "stem/conv.weights", "stem/norm.scale"):
            self.assertEqual(initial[name], self.values("run")[name], name)
            self.assertNotEqual(initial[name], self.values("plain")[name], name)
        newest = sorted((self.folder / "plain/checkpoints").iterdir())[-1]
        done = self.works("train", "first.toml", "--out", "other", "--initial-model", newest, "--set", "max_epochs=1")
        self.assertNotIn("moving averages", done.stderr)

    def test_files_of_other_kinds_are_named(self):
        self.first()
        layers = FIRST.split("[network]")[1].split("[training]")[0].format(units=5)
        for content, told in ((b"PK\x03\x04\x00\x00\x08\x08" + bytes(50), "a ZIP archive, as torch.save()"),
                              (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P", "a pickle of Python"),
                              (b"\x89HDF\r\n\x1a\n" + bytes(50), "an HDF5 file"),
                              (b"GGUF\x03\x00\x00\x00" + bytes(50), "a GGUF file"),
                              (b"these are not tensors", "is not a safetensors file")):
            self.put("other.bin", content)
            error = self.refuse_network(layers, model="other.bin")
            self.assertIn(told, error)
            self.assertIn("safetensors.torch.save_file", error)
        write_tensors(self.folder / "wide.safetensors", {"stem/conv.bias": ([4], bytes(32))})
        data = (self.folder / "wide.safetensors").read_bytes().replace(b"F32", b"F64")
        self.put("wide.safetensors", data)
        error = self.refuse_network(layers, model="wide.safetensors")
        self.assertIn('"F64"; F32, F16, BF16, I32, I64 and U8 are supported', error)
        self.assertIn("model.float()", error)

    def test_odd_freezing_is_told(self):
        self.first()
        tensors, header, _ = tensors_of(self.folder / "run/model.safetensors")
        names = ("stem/conv.weights", "stem/conv.bias", "stem/norm.mean", "stem/norm.variance")
        write_tensors(self.folder / "part.safetensors", {n: (header[n]["shape"], tensors[n]) for n in names})
        layers = FIRST.split("[network]")[1].split("[training]")[0].format(units=5)

        def told(freeze, unfreeze="[]", model="part.safetensors"):
            job = self.second(layers, model=model, training=f"freeze = {freeze}\nunfreeze = {unfreeze}", epochs=3)
            return self.works("train", job, "--check").stderr

        never = "freeze holds values that are not from the model and will never learn: "
        self.assertIn(never + "stem/norm.scale, stem/norm.shift\n", told('"stem*"'))
        self.assertNotIn(never, told('"stem*"', '["stem/n*:2"]'))
        self.assertNotIn(never, told('"stem*"', model="run"))
        self.assertNotIn("nothing is learned", told('"*"', '["stem*:2"]'))
        self.assertIn("freeze holds all parameters: nothing is learned", told('"*"'))
        self.assertIn("freeze contains `relu*`, but such layers have no parameters", told('["relu*", "stem*"]'))
        self.assertNotIn("have no parameters", told('"*"'))
        self.assertIn("part.safetensors has no digest of its contents", told("[]"))

    def test_what_does_not_fit_is_refused(self):
        self.first()
        self.assertIn("replace must be a list of tables", self.refuse_network('replace = { type = "softmax" }'))
        self.assertIn("no layer `haed`", self.refuse_network(self.HEAD + '\nreplace_from = "haed"'))
        self.assertIn("the input cannot be replaced", self.refuse_network(self.HEAD + '\nreplace_from = "input"'))
        named = 'replace = [{ type = "fully_connected", units = 5, name = "head" }, { type = "softmax" }]'
        self.assertIn("the model has a layer `head`, too", self.refuse_network(named))
        self.assertIn("no layer with parameters has a name", self.refuse_network('learning_rate_factors = { "x*" = 1 }'))
        self.assertIn("layer_decay", self.refuse_network("layer_decay = 2"))
        self.assertIn("keep_statistics", self.refuse_network('keep_statistics = "head"'))
        self.assertIn("freeze contains `nothing*`", self.refuse_network(self.HEAD, training='freeze = "nothing*"'))
        self.assertIn("nowhere", self.refuse_network(self.HEAD, model="nowhere"))
        self.assertIn("5 classes", self.refuse_network(""))
        self.put("first.toml", FIRST.format(units=3).replace("layers = [", 'replace_from = "x"\nlayers = ['))
        done = self.run_command("train", "first.toml", "--check")
        self.assertIn("replace_from needs the layers of a model", done.stderr)
        done = self.run_command("train", self.second(self.HEAD), "--initial-model", "run", "--check")
        self.assertIn("cannot both be given", done.stderr)


if __name__ == "__main__":
    unittest.main()
