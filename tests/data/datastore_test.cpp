// Subsets and splits.
#include "lockstep/data/datastores/datastore.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "lockstep/base/error.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::MemoryStore;
using testing::names_of;

std::vector<std::vector<int64_t>> counts_of(const std::vector<DatastorePtr>& parts) {
  std::vector<std::vector<int64_t>> counts;
  for (const DatastorePtr& part : parts) counts.push_back(count_each_label(*part));
  return counts;
}

TEST(Subset, KeepsOrderLabelsAndTheClassesOfTheWhole) {
  const auto store = std::make_shared<MemoryStore>(10, 2, 2, 1);
  const DatastorePtr part = subset(store, {7, 0, 7});
  ASSERT_EQ(part->size(), 3);
  EXPECT_EQ(names_of(*part), (std::vector<std::string>{"image 7", "image 0", "image 7"}));
  EXPECT_EQ(part->label(0), 1);
  EXPECT_EQ(read_image(*part, 1), store->images[0]);
  EXPECT_EQ(part->content_digest(2), store->content_digest(7));
  EXPECT_EQ(part->classes(), store->classes());
  EXPECT_EQ(part->describe(), "3 of memory");
  EXPECT_THROW(read_image(*part, 3), InvalidArgument);
  EXPECT_THROW(subset(store, {10}), InvalidArgument);
  EXPECT_THROW(subset(store, {-1}), InvalidArgument);
  EXPECT_EQ(count_each_label(*subset(store, {})), (std::vector<int64_t>{0, 0, 0}));
}

TEST(Split, HasExactSizesForEachLabel) {
  const auto store = std::make_shared<MemoryStore>(32, 1, 1, 1);  // labels: 11, 11, 10
  using Counts = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(counts_of(split_each_label(store, {0.9}, 1)), (Counts{{10, 10, 9}, {1, 1, 1}}));
  EXPECT_EQ(counts_of(split_each_label(store, {0.5, 0.25}, 1)),
            (Counts{{6, 6, 5}, {3, 3, 3}, {2, 2, 2}}));
  EXPECT_EQ(counts_of(split_each_label(store, {}, 1)), (Counts{{11, 11, 10}}));
  EXPECT_EQ(counts_of(split_each_label(store, {0.0, 1.0}, 1)),
            (Counts{{0, 0, 0}, {11, 11, 10}, {0, 0, 0}}));
  // Two halves rounded up use all observations, so the third part is empty and not negative.
  EXPECT_EQ(counts_of(split_each_label(store, {0.5, 0.5}, 1)),
            (Counts{{6, 6, 5}, {5, 5, 5}, {0, 0, 0}}));
}

TEST(Split, PartsAreDisjointCompleteAndInTheOrderOfTheListing) {
  const auto store = std::make_shared<MemoryStore>(300, 1, 1, 1);
  const auto parts = split_each_label(store, {0.3, 0.3}, 7);
  std::multiset<std::string> seen;
  for (const DatastorePtr& part : parts) {
    int64_t last = -1;
    for (const std::string& name : names_of(*part)) {
      const int64_t index = std::stoll(name.substr(6));
      EXPECT_GT(index, last);
      last = index;
      seen.insert(name);
    }
  }
  EXPECT_EQ(seen.size(), 300u);
  EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()).size(), 300u);
}

TEST(Split, DependsOnTheSeedAndNotOnChance) {
  const auto store = std::make_shared<MemoryStore>(300, 1, 1, 1);
  const auto names = [&](uint64_t seed) {
    return names_of(*split_each_label(store, {0.5}, seed)[0]);
  };
  EXPECT_EQ(names(1), names(1));
  EXPECT_NE(names(1), names(2));
  std::vector<std::string> first;  // the first half of the listing, which must not be the result
  for (int i = 0; i < 150; ++i) first.push_back("image " + std::to_string(i));
  EXPECT_NE(names(1), first);
}

TEST(Split, FractionsThatCannotBeAreRefused) {
  const auto store = std::make_shared<MemoryStore>(9, 1, 1, 1);
  EXPECT_THROW(split_each_label(store, {-0.1}, 1), InvalidArgument);
  EXPECT_THROW(split_each_label(store, {1.1}, 1), InvalidArgument);
  EXPECT_THROW(split_each_label(store, {0.6, 0.6}, 1), InvalidArgument);
  EXPECT_THROW(split_each_label(store, {std::nan("")}, 1), InvalidArgument);
}

TEST(MatchByName, PutsTargetsIntoTheOrderOfTheInputs) {
  const auto store = std::make_shared<testing::MemoryStore>(6, 2, 2, 1);
  const DatastorePtr inputs = subset(store, {4, 1, 3}), targets = subset(store, {0, 1, 2, 3, 4});
  const DatastorePtr matched = match_by_name(*inputs, targets);
  ASSERT_EQ(matched->size(), 3);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(matched->name(i), inputs->name(i));
    EXPECT_EQ(read_image(*matched, i), read_image(*inputs, i));
  }
  EXPECT_EQ(match_by_name(*subset(store, {}), targets)->size(), 0);
}

TEST(MatchByName, AnInputWithoutTargetIsNamed) {
  const auto store = std::make_shared<testing::MemoryStore>(6, 2, 2, 1);
  const std::string message = testing::message_of<InvalidArgument>([&] {
    match_by_name(*store, subset(store, {0, 1, 2, 3, 4}));
  });
  EXPECT_NE(message.find("image 5"), std::string::npos) << message;
  EXPECT_THROW(match_by_name(*store, nullptr), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
