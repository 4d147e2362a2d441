// Losses of users whose shards are summed together have the bits of shards one by one.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/poison.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/parallel/pool/spmd.h"
#include "lockstep/train/custom_loop.h"

namespace lockstep {
namespace {

constexpr int64_t kRows = 21, kImage = 6, kCode = 3;

// Two branches, and a layer that no loss here needs.
Network two_branches() {
  Network network;
  network.add(feature_input({.features = kImage, .normalization = "none"}), "image");
  network.add(fully_connected({.units = 17}));
  network.add(tanh(), "hidden");
  network.add(fully_connected({.units = kCode}), "mean", {"hidden"});
  network.add(fully_connected({.units = kCode}), "deviation", {"hidden"});
  network.add(fully_connected({.units = 2}), "other", {"hidden"});
  network.add(feature_input({.features = kCode, .normalization = "none"}), "code", {});
  network.add(fully_connected({.units = 9}), {}, {"code"});
  network.add(relu());
  network.add(fully_connected({.units = kImage}), "drawn");
  network.initialize(5);
  return network;
}

Tensor images() { return ops::random_uniform(Tensor::zeros({kRows, kImage}), 1, {3, 1}); }

struct Branches {
  std::vector<Tensor> coded(Shard& shard, std::vector<std::string> outputs) const {
    return shard.forward_all({shard[0], Tensor::zeros({shard.size(), kCode})},
                             {.outputs = std::move(outputs)});
  }
  Tensor drawn(Shard& shard, const Tensor& code) const {
    return shard.forward_all({Tensor::zeros({shard.size(), kImage}), code},
                             {.outputs = {"drawn"}})[0];
  }
  Tensor error(Shard& shard, const Tensor& code) const {
    return ops::sum(ops::square(drawn(shard, code) - shard[0]), {1});
  }
};

// What a loss does in an iteration.
enum class Way { usual, one_branch, twice, again_as_constant, parameters, slope };

struct Loss : Branches {
  std::function<Way(Shard&)> way;
  std::atomic<int>* calls;
  Network* network;

  Tensor operator()(Shard& shard) const {
    ++*calls;
    const Way now = way(shard);
    if (now == Way::one_branch) return ops::sum(coded(shard, {"mean"})[0], {1});
    const auto code = coded(shard, {"mean", "deviation"});
    const Tensor noise = ops::random_normal(code[0], 2, shard.step());
    const Tensor sample = code[0] + ops::exp(0.5 * code[1]) * noise;
    Tensor loss = error(shard, sample) + ops::sum(ops::square(code[0]), {1});
    switch (now) {
      case Way::twice:
        return loss + error(shard, code[0]);
      case Way::again_as_constant:
        return loss * ops::square(error(shard, code[0]).clone());
      case Way::parameters:
        return loss + ops::sum(ops::square(network->parameters()[0].value));
      case Way::slope: {
        Tape tape;
        tape.watch(sample);
        const Tensor slope =
            tape.gradient(ops::sum(drawn(shard, sample)), {sample}, {.create_graph = true})[0];
        return loss + ops::sum(ops::square(slope), {1});
      }
      default:
        return loss;
    }
  }
};

struct Result {
  std::vector<std::vector<float>> bits;  // of all iterations: the loss, and the gradients
  std::vector<int> calls;                // of the loss, by iteration
};

Result computed(const std::function<Way(int64_t iteration, Shard&)>& way,
                const ShardGroupOptions& options, Group* members = nullptr,
                int64_t iterations = 5) {
  Network network = two_branches();
  ShardGroup group =
      members ? ShardGroup(network, options, *members) : ShardGroup(network, options);
  Result result;
  for (int64_t iteration = 1; iteration <= iterations; ++iteration) {
    std::atomic<int> calls{0};
    Loss loss;
    loss.way = [&](Shard& shard) { return way(iteration, shard); };
    loss.calls = &calls;
    loss.network = &network;
    const auto [value, gradients] = sharded_value_and_gradient(loss, {images()}, group, iteration);
    result.bits.push_back({static_cast<float>(value)});
    for (const Tensor& gradient : gradients) result.bits.push_back(gradient.to_vector());
    result.calls.push_back(calls);
  }
  return result;
}

// Shards of 4 and 5 rows.
ShardGroupOptions options_of(int threads, int64_t check_frequency = 0) {
  return {.threads = threads, .shard_size = 5, .seed = 7, .check_frequency = check_frequency};
}

// A check of each iteration needs the gradients of single shards.
void expect_bits_one_by_one(const std::function<Way(int64_t iteration, Shard&)>& way) {
  const Result one_by_one = computed(way, options_of(2, 1));
  for (const int threads : {1, 2, 3}) {
    EXPECT_EQ(computed(way, options_of(threads)).bits, one_by_one.bits) << threads << " threads";
  }
}

TEST(FunctionBundles, HaveTheBitsOfShardsOneByOne) {
  const auto usual = [](int64_t, Shard&) { return Way::usual; };
  expect_bits_one_by_one(usual);
  expect_bits_one_by_one([](int64_t, Shard&) { return Way::one_branch; });
  // Once for each shard, but for the trial of a new loss.
  const std::vector<int> calls = computed(usual, options_of(2)).calls;
  EXPECT_EQ(std::vector<int>(calls.begin() + 1, calls.end()), (std::vector<int>{5, 5, 5, 5}));
}

TEST(FunctionBundles, AreNotUsedForLossesThatNeedSingleShards) {
  for (const Way way : {Way::twice, Way::parameters, Way::slope}) {
    expect_bits_one_by_one([&](int64_t, Shard&) { return way; });
  }
  expect_bits_one_by_one([](int64_t, Shard&) { return Way::again_as_constant; });
}

TEST(FunctionBundles, EndWithALossThatDoesAnythingElse) {
  for (const Way other : {Way::one_branch, Way::twice, Way::parameters, Way::slope}) {
    for (const int64_t row : {0, 10}) {  // in all shards, or in some
      const auto way = [&](int64_t iteration, Shard& shard) {
        return iteration == 3 && shard.first() >= row ? other : Way::usual;
      };
      expect_bits_one_by_one(way);
      const std::vector<int> calls = computed(way, options_of(1)).calls;
      EXPECT_EQ(calls[1], 5);
      EXPECT_GT(calls[2], 5) << "no shard was computed again, so there were no bundles";
      EXPECT_EQ(calls[3], 5);
    }
  }
}

// Another loss of the same group has bundles of its own.
TEST(FunctionBundles, BelongToALoss) {
  const auto gradients_of = [](int64_t check_frequency) {
    Network network = two_branches();
    ShardGroup group(network, options_of(2, check_frequency));
    const Branches branches;
    const ShardLoss coded = [&](Shard& shard) {
      return ops::sum(ops::square(branches.coded(shard, {"mean"})[0]), {1});
    };
    const ShardLoss drawn = [&](Shard& shard) {
      return branches.error(shard, ops::slice(shard[0], {{}, {0, kCode}}));
    };
    std::vector<std::vector<float>> all;
    for (int64_t iteration = 1; iteration <= 6; ++iteration) {
      const auto result = sharded_value_and_gradient(iteration % 2 == 0 ? coded : drawn, {images()},
                                                     group, iteration);
      for (const Tensor& gradient : result.gradients) all.push_back(gradient.to_vector());
    }
    return all;
  };
  EXPECT_EQ(gradients_of(0), gradients_of(1));
}

TEST(FunctionBundles, FollowANetworkThatIsInitializedAgain) {
  const auto gradients_of = [](int64_t check_frequency) {
    Network network = two_branches();
    ShardGroup group(network, options_of(2, check_frequency));
    const Branches branches;
    const ShardLoss loss = [&](Shard& shard) {
      return branches.error(shard, branches.coded(shard, {"mean"})[0]);
    };
    std::vector<std::vector<float>> all;
    for (int64_t iteration = 1; iteration <= 6; ++iteration) {
      if (iteration == 4) network.initialize(6);
      const auto result = sharded_value_and_gradient(loss, {images()}, group, iteration);
      for (const Tensor& gradient : result.gradients) all.push_back(gradient.to_vector());
    }
    return all;
  };
  EXPECT_EQ(gradients_of(0), gradients_of(1));
}

TEST(FunctionBundles, ReadNoMemoryThatIsNotWritten) {
  const auto usual = [](int64_t, Shard&) { return Way::usual; };
  const Result expected = computed(usual, options_of(2));
  for (const Poison pattern : {Poison::not_a_number, Poison::huge}) {
    const Poisoned poisoned(pattern);
    EXPECT_EQ(computed(usual, options_of(2)).bits, expected.bits);
  }
}

// In iteration `changes` some shards do something else; only their member computes them again.
Way changing(int64_t changes, int64_t iteration, const Shard& shard) {
  return iteration == changes && shard.first() > 10 ? Way::one_branch : Way::usual;
}

TEST(FunctionBundles, OfWorkersHaveTheSameBits) {
  Pool pool({.workers = 3, .threads = true});
  for (const int64_t changes : {0, 3}) {
    const auto way = [&](int64_t iteration, Shard& shard) {
      return changing(changes, iteration, shard);
    };
    const auto alone = computed(way, options_of(1, 1)).bits;
    const auto all = spmd(
        pool,
        [](Spmd& block, int64_t in_iteration) {
          const auto same = [&](int64_t iteration, Shard& shard) {
            return changing(in_iteration, iteration, shard);
          };
          return computed(same, options_of(1), &block.group()).bits;
        },
        changes);
    for (const auto& bits : all) EXPECT_EQ(bits, alone);
  }
}

}  // namespace
}  // namespace lockstep
