// A caller or a preloaded library may have set another rounding mode, which threads and processes
// inherit. It must not change results. A second build computes in the inherited mode; there each of
// these tests must fail.
#include <gtest/gtest.h>
#include <immintrin.h>

#include <cfenv>
#include <span>
#include <vector>

#include "lockstep/engine/ops/ops.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/state/state_digest.h"
#include "tests/train/law_problem.h"
#include "tests/train/same_history.h"

namespace lockstep {
namespace {

constexpr unsigned kSubnormalsAreZero = 0x8040;

// During its lifetime this thread rounds upwards, and subnormal numbers are zero.
struct Upwards {
  Upwards() {
    std::fesetround(FE_UPWARD);
    _mm_setcsr(_mm_getcsr() | kSubnormalsAreZero);
  }
  ~Upwards() {
    std::fesetround(FE_TONEAREST);
    _mm_setcsr(_mm_getcsr() & ~kSubnormalsAreZero);
  }
  Upwards(const Upwards&) = delete;
  Upwards& operator=(const Upwards&) = delete;
};

TrainingResult run(int64_t workers, int64_t threads, bool upwards) {
  const auto call = make_call<&testing::law_problem>();
  TrainingProblem problem = call();
  TrainingOptions options = testing::law_options(threads);
  options.workers.count = workers;
  options.schedule.types = {"cosine"};
  options.solver.l2 = 0.001;
  if (!upwards) return train(call, problem.network, problem.data, options);
  const Upwards mode;
  const TrainingResult result = train(call, problem.network, problem.data, options);
  EXPECT_EQ(std::fegetround(), FE_UPWARD);  // the caller's mode is restored
  return result;
}

TEST(LawOfRounding, TrainingsIgnoreTheModeOfTheirCaller) {
  const TrainingResult plain = run(0, 1, false);
  for (const auto& [workers, threads] : {std::pair{0, 1}, {0, 3}, {2, 1}, {3, 2}}) {
    testing::expect_same_history(plain, run(workers, threads, true));
  }
}

TEST(LawOfRounding, CustomLoopsIgnoreTheModeOfTheirCaller) {
  const auto trained = [](int threads) {
    Network network = testing::law_network();
    const Tensor x = Tensor::full({20, 1, 28, 28}, 0.3f);
    std::vector<int32_t> classes(20);
    for (size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<int32_t>(i % 10);
    const Tensor y = Tensor::from(std::span<const int32_t>(classes), {20});
    ShardGroup group(network, {.threads = threads, .shard_size = 7});
    SgdmState state;
    double losses = 0;
    for (int64_t iteration = 1; iteration <= 3; ++iteration) {
      const auto step = sharded_value_and_gradient(
          [](Shard& shard) {
            const ShardForwardOptions logits{.outputs = {"fully_connected_1"}};
            return ops::softmax_cross_entropy(shard.forward(shard[0], logits), shard[1]);
          },
          {x, y}, group, iteration);
      sgdm_update(network, step.gradients, state, {.learning_rate = 0.1});
      losses = step.value;
    }
    return std::pair(network_digest(network), losses);
  };
  const auto plain = trained(1);
  const Upwards mode;
  EXPECT_EQ(trained(1), plain);
  EXPECT_EQ(trained(3), plain);
}

}  // namespace
}  // namespace lockstep
