// The law in custom loops. A second build adds sums in order of arrival; there each of these tests
// must fail.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/parallel/comm/group.h"
#include "lockstep/parallel/pool/spmd.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/input/mini_batches.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/state/state_digest.h"
#include "lockstep/train/trainer.h"
#include "tests/train/law_network.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

// 15 shards of two sizes, and a partial mini-batch at the end of every epoch.
constexpr int64_t kMiniBatch = 100, kShard = 7, kImages = 370;

TrainingOptions test_options() {
  TrainingOptions options;
  options.mini_batch_size = kMiniBatch;
  options.shards.size = kShard;
  options.max_epochs = 2;
  options.solver.initial_learning_rate = 0.05;
  options.data.last_mini_batch = LastMiniBatch::keep;
  options.seed = 5;
  options.threads = 2;
  return options;
}

TrainingData loop_data() {
  TrainingData data;
  data.training = testing::some_digits(kImages);
  data.augmentation.translate_x = {-3, 3};
  return data;
}

struct Loop {
  std::vector<double> losses;
  Digest digest;
  std::vector<int64_t> shards_by_thread;
};

// A user-defined loss: of the whole network, or like the trainer's of the values in front of
// softmax.
Tensor plain_loss(Shard& shard) { return ops::cross_entropy(shard.forward(shard[0]), shard[1]); }
Tensor trainers_loss(Shard& shard) {
  const Tensor logits = shard.forward(shard[0], {.outputs = {"fully_connected_1"}});
  return ops::softmax_cross_entropy(logits, shard[1]);
}

// Trains with `update(network, gradients, pool, iteration)`.
template <class Update>
Loop run(int threads, const ShardLoss& loss, const Update& update, Group* members = nullptr) {
  Network network = testing::law_network();
  const TrainingData data = loop_data();
  const TrainingOptions options = test_options();
  const ShardGroupOptions how{.threads = threads, .shard_size = kShard, .seed = 5};
  ShardGroup group = members ? ShardGroup(network, how, *members) : ShardGroup(network, how);
  const auto images =
      std::make_shared<const ExampleCache>(data.training, 28, 28, 1, size_t{1} << 22);
  set_input_normalization(network, images->fill(group.pool()).channels());
  MiniBatchQueue queue(images, mini_batches_of(data, options));
  Loop loop;
  for (int64_t iteration = 1; queue.has_data(); ++iteration) {
    const auto batch = queue.next();
    const Tensor x = batch->input().tensor();
    const Tensor labels = Tensor::from(batch->labels(), {batch->size()});
    const auto [value, gradients] = sharded_value_and_gradient(loss, {x, labels}, group, iteration);
    loop.losses.push_back(value);
    update(network, gradients, group.pool(), iteration);
  }
  loop.digest = network_digest(network);
  loop.shards_by_thread = group.shards_by_thread();
  return loop;
}

Loop run_sgdm(int threads, const ShardLoss& loss, Group* members = nullptr) {
  SgdmState state;
  return run(
      threads, loss,
      [&](Network& network, const auto& gradients, ThreadPool& pool, int64_t) {
        sgdm_update(network, gradients, state, {.learning_rate = 0.05, .l2 = 1e-4, .pool = &pool});
      },
      members);
}

void expect_everyone_worked(const Loop& loop, int threads) {
  std::string counts;
  for (int64_t shards : loop.shards_by_thread) {
    counts += " " + std::to_string(shards);
    EXPECT_GT(shards, 0) << "a thread stayed idle";
  }
  std::printf("%d threads: shards by thread%s, digest %s\n", threads, counts.c_str(),
              loop.digest.to_string().c_str());
}

TEST(LawOfCustomLoops, OneDigestForAnyNumberOfThreads) {
  const Loop one = run_sgdm(1, plain_loss);
  ASSERT_EQ(one.losses.size(), 8u);
  expect_everyone_worked(one, 1);
  for (int threads : {2, 3, 5}) {
    const Loop many = run_sgdm(threads, plain_loss);
    expect_everyone_worked(many, threads);
    EXPECT_EQ(many.losses, one.losses);
    EXPECT_EQ(many.digest, one.digest);
  }
}

// The same over the workers of a pool, processes and threads, for any number of workers.
TEST(LawOfCustomLoops, OneDigestForAnyNumberOfWorkers) {
  const Loop one = run_sgdm(1, plain_loss);
  for (const bool threads : {false, true}) {
    for (const int workers : {1, 2, 3, 5, 8}) {
      Pool pool({.workers = workers, .threads = threads});
      const auto all = spmd(
          pool,
          [](Spmd& block, int each) {
            const Loop loop = run_sgdm(each, plain_loss, &block.group());
            int64_t shards = 0;
            for (const int64_t n : loop.shards_by_thread) shards += n;
            return std::tuple(loop.digest, loop.losses, shards);
          },
          workers == 3 ? 2 : 1);
      std::string counts;
      for (const auto& [digest, losses, shards] : all) {
        counts += " " + std::to_string(shards);
        EXPECT_GT(shards, 0) << "a worker stayed idle";
        EXPECT_EQ(digest, one.digest);
        EXPECT_EQ(losses, one.losses);
      }
      std::printf("%d %s: shards by worker%s\n", workers, threads ? "threads" : "processes",
                  counts.c_str());
    }
  }
}

// A position is the network, the solver's state and the iteration number. Any process with any
// threads can continue from it.
TEST(LawOfCustomLoops, StoppedAndContinuedByOtherProcesses) {
  const TrainingData data = loop_data();
  const auto images =
      std::make_shared<const ExampleCache>(data.training, 28, 28, 1, size_t{1} << 22);
  MiniBatchQueue queue(images, mini_batches_of(data, test_options()));
  std::vector<std::vector<Tensor>> batches;
  while (queue.has_data()) {
    const auto batch = queue.next();
    batches.push_back({batch->input().tensor(), Tensor::from(batch->labels(), {batch->size()})});
  }
  const auto steps = [&](Network& network, SgdmState& state, int threads, size_t from, size_t to) {
    ShardGroup group(network, {.threads = threads, .shard_size = kShard, .seed = 5});
    for (size_t i = from; i < to; ++i) {
      const auto [value, gradients] =
          sharded_value_and_gradient(plain_loss, batches[i], group, static_cast<int64_t>(i) + 1);
      sgdm_update(network, gradients, state, {.learning_rate = 0.05});
    }
  };
  Network whole = testing::law_network();
  SgdmState state;
  steps(whole, state, 2, 0, batches.size());
  for (size_t stop = 1; stop < batches.size(); stop += 3) {
    Network first = testing::law_network();
    SgdmState before, after;
    steps(first, before, 3, 0, stop);
    Network second = first.clone();
    for (const Tensor& velocity : before.velocity) after.velocity.push_back(velocity.clone());
    steps(second, after, 5, stop, batches.size());
    EXPECT_EQ(network_digest(second), network_digest(whole)) << stop;
    Network without_state = first.clone();
    SgdmState none;
    steps(without_state, none, 5, stop, batches.size());
    EXPECT_NE(network_digest(without_state), network_digest(whole)) << stop;
  }
}

// Expects the trainer's history and network, bit for bit.
void expect_trainers_bits(const std::string& solver, const Loop& loop) {
  Network network = testing::law_network();
  TrainingOptions options = test_options();
  options.solver.type = solver;
  const TrainingResult result = train(network, loop_data(), options);
  std::vector<double> losses;
  for (const auto& record : result.iterations) losses.push_back(record.loss);
  EXPECT_EQ(loop.losses, losses) << solver;
  EXPECT_EQ(loop.digest, network_digest(network)) << solver;
}

TEST(LawOfCustomLoops, TheTrainersBitsForEverySolver) {
  expect_trainers_bits("sgdm", run_sgdm(3, trainers_loss));
  AdamState adam, adamw;
  RmspropState rmsprop;
  expect_trainers_bits(
      "adam",
      run(3, trainers_loss, [&](Network& network, const auto& gradients, ThreadPool&, int64_t) {
        adam_update(network, gradients, adam, {.learning_rate = 0.05, .l2 = 1e-4});
      }));
  expect_trainers_bits("adamw",
                       run(2, trainers_loss,
                           [&](Network& network, const auto& gradients, ThreadPool& pool, int64_t) {
                             adamw_update(network, gradients, adamw,
                                          {.learning_rate = 0.05, .l2 = 1e-4, .pool = &pool});
                           }));
  expect_trainers_bits(
      "rmsprop",
      run(3, trainers_loss, [&](Network& network, const auto& gradients, ThreadPool&, int64_t) {
        rmsprop_update(network, gradients, rmsprop, {.learning_rate = 0.05, .l2 = 1e-4});
      }));
}

}  // namespace
}  // namespace lockstep
