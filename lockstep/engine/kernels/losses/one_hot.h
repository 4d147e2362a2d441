// Labels as rows of zeros and a one.
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// labels: i32 or i64, any shape. dst: the labels' shape x classes, f32: 1 at the label, otherwise
// 0. A label below 0 or from `classes` on makes its row NaN. One pass.
struct OneHotProblem {
  TensorSpec labels;
  int64_t classes;
};

}  // namespace lockstep::kernels
