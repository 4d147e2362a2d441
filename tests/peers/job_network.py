"""Any network of a job as a PyTorch module, made from the job's resolved description (job.json)."""

import warnings

import torch
from torch import nn
from torch.nn import functional


class JobNetwork(nn.Module):
    """Returns the scores before the last softmax. Submodules have the layers' names."""

    def __init__(self, network, norm=nn.BatchNorm2d):
        super().__init__()
        self.layers = network["layers"]
        channels = {}
        for layer in self.layers:
            name, kind = layer["name"], layer["type"]
            inside = channels[layer["inputs"][0]] if layer.get("inputs") else layer["channels"]
            channels[name] = layer.get("filters", layer.get("units", inside))
            if kind == "concatenation":
                channels[name] = sum(channels[i] for i in layer["inputs"])
            if kind == "convolution2d":
                self.add_module(name, nn.Conv2d(
                    inside, layer["filters"], layer["kernel"], layer["stride"], padding_of(layer),
                    layer["dilation"], layer["groups"], layer["bias"]))
            elif kind == "transposed_convolution2d":
                self.add_module(name, nn.ConvTranspose2d(
                    inside, layer["filters"], layer["kernel"], layer["stride"], padding_of(layer),
                    groups=layer["groups"], bias=layer["bias"], dilation=layer["dilation"]))
            elif kind == "batch_normalization":
                self.add_module(name, norm(inside, eps=layer["epsilon"], momentum=layer["momentum"]))
            elif kind == "layer_normalization":  # of whole observations
                self.add_module(name, nn.GroupNorm(1, inside, eps=layer["epsilon"]))
            elif kind == "fully_connected":
                with warnings.catch_warnings():  # "under heavy development" for years
                    warnings.simplefilter("ignore")
                    self.add_module(name, nn.LazyLinear(layer["units"], layer["bias"]))
        with torch.no_grad():  # lazy layers learn their sizes
            first = self.layers[0]
            self.eval()(torch.zeros(2, first["channels"], first["height"], first["width"]))
        self.train()

    def forward(self, x):
        values = {}
        for layer in self.layers:
            name, kind = layer["name"], layer["type"]
            inputs = [values[i] for i in layer.get("inputs", [])]
            if kind == "image_input":
                y = x
            elif kind in ("convolution2d", "transposed_convolution2d", "batch_normalization",
                          "layer_normalization"):
                y = self.get_submodule(name)(inputs[0])
            elif kind == "fully_connected":
                y = self.get_submodule(name)(inputs[0].flatten(1))
            elif kind == "relu":
                y = functional.relu(inputs[0], inplace=True)  # its input has no other reader
            elif kind == "tanh":
                y = torch.tanh(inputs[0])
            elif kind == "gelu":
                y = functional.gelu(inputs[0])
            elif kind == "concatenation":
                y = torch.cat(inputs, 1)
            elif kind == "addition":
                y = sum(inputs[1:], inputs[0])
            elif kind == "max_pooling2d":
                y = functional.max_pool2d(inputs[0], layer["pool"], layer["stride"],
                                          padding_of(layer))
            elif kind == "average_pooling2d":
                y = functional.avg_pool2d(inputs[0], layer["pool"], layer["stride"],
                                          padding_of(layer))
            elif kind == "global_average_pooling2d":
                y = inputs[0].mean((2, 3), keepdim=True)
            elif kind == "softmax":
                y = inputs[0]
            else:
                raise NotImplementedError(f"{name}: a layer of type {kind}")
            values[name] = y
        return y


def padding_of(layer):
    padding = layer["padding"]
    if padding == "same":
        assert all(s == 1 for s in layer["stride"]), layer
        return [k // 2 for k in layer["kernel"]]
    if isinstance(padding, list):
        assert padding[0] == padding[1] and padding[2] == padding[3], layer
        return [padding[0], padding[2]]
    return padding
