// Trainings of one process after the other on the same data decode it once.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/train/input/training_images.h"
#include "lockstep/train/trainer.h"
#include "tests/train/law_problem.h"

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

}  // namespace
}  // namespace lockstep
