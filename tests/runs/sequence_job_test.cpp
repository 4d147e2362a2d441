// Jobs with augmented sequences.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/runs/job_plan.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/run.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/runs/support.h"

namespace lockstep {
namespace {

using testing::refusal;

// Forty sequences of 3 to 9 steps, in folders of two classes.
class SequenceJob : public testing::WithFolder {
 protected:
  SequenceJob() {
    for (int i = 0; i < 40; ++i) {
      std::string lines;
      for (int t = 0; t < 3 + i % 7; ++t) {
        lines +=
            std::to_string(0.25 * (i % 2) + 0.1 * t) + "," + std::to_string(t % 3 - i % 2) + "\n";
      }
      write((i % 2 == 0 ? "waves/a/" : "waves/b/") + std::to_string(i) + ".csv", lines);
    }
    path_ = write("job.toml", R"(
[data]
train = "waves"
header = false
validation_fraction = 0.2
[augmentation]
jitter = 0.05
time_mask = 3
time_mask_fraction = 0.5
[network]
layers = [
  { type = "sequence_input", channels = 2 },
  { type = "lstm", units = 5, output = "last" },
  { type = "fully_connected", units = 2 },
  { type = "softmax" } ]
[training]
mini_batch_size = 8
shard_size = 3
max_epochs = 3
device = "cpu"
threads = 2
)");
  }
  Job job(const std::vector<std::string>& settings = {}) const {
    return read_job(local_files(), path_, settings);
  }
  RunResult run(const std::string& name, const std::vector<std::string>& settings = {}) const {
    RunOptions options;
    options.folder = folder + "/" + name;
    return run_job(job(settings), options);
  }

 private:
  std::string path_;
};

TEST_F(SequenceJob, AugmentationTrainsToOneDigest) {
  const RunResult two = run("two");
  EXPECT_EQ(run("three", {"threads=3", "cache_mib=0"}).training.digest, two.training.digest);
  EXPECT_EQ(run("workers", {"workers=2"}).training.digest, two.training.digest);
  for (const char* const other : {"jitter=0", "time_mask=2", "scaling=0.1", "channel_mask=1",
                                  "time_mask_fraction=1", "time_masks=2"}) {
    EXPECT_NE(run(other, {other}).training.digest, two.training.digest) << other;
  }
  const Job resolved = read_resolved_job(job().resolved().dump());
  EXPECT_EQ(resolved.augmentation, job().augmentation);
  EXPECT_EQ(resolved.augmentation.time_mask, 3);
}

// A job whose loss is an expression of the outputs of each step.
TEST_F(SequenceJob, AnExpressionLossTrainsToOneDigestOnADevice) {
  const auto trained = [&](const std::string& name, const std::vector<std::string>& settings,
                           const std::string& added = " + 0.1 * mean(abs(output))") {
    const std::string path = write(name + ".toml", R"(
[data]
train = "waves"
header = false
validation_fraction = 0.2
targets = "next_step"
[network]
loss = "mean(square(output - target)))" + added + R"("
layers = [
  { type = "sequence_input", channels = 2 },
  { type = "gru", units = 5 },
  { type = "fully_connected", units = 2 } ]
[training]
mini_batch_size = 8
shard_size = 3
max_epochs = 3
metrics = ["rmse"]
device = "cpu"
threads = 1
)");
    RunOptions options;
    options.folder = folder + "/" + name;
    return run_job(read_job(local_files(), path, settings), options);
  };
  const RunResult one = trained("one", {});
  EXPECT_NE(trained("plain", {}, "").training.digest, one.training.digest);
  EXPECT_EQ(trained("two", {"threads=2"}).training.digest, one.training.digest);
  const devicetest::FakeDevice fake;
  for (const char* const streams : {"streams=1", "streams=2", "streams=4"}) {
    const RunResult there = trained(streams, {"device=cuda:0", streams});
    EXPECT_EQ(there.training.digest, one.training.digest) << streams;
    ASSERT_FALSE(there.training.validations.empty());
    EXPECT_EQ(there.training.validations.back().loss, one.training.validations.back().loss);
    EXPECT_EQ(there.training.validations.back().metrics.at(0).value,
              one.training.validations.back().metrics.at(0).value);
  }
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

TEST_F(SequenceJob, WhatDoesNotFitIsRefusedByName) {
  const auto message = [&](const std::vector<std::string>& settings) {
    return refusal<Error>([&] { plan_job(job(settings)); });
  };
  EXPECT_CONTAINS(message({"jitter=-0.1"}), "[augmentation] jitter must be a ");
  EXPECT_CONTAINS(message({"scaling=2e6"}), "[augmentation] scaling must be a ");
  EXPECT_CONTAINS(message({"time_mask=1.5"}), "[augmentation] time_mask must be a ");
  EXPECT_CONTAINS(message({"time_mask_fraction=0"}),
                  "[augmentation] time_mask_fraction must be a ");
  EXPECT_CONTAINS(message({"channel_masks=0"}), "[augmentation] channel_masks must be a ");
  EXPECT_CONTAINS(message({"channel_masks=2"}), "channel_masks is given, but channel_mask is 0");
  EXPECT_CONTAINS(message({"augmentation.jiter=1"}), "did you mean `jitter`?");
  EXPECT_CONTAINS(message({"reflect_x=true"}), "[augmentation] reflect_x is for images, but");
  EXPECT_CONTAINS(message({"scale=2"}), "[augmentation] scale is for images, but");
}

TEST_F(SequenceJob, ImagesAndTextsAreRefusedByName) {
  const auto message = [&](const std::string& text) {
    return refusal<Error>([&] { plan_job(read_job(local_files(), write("other.toml", text))); });
  };
  EXPECT_CONTAINS(message(R"(
[data]
train = "builtin:digits"
[augmentation]
time_mask = 3
[network]
layers = [ { type = "image_input", height = 28, width = 28, channels = 1 },
  { type = "fully_connected", units = 10 }, { type = "softmax" } ]
)"),
                  "[augmentation] time_mask is for sequences of numbers, but");
  write("text.txt", std::string(2000, 'a') + std::string(2000, 'b'));
  EXPECT_CONTAINS(message(R"(
[data]
train = "text.txt"
[augmentation]
jitter = 0.1
[network]
layers = [ { type = "token_input", vocabulary = 2 },
  { type = "embedding", vocabulary = 2, units = 4 }, { type = "lstm", units = 5 },
  { type = "fully_connected", units = 2 }, { type = "softmax" } ]
)"),
                  "[augmentation] jitter is for sequences of numbers, but");
}

}  // namespace
}  // namespace lockstep
