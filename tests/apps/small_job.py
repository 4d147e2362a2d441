"""A job on the built-in digits that trains in seconds."""

TEXT = """
name = "small"
[data]
train = "builtin:digits"
validation_fraction = 0.1
[network]
input = {{ height = 28, width = 28, channels = 1 }}
layers = [
  {{ type = "convolution2d", filters = 8, kernel = 5, stride = 2 }},
  {{ type = "batch_normalization" }},
  {{ type = "relu" }},
{dropout}  {{ type = "fully_connected", units = 10 }},
  {{ type = "softmax" }},
]
[training]
mini_batch_size = 100
shard_size = 7
{options}"""


def small_job(dropout=False, **options):
    """Its text, with further options of [training]."""
    return TEXT.format(dropout='  { type = "dropout", probability = 0.2 },\n' if dropout else "",
                       options="".join(f"{name} = {value!r}\n".replace("'", '"')
                                       for name, value in options.items()))
