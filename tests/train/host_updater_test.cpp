#include "lockstep/train/iteration/host_updater.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/cpu/matrices/panels.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/train/iteration/memory_sum.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/state/state_digest.h"

namespace lockstep {
namespace {

constexpr double kObservations = 24;

// Parameters of several update ranges, whose blocks of digests do and do not begin where arrays
// begin.
Network network_of_several_update_ranges() {
  Network network{feature_input({.features = 301}),
                  fully_connected({.units = 133}),
                  relu(),
                  fully_connected({.units = 512}),
                  relu(),
                  fully_connected({.units = 3})};
  network.initialize(1);
  return network;
}

GradientLayout layout_of(const Network& network) {
  GradientLayout layout;
  for (const auto& p : network.parameters()) {
    layout.entries.push_back({p.value.spec().plain(), layout.bytes});
    layout.bytes += (p.value.spec().bytes() + 63) / 64 * 64;
  }
  return layout;
}

std::vector<float> random_sums(const GradientLayout& layout) {
  const RandomStream random({.seed = 5});
  std::vector<float> sums(layout.bytes / sizeof(float));
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<float>(random.normal(i));
  return sums;
}

TrainingOptions options_for(const std::string& solver,
                            std::optional<GradientThresholdMethod> threshold = {}) {
  TrainingOptions options;
  options.solver.type = solver;
  options.solver.l2 = 0.01;
  options.freeze = {"fully_connected_3"};
  if (threshold) {
    options.solver.gradient_threshold = 0.02;
    options.solver.gradient_threshold_method = *threshold;
  }
  return options;
}

// The update of each parameter as a whole.
Digest update_apart(const TrainingOptions& options, const UpdateScalars& scalars, int times) {
  Network network = network_of_several_update_ranges();
  const auto solver = make_solver(network, options);
  const GradientLayout layout = layout_of(network);
  const GradientThreshold threshold{options.solver.gradient_threshold,
                                    options.solver.gradient_threshold_method};
  const auto& table = kernels::table_for({});
  const ArithmeticMode mode;
  for (int t = 0; t < times; ++t) {
    std::vector<float> sums = random_sums(layout);
    std::vector<std::vector<double>> squares(layout.entries.size());
    std::vector<double> divisors(layout.entries.size(), kObservations);
    for (size_t p = 0; p < layout.entries.size() && threshold.wanted(); ++p) {
      if (is_frozen(network.parameters()[p].name, options.freeze)) continue;
      float* const sum = sums.data() + layout.entries[p].offset / sizeof(float);
      const auto count = static_cast<size_t>(layout.entries[p].spec.shape.elements());
      if (threshold.of_elements()) {
        table.limit(sum, count, threshold.most(kObservations), nullptr);
      } else {
        squares[p].resize((count + 1023) / 1024);
        table.block_squares(sum, count, squares[p].data(), nullptr);
      }
    }
    if (threshold.wanted() && !threshold.of_elements()) {
      divisors = threshold.divisors(squares, kObservations);
    }
    for (size_t p = 0; p < layout.entries.size(); ++p) {
      UpdateScalars own = scalars;
      own.observations = divisors[p];
      solver->update(p, {0, layout.entries[p].spec.shape.elements()},
                     sums.data() + layout.entries[p].offset / sizeof(float), own);
    }
  }
  return state_digest(network, *solver, scalars.iteration);
}

Digest update_in_update_ranges(const TrainingOptions& options, const UpdateScalars& scalars,
                               int times, int threads) {
  Network network = network_of_several_update_ranges();
  const auto solver = make_solver(network, options);
  const GradientLayout layout = layout_of(network);
  ThreadPool pool(threads);
  std::vector<float> sums = random_sums(layout);
  const std::vector<float> before = sums;
  MemorySum sum(pool, layout, sums.data());
  HostUpdater updater(network, *solver, pool, options, sum);
  Digest digest;
  for (int t = 0; t < times; ++t) {
    updater.apply(scalars, 0);
    digest = updater.digest(scalars.iteration, 0);
    EXPECT_EQ(digest, state_digest(network, *solver, scalars.iteration));
  }
  EXPECT_EQ(sums, before);
  return digest;
}

// What the updater knows of frozen parameters is not used where they learn, or have changed.
TEST(HostUpdater, FrozenParametersAreLeftOut) {
  for (const bool threshold : {false, true}) {
    using Method = GradientThresholdMethod;
    TrainingOptions options =
        options_for("adam", threshold ? std::optional(Method::l2norm) : std::nullopt);
    options.max_epochs = 3;
    options.unfreeze = {"fully_connected_3:3"};
    Network network = network_of_several_update_ranges();
    const auto solver = make_solver(network, options);
    const GradientLayout layout = layout_of(network);
    ThreadPool pool(2);
    const std::vector<float> sums = random_sums(layout);
    MemorySum sum(pool, layout, sums.data());
    HostUpdater updater(network, *solver, pool, options, sum);
    std::vector<Digest> digests;
    for (int64_t iteration = 1; iteration <= 8; ++iteration) {
      if (iteration == 3) {
        for (const auto& p : network.parameters()) p.value.data<float>()[0] += 1;
        updater.values_changed();
      }
      updater.apply({0.01, iteration, kObservations, 3}, 0);
      const Digest digest = updater.digest(iteration, 0);
      EXPECT_EQ(digest, state_digest(network, *solver, iteration)) << iteration;
      digests.push_back(digest);
    }
    // Iterations 7 and 8 are of the third epoch, in which the layer learns.
    const auto& learned = network.parameters().back();
    EXPECT_TRUE(learned.name.starts_with("fully_connected_3"));
    EXPECT_NE(solver->state(network.parameters().size() - 1).front().to_vector(),
              std::vector<float>(static_cast<size_t>(learned.value.shape().elements())));
    for (size_t i = 1; i < digests.size(); ++i) EXPECT_NE(digests[i], digests[i - 1]);
  }
}

// -0 and subnormals are values that arithmetic may change although nothing is learned.
TEST(HostUpdater, WhatIsLeftOutWouldChangeNothing) {
  for (const double decay : {0.0, 0.9}) {
    TrainingOptions options = options_for("adam");
    options.average_decay = decay;
    options.max_epochs = 3;
    std::vector<Digest> digests[2];
    for (const bool leaves_out : {false, true}) {
      Network network = network_of_several_update_ranges();
      float* const frozen = network.parameters().back().value.data<float>();
      frozen[0] = -0.0F;
      frozen[1] = 1e-40F;
      const auto solver = make_solver(network, options);
      const GradientLayout layout = layout_of(network);
      ThreadPool pool(2);
      const std::vector<float> sums = random_sums(layout);
      MemorySum sum(pool, layout, sums.data());
      HostUpdater updater(network, *solver, pool, options, sum);
      for (int64_t iteration = 1; iteration <= 4; ++iteration) {
        if (!leaves_out) updater.values_changed();
        updater.apply({0.01, iteration, kObservations, 3}, 0);
        digests[leaves_out ? 1 : 0].push_back(updater.digest(iteration, 0));
      }
    }
    EXPECT_EQ(digests[0], digests[1]) << decay;
  }
}

TEST(HostUpdater, UpdateRangesHaveTheBitsOfWholeParameters) {
  const UpdateScalars scalars{0.01, 3, kObservations};
  for (const std::string solver : {"sgdm", "adam", "adamw", "rmsprop"}) {
    Digest unlimited;
    using Method = GradientThresholdMethod;
    for (const std::optional<Method> threshold :
         {std::optional<Method>(), std::optional(Method::l2norm),
          std::optional(Method::global_l2norm), std::optional(Method::absolute_value)}) {
      SCOPED_TRACE(solver + (threshold ? std::to_string(static_cast<int>(*threshold)) : ""));
      const TrainingOptions options = options_for(solver, threshold);
      const Digest expected = update_apart(options, scalars, 2);
      if (!threshold) {
        unlimited = expected;
      } else {
        EXPECT_NE(expected, unlimited);
      }
      for (const int threads : {1, 2, 5}) {
        EXPECT_EQ(update_in_update_ranges(options, scalars, 2, threads), expected) << threads;
      }
    }
  }
}

// Update ranges are packed one by one where the layout allows that.
TEST(HostUpdater, PackedCopiesFollow) {
  Network network = network_of_several_update_ranges();
  const TrainingOptions options = options_for("sgdm");
  const auto solver = make_solver(network, options);
  const GradientLayout layout = layout_of(network);
  ThreadPool pool(2);
  const std::vector<float> sums = random_sums(layout);
  MemorySum sum(pool, layout, sums.data());
  HostUpdater updater(network, *solver, pool, options, sum);
  std::vector<TensorSpec> specs;
  for (const auto& p : network.parameters()) {
    specs.push_back(kernels::cpu::panels_spec(p.value.shape()));
  }
  const auto copies = [&] {
    std::vector<std::vector<std::byte>> all;
    for (size_t p = 0; p < specs.size(); ++p) {
      const auto* const copy =
          static_cast<std::byte*>(network.packed().address(static_cast<int>(p), specs[p]));
      all.emplace_back(copy, copy + specs[p].bytes());
    }
    return all;
  };
  const auto first = copies();
  updater.apply({0.01, 1, kObservations}, 0);
  const auto updated = copies();
  EXPECT_NE(updated, first);
  network.packed().pack_all();
  EXPECT_EQ(copies(), updated);
}

}  // namespace
}  // namespace lockstep
