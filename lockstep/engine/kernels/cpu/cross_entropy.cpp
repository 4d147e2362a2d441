#include "lockstep/engine/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/engine/kernels/cpu/cpu.h"
#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {
namespace {

constexpr float kNoLabel = std::numeric_limits<float>::quiet_NaN();

Kernel from_logits(const TensorSpec& scores, int64_t rows, int64_t classes) {
  const TensorSpec labels = plain_spec(Shape{rows}, DType::i32), loss = plain_spec(Shape{rows});
  Kernel kernel;
  kernel.forward = own_pass(
      {input(0, scores), input(1, labels)}, {output(0, loss), output(1, scores)},
      [=](void* const* r, void* const* w, const StepInfo&) {
        const auto* label = in<int32_t>(r, 1);
        for (int64_t n = 0; n < rows; ++n) {
          const float* x = in(r, 0) + n * classes;
          float* y = out(w, 1) + n * classes;
          const float top = *std::max_element(x, x + classes);
          double total = 0;
          for (int64_t c = 0; c < classes; ++c) {
            y[c] = std::exp(x[c] - top);
            total += static_cast<double>(y[c]);
          }
          const auto factor = static_cast<float>(1 / total);
          for (int64_t c = 0; c < classes; ++c) y[c] *= factor;
          const bool valid = label[n] >= 0 && label[n] < classes;
          out(w, 0)[n] =
              valid ? static_cast<float>(std::log(total) - static_cast<double>(x[label[n]] - top))
                    : kNoLabel;
        }
      });
  kernel.backward.push_back(own_pass({output(1, scores), input(1, labels), diff_output(0, loss)},
                                     {diff_input(0, scores)},
                                     [=](void* const* r, void* const* w, const StepInfo&) {
                                       const auto* label = in<int32_t>(r, 1);
                                       for (int64_t n = 0; n < rows; ++n) {
                                         const float* y = in(r, 0) + n * classes;
                                         float* dx = out(w, 0) + n * classes;
                                         const float g = in(r, 2)[n];
                                         for (int64_t c = 0; c < classes; ++c) {
                                           dx[c] = g * (y[c] - (c == label[n] ? 1.0f : 0.0f));
                                         }
                                       }
                                     }));
  return kernel;
}

Kernel from_probabilities(const TensorSpec& scores, int64_t rows, int64_t classes) {
  const TensorSpec labels = plain_spec(Shape{rows}, DType::i32), loss = plain_spec(Shape{rows});
  Kernel kernel;
  kernel.forward = own_pass({input(0, scores), input(1, labels)}, {output(0, loss)},
                            [=](void* const* r, void* const* w, const StepInfo&) {
                              const auto* label = in<int32_t>(r, 1);
                              for (int64_t n = 0; n < rows; ++n) {
                                const bool valid = label[n] >= 0 && label[n] < classes;
                                out(w, 0)[n] =
                                    valid ? -std::log(in(r, 0)[n * classes + label[n]]) : kNoLabel;
                              }
                            });
  kernel.backward.push_back(own_pass({input(0, scores), input(1, labels), diff_output(0, loss)},
                                     {diff_input(0, scores)},
                                     [=](void* const* r, void* const* w, const StepInfo&) {
                                       const auto* label = in<int32_t>(r, 1);
                                       std::fill_n(out(w, 0), rows * classes, 0.0f);
                                       for (int64_t n = 0; n < rows; ++n) {
                                         if (label[n] < 0 || label[n] >= classes) continue;
                                         const int64_t at = n * classes + label[n];
                                         out(w, 0)[at] = -in(r, 2)[n] / in(r, 0)[at];
                                       }
                                     }));
  return kernel;
}

}  // namespace

Kernel cross_entropy(const CrossEntropyProblem& p) {
  const TensorSpec scores = p.scores.plain();
  const int64_t rows = scores.shape[0], classes = scores.shape[1];
  return p.from_logits ? from_logits(scores, rows, classes)
                       : from_probabilities(scores, rows, classes);
}

}  // namespace lockstep::kernels::cpu
