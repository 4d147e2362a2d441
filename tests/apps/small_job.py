"""Jobs that train in seconds: on the built-in digits, and on a table."""

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


TABLE_TEXT = """
[data]
train = "{train}"
{data}[network]
layers = [
  {{ type = "feature_input", features = {features}, normalization = "z-score" }},
  {{ type = "fully_connected", units = {classes} }},
  {{ type = "softmax" }},
]
[training]
{options}"""


def lines_of(options):
    return "".join(f"{name} = {value!r}\n".replace("'", '"') for name, value in options.items())


def small_job(dropout=False, **options):
    """The text of the job on digits, with further options of [training]."""
    return TEXT.format(dropout='  { type = "dropout", probability = 0.2 },\n' if dropout else "",
                       options=lines_of(options))


def table_job(train, classes, features=2, data="", **options):
    """The text of a job on a table; `data` are further lines of [data]."""
    return TABLE_TEXT.format(train=train, classes=classes, features=features, data=data, options=lines_of(options))
