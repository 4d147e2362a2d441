#include "lockstep/train/iteration/shard_sizes.h"

#include <gtest/gtest.h>

#include <utility>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/iteration/shards.h"
#include "lockstep/train/iteration/training_iteration.h"
#include "lockstep/train/options/options.h"

namespace lockstep {
namespace {

Network convolving() {
  return Network({image_input({.height = 8, .width = 8, .channels = 1}),
                  convolution2d({.filters = 2, .kernel = {3, 3}}), fully_connected({.units = 2}),
                  softmax()});
}

std::string note(int64_t mini_batch, int64_t shard, int64_t multiple = 16,
                 const Network& network = convolving(), const std::string& device = "cpu") {
  TrainingOptions options;
  options.mini_batch_size = mini_batch;
  options.shards.size = shard;
  options.device = device;
  return shard_size_note(network, options, multiple);
}

TEST(ShardSizes, LeftOpenFollowTheNetworkAndTheDevice) {
  const Network sequences({sequence_input({.channels = 2}), lstm({.units = 3}), softmax()});
  const Network attention({token_input({.vocabulary = 9}), embedding({.vocabulary = 9, .units = 4}),
                           transformer_block({.heads = 2, .causal = true}), softmax()});
  const Network fixed_length({sequence_input({.channels = 2, .length = 5}), softmax()});
  const Device gpu{Device::Kind::cuda, 0};
  for (const auto& [network, size] :
       {std::pair(&sequences, 8), std::pair(&attention, 2), std::pair(&fixed_length, 16)}) {
    EXPECT_EQ(default_shard_size(*network, Device()), size);
    EXPECT_EQ(default_shard_size(*network, gpu), 256);
  }
  EXPECT_EQ(default_shard_size(convolving(), Device()), 16);
  TrainingOptions given{.shards = {.size = 5}}, open;
  set_shard_size(sequences, Device(), given);
  set_shard_size(sequences, Device(), open);
  EXPECT_EQ(given.shards.size, 5);
  EXPECT_EQ(open.shards.size, 8);
}

// Mini-batches larger than 32 are never cut into shards of 16 by a size of 29.
TEST(ShardSizes, OfAnyNumberEndTheSearch) {
  EXPECT_NE(note(40, 29).find(": mini_batch_size = 32 gives them"), std::string::npos);
  EXPECT_NE(note(20, 29).find(": mini_batch_size = 16 or 32 gives them"), std::string::npos);
  for (int64_t shard = 16; shard <= 70; ++shard) {
    for (int64_t n = 1; n <= 300; n += 7) note(n, shard);
  }
}

TEST(ShardSizes, AgreeWithHowMiniBatchesAreCut) {
  for (const int64_t shard : {1, 5, 16, 24, 32, 48, 256}) {
    for (int64_t n = 1; n <= 600; ++n) {
      bool all = true;
      int64_t least = n, most = 0;
      for (const IndexRange& s : cut_into_shards(n, shard)) {
        all = all && s.count % 16 == 0;
        least = std::min(least, s.count);
        most = std::max(most, s.count);
      }
      ASSERT_LE(most - least, 1) << n << " by " << shard;
      ASSERT_EQ(shards_are_multiples(n, shard, 16), all) << n << " by " << shard;
    }
  }
}

TEST(ShardSizes, UnsuitableSizesAreReportedWithTheNearestSuitableOnes) {
  EXPECT_EQ(note(128, 16), "");
  EXPECT_EQ(note(16, 16), "");
  EXPECT_EQ(note(100, 16),
            "a mini-batch of 100 is cut into shards of 14 or 15, but convolutions compute "
            "multiples of 16 faster: mini_batch_size = 96 or 112 gives them");
  EXPECT_EQ(note(3, 16),
            "a mini-batch of 3 is cut into shards of 3, but convolutions compute multiples of 16 "
            "faster: mini_batch_size = 16 gives them");
  EXPECT_NE(note(48, 32).find("shards of 24"), std::string::npos);
  EXPECT_NE(note(48, 32).find("mini_batch_size = 32 or 64"), std::string::npos);
  EXPECT_NE(note(128, 8).find("shard_size = 16 gives them"), std::string::npos);
}

TEST(ShardSizes, NoNoteWhereTheSizeDoesNotMatter) {
  EXPECT_EQ(note(100, 16, 1), "");
  EXPECT_EQ(note(100, 16, 16, convolving(), "cuda:0"), "");
  EXPECT_EQ(note(100, 16, 16,
                 Network({image_input({.height = 8, .width = 8, .channels = 1}),
                          fully_connected({.units = 2}), softmax()})),
            "");
}

Network large(bool normalized = false) {
  Network network;
  network.add(image_input({.height = 32, .width = 32, .channels = 3}));
  network.add(convolution2d({.filters = 32, .kernel = {3, 3}, .padding = same_padding}));
  if (normalized) network.add(batch_normalization());
  network.add(relu());
  network.add(fully_connected({.units = 4}));
  network.add(softmax());
  network.initialize_sizes();
  return network;
}

std::string advice(int64_t mini_batch, int64_t shard, int64_t threads,
                   const Network& network = large(), int64_t workers = 0,
                   const TrainingData& data = {}, const std::string& device = "cpu") {
  TrainingOptions options;
  options.mini_batch_size = mini_batch;
  options.shards.size = shard;
  options.threads = threads;
  options.workers.count = workers;
  options.device = device;
  return smaller_shards_advice(network, data, options);
}

TEST(ShardSizes, AreAdvisedWhereThreadsAreIdle) {
  EXPECT_EQ(advice(16, 16, 2),
            "; shard_size = 8 would use 2 threads (results then differ in their last digits)");
  EXPECT_EQ(
      advice(16, 16, 2, large(true)),
      "; shard_size = 8 would use 2 threads (normalization is then over at most 8 observations, so "
      "results differ)");
  EXPECT_NE(advice(16, 16, 2, large(), 2).find("shard_size = 4 would use 4 threads"),
            std::string::npos);
  EXPECT_NE(advice(3, 16, 8).find("shard_size = 1 would use 3 threads"), std::string::npos);
  EXPECT_NE(advice(10, 16, 8, large(true)).find("= 4 would use 3 threads"), std::string::npos);
  EXPECT_EQ(advice(4, 16, 8, large(true)), "") << "too few to normalize over";
  EXPECT_EQ(advice(32, 16, 2), "") << "each thread has a shard";
  EXPECT_EQ(advice(100, 16, 8), "") << "13 in place of 15 would gain little";
  Network small = convolving();
  small.initialize_sizes();
  EXPECT_EQ(advice(16, 16, 2, small), "") << "too little work";
  EXPECT_EQ(advice(16, 256, 2, large(), 0, {}, "cuda:0"), "");
  TrainingData own;
  own.loss = {[](Shard&) { return Tensor(); }, "own"};
  EXPECT_EQ(advice(16, 16, 2, large(), 0, own), "") << "it may need all observations";
  Network expression = large();
  expression.set_loss("mean(square(output - target))");
  EXPECT_EQ(advice(16, 16, 2, expression), "");
}

TEST(ShardSizes, OfEachThreadAreNotTooSmall) {
  TrainingOptions options{.mini_batch_size = 16, .threads = 2, .shards = {.size = 8}};
  options.device = "cpu";
  EXPECT_EQ(shard_size_note(large(), options, 16), "") << "the advice would leave a thread idle";
  options.threads = 1;
  EXPECT_NE(shard_size_note(large(), options, 16), "");
}

TEST(ShardSizes, SayHowManyThreadsAreUseful) {
  EXPECT_EQ(idle_threads_note(1, 2, 0),
            "only 1 of the 2 threads is useful: a mini-batch has 1 shard");
  EXPECT_EQ(idle_threads_note(3, 2, 2),
            "only 3 of the 4 threads are useful: a mini-batch has 3 shards");
  EXPECT_EQ(idle_threads_note(2, 2, 4),
            "only 2 of the 4 workers are useful: a mini-batch has 2 shards");
  EXPECT_EQ(idle_threads_note(4, 2, 2), "");
}

}  // namespace
}  // namespace lockstep
