// The update of one array by its gradient sum, for solvers and for the functions of updates.h.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/engine/kernels/solvers/solver.h"
#include "lockstep/engine/tensor/tensor.h"
#include "lockstep/train/optimizer/updates.h"

namespace lockstep {

// The array that is updated. In the functions below `state` holds the arrays in the order of the
// state's fields. `gradient_sum` is row-major, summed over `observations`, and on the value's
// device, where the work is added to the default stream.
struct UpdateTarget {
  Tensor value;
  double rate_factor = 1, l2_factor = 1;
};
kernels::SgdmUpdate sgdm_numbers(const UpdateTarget& target, double observations,
                                 const SgdmOptions& options);
kernels::AdamUpdate adam_numbers(const UpdateTarget& target, double observations,
                                 const AdamOptions& options, int64_t iteration, bool decoupled);
kernels::RmspropUpdate rmsprop_numbers(const UpdateTarget& target, double observations,
                                       const RmspropOptions& options);
void update_by_sgdm(const UpdateTarget& target, std::span<const Tensor> state,
                    const float* gradient_sum, double observations, const SgdmOptions& options);
// `iteration` is from 1. `decoupled`: l2 as in adamw.
void update_by_adam(const UpdateTarget& target, std::span<const Tensor> state,
                    const float* gradient_sum, double observations, const AdamOptions& options,
                    int64_t iteration, bool decoupled);
void update_by_rmsprop(const UpdateTarget& target, std::span<const Tensor> state,
                       const float* gradient_sum, double observations,
                       const RmspropOptions& options);

}  // namespace lockstep
