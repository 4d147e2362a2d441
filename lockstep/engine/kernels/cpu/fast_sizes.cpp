#include "lockstep/engine/kernels/interface/fast_sizes.h"

#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"

namespace lockstep::kernels {

int64_t fast_batch_multiple() {
  return cpu::lanes_are_chosen() ? cpu::least_images(DType::f32) : 1;
}

}  // namespace lockstep::kernels
