// Training options. Names and defaults follow the field's habits; every field is checked, and a
// wrong value is refused with the field's name.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/base/fields.h"

namespace lockstep {

struct TrainingOptions {
  // ---- what the result depends on ----

  // "sgdm": v = momentum * v - rate * g; w = w + v.
  // "adam": Kingma, Ba 2015, with bias correction.
  std::string solver = "sgdm";
  double momentum = 0.9;                  // sgdm
  double gradient_decay = 0.9;            // adam: beta 1
  double squared_gradient_decay = 0.999;  // adam: beta 2
  double epsilon = 1e-8;                  // adam, added to the root
  // 0: the solver's own (sgdm 0.01, adam 0.001).
  double initial_learning_rate = 0;
  // "none", or "piecewise": times drop_factor after every drop_period epochs.
  std::string learning_rate_schedule = "none";
  double drop_factor = 0.1;
  int64_t drop_period = 10;
  // g = g + l2 * factor * w, with the learnable's factor (1 for weights, 0 for biases and
  // normalisation unless the layer says otherwise). The reported loss excludes it.
  double l2 = 1e-4;
  int64_t mini_batch_size = 128;
  int64_t max_epochs = 30;
  std::string shuffle = "every-epoch";  // "once", "never"
  // A last mini-batch of an epoch that is not full: "drop" or "keep".
  std::string last_mini_batch = "drop";
  // Training ends when so many validations in a row had no smaller loss than the smallest before;
  // 0: never.
  int64_t validation_patience = 0;
  // Whose values the trained network has: "last" iteration, or "best": the smallest validation
  // loss.
  std::string output_network = "last";
  // Observations that are computed together, by one thread. Batch normalisation works within a
  // shard. 0: 16 on the CPU, 256 on a GPU.
  int64_t shard_size = 0;
  // false: may be faster, but the bits may depend on threads and change from run to run. See also
  // set_deterministic().
  bool deterministic = true;
  int64_t seed = 0;

  // "cpu", "cuda", "cuda:N", or "auto": the first GPU that can compute the network, else the CPU.
  // The CPU and a GPU give different bits.
  std::string device = "auto";
  // Iterations; 0: once an epoch. Where patience ends, and which network is best, depends on it.
  int64_t validation_frequency = 50;

  // ---- what only speed, memory and output depend on ----

  int64_t streams = 2;  // on a GPU: queues that shards are dealt to
  int64_t threads = 0;  // compute threads; 0: one for each processor
  int64_t loader_threads = 1;
  int64_t prefetch = 4;              // mini-batches prepared ahead
  int64_t cache_mib = 512;           // decoded images kept in memory, MiB
  int64_t checkpoint_frequency = 0;  // iterations; 0: once an epoch
  int64_t checkpoints_kept = 2;
  // Go on from a checkpoint that other processors or libraries made: the bits will differ.
  bool allow_other_numerics = false;

  // Names every field.
  void visit(FieldVisitor& v);
  // Throws InvalidArgument for values that do not go together.
  void check() const;
  // All that depends on defaults filled in: learning rate, threads, shard size ("auto" counts as
  // the CPU: resolve_device() comes first), and deterministic where set_deterministic(false) was
  // said.
  TrainingOptions resolved() const;
};

}  // namespace lockstep
