// Sequences of different lengths: in memory, in caches and in mini-batches, and their statistics.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/base/os/shared_memory.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/data/datastores/datastores.h"
#include "tests/data/queues.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::copy_of;
using testing::drain;
using testing::expect_equal;
using testing::expect_says;
using testing::MemoryStore;
using testing::message_of;

int64_t length_of(int64_t i) { return 1 + i * i % 7; }

Array sequence(int64_t i, const Shape& entry, int64_t steps) {
  std::vector<int64_t> dims = entry.dims();
  dims.insert(dims.begin(), steps);
  Array array{Shape(dims), {}};
  for (int64_t k = 0; k < array.shape.elements(); ++k) {
    array.values.push_back(static_cast<float>(100 * i + k) + 0.5f);
  }
  return array;
}

std::vector<Array> some_sequences(int64_t n, const Shape& entry = {3}) {
  std::vector<Array> all;
  for (int64_t i = 0; i < n; ++i) all.push_back(sequence(i, entry, length_of(i)));
  return all;
}

std::vector<std::vector<int32_t>> some_labels(int64_t n) {
  std::vector<std::vector<int32_t>> all(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < length_of(i); ++k) {
      all[static_cast<size_t>(i)].push_back(static_cast<int32_t>((i + k) % 4));
    }
  }
  return all;
}

std::vector<IntegerArray> some_tokens(int64_t n) {
  std::vector<IntegerArray> all;
  for (std::vector<int32_t>& tokens : some_labels(n)) {
    all.push_back({{static_cast<int64_t>(tokens.size())}, std::move(tokens)});
  }
  return all;
}

// Knows no lengths before it reads, and counts its reads.
class Unknown final : public DatastoreWrapper {
 public:
  using DatastoreWrapper::DatastoreWrapper;
  Example read(int64_t index) const override {
    ++reads;
    return wrapped().read(index);
  }
  std::optional<int64_t> steps(int64_t, size_t) const override { return std::nullopt; }
  mutable std::atomic<int64_t> reads{0};
};

// What row `i` of a ragged array has.
template <class T>
std::vector<T> row_of(const RowArray& array, int64_t i) {
  const std::span<const std::byte> bytes = array.bytes_of(i, 1);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(Sequences, AreReadAsTheyWereGiven) {
  const std::vector<Array> given = some_sequences(5);
  const DatastorePtr store =
      sequence_datastore(given, {.labels = {1, 0, 1, 1, 0}, .classes = {"a", "b"}});
  ASSERT_EQ(store->size(), 5);
  const ExampleSpec spec = store->spec();
  EXPECT_TRUE(spec.inputs[0].sequence);
  EXPECT_EQ(spec.inputs[0].shape, Shape{3});
  EXPECT_EQ(spec.inputs[0].type, DType::f32);
  EXPECT_FALSE(spec.target);
  EXPECT_EQ(store->describe(), "5 sequences with steps of 3 in memory");
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(read_array(*store, i), given[static_cast<size_t>(i)]);
    EXPECT_EQ(store->read(i).content, store->content_digest(i));
    EXPECT_EQ(store->steps(i), length_of(i));
    EXPECT_EQ(store->steps(i, 1), std::nullopt);
  }
  EXPECT_EQ(store->label(2), 1);
  EXPECT_EQ(store->name(4), "observation 4");
  EXPECT_THROW(store->read(5), InvalidArgument);
  EXPECT_THROW(store->steps(5), InvalidArgument);
  EXPECT_EQ(array_datastore(ArrayBlock{1, {2}, {1, 2}})->steps(0), std::nullopt);

  const DatastorePtr tokens = sequence_datastore(some_tokens(3));
  EXPECT_EQ(tokens->spec().inputs[0].shape, Shape{});
  EXPECT_EQ(tokens->spec().inputs[0].type, DType::i32);
  EXPECT_EQ(tokens->describe(), "3 sequences of integers in memory");
  EXPECT_EQ(std::get<IntegerArray>(tokens->read(2).inputs[0]).values,
            (std::vector<int32_t>{2, 3, 0, 1, 2}));
  expect_says(message_of<Unsupported>([&] { read_array(*tokens, 2); }), "sequences of integers");
}

TEST(Sequences, DigestsCoverValuesLengthsAndTypes) {
  const auto digest = [](Array array) {
    return sequence_datastore(std::vector<Array>{std::move(array)})->content_digest(0);
  };
  EXPECT_EQ(digest({{2, 3}, {1, 2, 3, 4, 5, 6}}), digest({{2, 3}, {1, 2, 3, 4, 5, 6}}));
  EXPECT_NE(digest({{2, 3}, {1, 2, 3, 4, 5, 6}}), digest({{3, 2}, {1, 2, 3, 4, 5, 6}}));
  EXPECT_NE(digest({{2, 1}, {1, 2}}), digest({{2, 1}, {1, std::nextafter(2.0f, 3.0f)}}));
  const std::vector<IntegerArray> zeros{{{2, 1}, {0, 0}}};
  EXPECT_NE(digest({{2, 1}, {0, 0}}), sequence_datastore(zeros)->content_digest(0));
  ThreadPool pool(2);
  const DatastorePtr all = sequence_datastore(some_sequences(6));
  EXPECT_EQ(ExampleCache(all, Shape{3}, 0).fill(pool).listing, listing_digest(*all, pool));
}

TEST(Sequences, WhatCannotBeIsRefused) {
  const auto refusal = [](std::vector<Array> sequences, ImageLabels labels = {}) {
    return message_of<InvalidArgument>(
        [&] { sequence_datastore(std::move(sequences), std::move(labels)); });
  };
  const Array good{{1, 2}, {1, 2}};
  expect_says(refusal({}), "there are no sequences");
  expect_says(refusal({good, {{0, 2}, {}}}), "observation 1 has no steps");
  expect_says(refusal({good, {{2, 1}, {1, 2}}}),
              "observation 1 has steps of 1, but observation 0 has steps of 2");
  expect_says(refusal({{{2}, {1, 2}}}), "but a sequence is steps x the shape of a step");
  expect_says(refusal({{{}, {1}}}), "observation 0 has the shape scalar");
  expect_says(refusal({{{2, 0}, {}}}), "empty");
  expect_says(refusal({good, {{2, 2}, {1, 2, 3}}}), "observation 1 has 3 elements");
  expect_says(refusal({good, {{2, 2}, {1, 2, 3, std::nanf("")}}}),
              "observation 1: step 1, element 1 is nan");
  expect_says(refusal({{{2, 1}, {1, std::numeric_limits<float>::infinity()}}}),
              "observation 0: step 1 is inf");
  expect_says(refusal({good}, {.labels = {0, 1}}), "2 labels for 1 sequences");
  const auto tokens = [](IntegerArray sequence) {
    return message_of<InvalidArgument>(
        [&] { sequence_datastore(std::vector<IntegerArray>{std::move(sequence)}); });
  };
  expect_says(tokens({{3}, {1, 2, -1}}), "observation 0: step 2 is -1");
  expect_says(tokens({{0}, {}}), "observation 0 has no steps");
  const auto labels = [](StepLabels given) {
    return message_of<InvalidArgument>([&] { step_labels(std::move(given)); });
  };
  expect_says(labels({.labels = {{0}, {1, 2}}, .classes = {"a", "b"}}),
              "[step_labels] observation 1: step 1 has the label 2, but there are 2 classes");
  expect_says(labels({.labels = {{0, -1}}}), "step 1 has the label -1");
  expect_says(labels({.labels = {{0}, {1 << 30}}}), "name the classes");
  expect_says(labels({.labels = {{0}, {}}}), "observation 1 has no steps");
  expect_says(labels({.labels = {{0}}, .classes = {"a", "a"}}), "the same name");
  EXPECT_EQ(step_labels({.labels = {{0, 2}}})->classes(),
            (std::vector<std::string>{"0", "1", "2"}));
}

TEST(Sequences, TargetsByStepNeedTheStepsOfTheirInputs) {
  const DatastorePtr inputs = sequence_datastore(some_sequences(6));
  std::vector<Array> values = some_sequences(6, {2});
  EXPECT_EQ(with_targets(inputs, sequence_datastore(values))->steps(2, 1), length_of(2));
  values[4] = sequence(4, {2}, length_of(4) + 1);
  const DatastorePtr wrong = sequence_datastore(values);
  const std::string message = message_of<InvalidArgument>([&] { with_targets(inputs, wrong); });
  expect_says(message, "observation 4");
  expect_says(message, "the input has " + std::to_string(length_of(4)) + " step");
  expect_says(message, "the target has " + std::to_string(length_of(4) + 1));
  EXPECT_EQ(with_targets(inputs, wrong, TargetLengths::any)->steps(4, 1), length_of(4) + 1);
  // Lengths that are not known before are compared when an example is read.
  const DatastorePtr late = with_targets(std::make_shared<Unknown>(inputs), wrong);
  EXPECT_NO_THROW(late->read(3));
  expect_says(message_of<DataError>([&] { late->read(4); }), "observation 4");
  // Images and arrays have no steps.
  EXPECT_NO_THROW(with_targets(std::make_shared<MemoryStore>(6, 2, 2, 1), wrong));
  EXPECT_NO_THROW(with_targets(inputs, array_datastore(ArrayBlock{6, {1}, {1, 2, 3, 4, 5, 6}})));
}

TEST(Sequences, LabelsOfStepsBringTheirClasses) {
  const DatastorePtr store =
      with_targets(sequence_datastore(some_sequences(5), {.labels = {2, 0, 1, 1, 2}}),
                   step_labels({.labels = some_labels(5), .classes = {"a", "b", "c", "d"}}));
  EXPECT_EQ(store->classes().size(), 4u);
  EXPECT_EQ(store->label(0), 0);
  EXPECT_EQ(std::get<IntegerArray>(store->read(2).target).values, some_labels(5)[2]);
  EXPECT_EQ(count_each_label(*store), (std::vector<int64_t>{5, 0, 0, 0}));
  EXPECT_EQ(split_each_label(store, {0.6}, 1)[0]->size(), 3);
}

TEST(Sequences, PartsAndCombinationsKeepStepsAndValues) {
  const auto sequences = some_sequences(8);
  const DatastorePtr store = sequence_datastore(sequences);
  EXPECT_EQ(read_array(*subset(store, {7, 2}), 1), sequences[2]);
  EXPECT_EQ(subset(store, {7, 2})->steps(0), length_of(7));
  EXPECT_EQ(partition(store, 3, 1)->steps(0), length_of(3));
  const DatastorePtr tokens = sequence_datastore(some_tokens(8));
  const DatastorePtr images = std::make_shared<MemoryStore>(8, 2, 2, 1);
  const DatastorePtr targets = sequence_datastore(some_sequences(8, {2}));
  const DatastorePtr all = combine({with_targets(store, targets), images, tokens});
  EXPECT_EQ(all->steps(5, 0), length_of(5));
  EXPECT_EQ(all->steps(5, 1), std::nullopt);
  EXPECT_EQ(all->steps(5, 2), length_of(5));
  EXPECT_EQ(all->steps(5, 3), length_of(5)) << "the target";
  EXPECT_EQ(std::get<IntegerArray>(all->read(5).inputs[2]).values, some_labels(8)[5]);
  const DatastorePtr turned = reorder(store, 0, {2, 0, 1});
  const Array read = read_array(*turned, 2);
  ASSERT_EQ(read.shape, sequences[2].shape);
  for (size_t k = 0; k < read.values.size(); ++k) {
    const std::vector<size_t> from{2, 0, 1};
    EXPECT_EQ(read.values[k], sequences[2].values[k / 3 * 3 + from[k % 3]]);
  }
  EXPECT_EQ(turned->steps(2), length_of(2));
  EXPECT_EQ(turned->read(2).content, turned->content_digest(2));
  EXPECT_THROW(reorder(tokens, 0, {0}), InvalidArgument);
}

TEST(Sequences, MiniBatchesHaveRowsOfDifferentLengths) {
  const int64_t n = 11;
  const DatastorePtr store = with_targets(sequence_datastore(some_sequences(n)),
                                          sequence_datastore(some_sequences(n, {2})));
  MiniBatchQueue queue(store, {{3}}, {.mini_batch_size = 4, .drop_last = false, .seed = 3});
  int64_t seen = 0;
  while (queue.has_data()) {
    const auto batch = queue.next();
    batch->check();
    const RowArray& input = (*batch)["input"];
    const RowArray& targets = (*batch)["targets"];
    EXPECT_EQ(input.shape, Shape{3});
    EXPECT_EQ(targets.shape, Shape{2});
    EXPECT_EQ(batch->labels().size(), batch->observations.size());
    ASSERT_EQ(input.rows, batch->size());
    for (int64_t i = 0; i < batch->size(); ++i, ++seen) {
      const int64_t of = batch->observations[static_cast<size_t>(i)];
      EXPECT_EQ(row_of<float>(input, i), sequence(of, {3}, length_of(of)).values);
      EXPECT_EQ(row_of<float>(targets, i), sequence(of, {2}, length_of(of)).values);
    }
  }
  EXPECT_EQ(seen, n);
}

TEST(Sequences, LabelsOfStepsAreRagged) {
  const DatastorePtr store =
      with_targets(sequence_datastore(some_tokens(6)), step_labels({.labels = some_labels(6)}));
  MiniBatchQueue queue(store, {{}}, {.mini_batch_size = 3, .seed = 3});
  const auto batch = queue.next();
  ASSERT_EQ(batch->arrays.size(), 2u);
  const RowArray& tokens = batch->input();
  const RowArray& labels = (*batch)["labels"];
  EXPECT_EQ(tokens.type, DType::i32);
  EXPECT_EQ(labels.type, DType::i32);
  EXPECT_EQ(labels.shape, Shape{});
  EXPECT_TRUE(labels.ragged());
  for (int64_t i = 0; i < batch->size(); ++i) {
    const auto of = static_cast<size_t>(batch->observations[static_cast<size_t>(i)]);
    EXPECT_EQ(row_of<int32_t>(tokens, i), some_labels(6)[of]);
    EXPECT_EQ(row_of<int32_t>(labels, i), some_labels(6)[of]);
  }
}

// Images of two sizes, an array, tokens and sequences in one example, with any cache.
TEST(Sequences, MixWithImagesAndArraysWhateverTheCacheAndTheThreads) {
  const int64_t n = 30;
  const auto images = std::make_shared<MemoryStore>(n, 5, 4, 3);
  const auto small = std::make_shared<MemoryStore>(n, 2, 3, 1);
  ArrayBlock block{n, {2}, {}};
  for (int64_t i = 0; i < 2 * n; ++i) block.values.push_back(static_cast<float>(i));
  const auto unknown = std::make_shared<Unknown>(sequence_datastore(some_sequences(n)));
  const DatastorePtr store = with_targets(
      combine({images, unknown, array_datastore(block), sequence_datastore(some_tokens(n)), small}),
      sequence_datastore(some_sequences(n, {1})));
  const std::vector<Shape> shapes{{3, 5, 4}, {3}, {2}, {}, {1, 2, 3}};
  const auto batches = [&](size_t budget, int threads, bool parts = false) {
    MiniBatchQueueOptions options{.mini_batch_size = 9,
                                  .drop_last = false,
                                  .seed = 4,
                                  .augmentation = {.reflect_x = true},
                                  .cache_bytes = budget,
                                  .threads = threads,
                                  .max_epochs = 2};
    if (parts) {
      options.rows = [](int64_t, int64_t, int64_t rows) {
        return std::vector<IndexRange>{{0, rows / 2}};
      };
    }
    MiniBatchQueue queue(store, shapes, options);
    return drain(queue);
  };
  const auto expected = batches(size_t{1} << 20, 1);
  ASSERT_EQ(expected.size(), 8u);
  for (const MiniBatch& batch : expected) {
    for (int64_t i = 0; i < batch.size(); ++i) {
      const int64_t of = batch.observations[static_cast<size_t>(i)];
      EXPECT_EQ(row_of<float>(batch["input_2"], i), sequence(of, {3}, length_of(of)).values);
      EXPECT_EQ(row_of<float>(batch["input_3"], i)[1], static_cast<float>(2 * of + 1));
      EXPECT_EQ(row_of<float>(batch["targets"], i), sequence(of, {1}, length_of(of)).values);
    }
  }
  expect_equal(batches(0, 3), expected);
  expect_equal(batches(2000, 2), expected);
  // Rows of other members have their lengths.
  const auto half = batches(2000, 2, true);
  for (size_t b = 0; b < half.size(); ++b) {
    EXPECT_EQ(half[b]["input_2"].offsets, expected[b]["input_2"].offsets);
    for (int64_t i = 0; i < half[b].size() / 2; ++i) {
      EXPECT_EQ(row_of<float>(half[b]["input_2"], i), row_of<float>(expected[b]["input_2"], i));
      EXPECT_EQ(row_of<uint8_t>(half[b]["input_1"], i), row_of<uint8_t>(expected[b]["input_1"], i));
    }
  }
}

TEST(Sequences, TargetsOfACacheOfTheirOwn) {
  const auto inputs = std::make_shared<const ExampleCache>(sequence_datastore(some_sequences(9)),
                                                           Shape{3}, 1 << 16);
  const auto targets =
      std::make_shared<const ExampleCache>(sequence_datastore(some_sequences(9, {2})), Shape{2}, 0);
  MiniBatchQueue queue(inputs, {.mini_batch_size = 9, .targets = targets});
  const auto batch = queue.next();
  for (int64_t i = 0; i < 9; ++i) {
    const int64_t of = batch->observations[static_cast<size_t>(i)];
    EXPECT_EQ(row_of<float>((*batch)["targets"], i), sequence(of, {2}, length_of(of)).values);
  }
}

TEST(Sequences, AreKeptWithinTheBudgetAndReadOnlyOnce) {
  const auto store = std::make_shared<Unknown>(sequence_datastore(some_sequences(20)));
  std::vector<uint8_t> scratch;
  const auto reads_of = [&](size_t budget) {
    const ExampleCache cache(store, Shape{3}, budget);
    store->reads = 0;
    for (int pass = 0; pass < 3; ++pass) {
      for (int64_t i = 0; i < 20; ++i) {
        EXPECT_EQ(cache.steps(i, 0), length_of(i));
        const auto steps = cache.steps_in(cache.inputs()[0], cache.get(i, scratch));
        EXPECT_EQ(steps.count, length_of(i));
        EXPECT_EQ(std::memcmp(steps.data, sequence(i, {3}, length_of(i)).values.data(),
                              static_cast<size_t>(steps.count) * 12),
                  0);
      }
    }
    return store->reads.load();
  };
  EXPECT_EQ(reads_of(1 << 20), 20);
  EXPECT_EQ(reads_of(0), 20 + 60) << "each length once, each example at each use";
  EXPECT_GT(reads_of(500), 20);
  EXPECT_LT(reads_of(500), 80);
}

// Processes with the same arena know the numbers of steps that one of them has read.
TEST(Sequences, LengthsAreShared) {
  const auto store = std::make_shared<Unknown>(sequence_datastore(some_sequences(20)));
  SharedMemory arena("lockstep-test");
  ThreadPool pool(2);
  const ExampleCache first(store, Shape{3}, 0);
  const SharedRange range = first.share(arena);
  first.fill(pool);
  const ExampleCache second(store, Shape{3}, 0);
  second.attach(arena, range);
  store->reads = 0;
  std::vector<uint8_t> scratch;
  for (int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(second.steps(i, 0), length_of(i));
  }
  EXPECT_EQ(store->reads.load(), 0);
  second.get(3, scratch);
  EXPECT_EQ(second.content(3), store->content_digest(3));
}

// A datastore whose arrays differ from what it announces.
class Lying final : public DatastoreWrapper {
 public:
  Lying(DatastorePtr store, Array array) : DatastoreWrapper(std::move(store)), array_(array) {}
  Example read(int64_t index) const override {
    Example example = wrapped().read(index);
    if (index == 1) example.inputs[0] = array_;
    return example;
  }

 private:
  Array array_;
};

TEST(Sequences, ExamplesOtherThanAnnouncedAreErrors) {
  const DatastorePtr store = sequence_datastore(some_sequences(4));
  const auto message = [&](Array array) {
    const ExampleCache cache(std::make_shared<Lying>(store, std::move(array)), Shape{3}, 1000);
    std::vector<uint8_t> scratch;
    return message_of<DataError>([&] {
      cache.steps(1, 0);
      cache.get(1, scratch);
    });
  };
  expect_says(message({{2, 2}, {1, 2, 3, 4}}), "observation 1 (4 sequences with steps of 3");
  expect_says(message({{2, 2}, {1, 2, 3, 4}}), "expected one or more steps of 3");
  expect_says(message({{0, 3}, {}}), "expected one or more steps of 3");
  expect_says(message(sequence(1, {3}, length_of(1) + 1)), "but had 2 before");
  EXPECT_EQ(message_of<InvalidArgument>([&] { ExampleCache(store, Shape{4}, 0); }).find("[example"),
            0u);
}

TEST(Sequences, StatisticsAreOfAllStepsAndIndependentOfThreads) {
  const int64_t n = 300;
  const DatastorePtr store = sequence_datastore(some_sequences(n, {2, 3}));
  std::vector<ChannelSummary> first;
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    const ExampleCache cache(store, Shape{2, 3}, threads == 2 ? 0 : 1 << 20);
    const auto channels = cache.fill(pool).channels().at(0);
    ASSERT_EQ(channels.size(), 2u);
    if (first.empty()) first = channels;
    for (size_t c = 0; c < 2; ++c) {
      std::vector<double> values;
      for (const Array& array : some_sequences(n, {2, 3})) {
        for (size_t k = 0; k < array.values.size(); ++k) {
          if (k / 3 % 2 == c) values.push_back(static_cast<double>(array.values[k]));
        }
      }
      const auto count = static_cast<double>(values.size());
      const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
      double squares = 0;
      for (const double v : values) squares += (v - mean) * (v - mean);
      EXPECT_NEAR(channels[c].mean, mean, 1e-6);
      EXPECT_NEAR(channels[c].standard_deviation, std::sqrt(squares / count), 1e-6);
      EXPECT_EQ(channels[c].min, *std::min_element(values.begin(), values.end()));
      EXPECT_EQ(channels[c].max, *std::max_element(values.begin(), values.end()));
      EXPECT_EQ(channels[c].mean, first[c].mean);
      EXPECT_EQ(channels[c].standard_deviation, first[c].standard_deviation);
    }
  }
  ThreadPool pool(2);
  EXPECT_TRUE(ExampleCache(sequence_datastore(some_tokens(5)), CachedShapes{{Shape{}}}, 0)
                  .fill(pool)
                  .channels()
                  .at(0)
                  .empty());
}

TEST(Sequences, PreprocessSeesRaggedArrays) {
  MiniBatchQueue queue(sequence_datastore(some_sequences(8)), {{3}},
                       {.mini_batch_size = 4,
                        .preprocess =
                            [](MiniBatch& batch) {
                              RowArray& input = batch["input"];
                              // Keeps the first step of each.
                              std::vector<float> kept;
                              for (int64_t i = 0; i < input.rows; ++i) {
                                const auto row = row_of<float>(input, i);
                                kept.insert(kept.end(), row.begin(), row.begin() + 3);
                              }
                              input.resize(input.rows);
                              std::memcpy(input.bytes.data(), kept.data(), kept.size() * 4);
                            },
                        .device = "cpu"});
  const auto batch = queue.next();
  EXPECT_EQ(batch->tensors[0].shape(), (Shape{4, 3}));
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(batch->tensors[0].to_vector()[static_cast<size_t>(3 * i)],
              sequence(batch->observations[static_cast<size_t>(i)], {3}, 1).values[0]);
  }
}

}  // namespace
}  // namespace lockstep
