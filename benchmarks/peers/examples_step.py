"""Times whole steps of one of the examples in PyTorch, on random data in memory: for examples.py,
which runs this with each Python that has PyTorch, once for each way.

The networks, mini-batches, losses and the solver are those of examples/NAME.cpp, and a step is an
iteration of it. The data are one mini-batch, already normalized, so that neither shuffling nor the
choice of pairs counts. Ways: "eager"; "fused" with Adam's fused update, as all that follow;
"channels-last" for images; "compiled" losses, with derivatives by torch.func, because compiled
functions have no second derivatives otherwise. Prints JSON: seconds of a step, seconds of it in
products and convolutions (by PyTorch's profiler, in steps after the timed ones), and MiB that this
process has had at most, before the first step and with all timed steps.

usage: examples_step.py NAME eager|fused|channels-last|compiled THREADS SECONDS
"""

import json
import math
import resource
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

WARM_UP = 20  # steps
PROFILED = 20  # steps
# Names of the profiler that are products of matrices or convolutions.
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "convolution", "convolution_backward",
            "convolution_overrideable", "thnn_conv2d", "_slow_conv2d_forward",
            "_slow_conv2d_backward", "slow_conv_transpose2d", "mkldnn_convolution",
            "_mkl_linear", "_linear_pointwise", "_convolution_pointwise",
            "_convolution_transpose_pointwise", "_convolution")


class Step:
    """An iteration. `way` applies to losses and solvers."""

    def __init__(self, way):
        self.way = way
        self.update = None

    def compiled(self, function):
        return torch.compile(function) if self.way == "compiled" else function

    def slope(self, total, x):
        """The derivative of total(x), which can be differentiated again. total(x) has one element."""
        if self.way == "compiled":
            return torch.func.grad(total)(x)
        return torch.autograd.grad(total(x), x, create_graph=True)[0]

    def adam(self, *networks, **options):
        if self.way != "eager":
            options["fused"] = True
        return torch.optim.Adam([p for n in networks for p in n.parameters()], **options)


class Gan(Step):
    """Three steps of the critic, and one of the generator."""

    def __init__(self, way):
        super().__init__(way)
        self.generator = nn.Sequential(
            nn.Linear(32, 32 * 4 * 4), nn.ReLU(), nn.Unflatten(1, (32, 4, 4)),
            nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1),
            nn.Tanh())
        self.critic = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 4, 2, 1),
            nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(32 * 4 * 4, 1))
        options = {"lr": 5e-4, "betas": (0.5, 0.9)}
        self.of_generator = self.adam(self.generator, **options)
        self.of_critic = self.adam(self.critic, **options)
        self.real = torch.rand(64, 1, 16, 16) * 2 - 1
        self.make = self.compiled(self.generator)
        self.critic_loss = self.compiled(self.critic_loss)
        self.generator_loss = self.compiled(self.generator_loss)

    def critic_loss(self, real, made, share):
        between = real + share * (made - real)
        if self.way != "compiled":
            between.requires_grad_()
        slope = self.slope(lambda x: self.critic(x).sum(), between)
        penalty = 10 * torch.square(slope.flatten(1).norm(dim=1) - 1)
        return (self.critic(made) - self.critic(real)).mean() + penalty.mean()

    def generator_loss(self, noise):
        return -self.critic(self.generator(noise)).mean()

    def __call__(self):
        for _ in range(3):
            with torch.no_grad():
                made = self.make(torch.randn(64, 32))
            self.of_critic.zero_grad(set_to_none=True)
            self.critic_loss(self.real, made, torch.rand(64, 1, 1, 1)).backward()
            self.of_critic.step()
        self.of_generator.zero_grad(set_to_none=True)
        self.generator_loss(torch.randn(64, 32)).backward(inputs=list(self.generator.parameters()))
        self.of_generator.step()


class VariationalAutoencoder(Step):
    def __init__(self, way):
        super().__init__(way)
        self.hidden = nn.Sequential(nn.Linear(784, 200), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(200, 8), nn.Linear(200, 8)
        self.decoder = nn.Sequential(nn.Linear(8, 200), nn.ReLU(), nn.Linear(200, 784))
        self.solver = self.adam(self.hidden, self.mean, self.log_variance, self.decoder, lr=2e-3)
        self.images = torch.rand(128, 784)
        self.loss = self.compiled(self.loss)

    def loss(self, image):
        hidden = self.hidden(image)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        sample = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        drawn = F.binary_cross_entropy_with_logits(self.decoder(sample), image, reduction="sum")
        described = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum()
        return (drawn + described) / len(image)

    def __call__(self):
        self.solver.zero_grad(set_to_none=True)
        self.loss(self.images).backward()
        self.solver.step()


class TeacherAndStudent(Step):
    """Both students in one loss with one solver, which is the same and faster than two."""

    def __init__(self, way):
        super().__init__(way)
        self.teacher = nn.Sequential(
            nn.Conv2d(1, 24, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 48, 5), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(48 * 4 * 4, 10)).eval()
        self.taught, self.alone = (
            nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
            for _ in range(2))
        self.solver = self.adam(self.taught, self.alone, lr=2e-3)
        self.images, self.labels = torch.randn(128, 1, 28, 28), torch.randint(10, (128,))
        self.known = (torch.rand(128) < 0.05).float()
        self.teach = self.compiled(self.teach)
        self.loss = self.compiled(self.loss)

    def teach(self, images):
        return F.softmax(self.teacher(images) / 4, 1)

    def loss(self, images, taught):
        by_teacher = 16 * F.cross_entropy(self.taught(images) / 4, taught)
        of_each = F.cross_entropy(self.alone(images), self.labels, reduction="none")
        return by_teacher + (self.known * of_each).mean()

    def __call__(self):
        with torch.no_grad():
            taught = self.teach(self.images)
        self.solver.zero_grad(set_to_none=True)
        self.loss(self.images, taught).backward()
        self.solver.step()


class ContrastivePairs(Step):
    def __init__(self, way):
        super().__init__(way)
        self.network = nn.Sequential(
            nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten(),
            nn.Linear(16 * 5 * 5, 64), nn.ReLU(), nn.Linear(64, 8))
        self.solver = self.adam(self.network, lr=2e-3)
        self.first, self.second = (torch.rand(128, 1, 28, 28) * 2 - 1 for _ in range(2))
        self.equal = (torch.rand(128) < 0.5).float()
        self.loss = self.compiled(self.loss)

    def loss(self, first, second, equal):
        distance = (self.network(first) - self.network(second)).norm(dim=1)
        return (equal * distance.square() +
                (1 - equal) * (1 - distance).clamp(min=0).square()).mean()

    def __call__(self):
        self.solver.zero_grad(set_to_none=True)
        self.loss(self.first, self.second, self.equal).backward()
        self.solver.step()


class PhysicsInformed(Step):
    def __init__(self, way):
        super().__init__(way)
        self.network = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(),
                                     nn.Linear(32, 1))
        self.solver = self.adam(self.network, lr=5e-3)
        self.loss = self.compiled(self.loss)

    def loss(self, points):
        def total(x):
            return self.network(x).sum()
        place, moment = points[:, :1], points[:, 1:]
        if self.way == "compiled":
            slope = self.slope(total, points)
            second = self.slope(lambda x: self.slope(total, x)[:, 0].sum(), points)
        else:
            points.requires_grad_()
            slope = self.slope(total, points)
            second = self.slope(lambda _: slope[:, 0].sum(), points)
        u_xx = second[:, :1]
        zero, one = torch.zeros_like(place), torch.ones_like(place)
        begin = self.network(torch.cat([place, zero], 1)) - torch.sin(math.pi * place)
        left = self.network(torch.cat([zero, moment], 1))
        right = self.network(torch.cat([one, moment], 1))
        return (torch.square(slope[:, 1:] - u_xx / math.pi ** 2) +
                10 * (begin.square() + left.square() + right.square())).mean()

    def __call__(self):
        self.solver.zero_grad(set_to_none=True)
        self.loss(torch.rand(64, 2)).backward()
        self.solver.step()


EXAMPLES = {"gan": Gan, "variational_autoencoder": VariationalAutoencoder,
            "teacher_and_student": TeacherAndStudent, "contrastive_pairs": ContrastivePairs,
            "physics_informed": PhysicsInformed}


def peak():
    """MiB that this process has had in memory at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def seconds_in_products(step):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(PROFILED):
            step()
    return sum(event.self_cpu_time_total for event in profile.key_averages()
               if event.key.split("::")[-1] in PRODUCTS) / PROFILED / 1e6


def main():
    name, way, threads, seconds = sys.argv[1:]
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    before_step = peak()
    step = EXAMPLES[name](way)
    if way == "channels-last":
        for key, part in vars(step).items():
            if isinstance(part, nn.Module):
                part.to(memory_format=torch.channels_last)
            elif isinstance(part, torch.Tensor) and part.dim() == 4:
                setattr(step, key, part.contiguous(memory_format=torch.channels_last))
    times, begin = [], 0
    while len(times) < WARM_UP + 3 or time.perf_counter() - begin < float(seconds):
        if len(times) == WARM_UP:
            begin = time.perf_counter()
        before = time.perf_counter()
        step()
        times.append(time.perf_counter() - before)
    memory = peak()  # without the profiler
    print(json.dumps({"version": torch.__version__, "step": statistics.median(times[WARM_UP:]),
                      "products": seconds_in_products(step), "peak": memory,
                      "imported": before_step}))


if __name__ == "__main__":
    main()
