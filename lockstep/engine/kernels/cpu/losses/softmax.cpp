#include "lockstep/engine/kernels/losses/softmax.h"

#include <algorithm>
#include <cmath>

#include "lockstep/engine/kernels/cpu/cpu.h"
#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {

// Element (n, c, s) is at index (n * channels + c) * space + s.
Kernel softmax(const SoftmaxProblem& p) {
  const TensorSpec spec = p.src.plain();
  const int64_t rows = spec.shape[0], channels = spec.shape[1];
  const int64_t space = spec.shape.elements() / std::max<int64_t>(rows * channels, 1);
  Kernel kernel;
  kernel.rows_apart = true;
  kernel.forward = own_pass({input(0, spec)}, {output(0, spec)},
                            [=](void* const* r, void* const* w, const StepInfo&) {
                              for (int64_t n = 0; n < rows; ++n) {
                                for (int64_t s = 0; s < space; ++s) {
                                  const float* x = in(r, 0) + n * channels * space + s;
                                  float* y = out(w, 0) + n * channels * space + s;
                                  float top = x[0];
                                  for (int64_t c = 1; c < channels; ++c)
                                    top = std::max(top, x[c * space]);
                                  double total = 0;
                                  for (int64_t c = 0; c < channels; ++c) {
                                    y[c * space] = std::exp(x[c * space] - top);
                                    total += static_cast<double>(y[c * space]);
                                  }
                                  const auto factor = static_cast<float>(1 / total);
                                  for (int64_t c = 0; c < channels; ++c) y[c * space] *= factor;
                                }
                              }
                            });
  kernel.backward.push_back(own_pass(
      {output(0, spec), diff_output(0, spec)}, {diff_input(0, spec)},
      [=](void* const* r, void* const* w, const StepInfo&) {
        for (int64_t n = 0; n < rows; ++n) {
          for (int64_t s = 0; s < space; ++s) {
            const int64_t at = n * channels * space + s;
            const float *y = in(r, 0) + at, *dy = in(r, 1) + at;
            float* dx = out(w, 0) + at;
            double dot = 0;
            for (int64_t c = 0; c < channels; ++c) {
              dot += static_cast<double>(y[c * space]) * static_cast<double>(dy[c * space]);
            }
            for (int64_t c = 0; c < channels; ++c) {
              dx[c * space] = y[c * space] * (dy[c * space] - static_cast<float>(dot));
            }
          }
        }
      }));
  return kernel;
}

}  // namespace lockstep::kernels::cpu
