#!/usr/bin/env python3
"""Trainings that begin with the network of another one: [network] from.

usage: fine_tuning_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import json
import struct
import unittest

from support import CommandTest

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


class FineTuning(CommandTest):
    def kinds(self, count):
        for kind in range(count):
            for i in range(12):
                pixels = bytes((37 * kind * x + 11 * y + 5 * i) % 256 for y in range(8) for x in range(8))
                self.put(f"kinds/{kind}/{i}.pgm", b"P5 8 8 255\n" + pixels)

    def refuse_network(self, network, training="", model="run", **more):
        job = self.second(network, training=training, model=model, **more)
        done = self.run_command("train", job, "--check")
        self.assertIn(done.returncode, (1, 2), done.stdout)
        return done.stderr

    def first(self):
        self.kinds(3)
        self.put("first.toml", FIRST.format(units=3))
        self.works("train", "first.toml", "--out", "run", "--quiet")
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
        self.kinds(3)
        job = '[data]\ntrain = "kinds"\nresize = true\n' + described.replace("[network]", "[network]\nFROM")
        training = "[training]\nmini_batch_size = 36\nmax_epochs = 1\ninitial_learning_rate = 1e-30\n"
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

    def test_what_does_not_fit_is_refused(self):
        self.first()
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
