// Base of the trainer's solvers: parameters with their state, of which the frozen ones do not
// change.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/engine/kernels/solvers/solver.h"
#include "lockstep/train/optimizer/solver.h"
#include "lockstep/train/optimizer/update_target.h"

namespace lockstep {

// A parameter with its state arrays.
struct UpdateSlot {
  UpdateTarget target;
  std::vector<Tensor> state;
  int64_t first_epoch = 1;  // in which it learns
};

// The parameters of a network, with `arrays` state arrays each, filled with zeros. Throws
// InvalidArgument for an unknown layer in options.freeze.
std::vector<UpdateSlot> update_slots(Network& network, size_t arrays,
                                     const TrainingOptions& options);

// A solver whose kernel takes an Update (kernels::SgdmUpdate, ...). `Options`: those of its update
// in custom loops (SgdmOptions, ...), so that both have the same arithmetic.
template <class Update, class Options>
class SlotSolver : public Solver {
 public:
  // The entry of Table that updates all parameters at once.
  using OfAll = void (*kernels::Functions::*)(const kernels::Updates<Update>&, void* stream);

  // The learning rate of `fixed` is not used. `of_all` is null if there is no such entry.
  SlotSolver(Network& network, const TrainingOptions& options, const Options& fixed,
             std::vector<std::string> state_names, OfAll of_all)
      : options_(fixed),
        names_(std::move(state_names)),
        of_all_(of_all),
        slots_(update_slots(network, names_.size(), options)) {}

  void update(size_t index, const IndexRange& elements, const float* gradient_sum,
              const UpdateScalars& scalars) final {
    const UpdateSlot& s = slots_[index];
    UpdateScalars own = scalars;
    own.iteration = scalars.number_since(s.first_epoch);
    if (own.iteration > 0) update_slot(s, elements, gradient_sum, numbers_of(s.target, own));
  }
  UpdateNumbers numbers(size_t index, const UpdateScalars& scalars) const final {
    const UpdateSlot& s = slots_[index];
    UpdateScalars own = scalars;
    // Numbers of parameters that do not learn are not used.
    own.iteration = std::max<int64_t>(scalars.number_since(s.first_epoch), 1);
    return UpdateNumbers::of(numbers_of(s.target, own));
  }
  bool updates_all(const kernels::Functions& functions) const final {
    return of_all_ && functions.*of_all_ != nullptr;
  }
  void update_all(const kernels::Functions& functions, const UpdatesOfAll& all,
                  void* stream) const final {
    (functions.*of_all_)(
        {all.arrays, static_cast<const Update*>(all.numbers), all.blocks, all.block_count}, stream);
  }
  std::vector<Tensor> state(size_t index) const final { return slots_[index].state; }
  std::vector<std::string> state_names() const final { return names_; }

 private:
  // Adds the update of elements of one parameter to the default stream of its device.
  virtual void update_slot(const UpdateSlot& s, const IndexRange& elements,
                           const float* gradient_sum, const Update& numbers) = 0;
  // `now`: the options with the learning rate of the iteration.
  virtual Update numbers_of(const UpdateTarget& target, const UpdateScalars& scalars,
                            const Options& now) const = 0;
  Update numbers_of(const UpdateTarget& target, const UpdateScalars& scalars) const {
    Options now = options_;
    now.learning_rate = scalars.learning_rate;
    return numbers_of(target, scalars, now);
  }

  const Options options_;
  const std::vector<std::string> names_;
  const OfAll of_all_;
  const std::vector<UpdateSlot> slots_;
};

}  // namespace lockstep
