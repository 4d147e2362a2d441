#include "lockstep/engine/kernels/losses/one_hot.h"

#include <algorithm>
#include <limits>

#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/shapes/indices.h"

namespace lockstep::kernels::cpu {

Kernel one_hot(const OneHotProblem& p) {
  const TensorSpec labels = p.labels.plain();
  std::vector<int64_t> dims = labels.shape.dims();
  dims.push_back(p.classes);
  Kernel kernel;
  kernel.rows_apart = labels.shape.rank() > 0;
  kernel.forward = own_pass(
      {input(0, labels)}, {output(0, plain_spec(Shape(dims)))},
      [count = labels.shape.elements(), classes = p.classes, wide = labels.dtype == DType::i64](
          void* const* r, void* const* w, const RandomContext&) {
        const Indices label{r[0], wide};
        for (int64_t n = 0; n < count; ++n) {
          const bool valid = label[n] >= 0 && label[n] < classes;
          float* const row = out(w, 0) + n * classes;
          std::fill_n(row, classes, valid ? 0.0f : std::numeric_limits<float>::quiet_NaN());
          if (valid) row[label[n]] = 1;
        }
      });
  return kernel;
}

}  // namespace lockstep::kernels::cpu
