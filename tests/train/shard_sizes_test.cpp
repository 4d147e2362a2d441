#include "lockstep/train/step/shard_sizes.h"

#include <gtest/gtest.h>

#include <utility>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/step/shards.h"
#include "lockstep/train/step/training_step.h"

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

}  // namespace
}  // namespace lockstep
