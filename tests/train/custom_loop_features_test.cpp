// Features that custom loops share with the trainer: devices, precisions, loads, shard checks.
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/parallel/comm/group.h"
#include "lockstep/parallel/pool/spmd.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/input/mini_batches.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/state/state_digest.h"
#include "lockstep/train/step/shard_check.h"
#include "lockstep/train/trainer.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/law_problem.h"

namespace lockstep {
namespace {

using devicetest::FakeDevice;

Tensor trainers_loss(Shard& shard) {
  const Tensor logits = shard.forward(shard[0], {.outputs = {"fully_connected_1"}});
  return ops::softmax_cross_entropy(logits, shard[1]);
}

struct Loop {
  std::vector<double> losses;
  std::vector<std::vector<float>> values;
  int64_t shards = 0;  // computed by this member

  template <class Archive>
  void serialize(Archive& archive) {
    archive(losses, values, shards);
  }
};

void expect_same(const Loop& a, const Loop& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.values, b.values);
}

// Uses the mini-batches and the update of a training with law_options().
Loop run(ShardGroupOptions how, Device device = {}, Group* members = nullptr,
         bool batches_on_device = false) {
  Network network = testing::law_network();
  TrainingData data = testing::law_data();
  data.validation = nullptr;
  const TrainingOptions options = testing::law_options(1);
  const auto images =
      std::make_shared<const ExampleCache>(data.training, 28, 28, 1, size_t{1} << 22);
  ThreadPool readers(1);
  set_input_normalization(network, images->fill(readers).channels());
  network.to(device);
  how.shard_size = testing::law_shard;
  how.seed = 5;
  Loop loop;
  {
    ShardGroup group = members ? ShardGroup(network, how, *members) : ShardGroup(network, how);
    MiniBatchQueue queue(images, mini_batches_of(data, options));
    SgdmState state;
    for (int64_t iteration = 1; queue.has_data(); ++iteration) {
      const auto batch = queue.next();
      std::vector<Tensor> tensors{
          Tensor::from(std::span(batch->inputs[0].pixels), {batch->size(), 1, 28, 28}),
          Tensor::from(std::span(batch->labels), {batch->size()})};
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
  for (const auto& p : network.parameters()) loop.values.push_back(p.value.to_vector());
  for (const auto& s : network.state()) loop.values.push_back(s.value.to_vector());
  return loop;
}

TEST(CustomLoopFeatures, ADeviceGivesTheBitsOfItsKernels) {
  const Loop here = run({.threads = 2});
  ASSERT_EQ(here.losses.size(), static_cast<size_t>(testing::law_iterations));
  const FakeDevice fake;
  expect_same(run({}, fake), here);
  expect_same(run({}, fake, nullptr, true), here);
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

TEST(CustomLoopFeatures, PrecisionsAreTheTrainers) {
  const FakeDevice fake;
  if (!kernels::table_for({}).bf16) {
    EXPECT_THROW(run({.precision = "bf16"}), Unsupported);
    EXPECT_THROW(run({.precision = "bf16"}, fake), Unsupported);
  } else {
    const Loop narrow = run({.threads = 2, .precision = "bf16"});
    EXPECT_NE(narrow.losses, run({.threads = 2}).losses);
    expect_same(run({.threads = 1, .precision = "bf16"}), narrow);
    expect_same(run({.precision = "bf16"}, fake), narrow);
  }
  EXPECT_THROW(run({.precision = "tf32"}), Unsupported);
  EXPECT_THROW(run({.precision = "half"}), InvalidArgument);
  // A scale that is a power of two changes no bit in fp32.
  expect_same(run({.threads = 2, .loss_scale = 1024}), run({.threads = 2}));
}

TEST(CustomLoopFeatures, LoadsChangeTheSpeedAlone) {
  const Loop alone = run({.threads = 1});
  // Each member has its own device.
  const FakeDevice fakes[] = {FakeDevice(0), FakeDevice(1), FakeDevice(2)};
  for (const bool on_device : {false, true}) {
    Pool pool({.workers = 3, .threads = true});
    const auto all = spmd(
        pool,
        [](Spmd& block, bool device) {
          const Device own = device ? Device{Device::Kind::cuda, block.group().rank()} : Device{};
          return run({.threads = 1, .loads = {3, 1, 0}}, own, &block.group());
        },
        on_device);
    for (const Loop& loop : all) expect_same(loop, alone);
    EXPECT_GT(all[0].shards, 2 * all[1].shards);
    EXPECT_GT(all[1].shards, 0);
    EXPECT_EQ(all[2].shards, 0);
    EXPECT_EQ(all[0].shards + all[1].shards, alone.shards);
  }
  Pool pool({.workers = 2, .threads = true});
  EXPECT_THROW(spmd(pool,
                    [](Spmd& block) {
                      return run({.threads = 1, .loads = {1, 1, 1}}, {}, &block.group());
                    }),
               InvalidArgument);
}

// Changes a gradient of shard 0 in iteration 4 on its first computation.
void flip_once(const char*, int64_t iteration, int64_t shard, void* data, size_t bytes) {
  static std::atomic<int> flips = 0;
  if (bytes == 0) {
    flips = 0;  // a new test
    return;
  }
  if (iteration != 4 || shard != 0 || flips++ > 0) return;
  static_cast<unsigned char*>(data)[2] ^= 64;
}

TEST(CustomLoopFeatures, ChecksFindAFaultAndChangeNoBit) {
  const Loop plain = run({.threads = 2});
  const FakeDevice fake;
  const Device devices[] = {Device{}, fake};
  for (const Device& device : devices) {
    SCOPED_TRACE(to_string(device));
    expect_same(run({.threads = 2, .check_frequency = 4}, device), plain);
    flip_once("", 0, 0, nullptr, 0);
    set_corruption_hook(flip_once);
    try {
      run({.threads = 2, .check_frequency = 4}, device);
      ADD_FAILURE() << "the fault was not found";
    } catch (const ShardsDiffer& e) {
      EXPECT_EQ(e.iteration(), 4);
      EXPECT_EQ(e.shard(), 0);
    }
    set_corruption_hook(nullptr);
  }
}

TEST(CustomLoopFeatures, NameWhatIsWrong) {
  Network network = testing::law_network();
  EXPECT_THROW(ShardGroup(network, {.check_frequency = -1}), InvalidArgument);
  EXPECT_THROW(ShardGroup(network, {.limit = 0}), InvalidArgument);
  EXPECT_THROW(ShardGroup(network, {.loads = {3, 1}}), InvalidArgument) << "no member of a group";
  const FakeDevice fake;
  network.to(fake);
  EXPECT_THROW(ShardGroup(network, {.profile = true}), Unsupported);
  {
    ShardGroup group(network);
    network.to({});
    EXPECT_THROW(
        sharded_value_and_gradient(
            trainers_loss,
            {Tensor::zeros({3, 1, 28, 28}, DType::u8), Tensor::zeros({3}, DType::i32)}, group, 1),
        InvalidArgument);
  }
}

}  // namespace
}  // namespace lockstep
