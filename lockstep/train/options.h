// Training options. Names and defaults follow the field's habits; every field is checked, and a
// wrong value is refused with the field's name.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/fields.h"
#include "lockstep/engine/nn/metric.h"

namespace lockstep {

// What a schedule of the user's knows of an iteration.
struct ScheduleStep {
  int64_t iteration = 1;  // from 1
  int64_t epoch = 1;      // from 1
  int64_t iterations_per_epoch = 1;
  double initial_learning_rate = 0;
};

struct TrainingOptions {
  // ---- what the result depends on ----

  // "sgdm": v = momentum * v - rate * g; w = w + v.
  // "adam": Kingma, Ba 2015, with bias correction.
  // "adamw": adam, and w = w - rate * l2 * factor * w apart from the gradient (Loshchilov, Hutter
  // 2019).
  // "rmsprop": Tieleman, Hinton 2012.
  std::string solver = "sgdm";
  double momentum = 0.9;        // sgdm
  double gradient_decay = 0.9;  // adam, adamw: beta 1
  // adam, adamw: beta 2; rmsprop. 0: the solver's own (rmsprop 0.9, the others 0.999).
  double squared_gradient_decay = 0;
  double epsilon = 1e-8;  // all but sgdm, added to the root
  // 0: the solver's own (sgdm 0.01, the others 0.001).
  double initial_learning_rate = 0;
  // One schedule, or several in a row, each from the rate at which the one before it ended:
  // "none";
  // "piecewise": times drop_factor after every drop_period epochs;
  // "exponential": the same, smoothly, iteration by iteration;
  // "polynomial": to final_factor times the rate, by (1 - progress)^schedule_power;
  // "cosine": to final_factor times the rate, along half a cosine (Loshchilov, Hutter 2017);
  // "cyclical": to final_factor times the rate and back in drop_period epochs, on straight lines
  // (Smith 2017), again and again;
  // "warmup": from warmup_factor times the rate to the rate, on a straight line.
  std::vector<std::string> learning_rate_schedule = {"none"};
  // Epochs (fractions too) that each of them lasts; the last may be left out, it lasts to the end.
  std::vector<double> schedule_epochs = {};
  double drop_factor = 0.1;
  int64_t drop_period = 10;
  double schedule_power = 1;
  double final_factor = 0;
  double warmup_factor = 0;
  // Instead of all these: the rate of an iteration, >= 0. From C++ only; must depend on nothing but
  // what it is given.
  std::function<double(const ScheduleStep&)> learning_rate_function = {};
  // Gradients (without L2) are cut so that they stay within it; 0: they are not. See
  // gradient_threshold_method: "l2norm" scales each learnable's gradient to at most this norm,
  // "global-l2norm" all together, "absolute-value" cuts each element.
  double gradient_threshold = 0;
  std::string gradient_threshold_method = "l2norm";
  // Times an observation's loss and gradient, by its class, in the order of the classes; none: 1
  // each. The sum is divided by the number of observations, not of weights. Validation does not
  // weigh.
  std::vector<double> class_weights = {};
  // Names of layers whose learnables stay as they are; they count in no gradient_threshold. What
  // follows mini-batches (batch normalisation's statistics) goes on doing so.
  std::vector<std::string> freeze = {};
  // g = g + l2 * factor * w, with the learnable's factor (1 for weights, 0 for biases and
  // normalisation unless the layer says otherwise). The reported loss excludes it.
  double l2 = 1e-4;
  int64_t mini_batch_size = 128;
  // Training ends after so many epochs. Schedules without schedule_epochs last as long.
  int64_t max_epochs = 30;
  // Training ends after so many iterations, also within an epoch, if max_epochs does not end it
  // before; 0: no limit. It changes no learning rate.
  int64_t max_iterations = 0;
  std::string shuffle = "every-epoch";  // "once", "never"
  // A last mini-batch of an epoch that is not full: "drop" or "keep".
  std::string last_mini_batch = "drop";
  // Training ends when so many validations in a row had no smaller loss than the smallest before;
  // 0: never.
  int64_t validation_patience = 0;
  // Whose values the trained network has: "last" iteration, or "best": the smallest validation
  // loss.
  std::string output_network = "last";
  // What batch normalisation uses in prediction: "moving" statistics, which followed the
  // mini-batches, or those of the "population", computed after the last iteration over all training
  // images; see population_statistics.h. Validations while training use moving ones.
  std::string batch_normalization_statistics = "moving";
  // Observations that are computed together, by one thread. Batch normalisation works within a
  // shard. 0: 16 on the CPU, 256 on a GPU.
  int64_t shard_size = 0;
  // false: may be faster, but the bits may depend on threads and change from run to run. See also
  // set_deterministic().
  bool deterministic = true;
  // What products are computed of. "fp32"; "tf32": GPUs round the factors of convolutions and fully
  // connected layers to 11 significant bits, CPUs refuse it; "bf16": convolutions, fully connected
  // layers, normalisation, pooling and what lies between them keep and multiply bfloat16;
  // learnables, sums, gradients of learnables, losses and validation stay fp32 (GPUs round the
  // gradients of convolutions' weights once a shard, too). Needs a processor with bf16 instructions
  // (AVX-512 BF16), or a GPU. "fp16": the same with IEEE's half precision, on GPUs only; see
  // loss_scale.
  std::string precision = "fp32";
  // Losses count so many times, a power of two, until their gradients have been added up: what is
  // below fp16's smallest number would be lost. 0: 128 for fp16, else 1.
  double loss_scale = 0;
  int64_t seed = 0;

  // "cpu", "cuda", "cuda:N", or "auto": the one that was chosen (devices.h); else the first GPU
  // that can compute the network, else the CPU; with worker processes, the CPU. The CPU and a GPU
  // give different bits.
  std::string device = "auto";
  // Iterations, or epochs by its unit; 0: once an epoch. Where patience ends, and which network is
  // best, depends on it.
  int64_t validation_frequency = 50;
  std::string validation_frequency_unit = "iteration";  // "epoch"

  // ---- what only speed, memory and output depend on ----

  // Computed with every validation besides loss and accuracy; see metric.h ("top-5", "f1", ...).
  std::vector<std::string> metrics = {};
  // The same of one's own; from C++ only.
  std::vector<MetricPtr> own_metrics = {};
  int64_t streams = 2;  // on a GPU: queues that shards are dealt to
  // Compute threads, of each worker where there are such; 0: one for each processor, shared among
  // the workers.
  int64_t threads = 0;
  // Worker processes that compute; 0: the threads of this one do. See TrainingProblem.
  int64_t workers = 0;
  // Where they run: hosts' names or addresses, each with how many ("10.0.0.2:4"; one where nothing
  // is said), "localhost" is this machine; all together `workers`. None: all on this machine. Every
  // host has the same executable and data under the same paths.
  std::vector<std::string> hosts = {};
  // What runs a command on a host, and where hosts find this machine; see HostProcessOptions. "":
  // ssh, and the address towards the first of them.
  std::string host_launch = {}, host_address = {};
  // How many shards each worker gets beside the others, by rank; none: even. 0: it gets none.
  std::vector<double> worker_load = {};
  // Seconds without a finished iteration after which a worker that others wait for is ended and
  // replaced; 0: the longest of 10, 20 times what a shard takes, and 4 times what an iteration
  // does.
  double worker_limit = 0;
  // Of worker processes that are started for the training (those of an open pool have the pool's):
  // MiB of its own data that each may have, 0: no limit; and what is set in their environment, as
  // "NAME=VALUE".
  int64_t worker_memory_mib = 0;
  std::vector<std::string> worker_environment = {};
  int64_t loader_threads = 1;
  int64_t prefetch = 4;     // mini-batches prepared ahead
  int64_t cache_mib = 512;  // decoded images kept in memory, MiB
  // Every so many iterations one shard is computed again, by other workers where there are such,
  // and all must get the same bits; 0: never. Costs one part in so many shards.
  int64_t check_frequency = 100;
  int64_t checkpoint_frequency = 0;  // iterations, or epochs by its unit; 0: once an epoch
  std::string checkpoint_frequency_unit = "iteration";  // "epoch"
  int64_t checkpoints_kept = 2;
  // Seconds after which the training stops as by hand: with a checkpoint from which it can go on.
  // 0: no limit.
  double max_time = 0;
  // Go on from a checkpoint that other processors or libraries made: the bits will differ.
  bool allow_other_numerics = false;

  // Names every field.
  void visit(FieldVisitor& v);
  // That of `precision`.
  DType dtype() const {
    return precision == "bf16" ? DType::bf16 : precision == "fp16" ? DType::f16 : DType::f32;
  }
  // What `loss_scale` stands for.
  double scale_of_losses() const {
    return loss_scale > 0 ? loss_scale : precision == "fp16" ? 128 : 1;
  }
  // Names of those that only speed, memory and output depend on: a training may go on with others.
  static const std::vector<std::string>& free_fields();
  // Names of those that only say when a training ends: it may go on with others, and is then what
  // it would have been with them from the beginning.
  static const std::vector<std::string>& ending_fields();
  // After which iteration a training ends at the latest, whose epochs have so many.
  int64_t last_iteration(int64_t iterations_per_epoch) const;
  // Throws InvalidArgument for values that do not go together.
  void check() const;
  // All that depends on defaults filled in: learning rate, threads, shard size ("auto" counts as
  // the CPU: resolve_device() comes first), and deterministic where set_deterministic(false) was
  // said.
  TrainingOptions resolved() const;
};

// An entry of TrainingOptions::hosts. "": this machine.
struct TrainingHost {
  std::string name;
  int workers = 1;
};

// Of options.hosts. Throws InvalidArgument for entries that are none. Thread-safe.
std::vector<TrainingHost> hosts_of(const TrainingOptions& options);

}  // namespace lockstep
