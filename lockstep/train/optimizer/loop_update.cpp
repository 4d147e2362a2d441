#include "lockstep/train/optimizer/loop_update.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"

namespace lockstep {
namespace {

std::string described(const Tensor& tensor) {
  return tensor.defined() ? tensor.spec().to_string() + " on " + to_string(tensor.device())
                          : "an undefined tensor";
}

// Whether `tensor` has the spec and device of `value`.
bool fits(const Tensor& tensor, const Tensor& value) {
  return tensor.defined() && tensor.spec() == value.spec() && tensor.device() == value.device();
}

}  // namespace

std::vector<NamedTarget> named(const Network& network) {
  std::vector<NamedTarget> all;
  for (const auto& l : network.parameters()) {
    all.push_back({{l.value, l.spec.learning_rate_factor, l.spec.l2_factor}, l.name});
  }
  return all;
}

std::vector<NamedTarget> named(std::span<const Tensor> values) {
  std::vector<NamedTarget> all;
  for (const auto& value : values) {
    all.push_back({{value, 1, 1}, "value " + std::to_string(all.size() + 1)});
  }
  return all;
}

void check_gradients(const std::string& solver, const std::vector<NamedTarget>& targets,
                     std::span<const Tensor> gradients) {
  const std::string where = "[" + solver + "] ";
  if (gradients.size() != targets.size()) {
    throw InvalidArgument(where + std::to_string(targets.size()) + " parameters need as many " +
                              "gradients, received " + std::to_string(gradients.size()),
                          "value_and_gradient() returns one for each, in order");
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

void prepare_state(const std::string& solver, const std::vector<NamedTarget>& targets,
                   std::vector<Tensor>& state) {
  if (state.empty()) {
    for (const auto& [target, name] : targets) {
      state.push_back(Tensor::zeros(target.value.shape(), DType::f32, target.value.device()));
    }
  }
  const std::string hint = "start with an empty state";
  if (state.size() != targets.size()) {
    throw InvalidArgument("[" + solver + "] the state is of " + std::to_string(state.size()) +
                              " parameters, but there are " + std::to_string(targets.size()),
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

Tensor part_of(const Tensor& tensor, const UpdateRange& range) {
  return Tensor::view(elements_of(tensor) + range.first, {Shape{range.count}, DType::f32, nullptr},
                      nullptr, tensor.device());
}

void for_all_update_ranges(
    const std::vector<NamedTarget>& targets, ThreadPool* pool,
    const std::function<void(const UpdateTarget&, const UpdateRange&)>& update) {
  // Elements of an update range that one thread updates; takes a few microseconds.
  constexpr int64_t most = int64_t{1} << 14;
  const bool shared = pool && !targets.empty() && targets[0].target.value.device().is_cpu();
  std::vector<UpdateRange> ranges;
  for (size_t p = 0; p < targets.size(); ++p) {
    const int64_t all = targets[p].target.value.shape().elements();
    const int64_t each = shared ? most : all;
    for (int64_t first = 0; first < all; first += each) {
      ranges.push_back({p, first, std::min(each, all - first)});
    }
  }
  const auto body = [&](int64_t i, int) {
    const ArithmeticMode mode;
    const UpdateRange& range = ranges[static_cast<size_t>(i)];
    UpdateTarget part = targets[range.array].target;
    part.value = part_of(part.value, range);
    update(part, range);
    mode.check();
  };
  const auto count = static_cast<int64_t>(ranges.size());
  if (shared) {
    pool->for_each(count, body);
  } else {
    for (int64_t i = 0; i < count; ++i) body(i, 0);
  }
}

}  // namespace lockstep
