// Training options, with the usual names and defaults. Every field is checked. The error for a
// wrong value names the field.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/fields.h"
#include "lockstep/base/numeric/dtype.h"
#include "lockstep/data/batches/mini_batch.h"
#include "lockstep/engine/nn/metrics/metric.h"

namespace lockstep {

// The input of ScheduleOptions::function for one iteration.
struct ScheduleStep {
  int64_t iteration = 1;  // from 1
  int64_t epoch = 1;      // from 1
  int64_t iterations_per_epoch = 1;
  double initial_learning_rate = 0;
};

// ---- Choices. In job files they are words, with hyphens for underscores. ----

enum class LastMiniBatch : uint8_t { drop, keep };  // what becomes of one that is not full
enum class FrequencyUnit : uint8_t { iteration, epoch };

enum class GradientThresholdMethod : uint8_t {
  l2norm,         // scales each parameter's gradient to at most this norm
  global_l2norm,  // limits the common norm of all gradients
  absolute_value  // limits each element
};

// The number format of products. Parameters, sums, gradients of parameters and losses are fp32.
enum class Precision : uint8_t {
  fp32,
  // GPUs round the factors of convolutions and fully connected layers to 11 significant bits; CPUs
  // refuse it.
  tf32,
  // Convolutions, fully connected layers, normalization, pooling and the layers between them store
  // and multiply bfloat16. CPUs also validate in fp32, GPUs in bf16. (GPUs round the gradients of
  // convolution weights to bfloat16, once for each shard.) Needs a processor with bf16 instructions
  // (AVX-512 BF16) or a GPU.
  bf16,
  fp16  // the same with IEEE half precision, only on GPUs; see PrecisionOptions::loss_scale
};

// The values of the trained network.
enum class OutputNetwork : uint8_t {
  last,  // of the last iteration
  best   // of the iteration with the best validation, by ValidationOptions::objective
};

// Statistics for batch normalization in prediction. Validations during the training use moving
// ones.
enum class BatchNormalizationStatistics : uint8_t {
  moving,     // they follow the mini-batches
  population  // of all training images, computed after the last iteration
};

// ---- Groups of options. Job files and messages use one flat list of names; where a name there
// differs from the member's, a comment gives it. ----

struct SolverOptions {
  // "solver": one of solver_registry() (solver_info.h), which describes them: "sgdm", "adam",
  // "adamw", "rmsprop".
  std::string type = "sgdm";
  // 0: the solver's default.
  double initial_learning_rate = 0;
  double momentum = 0.9;  // sgdm
  // sgdm: w = w + momentum * v - rate * g with the new v, instead of w = w + v (Sutskever et al.
  // 2013).
  bool nesterov = false;
  double gradient_decay = 0.9;  // adam, adamw: beta 1
  // beta 2 of adam and adamw; decay of rmsprop. 0: the solver's default.
  double squared_gradient_decay = 0;
  double epsilon = 1e-8;  // all but sgdm: added to the root
  // g = g + l2 * factor * w, with the parameter's factor (1 for weights; 0 for biases and
  // normalization unless the layer sets another). The reported loss excludes it.
  double l2 = 1e-4;
  // Limit for gradients (without L2), by the method; 0: none.
  double gradient_threshold = 0;
  GradientThresholdMethod gradient_threshold_method = GradientThresholdMethod::l2norm;
};

// Changes of the learning rate.
struct ScheduleOptions {
  // "learning_rate_schedule": one schedule, or several in sequence. Each starts from the final rate
  // of the previous one:
  // "none": constant
  // "piecewise": multiplied by drop_factor after every drop_period epochs
  // "exponential": the same decay, but continuous over the iterations
  // "polynomial": down to final_factor times the rate, as (1 - progress)^power
  // "cosine": down to final_factor times the rate, along half a cosine (Loshchilov, Hutter 2017)
  // "cyclical": linearly down to final_factor times the rate and back in every drop_period epochs
  // (Smith 2017)
  // "warmup": linearly from warmup_factor times the rate up to the rate; after k of n iterations it
  // has risen by (k + 1) / n of the way
  // "one-cycle": along half a cosine up to the rate, which it has after rise_share of the part, and
  // down along another one (Smith, Topin 2018; PyTorch's OneCycleLR without its cycle of momentum)
  // "warm-restarts": "cosine" in every drop_period epochs; each period lasts period_factor times as
  // long as the one before (Loshchilov, Hutter 2017)
  // "plateau": multiplied by drop_factor, down to final_factor times the rate, after more than
  // plateau_patience validations in a row without a better objective (PyTorch's ReduceLROnPlateau)
  std::vector<std::string> types = {"none"};
  // "schedule_epochs": length of each schedule in epochs, also fractional. The last schedule may
  // have no entry; it then lasts to the end of the training.
  std::vector<double> epochs = {};
  double drop_factor = 0.1;
  int64_t drop_period = 10;
  double power = 1;  // "schedule_power"
  double final_factor = 0;
  double warmup_factor = 0;
  // one-cycle: the part of its iterations in which the rate rises, and the first and the last rate
  // as a part of the highest.
  double rise_share = 0.3;
  double first_factor = 0.04, last_factor = 4e-6;
  double period_factor = 1;
  // plateau: see there. An objective is better if it is so by more than plateau_threshold times the
  // best one. After a reduction, plateau_cooldown validations do not count.
  int64_t plateau_patience = 10, plateau_cooldown = 0;
  double plateau_threshold = 1e-4;
  // Replaces all schedules: returns the rate (>= 0) of an iteration. Only from C++. The rate must
  // depend only on the argument.
  std::function<double(const ScheduleStep&)> function = {};
};

// Number formats.
struct PrecisionOptions {
  Precision type = Precision::fp32;  // "precision"
  // Power of two by which losses are multiplied until their gradients have been summed, so that
  // gradients below fp16's smallest number are not lost. 0: 128 for fp16, else 1.
  double loss_scale = 0;

  // The type for `type`.
  DType dtype() const {
    return type == Precision::bf16   ? DType::bf16
           : type == Precision::fp16 ? DType::f16
                                     : DType::f32;
  }
  // The effective value of loss_scale.
  double scale_of_losses() const {
    return loss_scale > 0 ? loss_scale : type == Precision::fp16 ? 128 : 1;
  }
};

// Which observations an epoch has.
enum class Sampling : uint8_t {
  all,      // every one once
  balanced  // as many, but those of each class with the same probability; see MiniBatchQueueOptions
};

// Whether results of frozen layers are kept.
enum class KeepFeatures : uint8_t {
  automatic,  // "auto": where nothing changes them
  never
};

// How the training data is read. The result does not depend on the last four.
struct DataOptions {
  Shuffle shuffle = Shuffle::every_epoch;
  Sampling sampling = Sampling::all;
  LastMiniBatch last_mini_batch = LastMiniBatch::drop;
  // Sequences are cut into segments of this many steps: each segment of a mini-batch is an
  // iteration of its own, and layers with carry_state continue from segment to segment, row by row.
  // 0 ("longest"): nothing is cut.
  int64_t sequence_length = 0;
  // The observations of this many mini-batches are sorted by length, so that each mini-batch has
  // sequences of like lengths; 0: off. Of order and lengths alone.
  int64_t group_by_length = 0;
  int64_t loader_threads = 1;
  int64_t prefetch = 4;     // mini-batches prepared ahead
  int64_t cache_mib = 512;  // decoded images kept in memory, MiB
  // The results of frozen layers are computed once for an observation and kept in memory, in what
  // the images leave of cache_mib, if the inputs are the same in all epochs and the layers draw no
  // random numbers and do not compute with several observations. On the CPU, for the network's loss
  // and not for sequences.
  KeepFeatures keep_features = KeepFeatures::automatic;
};

struct ShardOptions {
  // "shard_size": maximum number of observations in a shard, which one thread computes as a unit.
  // Batch normalization works within a shard. 0: 16 on the CPU, of sequences 8, with attention 2;
  // 256 on a GPU.
  int64_t size = 0;
  // Every this many iterations one shard is computed again, by other workers if there are any, and
  // all results must have the same bits. 0: never. The cost is one to three additional shards in
  // that many iterations. The result does not depend on it.
  int64_t check_frequency = 100;
  // "compare_first_shard": on a GPU, each training compares its first shard (loss and gradients)
  // with the CPU's before the first update, and ends with an error if they do not agree within
  // bounds. The CPU needs the time of one shard for it, by one thread, or of three where
  // results depend on rounding much. The result does not depend on it.
  bool compare_first = true;
};

struct ValidationOptions {
  // "validation_frequency": in iterations, or in epochs (see its unit); 0: once an epoch. Affects
  // the end by patience and the choice of the best network.
  int64_t frequency = 50;
  FrequencyUnit frequency_unit = FrequencyUnit::iteration;  // "validation_frequency_unit"
  // What validations are compared by, for patience, the best network and the schedule "plateau":
  // "loss", "accuracy" or a metric, built-in (which is computed then) or custom.
  std::string objective = "loss";
  // "validation_patience": training ends after this many successive validations without a new best
  // objective; 0: never.
  int64_t patience = 0;
  OutputNetwork output_network = OutputNetwork::last;
  // Computed at every validation in addition to loss and accuracy; see engine/nn/metrics/metric.h
  // ("top-5", "f1", ...). The result does not depend on them. resolved() adds the objective.
  std::vector<std::string> metrics = {};
  // Further metrics that the user implements. Only from C++.
  std::vector<MetricPtr> custom_metrics = {};
};

// The result does not depend on these.
struct CheckpointOptions {
  // "checkpoint_frequency": iterations, or epochs by its unit; 0: once an epoch.
  int64_t frequency = 0;
  FrequencyUnit frequency_unit = FrequencyUnit::iteration;  // "checkpoint_frequency_unit"
  int64_t kept = 2;                                         // "checkpoints_kept"
  // Resume from a checkpoint that was made with other processors or libraries. The bits will
  // differ.
  bool allow_other_numerics = false;
};

// Worker processes. The result does not depend on these.
struct TrainingWorkerOptions {
  // "workers": processes that compute; 0: the threads of this process compute. See TrainingProblem.
  int64_t count = 0;
  // Hosts of the workers: names or addresses, each with a number of workers ("10.0.0.2:4"; default
  // 1). "localhost" is this machine. The numbers add up to `count`. Empty: all workers on this
  // machine. Every host has the same executable and data under the same paths.
  std::vector<std::string> hosts = {};
  // The command line that runs a command on a host ({host} is replaced by the host's name; it must
  // pass on its standard input), and this machine's address as seen by the hosts. "": ssh, and the
  // address on the route to the first host.
  std::string host_launch = {}, host_address = {};
  // "worker_load": relative number of shards for each worker, by rank; 0: none. Empty: equal
  // numbers.
  std::vector<double> load = {};
  // "worker_limit": seconds without a finished iteration after which a worker that delays the
  // others is ended and replaced. 0: the maximum of 10 s, 20 times the time of a shard, and 4 times
  // that of an iteration.
  double limit = 0;
  // "worker_memory_mib", "worker_environment". For worker processes that are started for this
  // training (workers of an open pool have the pool's settings): limit of each worker's own data in
  // MiB (0: no limit), and additional environment variables, as "NAME=VALUE".
  int64_t memory_mib = 0;
  std::vector<std::string> environment = {};
};

// For example:
//   TrainingOptions options{
//       .max_epochs = 8,
//       .solver = {.type = "adam", .initial_learning_rate = 0.001},
//       .validation = {.frequency = 100, .patience = 5}};
struct TrainingOptions {
  // Number of epochs. Schedules without ScheduleOptions::epochs last as long.
  int64_t max_epochs = 30;
  // Training ends after this many iterations, also within an epoch, if max_epochs does not end it
  // earlier; 0: no limit. Does not change any learning rate.
  int64_t max_iterations = 0;
  // Seconds after which the training stops with a checkpoint from which it can continue. 0: no
  // limit.
  double max_time = 0;
  int64_t mini_batch_size = 128;
  int64_t seed = 0;
  // "cpu", "cuda", "cuda:N" or "auto". "auto" is the device of choose_device(), else the first GPU
  // that can compute the network, else the CPU; with worker processes it is the CPU. The CPU and a
  // GPU give different bits.
  std::string device = "auto";
  // Compute threads, for each worker if there are workers. 0: the number of processors, divided
  // among the workers of a host. The result does not depend on it.
  int64_t threads = 0;
  int64_t streams = 4;  // number of GPU streams that compute shards; likewise
  // If false, training may be faster, but the bits may depend on threads and differ between runs.
  // See also set_deterministic().
  bool deterministic = true;
  // Factors for the loss and gradient of an observation, by class, in the order of the classes;
  // empty: 1 for each. The sum is divided by the number of observations, not by the sum of weights.
  // Validation uses no weights.
  std::vector<double> class_weights = {};
  // This part of each label is divided among all classes in the loss cross_entropy, with their
  // weights (PyTorch's CrossEntropyLoss). Validation divides nothing.
  double label_smoothing = 0;
  // Keeps a moving average of the parameters: after every iteration a = decay * a + (1 - decay) *
  // w, and a = w after the first one. Validations use it, and the trained network has it. States
  // are those of the network itself. 0: off. Only on the CPU.
  double average_decay = 0;
  // Names of layers whose parameters do not change. gradient_threshold ignores them. State that
  // follows the mini-batches (statistics of batch normalization) is still updated, except in layers
  // with statistics = "moving".
  std::vector<std::string> freeze = {};
  // Layers of `freeze` that begin to learn with an epoch (from 1), their solver's state then being
  // zero: "LAYERS:EPOCH", with a name or pattern.
  std::vector<std::string> unfreeze = {};
  BatchNormalizationStatistics batch_normalization_statistics =
      BatchNormalizationStatistics::moving;

  SolverOptions solver = {};
  ScheduleOptions schedule = {};
  PrecisionOptions precision = {};
  DataOptions data = {};
  ShardOptions shards = {};
  ValidationOptions validation = {};
  CheckpointOptions checkpoints = {};
  TrainingWorkerOptions workers = {};

  // Visits every field by its flat name, with its effect. A new option is a member above, its line
  // in visit() and its use.
  void visit(FieldVisitor& v);
  // Names of the fields that affect only speed, memory and output. A resumed training may change
  // them.
  static const std::vector<std::string>& free_fields();
  // Names of the fields that only determine when a training ends. A resumed training may change
  // them; its result is then as if they had been set from the beginning.
  static const std::vector<std::string>& ending_fields();
  // The maximum number of iterations of a training with `iterations_per_epoch`.
  int64_t last_iteration(int64_t iterations_per_epoch) const;
  // Throws InvalidArgument for values out of range and for values that contradict each other.
  void check() const;
  // Returns the options with effective values for all fields whose defaults depend on others:
  // learning rate, beta 2, loss scale, threads and shard size ("auto" counts as the CPU, so
  // resolve_device() must come first), and with the objective among the metrics. `deterministic` is
  // false after set_deterministic(false).
  TrainingOptions resolved() const;
  // The loss that a training minimizes with a network's loss: that loss, or the expression with
  // label_smoothing and class_weights; `by_pixel`: where each pixel has a label. Throws
  // InvalidArgument where there is no such expression.
  std::string trained_loss(const std::string& loss, bool by_pixel = false) const;
  // Whether results of frozen layers are to be kept: there are such layers, and keep_features is
  // not "never".
  bool keeps_features() const;
  // class_weights, unless trained_loss() has them: a smoothed label has the weights of all classes,
  // and the pixels of an observation have those of several.
  std::vector<float> weights_outside_loss(bool by_pixel = false) const;
};

// An entry of TrainingWorkerOptions::hosts. The name "" is this machine.
struct TrainingHost {
  std::string name;
  int workers = 1;
};

// An entry of TrainingOptions::unfreeze.
struct Unfreezing {
  std::string layers;  // a name or pattern
  int64_t epoch = 1;   // the first one, from 1, in which they learn
};
// Throws InvalidArgument for an entry of another form, and for an epoch before the second one.
std::vector<Unfreezing> unfreezings_of(const TrainingOptions& options);

// Parses options.workers.hosts. Throws InvalidArgument for an invalid or repeated entry.
// Thread-safe.
std::vector<TrainingHost> hosts_of(const TrainingOptions& options);

// ---- Learning rate schedules, in double: the rate depends only on the options and the iteration's
// number. ----

// The objective of a validation after an iteration.
struct ObjectiveValue {
  int64_t iteration = 0;
  double value = 0;
};

// The rate of an iteration (from 1) of a training with `iterations_per_epoch` (>= 1). `options` are
// resolved. `validations`: those so far, for "plateau"; later ones than the iteration do not count.
// The schedules in options.schedule.types follow each other. Each lasts for its
// entry in options.schedule.epochs, the last one to the end of the training, and starts from the
// final rate of the previous one. options.schedule.function, if set, replaces the schedules.
// Throws InvalidArgument if the function returns a negative or non-finite rate. Thread-safe if the
// function is.
double learning_rate_of(const TrainingOptions& options, int64_t iteration,
                        int64_t iterations_per_epoch,
                        std::span<const ObjectiveValue> validations = {});

// Whether learning rates depend on validations. Thread-safe.
bool rates_depend_on_validations(const TrainingOptions& options);

// The lengths, in whole iterations, of those parts of options.schedule.types whose length
// affects the rates. A last part without an entry in options.schedule.epochs has a length only if
// its rates are spread over the rest of max_epochs. Empty with a function. Thread-safe.
std::vector<double> schedule_lengths(const TrainingOptions& options, int64_t iterations_per_epoch);

// Whether the rates of this schedule, as the last part, depend on its length. Thread-safe.
bool rates_depend_on_length(const std::string& schedule);

}  // namespace lockstep
