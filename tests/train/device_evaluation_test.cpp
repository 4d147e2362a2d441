// Evaluation on a device, in large batches of which several are under way. A stand-in runs the
// CPU's kernels, so the bits are the CPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "lockstep/base/os/memory_room.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/train/evaluation/device_batches.h"
#include "lockstep/train/evaluation/evaluator.h"
#include "lockstep/train/input/targets.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using devicetest::FakeDevice;
using testing::MemoryStore;
using testing::small_classifier;
using testing::some_digits;

Network trained() {
  Network network = small_classifier();
  train(network, {some_digits(60), nullptr}, testing::small_options());
  return network;
}

// Sums floats. The bits show the order of addition.
struct SumOfScores {
  double sum = 0;
  void accumulate(const ScoredObservation& o) {
    sum += 1e6 * static_cast<double>(o.scores[static_cast<size_t>(o.label)]);
  }
  void merge(const SumOfScores& later) { sum += later.sum; }
  double finish() const { return sum; }
};
// Takes the observations in order.
struct InOrderOfIndex {
  double value = 0;
  int64_t next = 0;
  void accumulate(const ScoredObservation& o) {
    EXPECT_EQ(o.index, next++);
    value = 0.9 * value + static_cast<double>(o.scores[0]);
  }
  double finish() const { return value; }
};

Measures measures() {
  return {{make_metric("sum", SumOfScores{}), make_metric("in order", InOrderOfIndex{})}, true};
}

Evaluator::Data data_for(Network& network, const DatastorePtr& data) {
  return {.images = cache_for(network, data, size_t{1} << 26)};
}

void expect_same(const Evaluation& a, const Evaluation& b) {
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.accuracy, b.accuracy);
  EXPECT_EQ(a.metrics, b.metrics);
  EXPECT_EQ(a.confusion, b.confusion);
}

Evaluation evaluated(Network& network, const DatastorePtr& data, Tensor* outputs = nullptr) {
  ThreadPool pool(2);
  return Evaluator(network, data_for(network, data), pool, measures()).run(outputs);
}

TEST(DeviceEvaluation, ComputesWhatThreadsCompute) {
  const FakeDevice fake;
  Network here = trained(), there = here.clone();
  there.to(fake);
  // Two batches and a part of a third one; fewer than one; none.
  for (const int64_t n : {1100, 512, 3, 0}) {
    const DatastorePtr data = some_digits(n, 20);
    Tensor expected, outputs;
    const Evaluation cpu = evaluated(here, data, &expected);
    if (n == 0) {
      EXPECT_EQ(evaluated(there, data, &outputs).observations, 0);
      continue;
    }
    expect_same(evaluated(there, data, &outputs), cpu);
    EXPECT_EQ(outputs.to_vector(), expected.to_vector()) << n;
  }
}

TEST(DeviceEvaluation, AScoreDependsOnItsImageAlone) {
  const FakeDevice fake;
  Network network = trained();
  network.to(fake);
  const DatastorePtr all = some_digits(600, 20);
  const std::vector<float> expected = predict(network, all).to_vector();
  for (const int64_t i : {0, 511, 512, 599}) {
    const std::vector<float> alone = predict(network, subset(all, {i})).to_vector();
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), expected.begin() + 10 * i)) << i;
  }
}

// The number of batches under way depends on the memory, the bits do not.
TEST(DeviceEvaluation, TakesFewerPlacesWhereTheMemoryIsSmall) {
  const DatastorePtr data = some_digits(1700, 20);
  Network here = trained();
  const Evaluation expected = evaluated(here, data);
  std::vector<size_t> used;
  for (const size_t megabytes : {size_t{256}, size_t{14}}) {
    const FakeDevice fake(0, {.bytes = megabytes << 20});
    Network there = here.clone();
    there.to(fake);
    ThreadPool pool(2);
    Evaluator evaluator(there, data_for(there, data), pool, measures());
    EXPECT_LT(fake.used(), size_t{1} << 20) << "the plan is made when it is needed";
    expect_same(evaluator.run(), expected);
    used.push_back(fake.used());
    EXPECT_LT(used.back(), megabytes << 20);
  }
  EXPECT_LT(used[1], used[0] * 3 / 4);
  const FakeDevice fake(0, {.bytes = size_t{4} << 20});
  Network there = here.clone();
  there.to(fake);
  EXPECT_THROW(evaluate(there, data), OutOfMemory);
}

// A batch that could not be read leaves others under way.
TEST(DeviceEvaluation, GoesOnAfterAReadThatFails) {
  const FakeDevice fake;
  Network network = trained();
  network.to(fake);
  auto store = std::make_shared<MemoryStore>(1700, 28, 28, 1);
  bool fails = false;
  store->on_read = [&](int64_t index) {
    if (fails && index == 1200) throw InvalidArgument("[test] no such image");
  };
  ThreadPool pool(2);
  Evaluator evaluator(network, {.images = cache_for(network, store, 0)}, pool);
  const double expected = evaluator.run().loss;
  fails = true;
  EXPECT_THROW(evaluator.run(), InvalidArgument);
  fails = false;
  EXPECT_EQ(evaluator.run().loss, expected);
}

// Members take batches, whose rows stay in their places whoever takes them.
TEST(DeviceEvaluation, MembersDivideTheBatches) {
  const FakeDevice fake;
  Network first = trained(), second = first.clone();
  const DatastorePtr data = some_digits(1700, 20);
  const Evaluation expected = evaluated(first, data);
  first.to(fake);
  second.to(fake);
  ThreadPool pool(2), other_pool(1);
  Evaluator one(first, data_for(first, data), pool, measures());
  Evaluator two(second, data_for(second, data), other_pool, measures());
  ASSERT_EQ(one.batches(), 4);
  ASSERT_TRUE(one.wants_scores());
  std::vector<double> here(one.area_bytes(true) / sizeof(double) + 1), there = here;
  auto* const area = reinterpret_cast<std::byte*>(here.data());
  auto* const other = reinterpret_cast<std::byte*>(there.data());
  Evaluator::partition(area, 0, 1);
  Evaluator::partition(other, 1, 4);
  one.take_part(area, true);
  std::atomic<int64_t> begun = 0;
  two.take_part(other, true, &begun);
  EXPECT_EQ(begun, 3);
  one.merge(area, other, 1, 4, true);
  expect_same(one.result(area), expected);
}

TEST(DeviceEvaluation, ComputesAsTheTrainingDoes) {
  if (!kernels::table_for({}).bf16) GTEST_SKIP() << "no bf16 instructions";
  const FakeDevice fake;
  Network network = trained();
  network.to(fake);
  const auto with = [&](DType precision) {
    ThreadPool pool(1);
    Evaluator::Data data = data_for(network, some_digits(100, 20));
    data.precision = precision;
    return Evaluator(network, data, pool).run().loss;
  };
  const double wide = with(DType::f32), narrow = with(DType::bf16);
  EXPECT_NE(narrow, wide);
  EXPECT_NEAR(narrow, wide, 0.02 * wide);
}

// The size of a batch depends on the network alone.
TEST(DeviceEvaluation, TheNetworkSetsTheSizeOfBatches) {
  const auto rows = [](int64_t side, int64_t filters) {
    Network network{image_input({.height = side, .width = side, .channels = 3}),
                    convolution2d({.filters = filters, .kernel = {3, 3}, .padding = same_padding}),
                    average_pooling2d({.pool = {side, side}}), fully_connected({.units = 10}),
                    softmax()};
    network.initialize(1);
    return DeviceBatches::rows_for(network.lower(64, {}).graph, 64);
  };
  EXPECT_EQ(rows(32, 64), DeviceBatches::kMostRows);
  // 224 x 224 x (64 + 3) floats are 12.8 MiB: 1 GiB has room for 79 observations.
  EXPECT_EQ(rows(224, 64), 64);
  EXPECT_EQ(rows(224, 32), 128);
}

}  // namespace
}  // namespace lockstep
