// Typed examples of each kind of datastore, and examples with several inputs or with targets.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/data/datastores/datastores.h"
#include "tests/data/queues.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::copy_of;
using testing::expect_says;
using testing::MemoryStore;
using testing::message_of;
using testing::patterned;
using testing::TemporaryFolder;

constexpr int64_t kPictures = 12;

DatastorePtr vectors(int64_t n = kPictures, float offset = 0) {
  ArrayBlock block{n, {3}, {}};
  for (int64_t i = 0; i < 3 * n; ++i) {
    block.values.push_back(offset + static_cast<float>(i * i % 31));
  }
  return array_datastore(std::move(block));
}

std::shared_ptr<MemoryStore> pictures(int64_t n = kPictures, int64_t channels = 1) {
  return std::make_shared<MemoryStore>(n, 5, 4, channels);
}

// Every example fits the specification, and its label, name and digest are those of the listing.
void expect_sound(const Datastore& store) {
  const ExampleSpec spec = store.spec();
  for (int64_t i = 0; i < store.size(); ++i) {
    const Example example = store.read(i);
    ASSERT_EQ(example.inputs.size(), spec.inputs.size()) << store.name(i);
    for (size_t k = 0; k < spec.inputs.size(); ++k) {
      if (spec.inputs[k].kind == ValueKind::image) {
        ASSERT_TRUE(std::holds_alternative<Image>(example.inputs[k])) << store.name(i);
      } else {
        const Shape shape = spec.inputs[k].type == DType::i32
                                ? std::get<IntegerArray>(example.inputs[k]).shape
                                : std::get<Array>(example.inputs[k]).shape;
        const bool sequence = spec.inputs[k].sequence;
        ASSERT_EQ(sequence ? shape.without_batch() : shape, spec.inputs[k].shape);
        const int64_t steps = store.steps(i, k).value_or(-1);
        EXPECT_TRUE(sequence ? steps == -1 || steps == shape[0] : steps == -1) << steps;
      }
    }
    EXPECT_EQ(example.content, store.content_digest(i)) << store.name(i);
    if (spec.target) {
      EXPECT_FALSE(std::holds_alternative<ClassLabel>(example.target));
    } else {
      EXPECT_EQ(std::get<ClassLabel>(example.target), ClassLabel{store.label(i)});
    }
  }
  EXPECT_THROW(store.read(store.size()), std::exception);
}

TEST(Examples, EveryDatastoreReturnsWhatItAnnounces) {
  const TemporaryFolder folder;
  for (int i = 0; i < 3; ++i) {
    folder.write("data/" + std::string(1, static_cast<char>('a' + i)) + "/1.png",
                 encode_png(patterned(4, 3, 3, static_cast<uint32_t>(i))));
  }
  const std::string rows = "x,y,kind\n1,2,oak\n3,4,ash\n";
  const auto* const bytes = reinterpret_cast<const std::byte*>(rows.data());
  folder.write("rows.csv", {bytes, bytes + rows.size()});
  const DatastorePtr images = pictures();
  const std::vector<DatastorePtr> stores{
      image_folder(folder.path + "/data"),
      csv_datastore(folder.path + "/rows.csv"),
      array_datastore(std::vector<Image>{patterned(2, 3, 1, 1), patterned(4, 4, 3, 2)}),
      array_datastore(ImageBlock{2, 2, 2, 1, std::vector<uint8_t>(8, 7)}, {.labels = {1, 0}}),
      vectors(),
      subset(builtin_digits(), {5, 4007}),
      subset(images, {3, 1}),
      partition(images, 3, 1),
      transform(images, [](Image image) { return image; }),
      resized(images, 3, 3),
      center_cropped(images, 3, 3),
      combine({images, vectors()}),
      subset(combine({images, vectors(), pictures(kPictures, 3)}, {"a", "b", "c"}), {2, 9}),
      with_targets(images, vectors()),
      with_targets(combine({images, vectors()}), resized(images, 2, 2)),
      sequence_datastore(std::vector<Array>{{{1, 2}, {1, 2}}, {{2, 2}, {1, 2, 3, 4}}}),
      sequence_datastore(std::vector<IntegerArray>{{{3}, {1, 0, 2}}, {{1}, {7}}}),
      with_targets(vectors(2), step_labels({.labels = {{0, 1}, {2}}})),
      label_images(array_datastore(std::vector<Image>{{1, 2, 1, {0, 1}}}), {.names = {"a", "b"}}),
      with_targets(array_datastore(std::vector<Image>{patterned(1, 2, 3, 1)}),
                   label_images(array_datastore(std::vector<Image>{{1, 2, 1, {0, 1}}}),
                                {.names = {"a", "b"}}))};
  for (const DatastorePtr& store : stores) {
    SCOPED_TRACE(store->describe());
    expect_sound(*store);
  }
}

TEST(Examples, CombineTakesInputsOfAllAndTheLabelsOfTheFirst) {
  const auto images = pictures();
  const DatastorePtr both = combine({images, vectors()});
  EXPECT_EQ(both->size(), kPictures);
  EXPECT_EQ(both->classes(), images->classes());
  EXPECT_EQ(both->name(4), "image 4 + observation 4");
  EXPECT_EQ(both->describe(), "memory + 12 arrays of 3 in memory");
  const Example example = both->read(4);
  EXPECT_EQ(std::get<Image>(example.inputs[0]), images->images[4]);
  EXPECT_EQ(std::get<Array>(example.inputs[1]), read_array(*vectors(), 4));
  EXPECT_EQ(combine({images, pictures()})->name(4), "image 4") << "equal names appear once";

  ThreadPool pool(2);
  const Digest digest = listing_digest(*both, pool);
  EXPECT_EQ(listing_digest(*combine({pictures(), vectors()}), pool), digest);
  EXPECT_NE(listing_digest(*combine({images, vectors(kPictures, 1)}), pool), digest);
  EXPECT_NE(listing_digest(*combine({images, vectors()}, {"a", "b"}), pool), digest)
      << "names determine which input of the network gets which value";
  EXPECT_NE(listing_digest(*combine({images, vectors()}, {"b", "a"}), pool),
            listing_digest(*combine({images, vectors()}, {"a", "b"}), pool));
}

TEST(Examples, WhatCannotBeCombinedIsRefused) {
  const DatastorePtr images = pictures();
  const auto refusal = [](const std::function<void()>& call) {
    return message_of<InvalidArgument>(call);
  };
  expect_says(refusal([&] {
                combine({images, vectors(11)});
              }),
              "11 observations (11 arrays of 3 in memory) for 12 observations (memory)");
  expect_says(refusal([&] { combine({images}); }), "two or more");
  expect_says(refusal([&] { combine({images, nullptr}); }), "null");
  expect_says(refusal([&] {
                combine({images, vectors()}, {"a"});
              }),
              "received 1 name for 2 inputs");
  expect_says(refusal([&] { combine({images, vectors()}, {"a", "a"}); }), "the same name");
  expect_says(refusal([&] {
                combine({images, with_targets(images, vectors())});
              }),
              "only the first datastore may have targets");
  expect_says(refusal([&] { with_targets(images, vectors(11)); }), "11 targets");
  const DatastorePtr learned = with_targets(images, vectors());
  expect_says(refusal([&] { with_targets(learned, vectors()); }), "targets already");
  expect_says(refusal([&] { with_targets(images, combine({images, images})); }), "one image");
  // Functions for single images do not guess which input they change.
  for (const DatastorePtr& store : {combine({images, vectors()}), learned}) {
    EXPECT_THROW(resized(store, 2, 2), Unsupported);
    EXPECT_THROW(center_cropped(store, 2, 2), Unsupported);
    EXPECT_THROW(transform(store, [](Image image) { return image; }), Unsupported);
  }
  expect_says(message_of<Unsupported>([&] {
                read_image(*combine({images, vectors()}), 2);
              }),
              "image 2 + observation 2");
}

// A datastore whose examples are not what it announces.
class Lying final : public MemoryStore {
 public:
  Lying() : MemoryStore(kPictures, 5, 4, 1) {}
  Example read(int64_t index) const override {
    Example example = MemoryStore::read(index);
    if (index == 7) example.inputs[0] = Array{{2}, {1, 2}};
    return example;
  }
};

TEST(Examples, ACacheNamesAnExampleThatIsNotAsAnnounced) {
  const auto store = std::make_shared<Lying>();
  std::vector<uint8_t> scratch;
  const ExampleCache cache(store, 5, 4, 1, 1000);
  EXPECT_NO_THROW(cache.get(6, scratch));
  expect_says(message_of<DataError>([&] { cache.get(7, scratch); }), "image 7 (memory)");
  expect_says(message_of<DataError>([&] { resized(store, 2, 2)->read(7); }), "image 7");
}

CachedShapes shapes_of_both() { return {.inputs = {{1, 5, 4}, {3}}}; }

TEST(Examples, ACacheKeepsWholeExamplesWhateverItsBudget) {
  const auto images = pictures();
  const DatastorePtr small = resized(images, 2, 2);
  const DatastorePtr store = with_targets(combine({images, vectors()}), small);
  CachedShapes shapes = shapes_of_both();
  shapes.target = Shape{1, 2, 2};
  Digest listing;
  for (const size_t budget : {size_t{0}, size_t{5 * 36}, size_t{1} << 20}) {
    for (const CachedImages kind : {CachedImages::exact, CachedImages::windowed}) {
      if (kind == CachedImages::windowed) shapes.target.reset();
      const ExampleCache cache(store, shapes, budget, kind);
      EXPECT_EQ(cache.example_bytes(), kind == CachedImages::exact ? 36u : 32u);
      ThreadPool pool(2);
      const ExampleCache::Contents contents = cache.fill(pool);
      if (listing == Digest{}) listing = contents.listing;
      EXPECT_EQ(contents.listing, listing);
      EXPECT_EQ(contents.channels().size(), 2u);
      EXPECT_EQ(contents.channels()[0].size(), 1u);
      EXPECT_EQ(contents.channels()[1].size(), 3u);
      std::vector<uint8_t> scratch;
      for (int64_t i = 0; i < kPictures; ++i) {
        const uint8_t* const example = cache.get(i, scratch);
        const auto pixels = to_planes(images->images[static_cast<size_t>(i)]);
        EXPECT_EQ(std::memcmp(example + cache.inputs()[0].offset, pixels.data(), 20), 0);
        const Array array = read_array(*vectors(), i);
        EXPECT_EQ(std::memcmp(example + cache.inputs()[1].offset, array.values.data(), 12), 0);
        if (kind == CachedImages::windowed) continue;
        const auto target = to_planes(read_image(*small, i));
        EXPECT_EQ(std::memcmp(example + cache.target()->offset, target.data(), 4), 0);
      }
    }
    shapes.target = Shape{1, 2, 2};
  }
}

std::vector<MiniBatch> drained(const std::shared_ptr<const ExampleCache>& cache,
                               MiniBatchQueueOptions options) {
  MiniBatchQueue queue(cache, std::move(options));
  std::vector<MiniBatch> all;
  while (queue.has_data()) all.push_back(*queue.next());
  return all;
}

TEST(Examples, MiniBatchesHaveAllInputsWhateverTheThreads) {
  const auto images = pictures(), more = pictures(kPictures, 3);
  const auto store = combine({images, vectors(), more});
  const CachedShapes shapes{.inputs = {{1, 5, 4}, {3}, {3, 5, 4}}};
  const auto cache = [&](size_t budget) {
    return std::make_shared<const ExampleCache>(store, shapes, budget);
  };
  MiniBatchQueueOptions options{.mini_batch_size = 5,
                                .drop_last = false,
                                .seed = 3,
                                .augmentation = {.reflect_x = true, .translate_y = {-1, 1}},
                                .max_epochs = 2};
  const auto expected = drained(cache(0), options);
  ASSERT_EQ(expected.size(), 6u);
  // Each input is as it would be alone: images of one example change alike.
  const auto alone = drained(std::make_shared<const ExampleCache>(more, 5, 4, 3, 0), options);
  for (size_t b = 0; b < expected.size(); ++b) {
    const MiniBatch& batch = expected[b];
    ASSERT_EQ(batch.arrays.size(), 4u);
    EXPECT_EQ(batch.observations, alone[b].observations);
    EXPECT_EQ(batch.input(2).bytes, alone[b].input().bytes);
    for (size_t i = 0; i < batch.observations.size(); ++i) {
      const Array array = read_array(*vectors(), batch.observations[i]);
      EXPECT_EQ(std::memcmp(batch.input(1).values<float>().data() + 3 * i, array.values.data(), 12),
                0);
    }
  }
  for (const int threads : {2, 5}) {
    options.threads = threads;
    const auto again = drained(cache(threads == 2 ? 400 : 1 << 20), options);
    ASSERT_EQ(again.size(), expected.size());
    for (size_t b = 0; b < expected.size(); ++b) {
      EXPECT_EQ(again[b].arrays, expected[b].arrays);
    }
  }
  // Noise differs from input to input.
  options.augmentation = {};
  options.noise.salt_and_pepper = 0.5;
  const auto twice = std::make_shared<const ExampleCache>(
      combine({images, images}), CachedShapes{.inputs = {{1, 5, 4}, {1, 5, 4}}}, 0);
  const MiniBatch noisy = drained(twice, options).front();
  EXPECT_NE(noisy.input(0).bytes, noisy.input(1).bytes);
}

TEST(Examples, TargetsOfExamplesAreThoseOfASecondCache) {
  const auto images = pictures();
  const DatastorePtr targets = pictures(kPictures, 3);
  MiniBatchQueueOptions options{
      .mini_batch_size = 4, .seed = 3, .augmentation = {.reflect_x = true, .translate_x = {-1, 1}}};
  const auto own = drained(std::make_shared<const ExampleCache>(
                               with_targets(images, targets),
                               CachedShapes{.inputs = {{1, 5, 4}}, .target = Shape{3, 5, 4}}, 0),
                           options);
  options.targets = std::make_shared<const ExampleCache>(targets, 5, 4, 3, 0);
  const auto separate = drained(std::make_shared<const ExampleCache>(images, 5, 4, 1, 0), options);
  ASSERT_EQ(own.size(), separate.size());
  for (size_t b = 0; b < own.size(); ++b) {
    EXPECT_EQ(own[b].arrays, separate[b].arrays);
    EXPECT_GT(own[b]["targets"].elements(), 0);
  }
}

TEST(Examples, ImagesOfDifferentSizesAreOnlyReflected) {
  const auto images = pictures();
  const auto cache = std::make_shared<const ExampleCache>(
      combine({images, resized(images, 3, 3)}), CachedShapes{.inputs = {{1, 5, 4}, {1, 3, 3}}}, 0);
  EXPECT_EQ(drained(cache, {.mini_batch_size = 4, .augmentation = {.reflect_x = true}}).size(), 3u);
  expect_says(message_of<InvalidArgument>([&] {
                drained(cache, {.mini_batch_size = 4, .augmentation = {.translate_x = {-1, 1}}});
              }),
              "the images of an example have different sizes");
  expect_says(
      message_of<InvalidArgument>([&] {
        ExampleCache(cache->store(), {.inputs = {{1, 5, 4}, {1, 3, 3}}}, 0, CachedImages::windowed);
      }),
      "different sizes: 1x5x4 and 1x3x3");
}

// Windows of all images of an example are at the same place, and arrays stay whole.
TEST(Examples, RandomCropsCutAllImagesAlike) {
  const auto images = pictures();
  const auto store = combine({images, images, vectors()});
  const CachedShapes shapes{.inputs = {{1, 3, 2}, {1, 3, 2}, {3}}};
  for (const size_t budget : {size_t{0}, size_t{1} << 20}) {
    const auto cache =
        std::make_shared<const ExampleCache>(store, shapes, budget, CachedImages::windowed);
    for (const MiniBatch& batch : drained(cache, {.mini_batch_size = 4})) {
      EXPECT_EQ(batch.input(0).bytes, batch.input(1).bytes);
      EXPECT_EQ(batch.input(2).elements(), 12);
    }
  }
  const ExampleCache unequal(combine({images, resized(images, 6, 6)}),
                             {.inputs = {{1, 3, 2}, {1, 3, 2}}}, 0, CachedImages::windowed);
  std::vector<uint8_t> scratch;
  expect_says(message_of<DataError>([&] { unequal.get(3, scratch); }),
              "the images of image 3 (memory + memory) have different sizes");
}

TEST(Examples, TensorsOnTheCpuAreTheInputsAndTheLabels) {
  const auto store = combine({pictures(), vectors()});
  const auto cache = std::make_shared<const ExampleCache>(store, shapes_of_both(), 1000);
  MiniBatchQueue queue(cache, {.mini_batch_size = 4, .device = "cpu"});
  while (queue.has_data()) {
    const auto batch = queue.next();
    ASSERT_EQ(batch->tensors.size(), 3u);
    EXPECT_EQ(batch->tensors[0].shape(), (Shape{4, 1, 5, 4}));
    EXPECT_EQ(batch->tensors[0].raw(), batch->input().bytes.data()) << "a view";
    EXPECT_EQ(batch->tensors[1].shape(), (Shape{4, 3}));
    EXPECT_EQ(batch->tensors[1].to_vector(), copy_of<float>(batch->input(1)));
    EXPECT_EQ(batch->tensors[2].shape(), Shape{4});
    EXPECT_EQ(std::memcmp(batch->tensors[2].raw(), batch->labels().data(), 16), 0);
  }
  EXPECT_THROW(MiniBatchQueue(cache, {.mini_batch_size = 4, .device = "gpu"}), InvalidArgument);
  EXPECT_TRUE(MiniBatchQueue(cache, {.mini_batch_size = 4}).next()->tensors.empty());
  // A function may replace arrays and add others.
  MiniBatchQueue changed(
      cache, {.mini_batch_size = 4,
              .preprocess =
                  [](MiniBatch& batch) {
                    batch.set("targets", one_hot(batch.labels(), 3));
                    batch.set("input_1", Tensor::from(std::vector<int64_t>{4, 5, 6, 7}, {4, 1}));
                  },
              .device = "cpu"});
  const auto batch = changed.next();
  EXPECT_EQ(batch->tensors[3].shape(), (Shape{4, 3}));
  EXPECT_EQ(batch->tensor("targets").raw(), batch->tensors[3].raw());
  EXPECT_EQ(batch->tensor("input_1").dtype(), DType::i64);
  expect_says(message_of<InvalidArgument>([&] { batch->tensor("target"); }), "no array `target`");
  expect_says(message_of<InvalidArgument>([&] { batch->input().values<float>(); }),
              "`input_1` has elements of i64, but f32 is requested");
}

// A queue that decodes by itself gives what one of a cache gives.
TEST(Examples, AQueueKeepsDecodedExamplesItself) {
  const auto store = with_targets(combine({pictures(), vectors()}), pictures(kPictures, 3));
  const auto cache = std::make_shared<const ExampleCache>(
      store, CachedShapes{.inputs = {{1, 5, 4}, {3}}, .target = Shape{3, 5, 4}}, 1000);
  for (const size_t bytes : {size_t{0}, size_t{1} << 20}) {
    MiniBatchQueue own(store, {{1, 5, 4}, {3}}, {.mini_batch_size = 4, .cache_bytes = bytes});
    MiniBatchQueue other(cache, {.mini_batch_size = 4});
    while (other.has_data()) {
      const auto a = own.next(), b = other.next();
      EXPECT_EQ((*a)["input_1"], (*b)["input_1"]);
      EXPECT_EQ((*a)["input_2"], (*b)["input_2"]);
      EXPECT_EQ((*a)["targets"].shape, (Shape{1, 5, 4})) << "as the first input";
      EXPECT_EQ((*b)["targets"].shape, (Shape{3, 5, 4}));
    }
    EXPECT_FALSE(own.has_data());
    ThreadPool pool(2);
    const auto channels = own.channels(pool);
    ASSERT_EQ(channels.size(), 2u);
    EXPECT_EQ(channels[0].size(), 1u);
    EXPECT_EQ(channels[1].size(), 3u);
    EXPECT_EQ(channels[0][0].mean, cache->fill(pool).channels()[0][0].mean);
  }
  expect_says(message_of<InvalidArgument>([&] { MiniBatchQueue(DatastorePtr(), {{3}}, {}); }),
              "the datastore is null");
  MiniBatchQueue colored(store, {{1, 5, 4}, {3}},
                         {.mini_batch_size = 4, .target_shape = Shape{3, 5, 4}});
  EXPECT_EQ((*colored.next())["targets"].shape, (Shape{3, 5, 4}));
  const auto no_images = with_targets(vectors(), pictures());
  expect_says(message_of<InvalidArgument>([&] { MiniBatchQueue(no_images, {{3}}, {}); }),
              "are images without a size");
  EXPECT_THROW(MiniBatchQueue(store, {{1, 5, 4}}, {.mini_batch_size = 4}), InvalidArgument);
}

TEST(Examples, ArraysThatDoNotFitTogetherAreRefused) {
  const auto cache = std::make_shared<const ExampleCache>(pictures(), 5, 4, 1, 0);
  const auto refused = [&](std::function<void(MiniBatch&)> change, const char* text) {
    MiniBatchQueue queue(cache, {.mini_batch_size = 4, .preprocess = std::move(change)});
    expect_says(message_of<InvalidArgument>([&] { queue.next(); }), text);
  };
  refused([](MiniBatch& batch) { batch["labels"].resize(3); },
          "`labels` has 3 rows, but `input` has 4");
  refused([](MiniBatch& batch) { batch["input"].bytes.pop_back(); },
          "`input` has 79 bytes, but 4x1x5x4");
  refused(
      [](MiniBatch& batch) {
        batch["labels"].offsets = {0, 1, 2, 4};
      },
      "the offsets of `labels` are not 5 numbers");
  refused(
      [](MiniBatch& batch) {
        batch["labels"].offsets = {0, 2, 1, 3, 4};
      },
      "the offsets of `labels`");
}

// Rows of different lengths: words of 3 letters each, say.
TEST(Examples, RowsMayDifferInLength) {
  const auto cache = std::make_shared<const ExampleCache>(pictures(), 5, 4, 1, 0);
  MiniBatchQueue queue(cache, {.mini_batch_size = 4,
                               .preprocess =
                                   [](MiniBatch& batch) {
                                     RowArray words{.name = "words", .type = DType::i32};
                                     words.shape = {3};
                                     words.rows = 4;
                                     words.offsets = {0, 2, 2, 3, 7};
                                     for (int32_t i = 0; i < 21; ++i) {
                                       const auto bytes = std::as_bytes(std::span(&i, 1));
                                       words.bytes.insert(words.bytes.end(), bytes.begin(),
                                                          bytes.end());
                                     }
                                     batch.arrays.push_back(std::move(words));
                                   },
                               .device = "cpu"});
  const auto batch = queue.next();
  const RowArray& words = (*batch)["words"];
  EXPECT_TRUE(words.ragged());
  EXPECT_EQ(batch->tensor("words").shape(), (Shape{7, 3}));
  EXPECT_EQ(words.bytes_of(0, 1).size(), 2u * 12);
  EXPECT_EQ(words.bytes_of(1, 1).size(), 0u);
  EXPECT_EQ(words.bytes_of(2, 2).data(), words.bytes.data() + 2 * 12);
  EXPECT_EQ(words.bytes_of(2, 2).size(), 5u * 12);
}

}  // namespace
}  // namespace lockstep
