"""Images per second of whole training steps of one framework, as JSON: for speed.py, which runs
this with the Python that has the framework.

The plain network of three levels (3x3 convolution, batch normalization, ReLU, `depth` times;
pooling; a fully connected layer), trained by SGD with momentum on random images that are in memory. Each
framework in the ways its documentation has for speed: JAX with the whole step compiled, TensorFlow
as a function and compiled by XLA, PyTorch as it comes in both layouts, and compiled (network and
loss) with channels last.

usage: newest_step.py torch|jax|tensorflow WIDTH DEPTH MINI_BATCH THREADS SECONDS
"""

import copy
import json
import os
import statistics
import sys
import time

WARM_UP = 3
RATE, MOMENTUM = 0.05, 0.9


def rate_of(step, mini_batch, seconds):
    """From the median of the steps that fit into `seconds`; the first ones compile."""
    times, begin = [], None
    while True:
        before = time.perf_counter()
        step()
        now = time.perf_counter()
        times.append(now - before)
        if len(times) == WARM_UP:
            begin = now
        if begin and len(times) >= WARM_UP + 3 and now - begin > seconds:
            return mini_batch / statistics.median(times[WARM_UP:])


def channels_of(width, depth):
    """Input and output channels of the convolutions, by level."""
    channels, levels = 3, []
    for level in range(3):
        convolutions = []
        for _ in range(depth):
            convolutions.append((channels, width << level))
            channels = width << level
        levels.append(convolutions)
    return levels


def torch_network(width, depth):
    from torch import nn

    layers = []
    for level, convolutions in enumerate(channels_of(width, depth)):
        for before, after in convolutions:
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after),
                       nn.ReLU(inplace=True)]
        layers += [nn.MaxPool2d(2, 2) if level < 2 else nn.AvgPool2d(8)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * 4, 10)).train()


def torch_steps(width, depth, mini_batch, threads):
    import torch
    from torch import nn

    torch.set_num_threads(threads)
    model = torch_network(width, depth)
    images = torch.randn(mini_batch, 3, 32, 32)
    y = torch.randint(10, (mini_batch,))
    loss = nn.CrossEntropyLoss()

    def stepping(layout, compiled):
        def step():
            optimizer.zero_grad(set_to_none=True)
            value(x, y).backward()
            optimizer.step()
        own = copy.deepcopy(model).to(memory_format=layout)
        x = images.contiguous(memory_format=layout)
        optimizer = torch.optim.SGD(own.parameters(), lr=RATE, momentum=MOMENTUM)

        def value(x, y):
            return loss(own(x), y)
        if compiled:
            value = torch.compile(value)
        return step
    return torch.__version__, {
        "NCHW": lambda: stepping(torch.contiguous_format, False),
        "channels-last": lambda: stepping(torch.channels_last, False),
        "compiled": lambda: stepping(torch.channels_last, True)}


def jax_steps(width, depth, mini_batch, _):
    import functools
    import jax
    import jax.numpy as jnp
    from jax import lax

    keys = iter(jax.random.split(jax.random.PRNGKey(0), 100))
    parameters = []
    for convolutions in channels_of(width, depth):
        for before, after in convolutions:
            scale = (2 / (9 * before)) ** 0.5
            parameters.append({
                "kernel": jax.random.normal(next(keys), (3, 3, before, after)) * scale,
                "bias": jnp.zeros(after), "scale": jnp.ones(after), "offset": jnp.zeros(after)})
    parameters.append({"kernel": jax.random.normal(next(keys), (width * 4, 10)) * 0.1,
                       "bias": jnp.zeros(10)})

    def forward(parameters, statistics, x):
        new, at = [], 0
        for level in range(3):
            for _ in range(depth):
                p = parameters[at]
                x = lax.conv_general_dilated(x, p["kernel"], (1, 1), "SAME",
                                             dimension_numbers=("NHWC", "HWIO", "NHWC")) + p["bias"]
                mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
                new.append(tuple(0.9 * old + 0.1 * now
                                 for old, now in zip(statistics[at], (mean, variance))))
                x = jax.nn.relu((x - mean) * lax.rsqrt(variance + 1e-5) * p["scale"] + p["offset"])
                at += 1
            if level < 2:
                x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
            else:
                x = x.mean((1, 2))
        return x @ parameters[-1]["kernel"] + parameters[-1]["bias"], new

    def loss(parameters, statistics, x, y):
        scores, new = forward(parameters, statistics, x)
        return -jax.nn.log_softmax(scores)[jnp.arange(mini_batch), y].mean(), new

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
    def update(parameters, momenta, statistics, x, y):
        differentiated = jax.value_and_grad(loss, has_aux=True)
        (value, new), gradients = differentiated(parameters, statistics, x, y)
        momenta = jax.tree.map(lambda m, g: MOMENTUM * m + g, momenta, gradients)
        parameters = jax.tree.map(lambda p, m: p - RATE * m, parameters, momenta)
        return parameters, momenta, new, value

    state = [parameters, jax.tree.map(jnp.zeros_like, parameters),
             [(jnp.zeros_like(p["scale"]), jnp.ones_like(p["scale"])) for p in parameters[:-1]]]
    x = jax.random.normal(next(keys), (mini_batch, 32, 32, 3))
    y = jax.random.randint(next(keys), (mini_batch,), 0, 10)

    def step():
        *state[:], value = update(*state, x, y)
        value.block_until_ready()
    return jax.__version__, {"jit": lambda: step}


def tensorflow_steps(width, depth, mini_batch, threads):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras = tf.keras
    model = keras.Sequential([keras.Input((32, 32, 3))])
    for level, convolutions in enumerate(channels_of(width, depth)):
        for _, after in convolutions:
            model.add(keras.layers.Conv2D(after, 3, padding="same"))
            model.add(keras.layers.BatchNormalization())
            model.add(keras.layers.ReLU())
        model.add(keras.layers.MaxPool2D(2) if level < 2 else keras.layers.GlobalAveragePooling2D())
    model.add(keras.layers.Dense(10))
    x = tf.random.normal((mini_batch, 32, 32, 3))
    y = tf.random.uniform((mini_batch,), 0, 10, tf.int32)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def stepping(compiled):
        optimizer = keras.optimizers.SGD(RATE, momentum=MOMENTUM)
        optimizer.build(model.trainable_variables)

        @tf.function(jit_compile=compiled)
        def update(x, y):
            with tf.GradientTape() as tape:
                value = loss(y, model(x, training=True))
            gradients = tape.gradient(value, model.trainable_variables)
            optimizer.apply(gradients, model.trainable_variables)
            return value
        return lambda: update(x, y).numpy()
    return tf.__version__, {"function": lambda: stepping(False),
                            "XLA": lambda: stepping(True)}


def main():
    frameworks = {"torch": torch_steps, "jax": jax_steps, "tensorflow": tensorflow_steps}
    if len(sys.argv) != 7 or sys.argv[1] not in frameworks:
        raise SystemExit(__doc__.strip().splitlines()[-1])
    framework, *numbers = sys.argv[1:]
    width, depth, mini_batch, threads = map(int, numbers[:4])
    # XLA has a thread for each core that it may use.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    version, steps = frameworks[framework](width, depth, mini_batch, threads)
    rates, failed = {}, {}
    for name, make in steps.items():
        try:
            rates[name] = rate_of(make(), mini_batch, float(numbers[4]))
        except Exception as error:  # pylint: disable=broad-except
            failed[name] = str(error).splitlines()[0]  # a compiler that is missing, say
    print(json.dumps({"version": version, "rates": rates, "failed": failed}))


if __name__ == "__main__":
    main()
