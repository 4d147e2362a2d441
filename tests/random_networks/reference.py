"""The expected results of a case: one iteration of a training, or one run of a tape, in PyTorch."""

import numpy
import torch
from torch.nn import functional

from torch_network import Run


class Plant:
    """Deliberate mistakes of the reference, one at a time. Each must be found."""

    NAMES = ("gradient", "second", "statistics", "update", "prediction", "dropout", "loss")

    def __init__(self, name=None):
        assert name is None or name in self.NAMES, name
        self.name = name

    def factor(self, name):
        return 1 + 3e-5 if self.name == name else 1


def tensors(arrays, names, dtype, noise):
    """Values by name; on request changed by at most one unit in the last place of fp32."""
    values = {}
    for name, array in names.items():
        data = arrays[array]
        if noise is not None and data.dtype == numpy.float32:
            towards = numpy.where(noise.random_sample(data.shape) < 0.5, -numpy.inf, numpy.inf)
            data = numpy.nextafter(data, towards.astype(numpy.float32))
        values[name] = torch.from_numpy(data.copy())
        if data.dtype == numpy.float32:
            values[name] = values[name].to(dtype)
    return values


def names_with(arrays, prefix):
    return {name[len(prefix):]: name for name in arrays if name.startswith(prefix)}


def parameters_of(head):
    return [parameter["name"] for parameter in head.get("parameters", [])]


def frozen_parameters(head):
    layers = head["options"]["freeze"]
    layers = [layers] if isinstance(layers, str) else layers  # a list with one element is written as text
    return {name for name in parameters_of(head) if name.rsplit(".", 1)[0] in layers}


def loss_of(head, outputs, last_inputs, labels, targets):
    """One value for each observation."""
    y = outputs[0]
    if head["loss"] == "mean_squared_error":
        return ((y - targets) ** 2).flatten(1).mean(1)
    labels = labels.long()
    if last_inputs is not None:
        return functional.cross_entropy(last_inputs.flatten(1), labels, reduction="none")
    return -torch.log(y.flatten(1)[torch.arange(len(labels)), labels])


def in_front_of_softmax(head, run):
    last = head["layers"][-1]
    if last["type"] == "softmax" and head["loss"] == "cross_entropy":
        return run.results[last["inputs"][0]]
    return None


def cut(gradients, options, frozen):
    """gradient_threshold for mean gradients."""
    most, method = options["gradient_threshold"], options["gradient_threshold_method"]
    if most == 0:
        return gradients
    if method == "absolute-value":
        return {n: g.clamp(-most, most) if n not in frozen else g for n, g in gradients.items()}
    norms = {n: g.double().norm().item() for n, g in gradients.items() if n not in frozen}
    if method == "global-l2norm":
        whole = sum(norm ** 2 for norm in norms.values()) ** 0.5
        norms = {n: whole for n in norms}
        whole_factor = most / whole if whole > most else 1
        return {n: g * whole_factor for n, g in gradients.items()}
    return {n: g * (most / norms[n]) if norms.get(n, 0) > most else g
            for n, g in gradients.items()}


def moved_states(values, statistics, shards, plant):
    """Moving statistics after the mini-batch: of each use of a layer in turn."""
    rows = sum(size for _, size in shards)
    states = {}
    for place in zip(*statistics):
        owner, _, _, momentum = place[0]
        share = [size / rows for _, size in shards]
        means = [p[1].double() for p in place]
        mean = sum(w * m for w, m in zip(share, means))
        variance = sum(w * (p[2].double() + (m - mean) ** 2)
                       for w, p, m in zip(share, place, means)) * plant.factor("statistics")
        for name, statistic in (("mean", mean), ("variance", variance)):
            name = f"{owner}.{name}"
            old = states.get(name, values[name].double())
            states[name] = (1 - momentum) * old + momentum * statistic
    return states


def collected(result, dtype):
    return {name: value.detach().to(torch.float64).numpy() for name, value in result.items()}


def training(head, arrays, dtype, noise=None, plant=Plant(), narrow=False):
    values = tensors(arrays, names_with(arrays, "before."), dtype, noise)
    parameters = parameters_of(head)
    for name in parameters:
        values[name].requires_grad_()
    inputs = tensors(arrays, {"x": "input.0"}, dtype, noise)["x"]
    labels = torch.from_numpy(arrays["labels"].copy())
    targets = torch.from_numpy(arrays["targets"].copy()).to(dtype) if "targets" in arrays else None
    weights = torch.tensor(head["options"].get("class_weights") or [], dtype=torch.float32).to(dtype)
    total, statistics = 0, []
    for first, size in head["shards"]:
        rows = slice(first, first + size)
        seed = head["options"]["seed"] + (1 if plant.name == "dropout" else 0)
        run = Run(head, values, dtype, True, (seed, head["iteration"], first), narrow, noise)
        outputs = run.forward([inputs[rows]])
        losses = loss_of(head, outputs, in_front_of_softmax(head, run), labels[rows],
                         None if targets is None else targets[rows])
        if len(weights):
            losses = losses * weights[labels[rows].long()]
        total = total + losses.sum()
        statistics.append(run.statistics)
    wanted = [values[name] for name in parameters]
    if wanted and total.requires_grad:
        gradients = torch.autograd.grad(total, wanted, allow_unused=True)
    else:
        gradients = [None] * len(wanted)
    observations = len(labels)
    gradients = {name: (torch.zeros_like(value) if g is None else g) / observations
                 for name, value, g in zip(parameters, wanted, gradients)}
    frozen = frozen_parameters(head)
    gradients = cut(gradients, head["options"], frozen)
    result = {"loss": (total / observations * plant.factor("loss")).reshape(1)}
    for name, gradient in gradients.items():
        if name not in frozen:
            result["gradient of " + name] = gradient * plant.factor("gradient")
    for name, state in moved_states(values, statistics, head["shards"], plant).items():
        result["state " + name] = state
    return collected(result, dtype)


def training_of_ours(head, arrays):
    observations = len(arrays["labels"])
    loss = head["loss_sum"]  # null: no number
    result = {"loss": numpy.array([numpy.nan if loss is None else loss / observations])}
    states = set(names_with(arrays, "before.")) - set(parameters_of(head))
    for name in parameters_of(head):
        result["gradient of " + name] = arrays["sum." + name].astype(float) / head["divisors"][name]
    for name in states:
        if "after." + name in arrays:
            result["state " + name] = arrays["after." + name].astype(float)
    return result


def gradients_of(scalar, wanted, create_graph=False):
    """Zeros where the scalar does not depend on a tensor."""
    if not wanted or not torch.is_tensor(scalar) or not scalar.requires_grad:
        return [torch.zeros_like(value) for value in wanted]
    found = torch.autograd.grad(scalar, wanted, allow_unused=True, create_graph=create_graph)
    return [torch.zeros_like(value) if gradient is None else gradient
            for value, gradient in zip(wanted, found)]


def tape(head, arrays, dtype, noise=None, plant=Plant(), narrow=False):
    values = tensors(arrays, names_with(arrays, "before."), dtype, noise)
    inputs = tensors(arrays, names_with(arrays, "input."), dtype, noise)
    names = parameters_of(head) + ["input." + name for name, x in inputs.items()
                                   if x.is_floating_point()]
    wanted = [(values.get(name) if name in values else inputs[name[6:]]).requires_grad_()
              for name in names]
    step = list(head["step"])
    step[0] += 1 if plant.name == "dropout" else 0
    run = Run(head, values, dtype, True, step, narrow, noise)
    ordered = [inputs[str(i)] for i in range(len(inputs))]
    outputs = run.forward(ordered)
    scalar = sum((y * torch.from_numpy(arrays[f"factor.{k}"].copy()).to(dtype)).sum()
                 for k, y in enumerate(outputs))
    gradients = gradients_of(scalar, wanted, create_graph=True)
    # The Hessian times a direction.
    slope = sum((gradient * torch.from_numpy(arrays["direction." + name].copy()).to(dtype)).sum()
                for name, gradient in zip(names, gradients))
    second = gradients_of(slope, wanted)
    result = {f"output {k}": y for k, y in enumerate(outputs)}
    for name, gradient, along in zip(names, gradients, second):
        result["gradient of " + name] = gradient * plant.factor("gradient")
        result["Hessian product of " + name] = along * plant.factor("second")
    rows = len(ordered[0])
    states = moved_states(values, [run.statistics], [(0, rows)], plant)
    result.update({"state " + name: state for name, state in states.items()})
    # The following is computed with the states that the library has at that point.
    after = tensors(arrays, names_with(arrays, "after."), dtype, noise)
    with torch.no_grad():
        predicted = Run(head, after, dtype, False, step, narrow, noise).forward(ordered)
    for k, y in enumerate(predicted):
        result[f"prediction {k}"] = y * plant.factor("prediction")
    return collected(result, dtype)


def tape_of_ours(head, arrays):
    result = {}
    for prefix, name in (("output.", "output "), ("gradient.", "gradient of "),
                         ("second.", "Hessian product of "), ("predicted.", "prediction ")):
        for rest, array in names_with(arrays, prefix).items():
            result[name + rest] = arrays[array].astype(float)
    states = set(names_with(arrays, "before.")) - set(parameters_of(head))
    for name in states:
        result["state " + name] = arrays["after." + name].astype(float)
    return result


def update(head, arrays, name, plant=Plant()):
    """The parameter and its solver's state after an update by the gradient that ours has, and how
    far rounding may lead from them, by norm."""
    o, spec = head["options"], next(l for l in head["parameters"] if l["name"] == name)
    w = arrays["before." + name].astype(float)
    if name in frozen_parameters(head):
        return {"after." + name: (w, 0.0)}
    raw = arrays["sum." + name].astype(float) / head["divisors"][name]
    l2 = o["l2"] * spec["l2_factor"]
    rate = head["learning_rate"] * spec["learning_rate_factor"] * plant.factor("update")
    old = {key: arrays[f"solver_before.{name}.{key}"].astype(float)
           for key in ("velocity", "mean", "square") if f"solver_before.{name}.{key}" in arrays}
    g = raw + (l2 * w if o["solver"] != "adamw" else 0)
    new = {}
    if o["solver"] == "sgdm":
        step = new["velocity"] = o["momentum"] * old["velocity"] - rate * g
    elif o["solver"] == "rmsprop":
        decay = o["squared_gradient_decay"]
        new["square"] = decay * old["square"] + (1 - decay) * g * g
        step = -rate * g / (numpy.sqrt(new["square"]) + o["epsilon"])
    else:
        beta_1, beta_2, t = o["gradient_decay"], o["squared_gradient_decay"], head["iteration"]
        new["mean"] = beta_1 * old["mean"] + (1 - beta_1) * g
        new["square"] = beta_2 * old["square"] + (1 - beta_2) * g * g
        step = -rate * (new["mean"] / (1 - beta_1 ** t)) / (
            numpy.sqrt(new["square"] / (1 - beta_2 ** t)) + o["epsilon"])
        if o["solver"] == "adamw":
            step = step - rate * l2 * w
    # Terms that cancel leave their rounding errors, which an adaptive solver amplifies.
    terms = numpy.abs(raw) + numpy.abs(l2 * w)
    size = numpy.linalg.norm
    steepness = rate
    if "square" in new:
        root = new["square"] / (1 - beta_2 ** t) if "mean" in new else new["square"]
        steepness = rate / (numpy.sqrt(root) + o["epsilon"])
    slack = 1.2e-6 * size(step) + 1.5e-7 * size(w) + 2.4e-7 * size(steepness * terms)
    results = {"after." + name: (w + step, slack)}
    for key, value in new.items():
        scale = rate if key == "velocity" else 1
        room = 1.2e-6 * size(value) + 3e-7 * scale * size(terms if key != "square" else terms ** 2)
        room += 1e-36  # values below fp32's normal numbers are zero
        results[f"solver_after.{name}.{key}"] = (value, room)
    return results
