#include "lockstep/train/optimizer/solver.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/options/solver_info.h"

namespace lockstep {
namespace {

// One layer whose parameters have different factors.
Network network_with_factors() {
  Network network{image_input({.height = 1, .width = 1, .channels = 7}),
                  fully_connected({.units = 5,
                                   .weights_l2_factor = 0.5,
                                   .bias_l2_factor = 2,
                                   .weights_learning_rate_factor = 3,
                                   .bias_learning_rate_factor = 0.25})};
  network.initialize(1);
  return network;
}

struct Reference {
  std::vector<double> w, a, b;  // parameter and solver state
  double rate_factor, l2_factor;
};

// Runs 50 steps both ways with changing learning rates and expects the parameters to agree.
void expect_follows(
    const TrainingOptions& options,
    const std::function<void(Reference&, size_t i, double g, double rate, double t)>& step) {
  Network network = network_with_factors();
  const auto solver = make_solver(network, options);
  std::vector<Reference> references;
  for (const auto& l : network.parameters()) {
    const auto w = l.value.to_vector();
    references.push_back({{w.begin(), w.end()},
                          std::vector<double>(w.size()),
                          std::vector<double>(w.size()),
                          l.spec.learning_rate_factor,
                          l.spec.l2_factor});
  }
  const RandomStream random({.seed = 9});
  uint64_t drawn = 0;
  for (int64_t t = 1; t <= 50; ++t) {
    const UpdateScalars scalars{0.01 / (1 + 0.1 * static_cast<double>(t)), t, 20.0};
    for (size_t p = 0; p < references.size(); ++p) {
      Reference& r = references[p];
      std::vector<float> sum(r.w.size());
      for (float& g : sum) g = static_cast<float>(20 * random.normal(drawn++));
      solver->update(p, {0, std::ssize(sum)}, sum.data(), scalars);
      for (size_t i = 0; i < r.w.size(); ++i) {
        const double g = static_cast<double>(sum[i]) / scalars.observations +
                         options.solver.l2 * r.l2_factor * r.w[i];
        step(r, i, g, scalars.learning_rate * r.rate_factor, static_cast<double>(t));
      }
    }
  }
  for (size_t p = 0; p < references.size(); ++p) {
    const auto w = network.parameters()[p].value.to_vector();
    for (size_t i = 0; i < w.size(); ++i) {
      const double expected = references[p].w[i];
      EXPECT_NEAR(static_cast<double>(w[i]), expected, 1e-5 * (1 + std::abs(expected)))
          << network.parameters()[p].name << " " << i;
    }
    const auto state = solver->state(p);
    ASSERT_EQ(state.size(), solver->state_names().size());
    for (size_t k = 0; k < state.size(); ++k) {
      const auto& expected = k == 0 ? references[p].a : references[p].b;
      const auto values = state[k].to_vector();
      EXPECT_EQ(state[k].shape(), network.parameters()[p].value.shape());
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_NEAR(static_cast<double>(values[i]), expected[i],
                    1e-5 * (0.1 + std::abs(expected[i])));
      }
    }
  }
}

TEST(Solver, SgdmFollowsItsFormula) {
  TrainingOptions options;
  options.solver.momentum = 0.8;
  options.solver.l2 = 0.1;
  expect_follows(options, [&](Reference& r, size_t i, double g, double rate, double) {
    r.a[i] = options.solver.momentum * r.a[i] - rate * g;
    r.w[i] += r.a[i];
  });
}

TEST(Solver, AdamFollowsItsFormula) {
  TrainingOptions options;
  options.solver.type = "adam";
  options.solver.gradient_decay = 0.85;
  options.solver.squared_gradient_decay = 0.95;
  options.solver.epsilon = 1e-3;
  options.solver.l2 = 0.1;
  expect_follows(options, [&](Reference& r, size_t i, double g, double rate, double t) {
    const double beta1 = options.solver.gradient_decay,
                 beta2 = options.solver.squared_gradient_decay;
    r.a[i] = beta1 * r.a[i] + (1 - beta1) * g;
    r.b[i] = beta2 * r.b[i] + (1 - beta2) * g * g;
    const double mean = r.a[i] / (1 - std::pow(beta1, t));
    const double square = r.b[i] / (1 - std::pow(beta2, t));
    r.w[i] -= rate * mean / (std::sqrt(square) + options.solver.epsilon);
  });
}

TEST(Solver, NesterovFollowsItsFormula) {
  TrainingOptions options;
  options.solver.momentum = 0.8;
  options.solver.nesterov = true;
  options.solver.l2 = 0.1;
  expect_follows(options, [&](Reference& r, size_t i, double g, double rate, double) {
    r.a[i] = options.solver.momentum * r.a[i] - rate * g;
    r.w[i] += options.solver.momentum * r.a[i] - rate * g;
  });
}

// torch.optim.SGD([1, -2, 0.5], lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01) of PyTorch
// 1.13 in fp64, with the gradients [k / 2, -1 / 4, 1 / k] of step k.
TEST(Solver, NesterovIsThatOfPyTorch) {
  const Tensor w = Tensor::from(std::vector<float>{1, -2, 0.5f}, Shape{3});
  SgdmState state;
  const std::vector<std::vector<double>> expected{
      {0.9031, -1.9487, 0.30905},
      {0.67007411, -1.87562747, 0.132057805},
      {0.26489045819099993, -1.7830523308070001, -0.045541268662833374},
      {-0.34467505360866302, -1.6730349708277668, -0.22267505452442402},
      {-1.1873907302141313, -1.5474453274996103, -0.39721336633805571}};
  for (size_t k = 1; k <= expected.size(); ++k) {
    const auto step = static_cast<float>(k);
    const Tensor g = Tensor::from(std::vector<float>{0.5f * step, -0.25f, 1 / step}, Shape{3});
    sgdm_update(std::vector{w}, std::vector{g}, state,
                {.learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .l2 = 0.01});
    const std::vector<float> values = w.to_vector();
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(static_cast<double>(values[i]), expected[k - 1][i], 2e-6) << k << " " << i;
    }
  }
}

TEST(Solver, AdamwDecaysApartFromTheGradient) {
  TrainingOptions options;
  options.solver.type = "adamw";
  options.solver.gradient_decay = 0.85;
  options.solver.squared_gradient_decay = 0.95;
  options.solver.epsilon = 1e-3;
  options.solver.l2 = 0.1;
  expect_follows(options, [&](Reference& r, size_t i, double g, double rate, double t) {
    const double beta1 = options.solver.gradient_decay,
                 beta2 = options.solver.squared_gradient_decay;
    const double decay = options.solver.l2 * r.l2_factor * r.w[i];
    g -= decay;  // expect_follows() has added it
    r.a[i] = beta1 * r.a[i] + (1 - beta1) * g;
    r.b[i] = beta2 * r.b[i] + (1 - beta2) * g * g;
    const double mean = r.a[i] / (1 - std::pow(beta1, t));
    const double square = r.b[i] / (1 - std::pow(beta2, t));
    r.w[i] -= rate * mean / (std::sqrt(square) + options.solver.epsilon) + rate * decay;
  });
}

TEST(Solver, RmspropFollowsItsFormula) {
  TrainingOptions options;
  options.solver.type = "rmsprop";
  options.solver.epsilon = 1e-3;
  options.solver.l2 = 0.1;
  expect_follows(options, [&](Reference& r, size_t i, double g, double rate, double) {
    r.a[i] = 0.9 * r.a[i] + 0.1 * g * g;  // the solver's own decay
    r.w[i] -= rate * g / (std::sqrt(r.a[i]) + options.solver.epsilon);
  });
}

TEST(Solver, FrozenLayersStayAsTheyAre) {
  for (const std::string name : {"sgdm", "adam", "adamw", "rmsprop"}) {
    Network network{image_input({.height = 1, .width = 1, .channels = 3}),
                    fully_connected({.units = 3}), fully_connected({.units = 2})};
    network.initialize(1);
    TrainingOptions options;
    options.solver.type = name;
    options.freeze = {"fully_connected_1"};
    const auto solver = make_solver(network, options);
    for (size_t p = 0; p < network.parameters().size(); ++p) {
      const auto before = network.parameters()[p].value.to_vector();
      // Even non-finite gradients do not affect them.
      const std::vector<float> g(before.size(), p < 2 ? std::nanf("") : 1.0f);
      solver->update(p, {0, std::ssize(g)}, g.data(), {0.1, 1, 1});
      EXPECT_EQ(network.parameters()[p].value.to_vector() == before, p < 2) << name << " " << p;
    }
    options.freeze = {"fully_conected_1"};
    try {
      make_solver(network, options);
      ADD_FAILURE() << "a layer that is not there was accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(error.hint().find("fully_connected_1"), std::string::npos) << error.hint();
    }
  }
}

TEST(Solver, StateStartsAtZeroAndIsNamed) {
  Network network = network_with_factors();
  TrainingOptions options;
  EXPECT_EQ(make_solver(network, options)->state_names(), std::vector<std::string>{"velocity"});
  options.solver.type = "adam";
  const auto adam = make_solver(network, options);
  EXPECT_EQ(adam->state_names(), (std::vector<std::string>{"mean", "square"}));
  ASSERT_EQ(adam->state(0).size(), 2u);
  for (const auto& array : adam->state(0)) {
    for (float v : array.to_vector()) EXPECT_EQ(v, 0);
  }
}

TEST(Solver, TheRegistryDescribesEachSolver) {
  Network network = network_with_factors();
  for (const SolverInfo& info : solver_registry()) {
    SCOPED_TRACE(info.name);
    TrainingOptions options;
    options.solver.type = info.name;
    EXPECT_NO_THROW(options.check());
    EXPECT_EQ(options.resolved().solver.initial_learning_rate, info.initial_learning_rate);
    EXPECT_EQ(options.resolved().solver.squared_gradient_decay, info.squared_gradient_decay);
    const auto solver = make_solver(network, options);
    EXPECT_EQ(solver->state_names(), info.state);
    EXPECT_EQ(solver->state(0).size(), solver_arrays(options));
    EXPECT_NO_THROW(try_updates(Device{}, options));
    EXPECT_FALSE(info.help.empty());
    nlohmann::ordered_json fields;
    FieldWriter writer(fields);
    options.visit(writer);
    for (const std::string& option : info.options) EXPECT_TRUE(fields.contains(option)) << option;
  }
}

TEST(Solver, AFactorOfZeroFreezes) {
  for (const std::string name : {"sgdm", "adam"}) {
    Network network{image_input({.height = 1, .width = 1, .channels = 3}),
                    fully_connected({.units = 2, .weights_learning_rate_factor = 0})};
    network.initialize(1);
    const auto before = network.parameters()[0].value.to_vector();
    TrainingOptions options;
    options.solver.type = name;
    const auto solver = make_solver(network, options);
    const std::vector<float> g(6, 1.0f);
    solver->update(0, {0, std::ssize(g)}, g.data(), {0.1, 1, 1});
    solver->update(1, {0, std::ssize(g)}, g.data(), {0.1, 1, 1});
    EXPECT_EQ(network.parameters()[0].value.to_vector(), before) << name;
    EXPECT_NE(network.parameters()[1].value.to_vector(), std::vector<float>(2, 0.0f)) << name;
  }
}

TEST(Solver, UnknownSolversAndUninitializedNetworksAreRefused) {
  Network network = network_with_factors();
  TrainingOptions options;
  options.solver.type = "sdgm";
  EXPECT_THROW(make_solver(network, options), InvalidArgument);
  Network raw{image_input({.height = 1, .width = 1, .channels = 3})};
  EXPECT_THROW(make_solver(raw, TrainingOptions()), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
