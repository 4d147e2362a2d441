// The mini-batch queue: the options determine the contents of a mini-batch, independently of
// threads, prefetching, memory and timing.
#include "lockstep/data/batches/mini_batch_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/images/augment_images.h"
#include "tests/base/waiting.h"
#include "tests/data/queues.h"

namespace lockstep {
namespace {

using testing::await;
using testing::awkward;
using testing::cache_of;
using testing::comes_to_rest;
using testing::copy_of;
using testing::drain;
using testing::expect_equal;
using testing::MemoryStore;
using testing::message_of;
using testing::small_cache;

TEST(EpochOrder, IsAPermutationThatIsAFunctionOfSeedAndEpoch) {
  for (const Shuffle shuffle : {Shuffle::never, Shuffle::once, Shuffle::every_epoch}) {
    std::vector<int64_t> order = epoch_order(100, shuffle, 5, 3);
    EXPECT_EQ(epoch_order(100, shuffle, 5, 3), order);
    const bool sorted = std::is_sorted(order.begin(), order.end());
    EXPECT_EQ(sorted, shuffle == Shuffle::never);
    EXPECT_EQ(epoch_order(100, shuffle, 6, 3) == order, shuffle == Shuffle::never);
    EXPECT_EQ(epoch_order(100, shuffle, 5, 4) == order, shuffle != Shuffle::every_epoch);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, epoch_order(100, Shuffle::never, 0, 0));
  }
  EXPECT_EQ(epoch_order(100, Shuffle::once, 5, 7), epoch_order(100, Shuffle::every_epoch, 5, 0));
}

TEST(BatchesPerEpoch, DropsOrKeepsTheLastPartialOne) {
  MiniBatchQueueOptions options;
  const auto count = [&](int64_t n, int64_t size, bool drop) {
    options.mini_batch_size = size;
    options.drop_last = drop;
    return batches_per_epoch(n, options);
  };
  EXPECT_EQ(count(100, 30, true), 3);
  EXPECT_EQ(count(100, 30, false), 4);
  EXPECT_EQ(count(90, 30, true), 3);
  EXPECT_EQ(count(90, 30, false), 3);
  EXPECT_EQ(count(10, 30, true), 0);
  EXPECT_EQ(count(10, 30, false), 1);
  EXPECT_THROW(count(10, 0, false), InvalidArgument);
}

TEST(MiniBatchQueue, MatchesItsDefinition) {
  const auto cache = small_cache();
  const MiniBatchQueueOptions options = awkward();
  MiniBatchQueue queue(cache, options);
  const std::vector<MiniBatch> batches = drain(queue);
  ASSERT_EQ(batches.size(), 15u);  // 5 per epoch, the last with 3
  size_t next = 0;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    const std::vector<int64_t> order = epoch_order(23, options.shuffle, 42, epoch);
    for (int64_t b = 0; b < 5; ++b, ++next) {
      const MiniBatch& batch = batches[next];
      EXPECT_EQ(batch.epoch, epoch);
      EXPECT_EQ(batch.index, b);
      ASSERT_EQ(batch.size(), b < 4 ? 5 : 3);
      const std::vector<uint8_t> pixels = copy_of<uint8_t>(batch.input());
      ASSERT_EQ(pixels.size(), static_cast<size_t>(batch.size()) * 60);
      ASSERT_EQ(batch.labels().size(), static_cast<size_t>(batch.size()));
      EXPECT_EQ(batch.observations_digest, digest_observations(batch.observations));
      for (int64_t i = 0; i < batch.size(); ++i) {
        const auto at = static_cast<size_t>(i);
        const int64_t observation = order[static_cast<size_t>(b * 5 + i)];
        EXPECT_EQ(batch.observations[at], observation);
        EXPECT_EQ(batch.labels()[at], observation % 3);
        Image expected = read_image(*cache->store(), observation);
        augment_into(read_image(*cache->store(), observation),
                     draw_augmentation(options.augmentation, 42, epoch, observation, 0),
                     expected.pixels.data());
        const auto begin = pixels.begin() + i * 60;
        EXPECT_EQ(std::vector<uint8_t>(begin, begin + 60), to_planes(expected));
      }
    }
  }
  EXPECT_THROW(queue.next(), InvalidArgument);
}

TEST(MiniBatchQueue, ThreadsPrefetchAndBudgetDoNotChangeIt) {
  MiniBatchQueueOptions options = awkward();
  MiniBatchQueue first(small_cache(), options);
  const std::vector<MiniBatch> expected = drain(first);
  for (const int threads : {1, 2, 5}) {
    for (const int prefetch : {1, 3, 40}) {
      for (const size_t budget : {size_t{0}, size_t{600}, size_t{100000}}) {
        options.threads = threads;
        options.prefetch = prefetch;
        MiniBatchQueue queue(small_cache(23, budget), options);
        expect_equal(drain(queue), expected);
      }
    }
  }
}

TEST(MiniBatchQueue, StartingAnywhereGivesTheRestOfTheSame) {
  MiniBatchQueueOptions options = awkward();
  options.threads = 2;
  MiniBatchQueue first(small_cache(), options);
  const std::vector<MiniBatch> all = drain(first);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    for (int64_t batch = 0; batch <= 5; ++batch) {
      MiniBatchQueue queue(small_cache(), options, epoch, batch);
      EXPECT_EQ(queue.epoch() * 5 + queue.batch(), epoch * 5 + batch);
      expect_equal(drain(queue), {all.begin() + epoch * 5 + batch, all.end()});
    }
  }
  MiniBatchQueue over(small_cache(), options, 3, 0);
  EXPECT_FALSE(over.has_data());
}

TEST(MiniBatchQueue, EachOptionThatShouldChangesTheContent) {
  MiniBatchQueue first(small_cache(), awkward());
  const std::vector<MiniBatch> expected = drain(first);
  const auto pixels_with = [](auto change) {
    MiniBatchQueueOptions options = awkward();
    change(options);
    MiniBatchQueue queue(small_cache(), options);
    return drain(queue)[5].input().bytes;  // of the second epoch
  };
  using O = MiniBatchQueueOptions;
  EXPECT_EQ(pixels_with([](O&) {}), expected[5].input().bytes);
  EXPECT_NE(pixels_with([](O& o) { o.seed = 43; }), expected[5].input().bytes);
  EXPECT_NE(pixels_with([](O& o) { o.shuffle = Shuffle::once; }), expected[5].input().bytes);
  EXPECT_NE(pixels_with([](O& o) { o.shuffle = Shuffle::never; }), expected[5].input().bytes);
  EXPECT_NE(pixels_with([](O& o) { o.augmentation.reflect_x = false; }), expected[5].input().bytes);
  EXPECT_NE(pixels_with([](O& o) { o.mini_batch_size = 6; }), expected[5].input().bytes);
  EXPECT_NE(pixels_with([](O& o) { o.drop_last = true; }), expected[4].input().bytes);
}

TEST(MiniBatchQueue, EveryObservationComesOncePerEpochUnlessDropped) {
  MiniBatchQueueOptions options = awkward();
  for (const bool drop : {false, true}) {
    options.drop_last = drop;
    MiniBatchQueue queue(small_cache(), options);
    std::vector<std::multiset<int64_t>> seen(3);
    for (const MiniBatch& batch : drain(queue)) {
      seen[static_cast<size_t>(batch.epoch)].insert(batch.observations.begin(),
                                                    batch.observations.end());
    }
    for (const auto& epoch : seen) {
      EXPECT_EQ(epoch.size(), drop ? 20u : 23u);
      EXPECT_EQ(std::set<int64_t>(epoch.begin(), epoch.end()).size(), epoch.size());
    }
  }
}

TEST(MiniBatchQueue, OptionsThatCannotWorkAreRefused) {
  const auto refused = [](auto change, int64_t epoch = 0, int64_t batch = 0) {
    MiniBatchQueueOptions options = awkward();
    change(options);
    return message_of<InvalidArgument>(
        [&] { MiniBatchQueue queue(small_cache(), options, epoch, batch); });
  };
  using O = MiniBatchQueueOptions;
  const std::string large = refused([](O& o) {
    o.mini_batch_size = 24;
    o.drop_last = true;
  });
  EXPECT_NE(large.find("24"), std::string::npos) << large;
  EXPECT_NE(large.find("larger than the data (23)"), std::string::npos) << large;
  const std::string none = "(nothing was thrown)";
  EXPECT_NE(refused([](O& o) { o.mini_batch_size = 0; }), none);
  EXPECT_NE(refused([](O& o) { o.threads = 0; }), none);
  EXPECT_NE(refused([](O& o) { o.prefetch = 0; }), none);
  EXPECT_NE(refused([](O& o) { o.max_epochs = 0; }), none);
  EXPECT_NE(refused([](O& o) { o.augmentation.translate_x = {1, 0}; }), none);
  EXPECT_NE(refused([](O&) {}, 4, 0), none);
  EXPECT_NE(refused([](O&) {}, -1, 0), none);
  EXPECT_NE(refused([](O&) {}, 0, 6), none);
  EXPECT_THROW(MiniBatchQueue(nullptr, awkward()), InvalidArgument);
  EXPECT_EQ(refused([](O& o) { o.mini_batch_size = 24; }),
            none);  // the images are cached, so this works
}

TEST(MiniBatchQueue, AnErrorInTheBackgroundComesInItsTurnAndStays) {
  const auto store = std::make_shared<MemoryStore>(23, 5, 4, 3);
  store->images[12] = testing::patterned(2, 2, 3, 1);
  MiniBatchQueueOptions options = awkward();
  options.shuffle = Shuffle::never;
  options.threads = 3;
  options.prefetch = 8;
  MiniBatchQueue queue(cache_of(store), options);
  EXPECT_EQ(queue.next()->index, 0);
  EXPECT_EQ(queue.next()->index, 1);
  for (int i = 0; i < 2; ++i) {
    const std::string message = message_of<DataError>([&] { queue.next(); });
    EXPECT_NE(message.find("image 12"), std::string::npos) << message;
  }
}

TEST(MiniBatchQueue, StopsPromptlyWhileDecoding) {
  const auto store = std::make_shared<MemoryStore>(1000, 2, 2, 1);
  store->on_read = [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  MiniBatchQueueOptions options;
  options.mini_batch_size = 1000;  // 1 second of decoding
  options.threads = 2;
  options.max_epochs = 4;
  {
    MiniBatchQueue queue(cache_of(store, 0), options);
    ASSERT_TRUE(await([&] { return store->reads >= 4; })) << "its threads read nothing";
  }
  EXPECT_LT(store->reads, 500);
}

TEST(MiniBatchQueue, StopsWhileItsThreadsWaitForRoom) {
  const auto store = std::make_shared<MemoryStore>(1000, 2, 2, 1);
  MiniBatchQueueOptions options;
  options.mini_batch_size = 10;
  options.threads = 2;
  MiniBatchQueue full(cache_of(store), options);
  ASSERT_TRUE(comes_to_rest([&] { return store->reads == 10 * options.prefetch; })) << store->reads;
}

TEST(MiniBatchQueue, ReadsAsFarAheadAsAllowedAndNoFurther) {
  const auto store = std::make_shared<MemoryStore>(100, 2, 2, 1);
  MiniBatchQueueOptions options;
  options.mini_batch_size = 10;
  options.prefetch = 2;
  options.threads = 3;
  MiniBatchQueue queue(cache_of(store), options);
  ASSERT_TRUE(comes_to_rest([&] { return store->reads == 20; })) << store->reads;
  queue.next();
  ASSERT_TRUE(comes_to_rest([&] { return store->reads == 30; })) << store->reads;
}

TEST(MiniBatchQueue, BuffersAreUsedAgainAndMayOutliveTheQueue) {
  MiniBatchQueueOptions options = awkward();
  options.max_epochs = 100;
  options.drop_last = true;
  std::set<const void*> buffers;
  std::shared_ptr<const MiniBatch> last;
  std::vector<std::byte> content;
  {
    MiniBatchQueue queue(small_cache(), options);
    while (queue.has_data()) {
      last = queue.next();
      buffers.insert(last->input().bytes.data());
    }
    content = last->input().bytes;
  }
  EXPECT_LE(buffers.size(), 4u + 1u + 2u);
  EXPECT_EQ(last->input().bytes, content);
}

TEST(MiniBatchQueue, TargetsAreChangedAsTheirImagesAreWithoutNoise) {
  const auto images = small_cache();
  MiniBatchQueueOptions options = awkward();
  options.targets = images;
  MiniBatchQueue clean(images, options);
  const auto expected = drain(clean);
  options.noise.salt_and_pepper = 0.2;
  options.threads = 3;
  MiniBatchQueue queue(images, options);
  const auto batches = drain(queue);
  ASSERT_EQ(batches.size(), expected.size());
  for (size_t i = 0; i < batches.size(); ++i) {
    const auto clean_pixels = copy_of<uint8_t>(expected[i].input());
    const auto pixels = copy_of<uint8_t>(batches[i].input());
    std::vector<float> wanted;
    for (const uint8_t v : clean_pixels) wanted.push_back(static_cast<float>(v) / 255.0f);
    EXPECT_EQ(copy_of<float>(batches[i]["targets"]), wanted);
    EXPECT_EQ(copy_of<float>(expected[i]["targets"]), wanted);
    EXPECT_NE(pixels, clean_pixels);
    for (size_t k = 0; k < pixels.size(); ++k) {
      EXPECT_TRUE(pixels[k] == clean_pixels[k] || pixels[k] == 0 || pixels[k] == 255);
    }
  }
  options.threads = 1;
  MiniBatchQueue again(images, options);
  expect_equal(drain(again), batches);
  // Another epoch draws other noise. It compares the first observations of the unshuffled listing.
  options.shuffle = Shuffle::never;
  options.augmentation = {};
  MiniBatchQueue plain(images, options);
  const auto all = drain(plain);
  const auto per_epoch = static_cast<size_t>(plain.batches_per_epoch());
  EXPECT_EQ(all[0]["targets"], all[per_epoch]["targets"]);
  EXPECT_NE(all[0].input().bytes, all[per_epoch].input().bytes);
}

// A caller that augments images itself gets the same images.
TEST(MiniBatchQueue, InputsAsReadComeWithTheMapsThatChangeThem) {
  const auto images = small_cache();
  MiniBatchQueueOptions options = awkward();
  options.augmentation.rotation = {-30, 30};
  options.targets = images;
  MiniBatchQueue changed(images, options);
  const auto expected = drain(changed);
  options.augment_inputs = false;
  options.threads = 2;
  MiniBatchQueue as_read(images, options);
  const auto batches = drain(as_read);
  ASSERT_EQ(batches.size(), expected.size());
  for (size_t i = 0; i < batches.size(); ++i) {
    ASSERT_TRUE(expected[i].maps.empty());
    ASSERT_EQ(batches[i].maps.size(), batches[i].observations.size());
    EXPECT_EQ(batches[i]["targets"], expected[i]["targets"]);
    EXPECT_NE(batches[i].input().bytes, expected[i].input().bytes);
    std::vector<uint8_t> result(batches[i].input().bytes.size());
    kernels::table_for({}).augment_images(
        {batches[i].input().values<uint8_t>().data(), batches[i].maps.data(), result.data(),
         batches[i].size(),
         kernels::planar(images->inputs()[0].channels(), images->inputs()[0].height(),
                         images->inputs()[0].width())},
        nullptr);
    EXPECT_EQ(result, copy_of<uint8_t>(expected[i].input()));
  }
  options.noise.salt_and_pepper = 0.1;
  EXPECT_NE(message_of<InvalidArgument>([&] { MiniBatchQueue(images, options); }).find("noise"),
            std::string::npos);
  options.noise = {};
  options.augmentation = {};
  EXPECT_TRUE(MiniBatchQueue(images, options).next()->maps.empty()) << "nothing to change";
}

TEST(MiniBatchQueue, TargetsMayHaveAnotherSizeAndMustBeAsMany) {
  MiniBatchQueueOptions options = awkward();
  options.targets = cache_of(std::make_shared<MemoryStore>(23, 3, 2, 1));
  EXPECT_THROW(MiniBatchQueue(small_cache(), options), InvalidArgument) << "moved by pixels";
  options.augmentation = {.reflect_x = true};
  MiniBatchQueue queue(small_cache(), options);
  const auto batch = queue.next();
  EXPECT_EQ((*batch)["targets"].elements(), batch->size() * 3 * 2);
  options.targets = cache_of(std::make_shared<MemoryStore>(22, 3, 2, 1));
  EXPECT_THROW(MiniBatchQueue(small_cache(), options), InvalidArgument);
  options.targets = nullptr;
  options.noise.salt_and_pepper = 2;
  EXPECT_THROW(MiniBatchQueue(small_cache(), options), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
