#include "apps/lockstep/documents/reference.h"

#include <fmt/format.h>

#include <memory>

#include "apps/lockstep/command.h"
#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/cluster/profiles/cluster_profile.h"
#include "lockstep/engine/nn/formulas/formula_functions.h"
#include "lockstep/engine/nn/layer.h"
#include "lockstep/engine/nn/metrics/metric.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/train/options/solver_info.h"

namespace lockstep::command {
namespace {

constexpr const char* head = R"(# The job file

A job file is TOML and describes a whole training: `lockstep train FILE` runs it, `lockstep train FILE --check` reports its errors. `lockstep reference` prints this page; `lockstep reference NAME` prints the part about one table or layer, or about `solvers`, `metrics` or `clusters`.

```toml
# two-layers.toml
[data]
train = "builtin:digits"
validation_fraction = 0.1

[variables]
width = 16
units = "10 * width"

[network]
input = { height = 28, width = 28, channels = 1 }
layers = [
  { type = "convolution2d", filters = "width", kernel = 5 },
  { type = "batch_normalization" },
  { type = "relu" },
  { type = "max_pooling2d", pool = 4, stride = 4 },
  { type = "fully_connected", units = "units" },
  { type = "relu" },
  { type = "fully_connected", units = 10 },
  { type = "softmax" },
]

[training]
max_epochs = 2
```

```console
$ lockstep train two-layers.toml --check
$ lockstep train two-layers.toml --set max_epochs=1 --set width=4 --quiet
```

A job file must be a regular file. A pipe (`/dev/stdin`, `<(command)`) is refused, because resuming uses the job's name and data is searched for next to the job file.

`name`, a text outside all tables, is the job's name. The default is the name of the file.

**Numbers** may be expressions in quotes: `+ - * / ^ ( )`, comparisons, `a ? b : c`, and `round` (halves away from zero), `sqrt`, `floor`, `ceil`, `min`, `max`, `abs`, `log` (natural), `exp`, `pow`. `[variables]` defines names for numbers and expressions, in any order.

**Changes**: `--set KEY=VALUE` changes a field from the command line. The key is dotted (`training.max_epochs=5`), or the bare name of a variable or field (`max_epochs=5`). A value is read as TOML, or as text if it is not valid TOML.

**Folders** with relative paths are searched for next to the job file, or in the working folder for paths from `--set`; then in the folder of the environment variable `LOCKSTEP_DATA`. An address `s3://bucket/prefix` stands for a folder, and `s3://bucket/name.csv` for a file.

**Sweeps**: the keys of `[sweep.parameters]` are those of `--set` (`width`, `training.momentum`, `network.layers.0.filters`). A parameter is a list of values of any type, or a range of numbers: `{ low = 0.001, high = 0.3, scale = "log" }`. A range between whole numbers has whole numbers, unless `integer = false`. `steps` is the number of values in a grid. `when = { solver = "sgdm" }` uses the parameter only in trials in which the other one has this value, one of a list, or a number in a range (`when = { depth = { low = 2 } }`); without it the file's value holds.

**Shards** are the parts of a mini-batch that are computed together. There are as few as `shard_size` permits, and their sizes differ by at most one (100 observations by 16: five of 14 and two of 15). Convolutions on processors with AVX2 compute multiples of 16 faster; a training with other shards prints a note with the nearest suitable `mini_batch_size`. A thread without a shard is idle: a mini-batch of 16 is one shard by default, and `shard_size = 8` gives two threads one each. `train` and `--check` say so where the network is large enough to gain by it. Another shard size changes the last digits of results, and with batch normalization, which works within a shard, more than these; so it is not chosen by the number of threads.

Unknown names and values out of range are refused with their position and the nearest known name.
)";

constexpr const char* layers_head = R"(## Layers

An entry of `layers` is one of

- a **layer**: `type`, its fields, and optionally `name` and `inputs`. The default name is the type and a number (`relu_2`). The default input is the layer before it; `inputs` names other layers, one or a list.
- a **shared layer**: `{ type = "shared", layer = "NAME", inputs = ... }` uses the parameters and state of the named layer.
- a **group**: `{ repeat = N, layers = [...] }`, N >= 0 repetitions in sequence. With several repetitions, names inside get the number of the repetition (`conv_1`, `conv_2`). A reference inside the group means the layer of the same repetition, a reference after the group that of the last repetition, and `group_input` the layer before this repetition.
)";

// Names of these parts, in addition to those of tables and layers.
constexpr const char *kSolvers = "solvers", *kMetrics = "metrics", *kExpressions = "expressions",
                     *kClusters = "clusters";

constexpr const char* clusters_head = R"(## Clusters

A cluster profile is a TOML file with these fields, outside all tables. `lockstep cluster add` makes one and has an option for each field (`--option` for one of `options`). The workers of a job are divided equally among its nodes.

)";

constexpr const char* solvers_head = R"(## Solvers

The field `solver` of a training is one of these. A solver updates a parameter w from its gradient g. `initial_learning_rate` and the number in brackets are defaults.

| solver | `initial_learning_rate` | its options | meaning |
| --- | --- | --- | --- |
)";

constexpr const char* metrics_head = R"(## Metrics

The field `metrics` of a training and the option `--metrics` of `lockstep evaluate` take these names.

| metric | of | meaning |
| --- | --- | --- |
)";

constexpr const char* expressions_head = R"(## Expressions

`loss` in `[network]` may be an expression of `output`, the network's output, and `target`, such as `huber(output, target, delta=0.1) + 0.01 * mean(abs(output))`. It gives one number for each observation. If a function takes `target` as its labels, as `cross_entropy(output, target)` does, the data have labels; otherwise they have targets of the output's size. Labels of pixels have one number for each pixel, or one for the image, which counts for each of its pixels that have a class. The names `cross_entropy`, `dice_loss` and `mean_squared_error` alone stand for their values of `output` and `target`: `cross_entropy + dice_loss`. The expression of a layer `function` has the input `x`, or `x1`, `x2` and so on.

Written as in Python: numbers, `+ - * / **`, signs, `< <= > >= ==` (1 or 0), parentheses, and the functions below. Settings such as `delta` may have their names; `axis` and `keep_dims` must. An expression is about one observation: `mean(x)` is its mean, `axis=0` its first axis (the channels), `axis=[1, 2]` two axes, and shapes are broadcast from the last axis on, as in NumPy. Up to 2,000 characters and 100 nested parentheses are possible.

| function | meaning |
| --- | --- |
)";

std::string in_cell(const std::string& text) {
  std::string escaped;
  for (char c : text) {
    if (c == '|' || c == '*' || c == '_' || c == '<') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string table_of(const std::vector<FieldInfo>& fields) {
  std::string text = "| field | value | default | meaning |\n| --- | --- | --- | --- |\n";
  for (const FieldInfo& f : fields) {
    text +=
        fmt::format("| `{}` | {} | {} | {} |\n", f.name, in_cell(f.type),
                    f.default_value == "required" ? f.default_value : '`' + f.default_value + '`',
                    in_cell(f.help));
  }
  return text;
}

std::string section_of(const JobTable& table) {
  return "## [" + table.name + "]\n\n" + table.help + "\n\n" + table_of(table.fields);
}

std::string section_of(const LayerInfo& layer) {
  std::string help = layer.help;
  if (!help.empty()) help[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(help[0])));
  return "### " + layer.type + "\n\n" + help + ".\n" +
         (layer.fields.empty() ? "" : "\n" + table_of(layer.fields));
}

std::string options_of(const SolverInfo& solver) {
  std::string text;
  for (const std::string& option : solver.options) {
    text += fmt::format("{}`{}`", text.empty() ? "" : ", ", option);
    if (option == "squared_gradient_decay")
      text += fmt::format(" ({})", solver.squared_gradient_decay);
  }
  return text;
}

std::string clusters_section() { return clusters_head + table_of(cluster_profile_fields()); }

std::string solvers_section() {
  std::string text = solvers_head;
  for (const SolverInfo& s : solver_registry()) {
    text += fmt::format("| `{}` | `{}` | {} | {} |\n", s.name, s.initial_learning_rate,
                        options_of(s), in_cell(s.help));
  }
  return text;
}

std::string metrics_section() {
  std::string text = metrics_head;
  for (const MetricInfo& m : metric_registry()) {
    text += fmt::format("| `{}` | {} | {} |\n", m.name, m.images ? "regression" : "classification",
                        in_cell(m.help));
  }
  return text;
}

std::string expressions_section() {
  std::string text = expressions_head;
  for (const FormulaFunction& f : formula_functions()) {
    text += fmt::format("| `{}` | {} |\n", f.signature(), in_cell(f.help));
  }
  return text;
}

}  // namespace

std::string reference_page() {
  std::string text = head;
  for (const JobTable& table : job_tables()) text += "\n" + section_of(table);
  text += "\n" + solvers_section() + "\n" + metrics_section();
  text += "\n" + std::string(layers_head);
  for (const LayerInfo& layer : layer_registry()) text += "\n" + section_of(layer);
  text += "\n" + expressions_section() + "\n" + clusters_section();
  return text;
}

std::string reference_of(const std::string& topic) {
  for (const JobTable& table : job_tables()) {
    if (table.name == topic) return section_of(table);
  }
  if (topic == kSolvers) return solvers_section();
  if (topic == kMetrics) return metrics_section();
  if (topic == kExpressions) return expressions_section();
  if (topic == kClusters) return clusters_section();
  for (const LayerInfo& layer : layer_registry()) {
    if (layer.type == topic) return section_of(layer);
  }
  throw InvalidArgument("[reference] there is no table or layer `" + topic + "`",
                        suggest(topic, reference_topics()));
}

std::vector<std::string> reference_topics() {
  std::vector<std::string> topics;
  for (const JobTable& table : job_tables()) topics.push_back(table.name);
  topics.insert(topics.end(), {kSolvers, kMetrics, kExpressions, kClusters});
  for (const LayerInfo& layer : layer_registry()) topics.push_back(layer.type);
  return topics;
}

void add_reference(Commands& commands) {
  auto topics = std::make_shared<std::vector<std::string>>();
  Subcommand sub = commands.add(
      "reference",
      "Every table, field and layer of job files, and the fields of cluster profiles, as Markdown",
      "Without a name it prints the whole page.",
      {{"lockstep reference training", "the options of a training"},
       {"lockstep reference convolution2d max_pooling2d", "two layers"}},
      [topics] {
        std::string text = topics->empty() ? reference_page() : "";
        for (const std::string& topic : *topics) {
          text += (text.empty() ? "" : "\n") + reference_of(topic);
        }
        print(text);
        return 0;
      });
  sub.add_option("name", *topics,
                 "Tables (data, training, ...), solvers, metrics, clusters, types of layers")
      .type_name("TOPIC");
}

}  // namespace lockstep::command
