// Mini-batches of sequences that are cut into segments, and of sequences of like lengths.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/data/datastores/datastores.h"
#include "tests/data/queues.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::drain;
using testing::expect_equal;
using testing::expect_says;
using testing::MemoryStore;
using testing::message_of;

constexpr int64_t kSequences = 37;

int64_t steps_of(int64_t i) { return 1 + i * i % 23; }

// Step t of sequence i has the values 1000 i + t, and as many hundredths more.
std::vector<Array> counted_steps(int64_t n, int64_t more = 0) {
  std::vector<Array> all;
  for (int64_t i = 0; i < n; ++i) {
    Array one{{steps_of(i) + more, 2}, {}};
    for (int64_t t = 0; t < one.shape[0]; ++t) {
      one.values.push_back(static_cast<float>(1000 * i + t));
      one.values.push_back(static_cast<float>(t) / 100);
    }
    all.push_back(std::move(one));
  }
  return all;
}

DatastorePtr with_step_labels() {
  StepLabels labels{.classes = {"a", "b", "c"}};
  for (int64_t i = 0; i < kSequences; ++i) {
    labels.labels.emplace_back();
    for (int64_t t = 0; t < steps_of(i); ++t) {
      labels.labels.back().push_back(static_cast<int32_t>((i + t) % 3));
    }
  }
  return with_targets(sequence_datastore(counted_steps(kSequences)), step_labels(labels));
}

class NoLengths final : public DatastoreWrapper {
 public:
  using DatastoreWrapper::DatastoreWrapper;
  Example read(int64_t index) const override { return wrapped().read(index); }
  std::optional<int64_t> steps(int64_t, size_t) const override { return std::nullopt; }
};

template <class T>
std::vector<T> values_of(const RowArray& array, int64_t row) {
  const std::span<const std::byte> bytes = array.bytes_of(row, 1);
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

MiniBatchQueueOptions cut_options(int64_t sequence_length, int64_t size = 5) {
  return {.mini_batch_size = size,
          .drop_last = false,
          .seed = 7,
          .sequence_length = sequence_length,
          .max_epochs = 3};
}

// The segments of a row, one after another, are its sequence and its labels; every observation is
// there once an epoch, and every epoch has as many mini-batches.
TEST(CutSequences, SegmentsFollowEachOtherRowByRow) {
  const DatastorePtr store = with_step_labels();
  for (const int64_t length : {1, 3, 7, 23, 1000}) {
    for (const int64_t size : {int64_t{1}, int64_t{5}, kSequences, 4 * kSequences}) {
      MiniBatchQueue queue(store, {{2}}, cut_options(length, size));
      EXPECT_EQ(batches_per_epoch(*store, cut_options(length, size)), queue.batches_per_epoch());
      for (int64_t epoch = 0; epoch < 3; ++epoch) {
        std::multiset<int64_t> seen;
        std::vector<std::vector<float>> inputs;
        std::vector<std::vector<int32_t>> labels;
        std::shared_ptr<const MiniBatch> before;
        for (int64_t k = 0; k < queue.batches_per_epoch(); ++k) {
          ASSERT_TRUE(queue.has_data());
          const auto batch = queue.next();
          batch->check();
          ASSERT_EQ(batch->epoch, epoch);
          ASSERT_EQ(batch->index, k);
          ASSERT_EQ(batch->rows_begin(), batch->segment == 0);
          if (batch->rows_begin()) {
            ASSERT_TRUE(!before || before->segment + 1 == before->segments);
            inputs.assign(static_cast<size_t>(batch->size()), {});
            labels.assign(static_cast<size_t>(batch->size()), {});
          } else {
            ASSERT_EQ(batch->observations, before->observations);
            ASSERT_EQ(batch->segment, before->segment + 1);
          }
          before = batch;
          int64_t longest = 0;
          for (int64_t i = 0; i < batch->size(); ++i) {
            const auto more = values_of<float>(batch->input(), i);
            const auto marks = values_of<int32_t>((*batch)["labels"], i);
            ASSERT_EQ(more.size(), 2 * marks.size());
            longest = std::max(longest, static_cast<int64_t>(marks.size()));
            auto& row = inputs[static_cast<size_t>(i)];
            row.insert(row.end(), more.begin(), more.end());
            auto& own = labels[static_cast<size_t>(i)];
            own.insert(own.end(), marks.begin(), marks.end());
          }
          ASSERT_GE(longest, 1) << "a segment without steps";
          ASSERT_LE(longest, length);
          if (batch->segment + 1 < batch->segments) continue;
          for (size_t i = 0; i < inputs.size(); ++i) {
            const int64_t of = batch->observations[i];
            seen.insert(of);
            ASSERT_EQ(inputs[i], counted_steps(kSequences)[static_cast<size_t>(of)].values);
            ASSERT_EQ(static_cast<int64_t>(labels[i].size()), steps_of(of));
            for (size_t t = 0; t < labels[i].size(); ++t) {
              ASSERT_EQ(labels[i][t], (of + static_cast<int64_t>(t)) % 3);
            }
          }
        }
        ASSERT_EQ(seen.size(), static_cast<size_t>(kSequences));
        ASSERT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), seen.size());
      }
      EXPECT_FALSE(queue.has_data());
    }
  }
}

TEST(CutSequences, DependOnNeitherThreadsNorCacheNorStart) {
  const DatastorePtr known = with_step_labels(), store = std::make_shared<NoLengths>(known);
  MiniBatchQueueOptions options = cut_options(4);
  options.group_by_length = 3;
  MiniBatchQueue plain(known, {{2}}, options);
  const auto expected = drain(plain);
  const auto per_epoch = static_cast<size_t>(plain.batches_per_epoch());
  ASSERT_EQ(expected.size(), 3 * per_epoch);
  for (const int threads : {1, 3}) {
    for (const size_t budget : {size_t{0}, size_t{1} << 20}) {
      options.threads = threads;
      options.cache_bytes = budget;
      MiniBatchQueue queue(store, {{2}}, options);
      expect_equal(drain(queue), expected);
    }
  }
  for (size_t start = 0; start < expected.size(); start += 5) {
    MiniBatchQueue queue(known, {{2}}, options, static_cast<int64_t>(start / per_epoch),
                         static_cast<int64_t>(start % per_epoch));
    const auto first = queue.next();
    EXPECT_EQ(first->observations, expected[start].observations);
    EXPECT_EQ(first->segment, expected[start].segment);
    EXPECT_EQ(first->segments, expected[start].segments);
    EXPECT_EQ(first->arrays, expected[start].arrays);
    EXPECT_EQ(observations_of(*store, options, static_cast<int64_t>(start)),
              expected[start].observations);
  }
  options.rows = [](int64_t, int64_t, int64_t n) {
    return std::vector<IndexRange>{{n / 2, n - n / 2}};
  };
  MiniBatchQueue half(known, {{2}}, options);
  for (size_t k = 0; half.has_data(); ++k) {
    const auto batch = half.next();
    ASSERT_EQ(batch->input().offsets, expected[k].input().offsets);
    for (int64_t i = batch->size() / 2; i < batch->size(); ++i) {
      ASSERT_EQ(values_of<float>(batch->input(), i), values_of<float>(expected[k].input(), i));
    }
  }
}

// The mates of an observation change from epoch to epoch, and so does the order of mini-batches.
TEST(CutSequences, EveryEpochMixesThemAnew) {
  MiniBatchQueueOptions options = cut_options(4);
  const auto mates = [&] {
    MiniBatchQueue queue(with_step_labels(), {{2}}, options);
    std::vector<std::vector<std::vector<int64_t>>> by_epoch(3);
    for (const MiniBatch& batch : drain(queue)) {
      if (batch.rows_begin()) {
        by_epoch[static_cast<size_t>(batch.epoch)].push_back(batch.observations);
      }
    }
    return by_epoch;
  };
  const auto shuffled = mates();
  EXPECT_NE(shuffled[0], shuffled[1]);
  EXPECT_NE(shuffled[1], shuffled[2]);
  const auto set_of = [](const std::vector<std::vector<int64_t>>& batches) {
    std::set<std::set<int64_t>> all;
    for (const auto& batch : batches) all.emplace(batch.begin(), batch.end());
    return all;
  };
  EXPECT_NE(set_of(shuffled[0]), set_of(shuffled[1]));
  options.shuffle = Shuffle::once;
  const auto once = mates();
  EXPECT_EQ(once[0], once[2]);
  EXPECT_EQ(once[0], shuffled[0]);
  options.shuffle = Shuffle::never;
  const auto listed = mates();
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(listed[0][0][static_cast<size_t>(i)], i);
  EXPECT_EQ(listed[0], listed[1]);
}

TEST(CutSequences, DroppingLeavesTheLastPartialMiniBatchOut) {
  MiniBatchQueueOptions options = cut_options(4);
  options.drop_last = true;
  MiniBatchQueue queue(with_step_labels(), {{2}}, options);
  std::map<int64_t, size_t> observations;
  for (const MiniBatch& batch : drain(queue)) {
    EXPECT_EQ(batch.size(), 5);
    if (batch.rows_begin()) observations[batch.epoch] += batch.observations.size();
  }
  for (const auto& [epoch, count] : observations) EXPECT_EQ(count, 35u) << epoch;
  options.mini_batch_size = 38;
  expect_says(
      message_of<InvalidArgument>([&] { MiniBatchQueue(with_step_labels(), {{2}}, options); }),
      "larger than the data");
}

// Each input is cut by its own steps; what is not a sequence is that of every segment.
TEST(CutSequences, InputsOfOtherLengthsAndLabelsOfSequences) {
  const int64_t n = 6;
  std::vector<int64_t> labels{1, 0, 1, 1, 0, 0};
  ArrayBlock block{n, {1}, {0, 1, 2, 3, 4, 5}};
  const DatastorePtr store =
      combine({sequence_datastore(counted_steps(n), {.labels = labels, .classes = {"a", "b"}}),
               sequence_datastore(counted_steps(n, 9)), array_datastore(block)});
  MiniBatchQueueOptions options = cut_options(4, 6);
  options.shuffle = Shuffle::never;
  options.max_epochs = 1;
  MiniBatchQueue queue(store, {{2}, {2}, {1}}, options);
  const auto batches = drain(queue);
  ASSERT_EQ(batches.size(), 7u) << "26 steps";
  for (int64_t i = 0; i < n; ++i) {
    std::vector<float> first, second;
    for (const MiniBatch& batch : batches) {
      const auto a = values_of<float>(batch.input(0), i), b = values_of<float>(batch.input(1), i);
      first.insert(first.end(), a.begin(), a.end());
      second.insert(second.end(), b.begin(), b.end());
      EXPECT_EQ(values_of<float>(batch.input(2), i), std::vector<float>{static_cast<float>(i)});
      EXPECT_EQ(batch.labels()[static_cast<size_t>(i)], labels[static_cast<size_t>(i)]);
    }
    EXPECT_EQ(first, counted_steps(n)[static_cast<size_t>(i)].values);
    EXPECT_EQ(second, counted_steps(n, 9)[static_cast<size_t>(i)].values);
  }
}

// The sum over mini-batches of the steps that padding to the longest would add.
int64_t padding(const MiniBatchQueueOptions& options) {
  MiniBatchQueue queue(with_step_labels(), {{2}}, options);
  int64_t sum = 0;
  for (const MiniBatch& batch : drain(queue)) {
    int64_t longest = 0;
    for (const int64_t i : batch.observations) longest = std::max(longest, steps_of(i));
    for (const int64_t i : batch.observations) sum += longest - steps_of(i);
  }
  return sum;
}

TEST(GroupedByLength, MiniBatchesHaveLikeLengthsInAnyOrder) {
  MiniBatchQueueOptions options = cut_options(0);
  const int64_t mixed = padding(options);
  options.group_by_length = 1;
  EXPECT_EQ(padding(options), mixed) << "the observations of one mini-batch stay in it";
  options.group_by_length = 4;
  EXPECT_LT(padding(options), mixed / 2);
  options.group_by_length = 1 << 24;  // all
  EXPECT_LT(padding(options), mixed / 4);
  MiniBatchQueue queue(with_step_labels(), {{2}}, options);
  EXPECT_EQ(queue.batches_per_epoch(), 8);
  std::map<int64_t, std::set<int64_t>> seen;
  std::map<int64_t, std::vector<int64_t>> longest;
  for (const MiniBatch& batch : drain(queue)) {
    seen[batch.epoch].insert(batch.observations.begin(), batch.observations.end());
    longest[batch.epoch].push_back(steps_of(batch.observations[0]));
    EXPECT_EQ(batch.segments, 0);
  }
  for (const auto& [epoch, all] : seen) EXPECT_EQ(all.size(), static_cast<size_t>(kSequences));
  EXPECT_NE(longest[0], longest[1]) << "mini-batches are shuffled";
  EXPECT_FALSE(std::is_sorted(longest[0].rbegin(), longest[0].rend()));
  options.shuffle = Shuffle::never;
  MiniBatchQueue sorted(with_step_labels(), {{2}}, options);
  std::vector<int64_t> lengths;
  while (lengths.size() < 35) {
    const auto batch = sorted.next();
    for (const int64_t i : batch->observations) lengths.push_back(steps_of(i));
  }
  EXPECT_TRUE(std::is_sorted(lengths.rbegin(), lengths.rend()));
}

TEST(GroupedByLength, SegmentsOfLikeSequencesAreFewer) {
  MiniBatchQueueOptions options = cut_options(4);
  const DatastorePtr store = with_step_labels();
  const int64_t mixed = batches_per_epoch(*store, options);
  options.group_by_length = 100;
  const int64_t grouped = batches_per_epoch(*store, options);
  EXPECT_LT(grouped, mixed);
  // Seven full mini-batches of sorted lengths and a last one of two have at least this many.
  MiniBatchQueue queue(store, {{2}}, options);
  EXPECT_EQ(static_cast<int64_t>(drain(queue).size()), 3 * grouped);
}

TEST(CutSequences, WhatCannotBeIsRefused) {
  const auto images = std::make_shared<MemoryStore>(8, 2, 2, 1);
  const auto refusal = [](const DatastorePtr& store, const Shape& shape,
                          const MiniBatchQueueOptions& options) {
    return message_of<InvalidArgument>([&] { MiniBatchQueue(store, {shape}, options); });
  };
  expect_says(refusal(images, {1, 2, 2}, cut_options(3)),
              "sequence_length is 3, but no input of the data is a sequence");
  MiniBatchQueueOptions grouped = cut_options(0);
  grouped.group_by_length = 2;
  expect_says(refusal(images, {1, 2, 2}, grouped),
              "group_by_length is 2, but no input of the data is a sequence");
  expect_says(refusal(with_step_labels(), {2}, cut_options(-1)),
              "sequence_length is -1, but must be 0 to 2^31");
  grouped.group_by_length = -2;
  expect_says(refusal(with_step_labels(), {2}, grouped), "group_by_length is -2");
  expect_says(message_of<InvalidArgument>([&] { batches_per_epoch(9, cut_options(3)); }),
              "depends on the lengths");
  MiniBatchQueueOptions far = cut_options(4);
  expect_says(
      message_of<InvalidArgument>([&] { MiniBatchQueue(with_step_labels(), {{2}}, far, 0, 1000); }),
      "cannot start at mini-batch 1000 of");
  // Targets whose steps are not those of an input cannot be cut with it.
  const DatastorePtr other =
      with_targets(sequence_datastore(counted_steps(6)), sequence_datastore(counted_steps(6, 1)),
                   TargetLengths::any);
  expect_says(refusal(other, {2}, cut_options(4)), "observation 0 has 1 step");
  EXPECT_NO_THROW(MiniBatchQueue(other, {{2}}, cut_options(0)));
}

}  // namespace
}  // namespace lockstep
