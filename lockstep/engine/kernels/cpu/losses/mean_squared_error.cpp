#include "lockstep/engine/kernels/losses/mean_squared_error.h"

#include <algorithm>

#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {

Kernel mean_squared_error(const MeanSquaredErrorProblem& p) {
  const TensorSpec spec = p.prediction.plain();
  const int64_t rows = spec.shape[0];
  const int64_t columns = spec.shape.elements() / std::max<int64_t>(rows, 1);
  const TensorSpec loss = plain_spec(Shape{rows});
  Kernel kernel;
  kernel.rows_apart = true;
  kernel.forward =
      own_pass({input(0, spec), input(1, spec)}, {output(0, loss)},
               [=](void* const* r, void* const* w, const RandomContext&) {
                 for (int64_t n = 0; n < rows; ++n) {
                   const float *y = in(r, 0) + n * columns, *t = in(r, 1) + n * columns;
                   double total = 0;
                   for (int64_t i = 0; i < columns; ++i) {
                     const double d = static_cast<double>(y[i]) - static_cast<double>(t[i]);
                     total += d * d;
                   }
                   out(w, 0)[n] = static_cast<float>(total / static_cast<double>(columns));
                 }
               });
  // The gradients for prediction and target differ only in sign.
  for (int which = 0; which < 2; ++which) {
    kernel.backward.push_back(
        own_pass({input(0, spec), input(1, spec), diff_output(0, loss)}, {diff_input(which, spec)},
                 [=](void* const* r, void* const* w, const RandomContext&) {
                   const float sign = which == 0 ? 2.0f : -2.0f;
                   for (int64_t n = 0; n < rows; ++n) {
                     const float *y = in(r, 0) + n * columns, *t = in(r, 1) + n * columns;
                     const float factor = sign * in(r, 2)[n] / static_cast<float>(columns);
                     float* d = out(w, 0) + n * columns;
                     for (int64_t i = 0; i < columns; ++i) d[i] = factor * (y[i] - t[i]);
                   }
                 }));
  }
  return kernel;
}

}  // namespace lockstep::kernels::cpu
