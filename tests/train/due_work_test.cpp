#include "lockstep/train/loop/due_work.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "lockstep/train/options/options.h"

namespace lockstep {
namespace {

// The iterations up to `last` for which `due` holds.
std::vector<int64_t> where(int64_t last, const std::function<bool(int64_t)>& due) {
  std::vector<int64_t> found;
  for (int64_t i = 1; i <= last; ++i) {
    if (due(i)) found.push_back(i);
  }
  return found;
}

std::vector<int64_t> validations(const DueWorkSetup& setup) {
  const DueWork due(setup);
  return where(12, [&](int64_t i) { return due.validation(i); });
}

std::vector<int64_t> checkpoints(const DueWorkSetup& setup) {
  const DueWork due(setup);
  return where(12, [&](int64_t i) { return due.checkpoint(i); });
}

using Iterations = std::vector<int64_t>;

TEST(DueWork, FrequenciesCountIterationsOrEpochs) {
  TrainingOptions options;
  DueWorkSetup setup{.options = options, .iterations_per_epoch = 3};
  EXPECT_EQ(validations(setup), Iterations{});
  EXPECT_EQ(checkpoints(setup), Iterations{});
  setup.validates = setup.saves = true;
  options.validation.frequency = 0;
  options.checkpoints.frequency = 5;
  EXPECT_EQ(validations(setup), (Iterations{3, 6, 9, 12}));
  EXPECT_EQ(checkpoints(setup), (Iterations{5, 10}));
  options.validation.frequency = options.checkpoints.frequency = 2;
  options.validation.frequency_unit = options.checkpoints.frequency_unit = FrequencyUnit::epoch;
  EXPECT_EQ(validations(setup), (Iterations{6, 12}));
  EXPECT_EQ(checkpoints(setup), (Iterations{6, 12}));
}

TEST(DueWork, ADryRunEndsWithAValidation) {
  TrainingOptions options;
  options.validation.frequency = 100;
  const DueWorkSetup setup{
      .options = options, .iterations_per_epoch = 1, .validates = true, .dry_run = true};
  const DueWork due(setup);
  EXPECT_FALSE(due.dry_run_ends(2));
  EXPECT_FALSE(due.validation(2));
  EXPECT_TRUE(due.dry_run_ends(3));
  EXPECT_TRUE(due.validation(3));
}

TEST(DueWork, NextFindsTheFirstIterationWithWork) {
  TrainingOptions options;
  options.max_epochs = 100;
  options.checkpoints.frequency = 7;
  options.validation.frequency = 5;
  DueWorkSetup setup{.options = options, .iterations_per_epoch = 3};
  EXPECT_EQ(DueWork(setup).next(1), 65) << "as far as it looks";
  EXPECT_EQ(DueWork(setup).next(290), 300) << "the end";
  EXPECT_EQ(DueWork(setup).next(300), 300);
  setup.saves = true;
  EXPECT_EQ(DueWork(setup).next(1), 7);
  EXPECT_EQ(DueWork(setup).next(7), 7);
  EXPECT_EQ(DueWork(setup).next(8), 14);
  setup.validates = true;
  EXPECT_EQ(DueWork(setup).next(1), 5);
  setup.stops_after = 4;
  EXPECT_EQ(DueWork(setup).next(1), 4);
  EXPECT_FALSE(DueWork(setup).stop(3));
  EXPECT_TRUE(DueWork(setup).stop(4));
  setup.dry_run = true;
  EXPECT_EQ(DueWork(setup).next(1), 3);
}

}  // namespace
}  // namespace lockstep
