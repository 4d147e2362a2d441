#include "lockstep/train/optimizer/updates.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/kernels/backends/table.h"

namespace lockstep {
namespace {

float* elements(const Tensor& tensor) { return static_cast<float*>(tensor.raw()); }

size_t count_of(const UpdateTarget& target) {
  return static_cast<size_t>(target.value.shape().elements());
}

const kernels::Table& table_of(const UpdateTarget& target) {
  return kernels::table_for(target.value.device());
}

// A value to update, with its name for errors.
struct Named {
  UpdateTarget target;
  std::string name;
};

std::vector<Named> named(const Network& network) {
  std::vector<Named> all;
  for (const auto& l : network.parameters()) {
    all.push_back({{l.value, l.spec.learning_rate_factor, l.spec.l2_factor}, l.name});
  }
  return all;
}

std::vector<Named> named(std::span<const Tensor> values) {
  std::vector<Named> all;
  for (const auto& value : values) {
    all.push_back({{value, 1, 1}, "value " + std::to_string(all.size() + 1)});
  }
  return all;
}

std::string described(const Tensor& tensor) {
  return tensor.defined() ? tensor.spec().to_string() + " on " + to_string(tensor.device())
                          : "an undefined tensor";
}

// Whether `tensor` has the spec and device of `value`.
bool fits(const Tensor& tensor, const Tensor& value) {
  return tensor.defined() && tensor.spec() == value.spec() && tensor.device() == value.device();
}

void check(const std::string& solver, const std::vector<Named>& targets,
           std::span<const Tensor> gradients) {
  const std::string where = "[" + solver + "] ";
  if (gradients.size() != targets.size()) {
    throw InvalidArgument(where + std::to_string(targets.size()) + " parameters need as many " +
                              "gradients, received " + std::to_string(gradients.size()),
                          "value_and_gradient() gives one for each, in their order");
  }
  for (size_t p = 0; p < targets.size(); ++p) {
    const Tensor& value = targets[p].target.value;
    if (!value.defined() || value.dtype() != DType::f32 || !value.spec().row_major()) {
      throw InvalidArgument(where + targets[p].name + " must be row-major and f32, received " +
                            described(value));
    }
    if (fits(gradients[p], value)) continue;
    throw InvalidArgument(where + "the gradient of " + targets[p].name + " must be " +
                          described(value) + ", received " + described(gradients[p]));
  }
}

// Makes the arrays of an empty state, and checks those of another.
void prepare(const std::string& solver, const std::vector<Named>& targets,
             std::vector<Tensor>& state) {
  if (state.empty()) {
    for (const auto& [target, name] : targets) {
      state.push_back(Tensor::zeros(target.value.shape(), DType::f32, target.value.device()));
    }
  }
  const std::string hint = "begin with an empty state";
  if (state.size() != targets.size()) {
    throw InvalidArgument("[" + solver + "] the state is of " + std::to_string(state.size()) +
                              " parameters, these are " + std::to_string(targets.size()),
                          hint);
  }
  for (size_t p = 0; p < targets.size(); ++p) {
    if (fits(state[p], targets[p].target.value)) continue;
    throw InvalidArgument("[" + solver + "] the state of " + targets[p].name + " must be " +
                              described(targets[p].target.value) + ", received " +
                              described(state[p]),
                          hint);
  }
}

// A range of elements of one array.
struct Piece {
  size_t array = 0;
  int64_t first = 0, count = 0;
};

Tensor part_of(const Tensor& tensor, const Piece& piece) {
  return Tensor::view(elements(tensor) + piece.first, {Shape{piece.count}, DType::f32, nullptr},
                      nullptr, tensor.device());
}

// Calls update(part, piece) for all pieces, where `part` is the piece's part of its target.
void for_all(const std::vector<Named>& targets, ThreadPool* pool,
             const std::function<void(const UpdateTarget&, const Piece&)>& update) {
  // Elements of a piece that one thread updates; takes a few microseconds.
  constexpr int64_t most = int64_t{1} << 14;
  const bool shared = pool && !targets.empty() && targets[0].target.value.device().is_cpu();
  std::vector<Piece> pieces;
  for (size_t p = 0; p < targets.size(); ++p) {
    const int64_t all = targets[p].target.value.shape().elements();
    const int64_t each = shared ? most : all;
    for (int64_t first = 0; first < all; first += each) {
      pieces.push_back({p, first, std::min(each, all - first)});
    }
  }
  const auto body = [&](int64_t i, int) {
    const ArithmeticMode mode;
    const Piece& piece = pieces[static_cast<size_t>(i)];
    UpdateTarget part = targets[piece.array].target;
    part.value = part_of(part.value, piece);
    update(part, piece);
    mode.check();
  };
  const auto count = static_cast<int64_t>(pieces.size());
  if (shared) {
    pool->for_each(count, body);
  } else {
    for (int64_t i = 0; i < count; ++i) body(i, 0);
  }
}

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Throws InvalidArgument, naming the field, unless low <= value < high.
void check_option(const std::string& solver, const char* field, double value, double low,
                  double high) {
  if (value >= low && value < high) return;
  throw InvalidArgument("[" + solver + "] " + field + " must be at least " + std::to_string(low) +
                        (std::isfinite(high) ? " and below " + std::to_string(high) : "") +
                        ", received " + std::to_string(value));
}

void check_options(const std::string& solver, double learning_rate, double l2) {
  check_option(solver, "learning_rate", learning_rate, 0, kInfinite);
  check_option(solver, "l2", l2, 0, kInfinite);
}

void sgdm(const std::vector<Named>& targets, std::span<const Tensor> gradients, SgdmState& state,
          const SgdmOptions& options) {
  check("sgdm", targets, gradients);
  check_options("sgdm", options.learning_rate, options.l2);
  check_option("sgdm", "momentum", options.momentum, 0, 1);
  prepare("sgdm", targets, state.velocity);
  for_all(targets, options.pool, [&](const UpdateTarget& part, const Piece& piece) {
    const Tensor arrays[] = {part_of(state.velocity[piece.array], piece)};
    update_by_sgdm(part, arrays, elements(gradients[piece.array]) + piece.first, 1, options);
  });
}

void adam(const std::vector<Named>& targets, std::span<const Tensor> gradients, AdamState& state,
          const AdamOptions& options, bool decoupled) {
  const std::string name = decoupled ? "adamw" : "adam";
  check(name, targets, gradients);
  check_options(name, options.learning_rate, options.l2);
  check_option(name, "gradient_decay", options.gradient_decay, 0, 1);
  check_option(name, "squared_gradient_decay", options.squared_gradient_decay, 0, 1);
  check_option(name, "epsilon", options.epsilon, 0, kInfinite);
  prepare(name, targets, state.mean);
  prepare(name, targets, state.square);
  ++state.iteration;
  for_all(targets, options.pool, [&](const UpdateTarget& part, const Piece& piece) {
    const Tensor arrays[] = {part_of(state.mean[piece.array], piece),
                             part_of(state.square[piece.array], piece)};
    update_by_adam(part, arrays, elements(gradients[piece.array]) + piece.first, 1, options,
                   state.iteration, decoupled);
  });
}

void rmsprop(const std::vector<Named>& targets, std::span<const Tensor> gradients,
             RmspropState& state, const RmspropOptions& options) {
  check("rmsprop", targets, gradients);
  check_options("rmsprop", options.learning_rate, options.l2);
  check_option("rmsprop", "squared_gradient_decay", options.squared_gradient_decay, 0, 1);
  check_option("rmsprop", "epsilon", options.epsilon, 0, kInfinite);
  prepare("rmsprop", targets, state.square);
  for_all(targets, options.pool, [&](const UpdateTarget& part, const Piece& piece) {
    const Tensor arrays[] = {part_of(state.square[piece.array], piece)};
    update_by_rmsprop(part, arrays, elements(gradients[piece.array]) + piece.first, 1, options);
  });
}

}  // namespace

kernels::SgdmUpdate sgdm_numbers(const UpdateTarget& target, double observations,
                                 const SgdmOptions& options) {
  return {static_cast<float>(observations),
          static_cast<float>(options.learning_rate * target.rate_factor),
          static_cast<float>(options.momentum), static_cast<float>(options.l2 * target.l2_factor)};
}

kernels::AdamUpdate adam_numbers(const UpdateTarget& target, double observations,
                                 const AdamOptions& options, int64_t iteration, bool decoupled) {
  const double l2 = options.l2 * target.l2_factor;
  const double rate = options.learning_rate * target.rate_factor;
  const auto t = static_cast<double>(iteration);
  const double first = 1 - std::pow(options.gradient_decay, t);
  const double second = 1 - std::pow(options.squared_gradient_decay, t);
  return {static_cast<float>(observations),
          static_cast<float>(rate / first),
          options.gradient_decay,
          options.squared_gradient_decay,
          static_cast<float>(1 / std::sqrt(second)),
          static_cast<float>(options.epsilon),
          static_cast<float>(decoupled ? 0 : l2),
          static_cast<float>(decoupled ? rate * l2 : 0)};
}

kernels::RmspropUpdate rmsprop_numbers(const UpdateTarget& target, double observations,
                                       const RmspropOptions& options) {
  return {static_cast<float>(observations),
          static_cast<float>(options.learning_rate * target.rate_factor),
          options.squared_gradient_decay, static_cast<float>(options.epsilon),
          static_cast<float>(options.l2 * target.l2_factor)};
}

void update_by_sgdm(const UpdateTarget& target, std::span<const Tensor> state,
                    const float* gradient_sum, double observations, const SgdmOptions& options) {
  table_of(target).sgdm(elements(target.value), elements(state[0]), gradient_sum, count_of(target),
                        sgdm_numbers(target, observations, options),
                        default_stream_of(target.value.device()));
}

void update_by_adam(const UpdateTarget& target, std::span<const Tensor> state,
                    const float* gradient_sum, double observations, const AdamOptions& options,
                    int64_t iteration, bool decoupled) {
  table_of(target).adam(elements(target.value), elements(state[0]), elements(state[1]),
                        gradient_sum, count_of(target),
                        adam_numbers(target, observations, options, iteration, decoupled),
                        default_stream_of(target.value.device()));
}

void update_by_rmsprop(const UpdateTarget& target, std::span<const Tensor> state,
                       const float* gradient_sum, double observations,
                       const RmspropOptions& options) {
  table_of(target).rmsprop(elements(target.value), elements(state[0]), gradient_sum,
                           count_of(target), rmsprop_numbers(target, observations, options),
                           default_stream_of(target.value.device()));
}

void sgdm_update(Network& network, std::span<const Tensor> gradients, SgdmState& state,
                 const SgdmOptions& options) {
  sgdm(named(network), gradients, state, options);
}
void sgdm_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                 SgdmState& state, const SgdmOptions& options) {
  sgdm(named(values), gradients, state, options);
}

void adam_update(Network& network, std::span<const Tensor> gradients, AdamState& state,
                 const AdamOptions& options) {
  adam(named(network), gradients, state, options, false);
}
void adam_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                 AdamState& state, const AdamOptions& options) {
  adam(named(values), gradients, state, options, false);
}

void adamw_update(Network& network, std::span<const Tensor> gradients, AdamState& state,
                  const AdamOptions& options) {
  adam(named(network), gradients, state, options, true);
}
void adamw_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                  AdamState& state, const AdamOptions& options) {
  adam(named(values), gradients, state, options, true);
}

void rmsprop_update(Network& network, std::span<const Tensor> gradients, RmspropState& state,
                    const RmspropOptions& options) {
  rmsprop(named(network), gradients, state, options);
}
void rmsprop_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                    RmspropState& state, const RmspropOptions& options) {
  rmsprop(named(values), gradients, state, options);
}

}  // namespace lockstep
