// Trainings of one process after the other on the same data decode it once; so do trainings of
// other processes, for what they need before they begin.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/input/training_images.h"
#include "lockstep/train/trainer.h"
#include "tests/train/known_files.h"
#include "tests/train/law_problem.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

// Counts what is decoded.
class Counted : public DatastoreWrapper {
 public:
  explicit Counted(DatastorePtr inner) : DatastoreWrapper(std::move(inner)) {}
  Example read(int64_t index) const override {
    ++reads;
    return DatastoreWrapper::read(index);
  }
  mutable std::atomic<int64_t> reads{0};
};

struct Trained {
  Digest digest;
  int64_t reads = 0;  // so far
};

Trained train_on(const std::shared_ptr<const Counted>& data, int64_t cache_mib = 100) {
  TrainingProblem problem = testing::law_problem();
  static const DatastorePtr validation = problem.data.validation;
  problem.data.training = data;
  problem.data.validation = validation;
  TrainingOptions options = testing::law_options(2);
  options.data.cache_mib = cache_mib;
  const TrainingResult result = train(problem.network, problem.data, options);
  return {result.digest, data->reads.load()};
}

class KeptImages : public ::testing::Test {
 protected:
  KeptImages() = default;
  ~KeptImages() override { keep_images(false); }
  KeptImages(const KeptImages&) = delete;
  KeptImages& operator=(const KeptImages&) = delete;
};

TEST_F(KeptImages, AreDecodedOnce) {
  const auto data = std::make_shared<const Counted>(testing::law_problem().data.training);
  const Trained apart = train_on(data), again = train_on(data);
  EXPECT_EQ(again.digest, apart.digest);
  EXPECT_EQ(again.reads, 2 * apart.reads);
  keep_images(true);
  const Trained first = train_on(data), second = train_on(data);
  EXPECT_EQ(first.digest, apart.digest);
  EXPECT_EQ(second.digest, apart.digest);
  EXPECT_EQ(first.reads, 3 * apart.reads);
  EXPECT_EQ(second.reads, first.reads) << "decoded again";
}

TEST_F(KeptImages, AreNotThoseOfOtherData) {
  keep_images(true);
  const DatastorePtr all = testing::law_problem().data.training;
  std::vector<int64_t> reversed;
  for (int64_t i = all->size(); i-- > 0;) reversed.push_back(i);
  const auto one = std::make_shared<const Counted>(all);
  const auto other = std::make_shared<const Counted>(subset(all, reversed));
  const Trained a = train_on(one), b = train_on(other), c = train_on(one, 200);
  EXPECT_NE(a.digest, b.digest);
  EXPECT_EQ(a.digest, c.digest);
  EXPECT_EQ(b.reads, a.reads);
  EXPECT_EQ(c.reads, 2 * a.reads) << "another budget";
}

TrainingProblem problem_of_files(bool changed) {
  TrainingProblem problem = testing::law_problem();
  problem.data.training = std::make_shared<testing::KnownFiles>(problem.data.training, changed);
  return problem;
}

Digest train_by(int64_t workers, bool changed) {
  const auto call = make_call<&problem_of_files>(changed);
  TrainingProblem problem = call();
  TrainingOptions options = testing::law_options(2);
  options.workers.count = workers;
  return train(call, problem.network, problem.data, options).digest;
}

TEST(KeptReadings, ThatAreWrongAreRemovedWhoeverNotices) {
  for (const int64_t workers : {0, 2}) {
    const testing::KeptReadings kept;
    const Digest before = train_by(workers, false);
    EXPECT_EQ(kept.size(), 1);
    const std::string message = testing::message_of<Error>([&] { train_by(workers, true); });
    testing::expect_says(message, "has other contents than when an earlier training read it");
    EXPECT_EQ(kept.size(), 0) << workers << " workers";
    EXPECT_NE(train_by(workers, true), before);
  }
}

TEST(KeptReadings, OfOneProcessAreReadAgainIfTheyWereWrong) {
  const testing::KeptReadings kept;
  train_by(0, false);
  const TrainingProblem problem = problem_of_files(true);
  const auto again = [&] {
    Network network = testing::law_network();
    train(network, problem.data, testing::law_options(2));
  };
  keep_images(true);
  testing::expect_says(testing::message_of<Error>(again), "has other contents");
  EXPECT_EQ(testing::message_of<Error>(again), "(nothing was thrown)");
  keep_images(false);
}

TEST(KeptReadings, TellTheSameOfTwoListingsOnce) {
  const testing::KeptReadings kept;
  for (const bool known : {false, true}) {
    TrainingProblem problem = problem_of_files(false);
    problem.data.validation = std::make_shared<testing::KnownFiles>(problem.data.validation);
    testing::Recorder recorder;
    TrainingControl control;
    control.observers = {&recorder};
    train(problem.network, problem.data, testing::law_options(2), control);
    EXPECT_EQ(std::count(recorder.notices.begin(), recorder.notices.end(), "one is turned"),
              known ? 1 : 0);
    EXPECT_EQ(kept.size(), 2);
  }
}

}  // namespace
}  // namespace lockstep
