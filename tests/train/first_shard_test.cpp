// Each training on a device compares its first shard with the CPU's. A stand-in device runs the
// CPU's kernels; defects are planted into its kernels for the shape of a shard alone, which the
// self-test of the kernels does not know.
#include "lockstep/train/iteration/first_shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/images/augment_images.h"
#include "lockstep/engine/kernels/loading.h"
#include "lockstep/engine/kernels/self_test/self_test.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/train/programs/shard.h"
#include "lockstep/train/trainer.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using devicetest::FakeDevice;
using kernels::Kernel;
using kernels::Operand;
using kernels::Pass;
using kernels::Table;
using testing::Recorder;
using testing::small_classifier;
using testing::some_digits;

constexpr int64_t kShard = 7;  // observations of the first shard; the last one has 6

TrainingOptions options_on(const std::string& device) {
  TrainingOptions options = testing::small_options();
  options.device = device;
  options.max_epochs = 1;
  options.streams = 2;
  return options;
}

TrainingData digits() {
  TrainingData data{.training = some_digits(60)};
  data.augmentation.reflect_x = true;
  data.augmentation.translate_x = {-2, 2};
  return data;
}

TrainingResult run(Recorder& recorder, const TrainingOptions& options, TrainingControl control = {},
                   TrainingData data = digits(), Network network = small_classifier()) {
  control.observers.push_back(&recorder);
  return train(network, data, options, control);
}

// The notices about the comparison.
std::vector<std::string> said(const Recorder& recorder) {
  std::vector<std::string> found;
  for (const std::string& text : recorder.notices) {
    if (text.find("first shard") != text.npos) found.push_back(text);
  }
  return found;
}

void expect_agreement(const Recorder& recorder,
                      const std::string& part = " agrees with the CPU's") {
  ASSERT_EQ(said(recorder).size(), 1u);
  EXPECT_NE(said(recorder)[0].find(part), std::string::npos) << said(recorder)[0];
}

// ---- Planted changes of kernels ----

// What happens to the result of a pass. `all`: at shards of every size.
struct SpoiledResult {
  std::function<void(float* result, size_t size)> spoil;
  Operand::Kind kind = Operand::Kind::output;
  int index = 0;
  bool all = false;
};
SpoiledResult planted;

void spoil(Pass& pass) {
  for (size_t w = 0; w < pass.writes.size(); ++w) {
    const Operand& operand = pass.writes[w];
    if (operand.kind != planted.kind || operand.index != planted.index) continue;
    if (operand.spec.dtype != DType::f32) continue;
    pass.bind = [inner = pass.bind, change = planted.spoil, w,
                 size = operand.spec.bytes() / sizeof(float)](const kernels::PassMemory& where) {
      return kernels::BoundPass(
          [bound = inner(where), change, size,
           result = static_cast<float*>(where.writes[w])](const RandomContext& s) {
            bound(s);
            change(result, size);
          });
    };
    pass.over_shards = {};
    return;
  }
}

template <auto entry, class Problem>
Kernel changed(const Problem& problem) {
  Kernel kernel = (kernels::table_for({}).*entry)(problem);
  if (!planted.all && kernel.forward.reads.at(0).spec.shape[0] != kShard) return kernel;
  spoil(kernel.forward);
  for (Pass& pass : kernel.backward) spoil(pass);
  return kernel;
}

// The CPU's kernels with a change in one of them.
template <auto entry, class Problem>
const Table* with(Kernel (*Table::*)(const Problem&), const SpoiledResult& change) {
  static Table table;
  table = kernels::table_for({});
  planted = change;
  table.*entry = changed<entry, Problem>;
  return &table;
}
#define WITH(name, ...) with<&Table::name>(&Table::name, SpoiledResult{.spoil = __VA_ARGS__})

void rotate(float* y, size_t n) { std::rotate(y, y + 1, y + n); }
void forget_tail(float* y, size_t n) { std::fill(y + n - n / 8, y + n, 0.0f); }
void grow(float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] *= 1.01f;
}
void forget_one(float* y, size_t n) { *std::max_element(y, y + n) = 0; }
void miss_one_unit(float* y, size_t n) {
  for (size_t i = 0; i < n; i += 10) y[i] = 0;
}

// Without what the device could not compute besides.
std::string error_of(const Table* kernels, TrainingOptions options = options_on("cuda:0"),
                     const TrainingLoss& loss = {}) {
  const FakeDevice fake(0, {.kernels = kernels});
  TrainingData data = digits();
  data.loss = loss;
  Recorder recorder;
  const std::string what =
      testing::message_of<Error>([&] { run(recorder, options, {}, std::move(data)); });
  EXPECT_TRUE(recorder.iterations.empty()) << "an update took place";
  EXPECT_TRUE(said(recorder).empty()) << said(recorder)[0];
  return what;
}

void expect_parts(const std::string& what, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(what.find(part), std::string::npos) << what;
}

TEST(FirstShard, AgreesAndSaysSoAndChangesNothing) {
  const FakeDevice fake;
  Recorder recorder, silent;
  TrainingOptions options = options_on("cuda:0");
  const TrainingResult compared = run(recorder, options);
  ASSERT_EQ(said(recorder).size(), 1u);
  const std::string start =
      "the first shard (7 observations) on cuda:0 agrees with the CPU's: its ";
  EXPECT_EQ(said(recorder)[0].substr(0, start.size()), start) << said(recorder)[0];
  const std::string end = ", gradients differ by at most 0 % of their bounds";
  EXPECT_NE(said(recorder)[0].find(end), std::string::npos) << said(recorder)[0];
  options.shards.compare_first = false;
  const TrainingResult alone = run(silent, options);
  EXPECT_TRUE(said(silent).empty());
  EXPECT_EQ(compared.digest, alone.digest);
  EXPECT_EQ(compared.iterations.back().chain, alone.iterations.back().chain);
  Recorder here;
  EXPECT_EQ(run(here, options_on("cpu")).digest, alone.digest);
  EXPECT_TRUE(said(here).empty()) << "the CPU is not compared with itself";
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

TEST(FirstShard, ADefectForOneShapeIsFoundThatTheSelfTestCannotFind) {
  const Table* const broken =
      WITH(convolution, forget_tail, .kind = Operand::Kind::diff_input, .index = 1);
  {
    const FakeDevice fake(0, {.kernels = broken});
    int cases = 0;
    kernels::SelfTestOptions options{.only = {"convolution"}, .large = false, .every = 7};
    options.end = [&](const kernels::SelfTestResult& r) {
      ++cases;
      EXPECT_EQ(r.state, kernels::TestState::passed) << r.seen;
    };
    kernels::run_self_test(fake.table(), fake.memory(), options);
    EXPECT_GT(cases, 3);
  }
  expect_parts(
      error_of(broken),
      {"[training] cuda:0 and the CPU disagree on the first shard of this training: ",
       " (within bounds); the gradients of 1 of 6 parameters differ, nearest to the output ",
       "that of convolution2d_1.weights: its norm is ", ", that of the difference ", " (bound ",
       "; element ", " instead of "});
  // Trained nevertheless, if that is asked for: the bits are then others.
  const FakeDevice fake(0, {.kernels = broken});
  TrainingOptions options = options_on("cuda:0");
  options.shards.compare_first = false;
  Recorder recorder, cpu;
  EXPECT_NE(run(recorder, options).digest, run(cpu, options_on("cpu")).digest);
}

TEST(FirstShard, DefectsOfManyKindsAreFound) {
  using Kind = Operand::Kind;
  expect_parts(error_of(WITH(convolution, rotate)), {"its loss is "});
  expect_parts(error_of(WITH(fully_connected, rotate, .kind = Kind::diff_input, .index = 1)),
               {"(within bounds)", "1 of 6 parameters", "fully_connected_1.weights"});
  expect_parts(error_of(WITH(fully_connected, forget_tail, .kind = Kind::diff_input)),
               {"(within bounds)", "batch_normalization_1.shift"});
  expect_parts(error_of(WITH(batch_normalization, grow, .kind = Kind::diff_input)),
               {"(within bounds)", "1 of 6 parameters", "convolution2d_1.weights"});
  expect_parts(error_of(WITH(fully_connected, forget_one, .kind = Kind::diff_input, .index = 1)),
               {"(within bounds)", "1 of 6 parameters", "fully_connected_1.weights"});
  expect_parts(error_of(WITH(dropout, miss_one_unit)), {"its loss is "});
  expect_parts(error_of(WITH(cross_entropy, grow, .kind = Kind::diff_input)),
               {"(within bounds)", "fully_connected_1.bias"});
  expect_parts(error_of(WITH(cross_entropy, grow)), {"its loss is "});
  expect_parts(error_of(WITH(normalize_images, rotate)), {"differ"});
  expect_parts(error_of(WITH(fully_connected, [](float* y, size_t) { y[0] = NAN; })),
               {"its loss or gradients are not finite"});
}

// Work that is right once, and wrong while or after it is recorded.
TEST(FirstShard, ARecordingThatIsStaleIsFound) {
  for (const int from : {2, 3}) {
    const auto runs = std::make_shared<int>(0);
    const auto stale = [=](float* y, size_t) {
      if (++*runs >= from) y[0] = std::nextafter(y[0], 9.0f);
    };
    expect_parts(
        error_of(WITH(fully_connected, stale, .kind = Operand::Kind::diff_input, .index = 1)),
        {from == 2 ? "while it is recorded, has other bits"
                   : "from its recording, has other bits"});
  }
}

// Images that a device augments are augmented by the CPU for the comparison.
TEST(FirstShard, ADefectOfAugmentationIsFound) {
  static Table table;
  table = kernels::table_for({});
  table.augment_images = [](const kernels::AugmentImages& all, void* stream) {
    kernels::table_for({}).augment_images(all, stream);
    std::rotate(all.destination, all.destination + 3,
                all.destination + all.images * all.image.height * all.image.width);
  };
  expect_parts(error_of(&table), {"its loss is "});
}

// Roundings of another order of sums, of tf32 and of bf16.
TEST(FirstShard, RoundingIsWithinBounds) {
  const auto rounded_to = [](int bits) {
    return [bits](float* y, size_t n) {
      for (size_t i = 0; i < n; ++i) {
        uint32_t v;
        std::memcpy(&v, y + i, sizeof v);
        v += (uint32_t{1} << (22 - bits));  // to nearest
        v &= ~((uint32_t{1} << (23 - bits)) - 1);
        std::memcpy(y + i, &v, sizeof v);
      }
    };
  };
  struct Case {
    Precision precision;
    int bits;  // behind the first one
  };
  using Kind = Operand::Kind;
  for (const Case& c : {Case{Precision::fp32, 20}, Case{Precision::tf32, 10}}) {
    SCOPED_TRACE(c.bits);
    const auto round = rounded_to(c.bits);
    for (const Kind kind : {Kind::output, Kind::diff_input}) {
      for (const int index : {0, 1}) {
        for (const bool convolutions : {false, true}) {
          const SpoiledResult change{.spoil = round, .kind = kind, .index = index, .all = true};
          const Table* const kernels =
              convolutions ? with<&Table::convolution>(&Table::convolution, change)
                           : with<&Table::fully_connected>(&Table::fully_connected, change);
          const FakeDevice fake(0, {.kernels = kernels});
          TrainingOptions options = options_on("cuda:0");
          options.max_iterations = 1;
          options.precision.type = c.precision;
          Recorder recorder;
          run(recorder, options);
          expect_agreement(recorder);
        }
      }
    }
  }
  // In fp32 the roundings of tf32 and worse are too many.
  expect_parts(error_of(with<&Table::convolution>(
                   &Table::convolution,
                   SpoiledResult{
                       .spoil = rounded_to(5), .kind = Kind::diff_input, .index = 1, .all = true})),
               {"convolution2d_1.weights"});
}

TEST(FirstShard, Bf16) {
  if (!kernels::table_for({}).bf16) GTEST_SKIP() << "no bf16 instructions";
  TrainingOptions options = options_on("cuda:0");
  options.precision.type = Precision::bf16;
  {
    const FakeDevice fake;
    Recorder recorder;
    run(recorder, options);
    expect_agreement(recorder);
    EXPECT_EQ(said(recorder)[0].find("at most 0 %"), std::string::npos)
        << "the CPU's shard is of fp32: " << said(recorder)[0];
  }
  expect_parts(
      error_of(WITH(convolution, rotate, .kind = Operand::Kind::diff_input, .index = 1), options),
      {"convolution2d_1.weights"});
}

TEST(FirstShard, BoundsGrowWithTheRoundingOfTheType) {
  const auto fp32 = FirstShardBounds::of(Precision::fp32),
             tf32 = FirstShardBounds::of(Precision::tf32),
             fp16 = FirstShardBounds::of(Precision::fp16),
             bf16 = FirstShardBounds::of(Precision::bf16);
  EXPECT_LT(fp32.gradient, tf32.gradient);
  EXPECT_EQ(tf32.gradient, fp16.gradient);
  EXPECT_LT(tf32.gradient, bf16.gradient);
  EXPECT_LE(bf16.gradient, 0.05);
}

TEST(FirstShard, ResumedTrainingsCompareTheirFirstShard) {
  const testing::TemporaryFolder folder;
  TrainingControl control;
  control.checkpoint_folder = folder.path + "/checkpoints";
  control.stop_after = 1;
  const TrainingOptions options = options_on("cuda:0");
  Digest whole;
  {
    const FakeDevice fake;
    Recorder recorder;
    whole = run(recorder, options).digest;
    run(recorder, options, control);
  }
  control.stop_after = 0;
  control.resume = true;
  {
    const FakeDevice broken(0, {.kernels = WITH(batch_normalization, rotate)});
    Recorder recorder;
    EXPECT_THROW(run(recorder, options, control), Error);
  }
  const FakeDevice fake;
  Recorder recorder;
  EXPECT_EQ(run(recorder, options, control).digest, whole);
  ASSERT_FALSE(recorder.iterations.empty());
  EXPECT_EQ(recorder.iterations.front().iteration, 2);
  expect_agreement(recorder);
}

Tensor halved_loss(Shard& shard) {
  const Tensor loss = ops::softmax_cross_entropy(
      shard.forward(shard[0], {.outputs = {"fully_connected_1"}}), shard[1]);
  return ops::multiply({loss, Tensor::full(loss.shape(), 0.5f, loss.device())});
}

TEST(FirstShard, LossesOfTheUser) {
  TrainingData data = digits();
  data.loss = {halved_loss, "halved"};
  {
    const FakeDevice fake;
    Recorder recorder, silent;
    TrainingOptions options = options_on("cuda:0");
    const Digest digest = run(recorder, options, {}, data).digest;
    expect_agreement(recorder);
    options.shards.compare_first = false;
    EXPECT_EQ(run(silent, options, {}, data).digest, digest);
    // One that keeps a tensor of the device cannot be computed by the CPU.
    Tensor kept;
    data.loss = {[&](Shard& shard) {
                   if (!kept.defined()) {
                     kept = Tensor::full(Shape{kShard}, 0.5f, {Device::Kind::cuda, 0});
                   }
                   return ops::multiply({halved_loss(shard), kept});
                 },
                 "with a constant"};
    options = options_on("cuda:0");
    options.mini_batch_size = kShard;
    Recorder other;
    run(other, options, {}, data);
    expect_agreement(other, "was not compared with the CPU's: ");
    // The CPU lacks the memory.
    data.loss = {[](Shard& shard) {
                   Tensor loss = halved_loss(shard);
                   if (loss.device().is_cpu()) check_allocatable(SIZE_MAX);
                   return loss;
                 },
                 "without memory"};
    Recorder without_memory;
    run(without_memory, options_on("cuda:0"), {}, data);
    expect_agreement(without_memory, "was not compared with the CPU's: [memory] the system");
  }
  expect_parts(
      error_of(WITH(fully_connected, rotate, .kind = Operand::Kind::diff_input, .index = 1),
               options_on("cuda:0"), {halved_loss, "halved"}),
      {"fully_connected_1.weights"});
}

// Weights of classes, targets that are images, a scale of losses.
TEST(FirstShard, WhateverIsTrained) {
  const FakeDevice fake;
  TrainingOptions options = options_on("cuda:0");
  options.class_weights = {1, 2, 0.5, 1, 1, 3, 1, 1, 1, 0.25};
  options.precision.loss_scale = 64;
  options.solver.gradient_threshold = 0.05;
  Recorder weighted;
  run(weighted, options);
  expect_agreement(weighted);
  TrainingData data = digits();
  data.training_targets = data.training;
  data.noise.salt_and_pepper = 0.05;
  Network network({image_input({.height = 28, .width = 28, .channels = 1}),
                   convolution2d({.filters = 3, .kernel = {3, 3}, .padding = same_padding}),
                   convolution2d({.filters = 1, .kernel = {3, 3}, .padding = same_padding})});
  network.set_loss("mean_squared_error");
  network.initialize(2);
  Recorder images;
  options = options_on("cuda:0");
  options.solver.initial_learning_rate = 1e-5;
  run(images, options, {}, data, std::move(network));
  expect_agreement(images);
}

}  // namespace
}  // namespace lockstep
