// What the updates of custom training loops share (sgdm_update() and so on): checks of gradients,
// states and options, and the division of parameters among threads.
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/optimizer/update_target.h"

namespace lockstep {

// An array to update, with its name for errors.
struct NamedTarget {
  UpdateTarget target;
  std::string name;
};
std::vector<NamedTarget> named(const Network& network);
std::vector<NamedTarget> named(std::span<const Tensor> values);

// Throws InvalidArgument, naming the solver and the array, unless there is a fitting gradient for
// each target.
void check_gradients(const std::string& solver, const std::vector<NamedTarget>& targets,
                     std::span<const Tensor> gradients);

// Makes the arrays of an empty state, filled with zeros, and checks those of another. Throws
// InvalidArgument if they do not fit the targets.
void prepare_state(const std::string& solver, const std::vector<NamedTarget>& targets,
                   std::vector<Tensor>& state);

inline constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Throws InvalidArgument, naming the field, unless low <= value < high.
void check_option(const std::string& solver, const char* field, double value, double low,
                  double high);
// The same for the options that all solvers have.
void check_options(const std::string& solver, double learning_rate, double l2);

// The numbers of each array's update, which all update ranges of the array use.
template <class NumbersOf>
auto numbers_of_all(const std::vector<NamedTarget>& targets, const NumbersOf& numbers_of) {
  const ArithmeticMode mode;
  std::vector<decltype(numbers_of(targets[0].target))> all;
  for (const NamedTarget& target : targets) all.push_back(numbers_of(target.target));
  mode.check();
  return all;
}

// A range of elements of one array.
struct UpdateRange {
  size_t array = 0;
  int64_t first = 0, count = 0;
};
Tensor part_of(const Tensor& tensor, const UpdateRange& range);

// Calls update(part, update range) for all update ranges, where `part` is the update range's part
// of its target. `pool` divides the update ranges among threads; null: the calling thread.
void for_all_update_ranges(
    const std::vector<NamedTarget>& targets, ThreadPool* pool,
    const std::function<void(const UpdateTarget&, const UpdateRange&)>& update);

}  // namespace lockstep
