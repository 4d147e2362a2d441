#include <limits>

#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/losses/one_hot.h"
#include "lockstep/engine/kernels/shapes/indices.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr float kNoLabel = std::numeric_limits<float>::quiet_NaN();

struct OneHot {
  Indices labels;
  float* rows;
  int64_t classes;
  __device__ void operator()(int64_t i) const {
    const Division at = divide(i, classes);
    const int64_t label = labels[at.quotient];
    const bool valid = label >= 0 && label < classes;
    rows[i] = !valid ? kNoLabel : label == at.remainder ? 1.0f : 0.0f;
  }
};

}  // namespace

Kernel one_hot(const OneHotProblem& p) {
  const TensorSpec labels = p.labels.plain();
  std::vector<int64_t> dims = labels.shape.dims();
  dims.push_back(p.classes);
  const TensorSpec rows = plain_spec(Shape(dims));
  Kernel kernel;
  kernel.forward = own_pass(
      {input(0, labels)}, {output(0, rows)},
      [count = rows.shape.elements(), classes = p.classes,
       wide = labels.dtype == DType::i64](const Bound& b) {
        launch_each("one_hot", count, b.stream, OneHot{{b.reads[0], wide}, b.out(0), classes});
      });
  return kernel;
}

}  // namespace lockstep::kernels::cuda
