#include "lockstep/train/optimizer/updates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "lockstep/base/numeric/random.h"
#include "lockstep/base/threads/thread_pool.h"

namespace lockstep {
namespace {

TEST(Updates, WorkOnAnyTensors) {
  const Tensor w = Tensor::full({3}, 2), g = Tensor::full({3}, 0.5f);
  const Tensor values[] = {w}, gradients[] = {g};
  SgdmState state;
  const SgdmOptions options{.learning_rate = 0.1, .momentum = 0.5};
  sgdm_update(values, gradients, state, options);
  EXPECT_FLOAT_EQ(w.to_vector()[0], 1.95f);
  sgdm_update(values, gradients, state, options);
  EXPECT_FLOAT_EQ(w.to_vector()[0], 1.875f);
  AdamState adam;
  adam_update(values, gradients, adam, {.learning_rate = 0.1});
  EXPECT_EQ(adam.iteration, 1);
  EXPECT_NEAR(w.to_vector()[2], 1.775, 1e-6);
  RmspropState rmsprop;
  rmsprop_update(values, gradients, rmsprop, {.learning_rate = 0.1});
  EXPECT_NEAR(w.to_vector()[1], 1.775 - 0.1 / std::sqrt(0.1), 1e-5);
}

std::vector<Tensor> random_tensors(uint64_t key) {
  std::vector<Tensor> tensors;
  // Sizes of one update range and of several; the last update range may be one element.
  for (const int64_t count : {3, 40'001, 1, 2 * (1 << 14), (1 << 14) + 1}) {
    const RandomStream stream({.seed = 5, .a = key, .b = static_cast<uint64_t>(count)});
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(stream.normal(i));
    tensors.push_back(Tensor::from(std::span<const float>(values), {count}));
  }
  return tensors;
}

using Arrays = std::vector<std::vector<Tensor>>;

// Values and states of three updates.
template <class State>
std::vector<std::vector<float>> updated(
    const std::function<void(std::span<const Tensor>, std::span<const Tensor>, State&)>& update,
    const std::function<Arrays(const State&)>& arrays) {
  const std::vector<Tensor> values = random_tensors(1);
  State state;
  for (uint64_t i = 0; i < 3; ++i) update(values, random_tensors(2 + i), state);
  std::vector<std::vector<float>> all;
  for (const Tensor& t : values) all.push_back(t.to_vector());
  for (const auto& array : arrays(state)) {
    for (const Tensor& t : array) all.push_back(t.to_vector());
  }
  return all;
}

// Updates of ranges by several threads have the bits of one thread, in every element and
// state.
TEST(Updates, InUpdateRangesHaveTheBitsOfTheWhole) {
  ThreadPool pool(3);
  const auto sgdm = [](ThreadPool* threads) {
    return updated<SgdmState>(
        [=](auto v, auto g, auto& s) { sgdm_update(v, g, s, {.l2 = 1e-3, .pool = threads}); },
        [](const auto& s) { return Arrays{s.velocity}; });
  };
  const auto adam = [](ThreadPool* threads) {
    return updated<AdamState>(
        [=](auto v, auto g, auto& s) { adam_update(v, g, s, {.l2 = 1e-3, .pool = threads}); },
        [](const auto& s) {
          return std::vector{s.mean, s.square};
        });
  };
  const auto adamw = [](ThreadPool* threads) {
    return updated<AdamState>(
        [=](auto v, auto g, auto& s) { adamw_update(v, g, s, {.l2 = 1e-3, .pool = threads}); },
        [](const auto& s) {
          return std::vector{s.mean, s.square};
        });
  };
  const auto rmsprop = [](ThreadPool* threads) {
    return updated<RmspropState>(
        [=](auto v, auto g, auto& s) { rmsprop_update(v, g, s, {.l2 = 1e-3, .pool = threads}); },
        [](const auto& s) { return Arrays{s.square}; });
  };
  EXPECT_EQ(sgdm(&pool), sgdm(nullptr));
  EXPECT_EQ(adam(&pool), adam(nullptr));
  EXPECT_EQ(adamw(&pool), adamw(nullptr));
  EXPECT_EQ(rmsprop(&pool), rmsprop(nullptr));
}

}  // namespace
}  // namespace lockstep
