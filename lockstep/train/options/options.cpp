#include "lockstep/train/options/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/dtype.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/device/devices.h"
#include "lockstep/train/options/solver_info.h"

namespace lockstep {

namespace {

// The names of the fields with an effect, in the order of the visit.
std::vector<std::string> fields_with(FieldEffect effect) {
  FieldLister lister;
  TrainingOptions defaults;
  defaults.visit(lister);
  std::vector<std::string> names;
  for (const FieldInfo& field : lister.fields) {
    if (field.effect == effect) names.push_back(field.name);
  }
  return names;
}

// Whether an objective is a built-in metric that is not computed otherwise.
bool is_further_metric(const ValidationOptions& options, const std::string& objective) {
  const auto& names = options.metrics;
  const auto& own = options.custom_metrics;
  return objective != "loss" && objective != "accuracy" &&
         std::find(names.begin(), names.end(), objective) == names.end() &&
         std::none_of(own.begin(), own.end(),
                      [&](const MetricPtr& m) { return m && m->name() == objective; });
}

}  // namespace

void TrainingOptions::visit(FieldVisitor& v) {
  constexpr int64_t kMany = int64_t{1} << 40;
  static const std::string metrics_help =
      fmt::format("metrics of validations: {}; of regression: {}",
                  fmt::join(metric_names(false), ", "), fmt::join(metric_names(true), ", "));
  v.effect(FieldEffect::result);
  v.text("solver", solver.type, "solver (optimizer), see Solvers", solver_names());
  v.number("momentum", solver.momentum, "sgdm: momentum coefficient",
           {.min = 0, .max = 1, .max_excluded = true});
  v.flag("nesterov", solver.nesterov, "sgdm: Nesterov momentum");
  v.number("gradient_decay", solver.gradient_decay,
           "adam, adamw: decay rate of the moving average of gradients (beta 1)",
           {.min = 0, .max = 1, .max_excluded = true});
  v.number("squared_gradient_decay", solver.squared_gradient_decay,
           "decay rate of the moving average of squared gradients (beta 2); 0: the default of the "
           "solver, see Solvers",
           {.min = 0, .max = 1, .max_excluded = true});
  v.number("epsilon", solver.epsilon, "all but sgdm: added to the denominator of the update",
           {.min = 0, .min_excluded = true});
  v.number("initial_learning_rate", solver.initial_learning_rate,
           "0: the default of the solver, see Solvers", {.min = 0});
  v.texts("learning_rate_schedule", schedule.types,
          "learning rate schedule, or several in sequence",
          {"none", "piecewise", "exponential", "polynomial", "cosine", "cyclical", "warmup",
           "one-cycle", "warm-restarts", "plateau"});
  v.numbers("schedule_epochs", schedule.epochs,
            "length in epochs of each schedule in a sequence; the last one lasts to the end",
            {.min = 0, .min_excluded = true});
  v.number("drop_factor", schedule.drop_factor,
           "piecewise, exponential: the rate is multiplied by this in every period; plateau: at "
           "each plateau",
           {.min = 0, .min_excluded = true});
  v.integer("drop_period", schedule.drop_period,
            "piecewise, exponential, cyclical, warm-restarts: length of a period in epochs",
            {.min = 1, .max = kMany});
  v.number("period_factor", schedule.period_factor,
           "warm-restarts: length of each period as a multiple of the one before", {.min = 1});
  v.number("schedule_power", schedule.power, "polynomial: power of (1 - progress)", {.min = 0});
  v.number("final_factor", schedule.final_factor,
           "polynomial, cosine, cyclical, warm-restarts, plateau: the lowest rate as a fraction of "
           "the highest",
           {.min = 0, .max = 1});
  v.number(
      "warmup_factor", schedule.warmup_factor,
      "warmup: the rate rises from this fraction of the full rate; the first iteration is one step "
      "above it",
      {.min = 0, .max = 1});
  v.number("rise_share", schedule.rise_share,
           "one-cycle: fraction of the iterations in which the rate rises",
           {.min = 0, .max = 1, .max_excluded = true});
  v.number("first_factor", schedule.first_factor,
           "one-cycle: the first rate as a fraction of the highest", {.min = 0, .max = 1});
  v.number("last_factor", schedule.last_factor,
           "one-cycle: the last rate as a fraction of the highest", {.min = 0, .max = 1});
  v.integer("plateau_patience", schedule.plateau_patience,
            "plateau: validations in a row without a better objective that do not reduce the rate "
            "yet",
            {.min = 0, .max = kMany});
  v.integer("plateau_cooldown", schedule.plateau_cooldown,
            "plateau: validations after a reduction that are not counted",
            {.min = 0, .max = kMany});
  v.number("plateau_threshold", schedule.plateau_threshold,
           "plateau: an objective is better if it differs by more than this fraction of the best",
           {.min = 0, .max = 1});
  v.number("gradient_threshold", solver.gradient_threshold,
           "gradient clipping: the largest norm or value; 0: no clipping", {.min = 0});
  visit_word(
      v, "gradient_threshold_method", solver.gradient_threshold_method,
      "what is clipped: the norm of each parameter's gradient, the norm of all, or each element",
      {"l2norm", "global-l2norm", "absolute-value"});
  v.numbers(
      "class_weights", class_weights,
      "weight of each class in the loss, in the order of the classes; none: 1 each; in a job also "
      "a table by class name, or \"balanced\": observations / (classes * observations of the "
      "class)",
      {.min = 0, .max = 1e30});
  v.number("label_smoothing", label_smoothing,
           "cross_entropy: fraction of each label that is divided among all classes; validation "
           "divides nothing",
           {.min = 0, .max = 1});
  v.number("average_decay", average_decay,
           "decay rate of a moving average of the parameters, which is validated and becomes the "
           "trained network; 0: off",
           {.min = 0, .max = 1, .max_excluded = true});
  v.texts("freeze", freeze,
          "layers whose parameters are frozen, by names or patterns such as `stage1*`; the "
          "statistics of batch_normalization "
          "follow, unless the layer has statistics = \"moving\"");
  v.texts("unfreeze", unfreeze,
          "frozen layers that learn from an epoch on: \"LAYERS:EPOCH\", such as `stage1*:3`, with "
          "a name or pattern; their solver state begins with zeros");
  v.number("l2", solver.l2,
           "L2 regularization (weight decay), multiplied by the parameter's factor", {.min = 0});
  v.integer("mini_batch_size", mini_batch_size, "observations per iteration",
            {.min = 1, .max = 1 << 24});
  v.effect(FieldEffect::ending);
  v.integer("max_epochs", max_epochs, "passes over the training data",
            {.min = 1, .max = (int64_t{1} << 31) - 1});
  v.integer("max_iterations", max_iterations,
            "stop after this many iterations, also within an epoch; 0: no limit",
            {.min = 0, .max = kMany});
  v.effect(FieldEffect::result);
  visit_word(v, "shuffle", data.shuffle, "when the observations are shuffled",
             {"every-epoch", "once", "never"});
  visit_word(
      v, "sampling", data.sampling,
      "observations of an epoch: all once, or as many, drawn so that each class has the same "
      "probability",
      {"all", "balanced"});
  visit_word(v, "last_mini_batch", data.last_mini_batch,
             "what to do with a last mini-batch that is not full", {"drop", "keep"});
  v.integer_or(
      "sequence_length", data.sequence_length, "longest",
      "sequences: steps of the segments into which they are cut, each an iteration, between "
      "which layers with carry_state carry their states; or \"longest\": not cut");
  v.integer("group_by_length", data.group_by_length,
            "sequences: mini-batches whose observations are sorted by length together, so that "
            "each has sequences of like lengths; 0: off",
            {.min = 0, .max = 1 << 24});
  v.effect(FieldEffect::ending);
  v.integer("validation_patience", validation.patience,
            "early stopping: validations without a better objective before training ends; 0: off",
            {.min = 0, .max = kMany});
  v.effect(FieldEffect::result);
  v.text("objective", validation.objective,
         "what validations are compared by, for validation_patience, the best network, plateau and "
         "sweeps: loss, accuracy or another metric");
  visit_word(v, "output_network", validation.output_network,
             "the network to keep: of the last iteration, or of the best validation",
             {"last", "best"});
  visit_word(
      v, "batch_normalization_statistics", batch_normalization_statistics,
      "statistics of the trained network: moving averages over mini-batches, or statistics of all "
      "training images",
      {"moving", "population"});
  v.integer("shard_size", shards.size,
            "the most observations that are computed together; 0: 16, for sequences 8, with "
            "attention 2, on a GPU 256",
            {.min = 0, .max = 1 << 24});
  v.flag("deterministic", deterministic,
         "the same bits for any number of threads and workers, and after any resume");
  visit_word(
      v, "precision", precision.type,
      "mixed precision: type of the operands of matrix products; tf32: GPUs round fp32 to 11 bits",
      {"fp32", "tf32", "bf16", "fp16"});
  v.number("loss_scale", precision.loss_scale,
           "loss scaling for fp16 gradients, a power of two; 0: 128 for fp16, else 1",
           {.min = 0, .max = 1 << 24});
  v.integer("seed", seed, "random seed", {.min = 0});
  v.text(
      "device", device,
      "\"cpu\", \"cuda\", \"cuda:N\", or \"auto\": a GPU if there is one and no workers are used");
  v.effect(FieldEffect::speed);
  v.texts("metrics", validation.metrics, metrics_help.c_str());
  v.integer("streams", streams, "GPU: streams that share the shards", {.min = 1, .max = 64});
  v.integer("threads", threads,
            "compute threads (of each worker); 0: one for each processor that they may use",
            {.min = 0, .max = 1024});
  v.integer("workers", workers.count, "worker processes; 0: the threads of one process",
            {.min = 0, .max = 1024});
  v.texts("hosts", workers.hosts,
          "hosts of the workers and their numbers: \"10.0.0.2:4\", \"localhost:4\"; none: this "
          "machine");
  v.text("host_launch", workers.host_launch,
         "command that runs a program on a host, where {host} stands for its name; \"\": ssh");
  v.text("host_address", workers.host_address,
         "address at which the hosts reach this machine; \"\": that of the interface to the first "
         "host");
  v.numbers("worker_load", workers.load,
            "relative load of each worker: its share of the shards; none: equal loads", {.min = 0});
  v.number("worker_limit", workers.limit,
           "timeout in seconds, after which a hanging worker is replaced; 0: 10, or the time of 20 "
           "shards or 4 iterations",
           {.min = 0});
  v.integer("worker_memory_mib", workers.memory_mib,
            "memory limit of each worker process (private memory) in MiB; 0: no limit",
            {.min = 0, .max = 1 << 24});
  v.texts("worker_environment", workers.environment,
          "environment variables of worker processes: \"NAME=VALUE\"");
  v.integer("loader_threads", data.loader_threads,
            "threads that read and augment images, unless shards keep all cores busy and images "
            "are in memory: then the compute threads do this",
            {.min = 1, .max = 256});
  v.integer("prefetch", data.prefetch, "number of mini-batches to prefetch",
            {.min = 1, .max = 1024});
  v.integer("cache_mib", data.cache_mib, "size of the cache of decoded images in MiB",
            {.min = 0, .max = 1 << 24});
  visit_word(v, "keep_features", data.keep_features,
             "results of frozen layers: computed once and kept in what the images leave of "
             "cache_mib, where nothing changes them; or computed in each iteration",
             {"auto", "never"});
  v.effect(FieldEffect::result);
  v.integer_or("validation_frequency", validation.frequency, "epoch",
               "iterations between validations, or \"epoch\"; a job that names neither validates "
               "once an epoch if an epoch has fewer");
  visit_word(v, "validation_frequency_unit", validation.frequency_unit,
             "the unit of validation_frequency", {"iteration", "epoch"});
  v.effect(FieldEffect::speed);
  v.integer(
      "check_frequency", shards.check_frequency,
      "iterations between checks that a shard computed twice gives the same bits; 0: no checks",
      {.min = 0});
  v.flag("compare_first_shard", shards.compare_first,
         "GPU: compare the first shard of a training with the CPU's before the first update");
  v.integer_or("checkpoint_frequency", checkpoints.frequency, "epoch",
               "iterations between checkpoints, or \"epoch\"");
  visit_word(v, "checkpoint_frequency_unit", checkpoints.frequency_unit,
             "the unit of checkpoint_frequency", {"iteration", "epoch"});
  v.integer("checkpoints_kept", checkpoints.kept, "number of newest checkpoints to keep",
            {.min = 1, .max = 1 << 20});
  v.number("max_time", max_time,
           "time limit in seconds: then the training stops with a checkpoint; 0: no limit",
           {.min = 0});
  v.flag("allow_other_numerics", checkpoints.allow_other_numerics,
         "resume even if the processor or libraries differ: the bits will differ, too");
}

const std::vector<std::string>& TrainingOptions::free_fields() {
  static const std::vector<std::string> names = fields_with(FieldEffect::speed);
  return names;
}

const std::vector<std::string>& TrainingOptions::ending_fields() {
  static const std::vector<std::string> names = fields_with(FieldEffect::ending);
  return names;
}

int64_t TrainingOptions::last_iteration(int64_t iterations_per_epoch) const {
  const int64_t all = iterations_per_epoch * max_epochs;
  return max_iterations > 0 ? std::min(all, max_iterations) : all;
}

void TrainingOptions::check() const {
  // The ranges in visit() also hold for options that are set from C++.
  nlohmann::ordered_json object;
  FieldWriter writer(object);
  TrainingOptions copy = *this;
  copy.visit(writer);
  const nlohmann::json plain = object;
  FieldReader reader(plain, "training");
  copy.visit(reader);
  if (device != "auto") parse_device(device);
  int exponent = 0;
  if (precision.loss_scale > 0 &&
      (precision.loss_scale < 1 || std::frexp(precision.loss_scale, &exponent) != 0.5)) {
    throw InvalidArgument("[training] loss_scale must be 0 or a power of two, received " +
                          nlohmann::json(precision.loss_scale).dump());
  }
  if (solver.gradient_threshold > 0 && solver.gradient_threshold < 1e-30) {
    throw InvalidArgument("[training] gradient_threshold must be 0 or >= 1e-30, received " +
                          nlohmann::json(solver.gradient_threshold).dump());
  }
  if (schedule.types.empty()) {
    throw InvalidArgument("[training] learning_rate_schedule must name a schedule",
                          "\"none\" keeps the rate constant");
  }
  if (const std::string& metric = validation.objective; is_further_metric(validation, metric)) {
    try {
      metric_by_name(metric);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(
          "[training] objective must be loss, accuracy or another metric, received `" + metric +
              "`",
          error.hint());
    }
  }
  if (data.sampling == Sampling::balanced && data.shuffle == Shuffle::never) {
    throw InvalidArgument(
        "[training] sampling = \"balanced\" draws observations at random, but shuffle is \"never\"",
        "shuffle = \"every-epoch\" or \"once\"");
  }
  if (data.sampling == Sampling::balanced && data.sequence_length > 0) {
    throw InvalidArgument(
        "[training] sampling = \"balanced\" is not for sequences that are cut, but sequence_length "
        "is " +
        std::to_string(data.sequence_length));
  }
  const auto& types = schedule.types;
  if (schedule.drop_factor >= 1 &&
      std::find(types.begin(), types.end(), "plateau") != types.end()) {
    throw InvalidArgument(
        "[training] drop_factor must be below 1 with the schedule plateau, "
        "received " +
        nlohmann::json(schedule.drop_factor).dump());
  }
  if (!workers.load.empty()) {
    const auto loaded = std::count_if(workers.load.begin(), workers.load.end(),
                                      [](double load) { return load > 0; });
    if (workers.load.size() != static_cast<size_t>(workers.count) || loaded == 0) {
      throw InvalidArgument("[training] worker_load must have a load for each of the " +
                                std::to_string(workers.count) +
                                " workers, one of them above 0; it has " +
                                std::to_string(workers.load.size()) + " entries",
                            workers.count == 0 ? "set workers, too" : "");
    }
  }
  for (const Unfreezing& one : unfreezings_of(*this)) {
    if (one.epoch <= max_epochs) continue;
    throw InvalidArgument(
        fmt::format("[training] unfreeze must name epochs up to max_epochs = {}, received {} for "
                    "`{}`",
                    max_epochs, one.epoch, one.layers),
        "leave the entry out, or train for more epochs");
  }
  const std::vector<TrainingHost> all_hosts = hosts_of(*this);
  int64_t there = 0;
  for (const TrainingHost& host : all_hosts) there += host.workers;
  if (!all_hosts.empty() && there != workers.count) {
    throw InvalidArgument(
        fmt::format("[training] hosts must have {} workers in all, as in `workers`, received {}",
                    workers.count, there),
        fmt::format("set workers = {}", there));
  }
  for (const std::string& entry : workers.environment) {
    if (const size_t at = entry.find('='); at != entry.npos && at > 0) continue;
    throw InvalidArgument("[training] worker_environment must have entries NAME=VALUE, received `" +
                          entry + "`");
  }
  if (schedule.epochs.size() > schedule.types.size() ||
      schedule.epochs.size() + 1 < schedule.types.size()) {
    throw InvalidArgument("[training] schedule_epochs must have an entry for each of the " +
                          std::to_string(schedule.types.size()) +
                          " schedules, except that the last may be omitted; received " +
                          std::to_string(schedule.epochs.size()));
  }
}

std::string TrainingOptions::trained_loss(const std::string& loss, bool by_pixel) const {
  const bool weighs = by_pixel && !class_weights.empty();
  if (label_smoothing == 0 && !weighs) return loss;
  if (loss != "cross_entropy" && label_smoothing == 0) {
    throw InvalidArgument(
        "[training] class_weights of pixels are for the loss cross_entropy, but the network's is " +
            loss,
        "an expression can have its own: cross_entropy(output, target, weights=[...])");
  }
  if (loss != "cross_entropy") {
    throw InvalidArgument(
        "[training] label_smoothing is for the loss cross_entropy, but the network's is " + loss,
        "an expression can have its own: cross_entropy(output, target, label_smoothing=0.1)");
  }
  const std::string weights =
      class_weights.empty() ? "" : fmt::format("weights=[{}], ", fmt::join(class_weights, ", "));
  return fmt::format("cross_entropy(output, target, {}label_smoothing={})", weights,
                     label_smoothing);
}

bool TrainingOptions::keeps_features() const {
  return !freeze.empty() && data.keep_features != KeepFeatures::never;
}

std::vector<float> TrainingOptions::weights_outside_loss(bool by_pixel) const {
  if (label_smoothing > 0 || by_pixel) return {};
  return {class_weights.begin(), class_weights.end()};
}

std::vector<Unfreezing> unfreezings_of(const TrainingOptions& options) {
  std::vector<Unfreezing> all;
  for (const std::string& entry : options.unfreeze) {
    const size_t colon = entry.rfind(':');
    const char* const end = entry.data() + entry.size();
    if (colon != std::string::npos && colon > 0) {
      Unfreezing one{.layers = entry.substr(0, colon)};
      const auto [last, error] = std::from_chars(entry.data() + colon + 1, end, one.epoch);
      if (error == std::errc() && last == end && one.epoch >= 2) {
        all.push_back(std::move(one));
        continue;
      }
    }
    throw InvalidArgument(
        "[training] unfreeze must have entries LAYERS:EPOCH with epochs from 2 on, received `" +
            entry + "`",
        "for example \"layer4*:3\"");
  }
  return all;
}

std::vector<TrainingHost> hosts_of(const TrainingOptions& options) {
  std::vector<TrainingHost> all;
  std::set<std::string> names;
  for (const std::string& entry : options.workers.hosts) {
    const auto refuse = [&](const char* why) {
      throw InvalidArgument(
          "[training] hosts must name each host once, received `" + entry + "`: " + why,
          "use a name or an address and the number of workers: "
          "\"10.0.0.2:4\", \"[fd00::2]:4\"");
    };
    TrainingHost host{entry, 1};
    // The colons of an IPv6 address are inside brackets.
    const size_t colon = entry.rfind(':'), bracket = entry.rfind(']');
    if (bracket == std::string::npos && colon != entry.find(':')) {
      refuse("an IPv6 address must be in brackets");
    }
    if (colon != std::string::npos && (bracket == std::string::npos || bracket < colon)) {
      const std::string count = entry.substr(colon + 1);
      host.name = entry.substr(0, colon);
      const bool number = !count.empty() && count.size() <= 4 &&
                          std::all_of(count.begin(), count.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
      host.workers = number ? std::stoi(count) : 0;
      if (host.workers < 1 || host.workers > 1024) refuse("a host can have 1 to 1024 workers");
    }
    if (host.name.starts_with('[') && host.name.ends_with(']')) {
      host.name = host.name.substr(1, host.name.size() - 2);
    }
    const bool plain = std::all_of(host.name.begin(), host.name.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || std::strchr("._-:@", c) != nullptr;
    });
    if (host.name.empty() || host.name.starts_with('-') || !plain) refuse("the name is invalid");
    if (!names.insert(host.name).second) refuse("the host is repeated");
    if (host.name == "localhost") host.name.clear();
    all.push_back(host);
  }
  return all;
}

TrainingOptions TrainingOptions::resolved() const {
  TrainingOptions r = *this;
  const SolverInfo* const known = find_solver(r.solver.type);
  const SolverInfo defaults = known ? *known : SolverInfo();
  if (r.solver.initial_learning_rate == 0)
    r.solver.initial_learning_rate = defaults.initial_learning_rate;
  if (r.solver.squared_gradient_decay == 0)
    r.solver.squared_gradient_decay = defaults.squared_gradient_decay;
  r.precision.loss_scale = r.precision.scale_of_losses();
  if (r.shards.size == 0) r.shards.size = r.device.starts_with("cuda") ? 256 : 16;
  r.deterministic = r.deterministic && lockstep::deterministic();
  if (const std::string& metric = r.validation.objective; is_further_metric(r.validation, metric)) {
    r.validation.metrics.push_back(metric);
  }
  if (r.threads == 0) {
    // Divides the processors among the workers of one host. The other hosts are assumed to be like
    // this one.
    int64_t together = r.workers.hosts.empty() ? r.workers.count : 1;
    for (const TrainingHost& host : hosts_of(r)) {
      together = std::max<int64_t>(together, host.workers);
    }
    const int64_t each = available_cores() / std::max<int64_t>(together, 1);
    r.threads = std::clamp<int64_t>(each, 1, 1024);
  }
  return r;
}

}  // namespace lockstep
