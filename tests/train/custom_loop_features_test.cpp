// Features that custom loops share with the trainer: devices, precisions, loads, shard checks.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/parallel/comm/group.h"
#include "lockstep/parallel/pool/spmd.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/iteration/shard_check.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/custom_loop_runs.h"

namespace lockstep {
namespace {

using devicetest::FakeDevice;

using testing::expect_same;
using testing::Loop;
using testing::run;
using testing::trainers_loss;

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
    EXPECT_THROW(run({.precision = Precision::bf16}), Unsupported);
    EXPECT_THROW(run({.precision = Precision::bf16}, fake), Unsupported);
  } else {
    const Loop narrow = run({.threads = 2, .precision = Precision::bf16});
    EXPECT_NE(narrow.losses, run({.threads = 2}).losses);
    expect_same(run({.threads = 1, .precision = Precision::bf16}), narrow);
    expect_same(run({.precision = Precision::bf16}, fake), narrow);
  }
  EXPECT_THROW(run({.precision = Precision::tf32}), Unsupported);
  EXPECT_THROW(run({.precision = static_cast<Precision>(9)}), InvalidArgument);
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

TEST(CustomLoopFeatures, ChecksFindAFaultAndChangeNoBit) {
  const Loop plain = run({.threads = 2});
  const FakeDevice fake;
  const Device devices[] = {Device{}, fake};
  for (const Device& device : devices) {
    SCOPED_TRACE(to_string(device));
    expect_same(run({.threads = 2, .check_frequency = 4}, device), plain);
    testing::plant_corruption();
    try {
      run({.threads = 2, .check_frequency = 4}, device);
      ADD_FAILURE() << "the fault was not found";
    } catch (const ShardsDiffer& e) {
      EXPECT_EQ(e.iteration(), testing::planted_iteration);
      EXPECT_EQ(e.shard(), 0);
    }
    set_corruption_hook(nullptr);
  }
}

// A loss with all that may go to a stream besides the shards' plans: predictions, parameters,
// constants, values that the host reads.
Tensor wide_loss(Shard& shard, Network& network, Network& teacher) {
  const auto run = shard.forward_all({shard[0]}, {.outputs = {"dropout_1", "fully_connected_1"}});
  const Tensor again = shard.forward(shard[0], {.outputs = {"fully_connected_1"}});
  const Tensor direct =
      ops::fully_connected(ops::flatten(run[0]), network.parameter("fully_connected_1.weights"),
                           network.parameter("fully_connected_1.bias"));
  const Tensor targets = teacher.predict(shard[0]), own = network.predict(shard[0]);
  const Tensor loss = ops::add({ops::softmax_cross_entropy(run[1], shard[1]),
                                ops::softmax_cross_entropy(again, shard[1]),
                                ops::mean_squared_error(ops::tanh(direct), run[1]),
                                ops::mean_squared_error(ops::softmax(run[1]), targets),
                                ops::mean_squared_error(ops::softmax(again), own)});
  const float factor = own.to_vector()[0] > 0.1f ? 0.5f : 0.25f;
  return ops::multiply({loss, Tensor::full(loss.shape(), factor, loss.device())});
}

// The shards of a call are spread over the device's streams.
TEST(CustomLoopFeatures, AnyLossHasItsBitsOnSeveralStreams) {
  const FakeDevice fake;
  const auto run_on = [&](Device device) {
    Network network = testing::law_network(), teacher = testing::law_network();
    teacher.initialize(12);
    const char* const offset = "image_input_1.offset";
    teacher.state_value(offset).copy_from(network.state_value(offset));
    network.to(device);
    teacher.to(device);
    Loop loop;
    {
      ShardGroup group(network, {.threads = 2, .shard_size = testing::law_shard, .seed = 5});
      const TrainingData data = testing::law_data();
      const auto images =
          std::make_shared<const ExampleCache>(data.training, 28, 28, 1, size_t{1} << 22);
      MiniBatchQueue queue(images, {.mini_batch_size = 20});
      SgdmState state;
      for (int64_t iteration = 1; iteration <= 2; ++iteration) {
        const auto batch = queue.next();
        const auto [loss, gradients] = sharded_value_and_gradient(
            [&](Shard& shard) { return wide_loss(shard, network, teacher); },
            {batch->input().tensor(), Tensor::from(batch->labels(), {batch->size()})}, group,
            iteration);
        loop.losses.push_back(loss);
        sgdm_update(network, gradients, state, {.learning_rate = 0.01});
      }
      EXPECT_EQ(group.shards_by_thread().size(), device.is_cpu() ? 2u : 4u);
      if (!device.is_cpu()) {
        EXPECT_GT(group.shards_by_thread()[0], 0);
        EXPECT_GT(group.shards_by_thread()[1], 0);
        EXPECT_GT(group.shards_by_thread()[2], 0);  // 20 observations are three shards
      }
    }
    network.to({});
    for (const auto& p : network.parameters()) loop.values.push_back(p.value.to_vector());
    for (const auto& s : network.state()) loop.values.push_back(s.value.to_vector());
    return loop;
  };
  const Loop here = run_on({});
  expect_same(run_on(fake), here);
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

// A loss that fails leaves nothing under way that a later call could disturb.
TEST(CustomLoopFeatures, ADeviceContinuesAfterALossThatFails) {
  const FakeDevice fake;
  Network network = testing::law_network();
  network.to(fake);
  {
    ShardGroup group(network, {.shard_size = 7});
    const Tensor x = Tensor::full({40, 1, 28, 28}, 0.5f);
    const std::vector<int32_t> classes(40, 1);
    const Tensor y = Tensor::from(std::span(classes), {40});
    const ValueAndGradients before = sharded_value_and_gradient(trainers_loss, {x, y}, group, 1);
    EXPECT_THROW(sharded_value_and_gradient(
                     [](Shard& shard) {
                       if (shard.first() > 20) throw DataError("[test] enough");
                       return trainers_loss(shard);
                     },
                     {x, y}, group, 1),
                 DataError);
    const ValueAndGradients after = sharded_value_and_gradient(trainers_loss, {x, y}, group, 1);
    EXPECT_EQ(before.value, after.value);
    for (size_t p = 0; p < before.gradients.size(); ++p) {
      EXPECT_EQ(before.gradients[p].to_vector(), after.gradients[p].to_vector());
    }
  }
  network.to({});
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
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
