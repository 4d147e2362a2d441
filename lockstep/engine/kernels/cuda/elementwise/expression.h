// Expressions as parts of other kernels.
#pragma once

#include <functional>

#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/elementwise/expression.h"

namespace lockstep::kernels::cuda {

// Adds the launch that writes dst; the inputs are the first reads of the pass. Throws
// InvalidArgument for a problem that is not one, and Unsupported for one that is too large.
std::function<void(const Bound&, float* dst)> expression_launch(const ExpressionProblem& p);

}  // namespace lockstep::kernels::cuda
