"""Networks of the random cases in PyTorch, in any precision. Independent of Lockstep's code: layers
are computed from their documented formulas."""

import numpy
import torch
from torch.nn import functional

import torch_sequences

CONVOLUTIONS = [functional.conv1d, functional.conv2d, functional.conv3d]
MAXIMA = [functional.max_pool1d, functional.max_pool2d, functional.max_pool3d]
AVERAGES = [functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d]


def as_list(value, axes):
    return list(value) if isinstance(value, list) else [value] * axes


def padding_of(layer, size, window):
    """[(before, after)] for each axis; "same" gives ceil(size / stride) positions."""
    axes = len(size)
    padding, stride = layer["padding"], as_list(layer["stride"], axes)
    if padding == "same":
        pairs = []
        for n, k, s in zip(size, window, stride):
            total = max(0, (-(-n // s) - 1) * s + k - n)
            pairs.append((total // 2, total - total // 2))
        return pairs
    if isinstance(padding, list) and len(padding) == 2 * axes:
        return [(padding[2 * a], padding[2 * a + 1]) for a in range(axes)]
    return [(p, p) for p in as_list(padding, axes)]


def padded(x, pairs, value=0.0):
    """Only positions up to the last one that a window reaches matter, so more padding is never wrong."""
    flat = [n for pair in reversed(pairs) for n in pair]
    return functional.pad(x, flat, value=value) if any(flat) else x


def convolution(layer, x, weights, bias):
    axes = x.dim() - 2
    dilation = as_list(layer["dilation"], axes)
    window = [d * (k - 1) + 1 for k, d in zip(weights.shape[2:], dilation)]
    x = padded(x, padding_of(layer, x.shape[2:], window))
    return CONVOLUTIONS[axes - 1](x, weights, bias, as_list(layer["stride"], axes), 0, dilation,
                                  layer["groups"])


def transposed_convolution(layer, x, weights, bias):
    stride, dilation = as_list(layer["stride"], 2), as_list(layer["dilation"], 2)
    y = functional.conv_transpose2d(x, weights, bias, stride, 0, 0, layer["groups"], dilation)
    if layer["padding"] == "same":
        pairs = []
        for k, d, s in zip(weights.shape[2:], dilation, stride):
            total = d * (k - 1) + 1 - s
            pairs.append((total // 2, total - total // 2))
    else:
        pairs = padding_of(layer, x.shape[2:], None)
    (top, bottom), (left, right) = pairs
    return y[:, :, top:y.shape[2] - bottom, left:y.shape[3] - right]


def pooling(layer, x, average):
    axes = x.dim() - 2
    window, stride = as_list(layer["pool"], axes), as_list(layer["stride"], axes)
    pairs = padding_of(layer, x.shape[2:], window)
    if not average:
        return MAXIMA[axes - 1](padded(x, pairs, -numpy.inf), window, stride)
    y = AVERAGES[axes - 1](padded(x, pairs), window, stride)
    if layer["count_padding"]:
        return y
    inside = padded(torch.ones_like(x[:1, :1]), pairs)
    return y / AVERAGES[axes - 1](inside, window, stride)


def along_channels(value, x):
    return value.reshape([1, -1] + [1] * (x.dim() - 2))


def activation(layer, x):
    kind = layer["type"]
    if kind == "relu":
        return functional.relu(x)
    if kind == "clipped_relu":
        ceiling = torch.full_like(x, layer["ceiling"])
        return torch.where(x >= ceiling, ceiling, functional.relu(x))
    if kind == "leaky_relu":
        return torch.where(x < 0, x * layer["scale"], x)
    if kind == "elu":
        return functional.elu(x, layer["alpha"])
    if kind == "gelu":
        return functional.gelu(x, approximate=layer["approximation"])
    if kind == "swish":
        return functional.silu(x)
    if kind == "tanh":
        return torch.tanh(x)
    if kind == "sigmoid":
        return torch.sigmoid(x)
    if kind == "softplus":
        return torch.logaddexp(x, torch.zeros_like(x))
    if kind == "hard_sigmoid":
        return (x + 3).clamp(0, 6) / 6
    if kind == "hard_swish":
        return x * ((x + 3).clamp(0, 6) / 6)
    return None


def squeeze_excitation(layer, x, value):
    y = functional.linear(x.mean((2, 3)), value("reduce_weights"), value("reduce_bias"))
    y = functional.relu(y) if layer["activation"] == "relu" else functional.silu(y)
    y = functional.linear(y, value("expand_weights"), value("expand_bias"))
    y = torch.sigmoid(y) if layer["gate"] == "sigmoid" else (y + 3).clamp(0, 6) / 6
    return x * y[:, :, None, None]


def upsampled(layer, x):
    size = [n * s for n, s in zip(x.shape[2:], as_list(layer["scale"], 2))]
    if layer["method"] == "nearest":
        return functional.interpolate(x, size, mode="nearest")
    return functional.interpolate(x, size, mode="bilinear", align_corners=False)


def philox(counter, key):
    """Ten rounds of Philox 4x32 over arrays of uint64 that hold 32 bits each."""
    mask = numpy.uint64(0xFFFFFFFF)
    c = [numpy.asarray(word, numpy.uint64) for word in counter]
    k0, k1 = int(key[0]), int(key[1])
    for _ in range(10):
        p0, p1 = numpy.uint64(0xD2511F53) * c[0], numpy.uint64(0xCD9E8D57) * c[2]
        high = numpy.uint64(32)
        c = [(p1 >> high) ^ c[1] ^ numpy.uint64(k0), p1 & mask,
             (p0 >> high) ^ c[3] ^ numpy.uint64(k1), p0 & mask]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def words(number):
    return [number & 0xFFFFFFFF, number >> 32]


def random_words(seed, use, a, b, c, count):
    """The first numbers of the stream of a key."""
    x = [int(w) for w in philox([use, 0x4C4F434B] + words(a), words(seed))]
    y = [int(w) for w in philox([words(b)[0] ^ x[2], words(b)[1] ^ x[3]] + words(c), x[:2])]
    blocks = (count + 3) // 4
    numbers = philox([numpy.arange(blocks), numpy.zeros(blocks), y[2], y[3]], y[:2])
    return numpy.stack(numbers, 1).reshape(-1)[:count]


def dropped(layer, x, key, step):
    seed, iteration, first_row = step
    least = int(layer["probability"] * 2.0 ** 32)
    whole = layer["type"] == "stochastic_depth"  # one number for each observation
    per_row = 1 if whole else x[0].numel()
    keep = numpy.stack([random_words(seed, 2, key, iteration, first_row + row, per_row) >= least
                        for row in range(x.shape[0])])
    shape = [x.shape[0]] + [1] * (x.dim() - 1) if whole else x.shape
    mask = torch.from_numpy(keep).reshape(shape).to(x.dtype)
    return x * mask / (1 - layer["probability"])


class Narrow(torch.autograd.Function):
    """Rounds the value and its gradient to bfloat16: the least error of computing in bf16."""

    @staticmethod
    def forward(context, x):
        return x.bfloat16().to(x.dtype)

    @staticmethod
    def backward(context, gradient):
        return gradient.bfloat16().to(gradient.dtype)


class Jitter(torch.autograd.Function):
    """Changes each element and its gradient by up to a unit in the last place (of fp32: 2^-23)."""

    @staticmethod
    def forward(context, x, noise, unit):
        context.noise, context.unit = noise, unit
        return Jitter.moved(x, noise, unit)

    @staticmethod
    def backward(context, gradient):
        return Jitter.moved(gradient, context.noise, context.unit), None, None

    @staticmethod
    def moved(x, noise, unit):
        factors = 1 + unit * noise.uniform(-1, 1, tuple(x.shape))
        return x * torch.from_numpy(numpy.asarray(factors)).to(x.dtype)


class Run:
    """One pass of a network over observations."""

    def __init__(self, head, values, dtype, training, step, narrow=False, noise=None):
        self.noise = noise  # perturbs the results of layers
        self.head, self.values, self.dtype = head, values, dtype
        self.training, self.step, self.narrow = training, step, narrow
        self.results = {}
        self.pixel_steps = set()  # results that are sequences of pixels
        self.lengths = torch.tensor(head["lengths"]) if "lengths" in head else None
        self.statistics = []  # (layer that has the state, mean, variance, momentum), in order

    def forward(self, inputs):
        inputs = iter(inputs)
        read = set()
        by_name = {layer["name"]: layer for layer in self.head["layers"]}
        for layer in self.head["layers"]:
            name, owner = layer["name"], layer.get("layer", layer["name"])
            if layer["type"] == "shared":
                layer = {**by_name[owner], "inputs": layer["inputs"], "name": name}
            given = layer.get("inputs", [])
            read.update(given)
            if not given:
                y = self.normalized(owner, next(inputs))
            else:
                y = self.compute(layer, owner, [self.results[i] for i in given])
                if layer["type"] == "pixels_to_steps" or (given[0] in self.pixel_steps
                                                          and y.dim() == 3):
                    self.pixel_steps.add(name)
                if self.noise is not None:
                    y = Jitter.apply(y, self.noise, 2.0 ** (-8 if self.narrow else -23))
            if self.narrow:
                y = Narrow.apply(y)
            if self.lengths is not None:
                y = torch_sequences.cut(y, self.lengths)
            self.results[name] = y
        return [self.results[l["name"]] for l in self.head["layers"] if l["name"] not in read]

    def value(self, owner, name):
        return self.values.get(f"{owner}.{name}")

    def normalized(self, owner, x):
        offset, factor = self.value(owner, "offset"), self.value(owner, "factor")
        if self.lengths is not None:
            return x if offset is None else (x - offset) * factor
        x = x.to(self.dtype)
        return (x - along_channels(offset, x)) * along_channels(factor, x)

    def compute(self, layer, owner, inputs):
        kind, x = layer["type"], inputs[0]
        lengths = self.lengths
        if layer["inputs"][0] in self.pixel_steps:
            lengths = torch.full((x.shape[0],), x.shape[1])
        if lengths is not None:
            if kind == "batch_normalization" and x.dim() == 3:
                return torch_sequences.packed(x, lengths,
                                              lambda rows: self.normalization(layer, owner, rows))
            y = torch_sequences.of_sequences(layer, inputs, lengths,
                                             lambda name: self.value(owner, name))
            if y is not None:
                return y
        weights, bias = self.value(owner, "weights"), self.value(owner, "bias")
        if self.narrow and weights is not None:
            weights = Narrow.apply(weights)
        if kind.startswith("convolution"):
            return convolution(layer, x, weights, bias)
        if kind == "transposed_convolution2d":
            return transposed_convolution(layer, x, weights, bias)
        if kind == "fully_connected":
            return functional.linear(x.flatten(1), weights, bias)
        if kind.startswith("max_pooling") or kind.startswith("average_pooling"):
            return pooling(layer, x, kind.startswith("average"))
        if kind.startswith("global_average_pooling"):
            return x.mean(list(range(2, x.dim())), keepdim=True)
        if kind.endswith("_normalization"):
            return self.normalization(layer, owner, x)
        if kind == "softmax":
            return torch.softmax(x, 1)
        if kind == "pixels_to_steps":
            return x.flatten(2).transpose(1, 2)
        if kind == "adaptive_average_pooling2d":
            return functional.adaptive_avg_pool2d(x, as_list(layer["size"], 2))
        if kind == "upsampling2d":
            return upsampled(layer, x)
        if kind == "squeeze_excitation":
            return squeeze_excitation(layer, x, lambda name: self.value(owner, name))
        if kind == "layer_scale":
            return x * along_channels(self.value(owner, "scale"), x)
        if kind in ("dropout", "stochastic_depth"):
            key = self.head["keys"][layer["name"]]
            return dropped(layer, x, key, self.step) if self.training else x
        if kind == "flatten":
            return x.flatten(1)
        if kind == "reshape":
            return x.reshape([x.shape[0]] + as_list(layer["size"], 1))
        if kind == "concatenation":
            return torch.cat(inputs, 1)
        if kind in ("addition", "multiplication"):
            for other in inputs[1:]:
                x = x + other if kind == "addition" else x * other
            return x
        y = activation(layer, x)
        if y is None:
            raise NotImplementedError(f"a layer of type {kind}")
        return y

    def normalization(self, layer, owner, x):
        kind, scale, shift = layer["type"], self.value(owner, "scale"), self.value(owner, "shift")
        if kind == "channel_normalization":
            y = functional.layer_norm(x.movedim(1, -1), x.shape[1:2], scale, shift,
                                      layer["epsilon"])
            return y.movedim(-1, 1)
        if kind != "batch_normalization":
            groups = {"layer_normalization": 1, "instance_normalization": x.shape[1]}
            groups = groups.get(kind) or layer["groups"]
            return torch.group_norm(x, groups, scale, shift, layer["epsilon"])
        if not self.training:
            return torch.batch_norm(x, scale, shift, self.value(owner, "mean"),
                                    self.value(owner, "variance"), False, 0, layer["epsilon"], False)
        others = [0] + list(range(2, x.dim()))
        variance, mean = torch.var_mean(x.detach(), others, unbiased=False)
        self.statistics.append((owner, mean, variance, layer["momentum"]))
        return torch.batch_norm(x, scale, shift, None, None, True, 0, layer["epsilon"], False)
