// Runs of one custom loop, for tests that compare them.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/parallel/comm/group.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/input/mini_batches.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/options/options.h"
#include "tests/train/law_problem.h"

namespace lockstep::testing {

inline Tensor trainers_loss(Shard& shard) {
  const Tensor logits = shard.forward(shard[0], {.outputs = {"fully_connected_1"}});
  return ops::softmax_cross_entropy(logits, shard[1]);
}

struct Loop {
  std::vector<double> losses;
  std::vector<std::vector<float>> values;
  Digest digest;
  int64_t shards = 0;  // computed by this member

  template <class Archive>
  void serialize(Archive& archive) {
    archive(losses, values, digest, shards);
  }
};

inline void expect_same(const Loop& a, const Loop& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.values, b.values);
  EXPECT_EQ(a.digest, b.digest);
}

// Uses the mini-batches and the update of a training with law_options().
inline Loop run(ShardGroupOptions how, Device device = {}, Group* members = nullptr,
                bool batches_on_device = false, int64_t epochs = 3) {
  Network network = law_network();
  TrainingData data = law_data();
  data.validation = nullptr;
  TrainingOptions options = law_options(1);
  options.max_epochs = epochs;
  const auto images =
      std::make_shared<const ExampleCache>(data.training, 28, 28, 1, size_t{1} << 22);
  ThreadPool readers(1);
  set_input_normalization(network, images->fill(readers).channels());
  network.to(device);
  how.shard_size = law_shard;
  how.seed = 5;
  Loop loop;
  {
    ShardGroup group = members ? ShardGroup(network, how, *members) : ShardGroup(network, how);
    MiniBatchQueue queue(images, mini_batches_of(data, options));
    SgdmState state;
    for (int64_t iteration = 1; queue.has_data(); ++iteration) {
      const auto batch = queue.next();
      std::vector<Tensor> tensors{batch->input().tensor(),
                                  Tensor::from(batch->labels(), {batch->size()})};
      if (batches_on_device) {
        for (Tensor& t : tensors) t = t.to(device);
      }
      const auto [loss, gradients] =
          sharded_value_and_gradient(trainers_loss, tensors, group, iteration);
      loop.losses.push_back(loss);
      sgdm_update(network, gradients, state, {.learning_rate = 0.05, .l2 = 1e-4});
    }
    for (const int64_t n : group.shards_by_thread()) loop.shards += n;
  }
  loop.digest = network_digest(network);
  for (const auto& p : network.parameters()) loop.values.push_back(p.value.to_vector());
  for (const auto& s : network.state()) loop.values.push_back(s.value.to_vector());
  return loop;
}

// Changes a gradient of shard 0 in one iteration on its first computation by this process.
inline constexpr int64_t planted_iteration = 4;
inline std::atomic<int> planted_flips = 0;
inline void flip_once(const char*, int64_t iteration, int64_t shard, void* data, size_t) {
  if (iteration != planted_iteration || shard != 0 || planted_flips++ > 0) return;
  static_cast<unsigned char*>(data)[2] ^= 64;
}
inline void plant_corruption() {
  planted_flips = 0;
  set_corruption_hook(flip_once);
}

}  // namespace lockstep::testing
