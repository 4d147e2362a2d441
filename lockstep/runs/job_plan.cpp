#include "lockstep/runs/job_plan.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/base/text.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/loss.h"
#include "lockstep/runs/folders/run_state.h"
#include "lockstep/runs/jobs/networks/category_layers.h"
#include "lockstep/runs/jobs/networks/initial_network.h"
#include "lockstep/runs/jobs/networks/model_names.h"
#include "lockstep/runs/jobs/networks/network_values.h"
#include "lockstep/storage/s3_files.h"
#include "lockstep/train/input/mini_batches.h"
#include "lockstep/train/input/pixel_targets.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/iteration/shard_sizes.h"
#include "lockstep/train/optimizer/solver.h"
#include "lockstep/train/options/unused_options.h"

namespace lockstep {
namespace {

// The network must give a value for each class.
void check_outputs(const Network& network, const std::vector<std::string>& classes) {
  const std::vector<Shape> outputs = network.output_shapes();
  if (!takes_labels(network.loss()) || outputs.size() != 1) return;
  const auto count = static_cast<int64_t>(classes.size());
  if (outputs[0].elements() == count) return;
  constexpr size_t most = 8;
  std::string names;
  for (size_t i = 0; i < classes.size() && i < most; ++i) {
    names += (i > 0 ? ", " : "") + printable(classes[i]);
  }
  if (classes.size() > most) names += ", ...";
  throw InvalidArgument("[run] the network gives " + outputs[0].to_string() +
                            " values, but the training data have " +
                            counted(count, "class", "classes") + " (" + names + ")",
                        "set the last fully_connected layer's units = " + std::to_string(count));
}

// The factors of the job by name, in the order of the classes.
std::vector<double> ordered_weights(const Job& job, const std::vector<std::string>& classes) {
  std::vector<double> weights(classes.size(), 1);
  for (const auto& [name, weight] : job.class_weights) {
    const auto at = std::find(classes.begin(), classes.end(), name);
    if (at == classes.end()) {
      throw InvalidArgument("[training] class_weights names the class `" + name +
                                "`, which is not among the " +
                                counted(static_cast<int64_t>(classes.size()), "class", "classes") +
                                " of the training",
                            suggest(name, classes));
    }
    weights[static_cast<size_t>(at - classes.begin())] = weight;
  }
  return weights;
}

// Whether names that are all numbers stand in another order than the numbers: "10" before "2".
bool numbers_out_of_order(const std::vector<std::string>& names) {
  bool ordered = true;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    if (name.empty() || name.find_first_not_of("0123456789") != std::string::npos) return false;
    if (i > 0 && names[i - 1].size() > name.size()) ordered = false;
  }
  return !ordered;
}

// Makes every error name the job's file.
std::string in_job(const Job& job, const Error& error) {
  const std::string text = error.what();
  const bool named = job.file.empty() || text.find(job.file) != std::string::npos;
  return named ? text : job.file + ": " + text;
}

// The values of an initial model, and the digest of its file.
struct InitialValues {
  std::string path, digest = {};
  NetworkValues values = {};
};

// `any`: also of a file that is not a model.
std::optional<InitialValues> initial_values(const std::string& model, bool any) {
  if (model.empty()) return std::nullopt;
  FileSystem& files = storage::files_of(model);
  InitialValues initial{.path = model_path(files, model)};
  const std::vector<std::byte> bytes = files.read(initial.path);
  initial.digest = digest_of(bytes.data(), bytes.size()).to_string();
  initial.values = network_values(files, initial.path, any);
  require_finite(initial.values.tensors, initial.path);
  return initial;
}

// Data for a job with [network] from: an input with the names of the model's gets their order.
RunData open_run_data_for(const Job& job, const JobPlanOptions& options,
                          const TableColumns& model) {
  RunData data = open_run_data(job, options.stop, options.columns);
  if (!options.columns.empty()) return data;
  const TableColumns ordered = in_order_of_model(data.columns, model);
  return ordered == data.columns ? data : open_run_data(job, options.stop, ordered);
}

// Whether the last layer has values of the initial model. Of several outputs one may.
bool keeps_head(const JobPlan& plan) {
  if (network_parts(plan.network).size() > 1) return true;
  const std::vector<Parameter>& parameters = plan.network.parameters();
  return parameters.empty() ||
         std::ranges::find(plan.new_values, parameters.back().name) == plan.new_values.end();
}

void note_names(JobPlan& plan, const InitialValues& initial, bool fits) {
  const bool head = keeps_head(plan);
  if (fits) {
    plan.name_notes = notes_of_columns(plan.data.columns, initial.values.columns, initial.path,
                                       plan.network, head);
  }
  std::string classes;
  if (head) classes = note_of_classes(plan.classes, initial.values.classes, initial.path);
  if (!classes.empty()) plan.name_notes.push_back(std::move(classes));
}

JobPlan plan_of(const Job& job, const JobPlanOptions& options) {
  if (!options.initial_model.empty() && !job.from.empty()) {
    throw InvalidArgument("[network] from and --initial-model cannot both be given");
  }
  const bool fits = !job.from.empty();
  const std::optional<InitialValues> initial =
      initial_values(fits ? job.from : options.initial_model, fits);
  const bool chosen = !options.columns.empty() || !initial;
  JobPlan plan{.job = job,
               .data = fits ? open_run_data_for(job, options, initial->values.columns)
                            : open_run_data(job, options.stop,
                                            chosen ? options.columns : initial->values.columns),
               .network = build_network(job)};
  const RunData& data = plan.data;
  if (job.data.category_encoding == "embedding") {
    // The table says how many categories there are. Runs keep the network with the layers.
    plan.job.network = std::make_shared<const nlohmann::ordered_json>(
        with_category_layers(*job.network, job.data, data.columns));
    plan.network = build_network(plan.job);
  }
  if (learns_labels(*data.training, data.training_targets)) {
    plan.classes = data.training->classes();
    if (!has_pixel_labels(*data.training)) check_outputs(plan.network, plan.classes);
  }
  if (!job.class_weights.empty()) {
    plan.job.training.class_weights = ordered_weights(job, plan.classes);
  }
  if (job.balanced_class_weights) {
    plan.job.training.class_weights =
        balanced_class_weights(*data.training, static_cast<int>(job.training.resolved().threads));
  }
  if (options.values == JobValues::made) {
    plan.network.initialize(static_cast<uint64_t>(job.training.seed));
  } else {
    plan.network.initialize_sizes();
  }
  if (initial) {
    // A run that is continued or computed again has begun with this order.
    if (!fits && options.columns.empty()) {
      check_order_of_targets(plan.network, job.data, initial->values.columns.target, initial->path);
    }
    plan.initial_model = initial->digest;
    plan.initial_model_checked = initial->values.checked;
    plan.initial_averages = initial->values.averaged;
    if (fits) {
      const bool sizes = options.values != JobValues::made;
      TakenValues taken = take_values(plan.network, initial->values.tensors, initial->path, sizes);
      plan.taken_values = taken.describe(initial->path);
      plan.new_values = std::move(taken.names_made);
      if (const int64_t widened = initial->values.widened; widened > 0) {
        plan.taken_values += "; " + counted(widened, "tensor") + " of 16 bits converted to fp32";
      }
    } else if (options.values == JobValues::made) {
      set_values(plan.network, initial->values.tensors, initial->path);
    } else {
      check_values(plan.network, initial->values.tensors, initial->path);
    }
    note_names(plan, *initial, fits);
  }
  plan.training = training_data_of(job, data);
  // The resolved device is recorded, because resuming depends on it.
  if (job.training.workers.count > 0 && job.training.device == "auto") {
    plan.job.training.device = "cpu";
  }
  check_training(plan.network, plan.training, plan.job.training);
  plan.network.set_columns(data.columns);
  if (!job.training.validation.metrics.empty() && !data.validation && !data.test) {
    throw InvalidArgument("[training] metrics need validation or test data, but there are none",
                          "give data.validation, data.validation_fraction or data.test");
  }
  // So are the resolved device's shards.
  const Device device = resolve_training_device(plan.network, plan.job.training);
  plan.job.training.device = to_string(device);
  set_shard_size(plan.network, device, plan.job.training);
  plan.iterations_per_epoch =
      batches_per_epoch(*data.training, mini_batches_of(plan.training, job.training));
  int64_t& frequency = plan.job.training.validation.frequency;
  if (!job.validation_frequency_given && plan.iterations_per_epoch < frequency) frequency = 0;
  plan.job.validation_frequency_given = true;
  return plan;
}

}  // namespace

TrainingData training_data_of(const Job& job, const RunData& data) {
  TrainingData training{data.training,         data.validation,         job.augmentation,
                        data.training_targets, data.validation_targets, job.noise,
                        data.random_crop};
  training.resized_crop = data.resized_crop;
  return training;
}

namespace {

// What in `freeze` is probably a mistake.
void add_notices_of_freezing(const JobPlan& plan, std::vector<std::string>& notices) {
  const TrainingOptions& options = plan.job.training;
  if (options.freeze.empty()) return;
  const std::vector<Parameter>& parameters = plan.network.parameters();
  for (const std::string& entry : options.freeze) {
    const auto names = [&](const Parameter& p) { return is_frozen(p.name, {entry}); };
    if (std::ranges::any_of(parameters, names)) continue;
    notices.push_back("freeze contains `" + entry + "`, but such layers have no parameters");
  }
  std::vector<std::string> never;
  for (const Parameter& p : parameters) {
    if (first_learning_epoch(p.name, options) == UpdateScalars::kNeverLearns)
      never.push_back(p.name);
  }
  if (never.size() == parameters.size()) {
    notices.emplace_back("freeze holds all parameters: nothing is learned");
  }
  std::vector<std::string> fresh;
  for (const std::string& name : plan.new_values) {
    if (std::ranges::find(never, name) != never.end()) fresh.push_back(name);
  }
  if (fresh.empty()) return;
  notices.push_back("freeze holds values that are not from the model and will never learn: " +
                    list_of_some(fresh, 6));
}

// Whether layers of a type give something else than a distribution over classes. Of pooling,
// reshaping and functions it is not known.
bool gives_no_probabilities(const std::string& type) {
  static const std::set<std::string> types{
      "elu", "fully_connected", "gelu",    "gru",      "hard_sigmoid", "hard_swish", "lstm",
      "rnn", "self_attention",  "sigmoid", "softplus", "swish",        "tanh"};
  return types.contains(type) || type.ends_with("relu") || type.ends_with("_normalization") ||
         type.find("convolution") != std::string::npos;
}

// Of cross_entropy after a layer that gives no probabilities, and after a softmax that outputs add
// anyway.
void add_notices_of_losses(const nlohmann::ordered_json& network,
                           std::vector<std::string>& notices) {
  const auto& layers = network["layers"];
  // Of scaled targets, what is before the last layer.
  const bool scaled = layers.size() > 1 && layers.back()["type"] == DenormalizationOptions::kType;
  const auto& last = layers[layers.size() - (scaled ? 2 : 1)];
  if (last["type"] == OutputsOptions::kType) {
    for (size_t k = 0; k < last["inputs"].size(); ++k) {
      for (const auto& layer : layers) {
        if (layer["name"] != last["inputs"][k] || layer["type"] != SoftmaxOptions::kType) continue;
        if (last["losses"][k] != "cross_entropy") continue;
        notices.push_back("the output `" + layer["name"].get<std::string>() +
                          "` ends in softmax, and its loss cross_entropy adds another one: name "
                          "the layer before it in outputs");
      }
    }
    return;
  }
  if (network.value("loss", "") != "cross_entropy") return;
  const auto type = last["type"].get<std::string>();
  if (!gives_no_probabilities(type)) return;
  notices.push_back("the loss cross_entropy takes probabilities, but the network ends in `" +
                    last["name"].get<std::string>() + "` (" + type +
                    "): a last layer { type = \"softmax\" } makes them, and its loss is computed "
                    "from the scores");
}

}  // namespace

std::vector<std::string> JobPlan::notices() const {
  std::vector<std::string> all = notices_of(data);
  for (std::string& text : own_notices()) all.push_back(std::move(text));
  return all;
}

std::vector<std::string> JobPlan::own_notices() const {
  std::vector<std::string> all;
  const std::vector<double>& weights = job.training.class_weights;
  if (job.class_weights.empty() && !job.balanced_class_weights && numbers_out_of_order(classes) &&
      std::adjacent_find(weights.begin(), weights.end(), std::not_equal_to<>()) != weights.end()) {
    constexpr size_t shown = 3;
    std::string names;
    for (size_t i = 0; i < std::min(shown, classes.size()); ++i) names += ", " + classes[i];
    if (classes.size() > shown) names += ", ...";
    all.push_back("class_weights belong to the classes in the order of their names" + names +
                  ", which is not that of the numbers: a table gives weights by name");
  }
  std::string inputs, following;
  if (!taken_values.empty()) all.push_back(taken_values);
  all.insert(all.end(), name_notes.begin(), name_notes.end());
  if (initial_averages) {
    all.push_back(
        "the initial checkpoint has moving averages of its parameters (average_decay), which are "
        "taken, as its run's model has them");
  }
  const auto add = [](std::string& list, const std::string& name) {
    list += (list.empty() ? "`" : ", `") + name + "`";
  };
  const std::vector<std::string>& frozen = job.training.freeze;
  const auto description = network.to_json();
  for (const auto& layer : description["layers"]) {
    const auto name = layer["name"].get<std::string>();
    if (layer["type"] != DenormalizationOptions::kType &&
        layer.value("normalization", "none") != "none" &&
        layer.value("normalization", "none") != "kept") {
      add(inputs, name);
    }
    if (is_frozen(name + ".value", frozen) && layer.value("statistics", "") == "batch") {
      add(following, name);
    }
  }
  add_notices_of_losses(description, all);
  for (std::string& text : unused_options(job.training)) all.push_back(std::move(text));
  add_notices_of_freezing(*this, all);
  if (!initial_model.empty() && !inputs.empty()) {
    all.push_back(
        "the inputs are normalized by statistics of this training's data, not by those "
        "of the initial model (layers: " +
        inputs + ")");
  }
  if (!following.empty()) {
    all.push_back(
        "freeze keeps the parameters of batch normalization, but its moving statistics "
        "follow the mini-batches; statistics = \"moving\" in a layer keeps them, too "
        "(layers: " +
        following + ")");
  }
  return all;
}

JobPlan plan_job(const Job& job, const JobPlanOptions& options) {
  try {
    return plan_of(job, options);
  } catch (const InvalidArgument& e) {
    throw InvalidArgument(in_job(job, e), e.hint());
  } catch (const FileError& e) {
    throw FileError(in_job(job, e), e.hint());
  } catch (const DataError& e) {
    throw DataError(in_job(job, e), e.hint());
  } catch (const Unsupported& e) {
    throw Unsupported(in_job(job, e), e.hint());
  }
}

}  // namespace lockstep
