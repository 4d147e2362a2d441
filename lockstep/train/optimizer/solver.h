// Solvers: they update parameters with gradients and hold the state for that.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

struct TrainingOptions;

namespace kernels {
struct Functions;
struct ParameterArrays;
struct UpdateBlock;
}  // namespace kernels

// The inputs of one iteration's update other than the gradients. Computed once, in double.
struct UpdateScalars {
  double learning_rate = 0;
  int64_t iteration = 1;    // from 1, for Adam's bias correction
  double observations = 1;  // divisor of the gradient sums
  int64_t iterations_per_epoch = 1;

  // The number of this iteration, from 1, among those in which a parameter learns that is frozen
  // before epoch `first_epoch`. 0 or less: it does not learn yet.
  int64_t number_since(int64_t first_epoch) const {
    return first_epoch == kNeverLearns ? 0 : iteration - (first_epoch - 1) * iterations_per_epoch;
  }
  static constexpr int64_t kNeverLearns = std::numeric_limits<int64_t>::max();
};

// The scalars of one parameter's update, in the form that the solver's kernel takes
// (kernels::SgdmUpdate, ...).
class UpdateNumbers {
 public:
  UpdateNumbers() = default;
  template <class Update>
  static UpdateNumbers of(const Update& update) {
    static_assert(std::is_trivially_copyable_v<Update> && sizeof(Update) <= kMostBytes);
    UpdateNumbers numbers;
    std::memcpy(numbers.bytes_.data(), &update, sizeof update);
    numbers.size_ = sizeof update;
    return numbers;
  }
  const std::byte* data() const { return bytes_.data(); }
  size_t size() const { return size_; }  // bytes

 private:
  static constexpr size_t kMostBytes = 64;
  std::array<std::byte, kMostBytes> bytes_{};
  size_t size_ = 0;
};

// The arguments of an update of all parameters at once: kernels::Updates, with numbers of any form.
// All are in the device's memory.
struct UpdatesOfAll {
  const kernels::ParameterArrays* arrays = nullptr;  // one per parameter
  const void* numbers = nullptr;  // those of Solver::numbers(), one per parameter
  const kernels::UpdateBlock* blocks = nullptr;
  int64_t block_count = 0;
};

// Holds the state of every parameter of a network. Several threads may call update() for different
// elements at the same time.
class Solver {
 public:
  virtual ~Solver() = default;
  // Updates elements of parameter number `index` of the solver's network, in row-major order.
  // `gradient_sum` is f32, one number for each of these elements, on the parameter's device, where
  // the work is added to the default stream. It is not read, and may be invalid, for a parameter
  // that does not learn in this iteration.
  virtual void update(size_t index, const IndexRange& elements, const float* gradient_sum,
                      const UpdateScalars& scalars) = 0;
  // The scalars of that update, for code that updates all parameters at once.
  virtual UpdateNumbers numbers(size_t index, const UpdateScalars& scalars) const = 0;
  // Whether a back end can update all parameters of this solver at once.
  virtual bool updates_all(const kernels::Functions&) const { return false; }
  // Adds that update to a stream, if updates_all(). Gives the bits of the single updates.
  virtual void update_all(const kernels::Functions&, const UpdatesOfAll&, void* /*stream*/) const {
    throw InternalError("[solver] there is no update of all parameters at once");
  }
  // The state arrays of parameter `index`, row-major, in a fixed order. Digests and checkpoints
  // include them.
  virtual std::vector<Tensor> state(size_t index) const = 0;
  // The names of these arrays, the same for every parameter: "velocity"; "mean", "square".
  virtual std::vector<std::string> state_names() const = 0;
};

// Throws InvalidArgument if the network does not have a layer that is to be frozen.
void check_frozen(const Network& network, const std::vector<std::string>& frozen);

// Whether a parameter ("<layer>.<parameter>") belongs to one of the frozen layers.
bool is_frozen(const std::string& parameter, const std::vector<std::string>& frozen);

// Throws InvalidArgument for an entry of options.unfreeze that names no frozen layer.
void check_unfreezing(const Network& network, const TrainingOptions& options);

// The first epoch (from 1) in which a parameter learns, or UpdateScalars::kNeverLearns.
int64_t first_learning_epoch(const std::string& parameter, const TrainingOptions& options);
// By parameter: whether it never learns.
std::vector<bool> never_learning(const Network& network, const TrainingOptions& options);

// Runs empty updates on a device. Throws Unsupported if the device cannot compute the options'
// solver or gradient threshold.
void try_updates(Device device, const TrainingOptions& options);

// The number of state arrays of each parameter.
size_t solver_arrays(const TrainingOptions& options);

// A solver with zero state on the network's device. The network must outlive it and stay
// initialized. Throws InvalidArgument for an unknown solver and for an unknown layer in `freeze`.
std::unique_ptr<Solver> make_solver(Network& network, const TrainingOptions& options);

}  // namespace lockstep
