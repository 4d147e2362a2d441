"""Three trainings, each as a job of Lockstep's and as PyTorch modules with the layers' names.

They are made to be compared: some weights in front of a batch normalization start small, so that
its epsilon matters; there are few activations in front of a ReLU, because one that rounding moves
across zero parts two trainings for good.
"""

import torch
from torch import nn
from torch.nn import functional

HEIGHT, WIDTH, CLASSES, MINI_BATCH = 10, 6, 7, 16


class Residual(nn.Module):
    """Plain and strided convolutions, a residual addition, max and average pooling."""

    normalization = "zero-center"
    solver = dict(solver="sgdm", rate=0.005, momentum=0.9, l2=0.01)
    # Their exact gradient is zero, because the following layer subtracts the mean.
    without_gradient = ("conv_1.bias", "conv_2.bias", "conv_3.bias")
    layers = """
      { type = "convolution2d", name = "conv_1", filters = 9, kernel = 3, padding = "same" },
      { type = "batch_normalization", name = "norm_1" },
      { type = "relu", name = "relu_1" },
      { type = "convolution2d", name = "conv_2", filters = 9, kernel = 3, padding = "same",
        weights_initializer = "narrow-normal" },
      { type = "batch_normalization", name = "norm_2" },
      { type = "addition", inputs = ["norm_2", "relu_1"] },
      { type = "relu" },
      { type = "max_pooling2d", pool = 2, stride = 2 },
      { type = "convolution2d", name = "conv_3", filters = 12, kernel = 3, stride = 2,
        padding = 1 },
      { type = "batch_normalization", name = "norm_3" },
      { type = "relu" },
      { type = "average_pooling2d", pool = 2, stride = 1 },
      { type = "fully_connected", name = "classifier", units = 7 },
      { type = "softmax" }"""

    def __init__(self, norm):
        super().__init__()
        self.conv_1 = nn.Conv2d(3, 9, 3, padding=1)
        self.norm_1 = norm(9)
        self.conv_2 = nn.Conv2d(9, 9, 3, padding=1)
        self.norm_2 = norm(9)
        self.conv_3 = nn.Conv2d(9, 12, 3, stride=2, padding=1)
        self.norm_3 = norm(12)
        self.classifier = nn.Linear(12 * 2 * 1, CLASSES)

    def forward(self, x):
        x = functional.relu(self.norm_1(self.conv_1(x)))
        x = functional.relu(self.norm_2(self.conv_2(x)) + x)
        x = functional.max_pool2d(x, 2)
        x = functional.relu(self.norm_3(self.conv_3(x)))
        return self.classifier(functional.avg_pool2d(x, 2, 1).flatten(1))


class Branches(nn.Module):
    """Two branches that are joined; groups, dilation, non-square windows, global pooling."""

    normalization = "z-score"
    solver = dict(solver="adam", rate=0.005, beta_1=0.9, beta_2=0.999, epsilon=1e-3, l2=0.01,
                  drop_factor=0.5, drop_epochs=1)
    without_gradient = ()
    layers = """
      { type = "convolution2d", name = "stem", filters = 10, kernel = [5, 3] },
      { type = "convolution2d", name = "grouped", filters = 8, kernel = 3, groups = 2,
        padding = "same", bias = false, weights_initializer = "narrow-normal" },
      { type = "batch_normalization", name = "grouped_norm", epsilon = 1e-3, momentum = 0.2 },
      { type = "convolution2d", name = "dilated", inputs = ["stem"], filters = 6, kernel = 3,
        dilation = 2, padding = 2, bias = false, weights_initializer = "narrow-normal" },
      { type = "batch_normalization", name = "dilated_norm", epsilon = 1e-3, momentum = 0.2 },
      { type = "concatenation", inputs = ["grouped_norm", "dilated_norm"] },
      { type = "convolution2d", name = "mixing", filters = 11, kernel = 3,
        weights_initializer = "he" },
      { type = "global_average_pooling2d" },
      { type = "relu" },
      { type = "flatten" },
      { type = "fully_connected", name = "classifier", units = 7 },
      { type = "softmax" }"""

    def __init__(self, norm):
        super().__init__()
        self.stem = nn.Conv2d(3, 10, (5, 3))
        self.grouped = nn.Conv2d(10, 8, 3, padding=1, groups=2, bias=False)
        self.grouped_norm = norm(8, eps=1e-3, momentum=0.2)
        self.dilated = nn.Conv2d(10, 6, 3, padding=2, dilation=2, bias=False)
        self.dilated_norm = norm(6, eps=1e-3, momentum=0.2)
        self.mixing = nn.Conv2d(14, 11, 3)
        self.classifier = nn.Linear(11, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        x = torch.cat([self.grouped_norm(self.grouped(x)),
                       self.dilated_norm(self.dilated(x))], dim=1)
        return self.classifier(functional.relu(self.mixing(x).mean((2, 3))))


class Dense(nn.Module):
    """Fully connected layers. The rows of one have more than 1,024 inputs."""

    normalization = "zero-center"
    solver = dict(solver="sgdm", rate=0.0002, momentum=0.9, l2=0.01)
    without_gradient = ()
    layers = """
      { type = "flatten" },
      { type = "fully_connected", name = "hidden_1", units = 1100 },
      { type = "tanh" },
      { type = "fully_connected", name = "hidden_2", units = 51 },
      { type = "tanh" },
      { type = "fully_connected", name = "classifier", units = 7 },
      { type = "softmax" }"""

    def __init__(self, _norm):
        super().__init__()
        self.hidden_1 = nn.Linear(3 * HEIGHT * WIDTH, 1100)
        self.hidden_2 = nn.Linear(1100, 51)
        self.classifier = nn.Linear(51, CLASSES)

    def forward(self, x):
        x = torch.tanh(self.hidden_1(x.flatten(1)))
        return self.classifier(torch.tanh(self.hidden_2(x)))
