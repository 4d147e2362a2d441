#include "lockstep/engine/kernels/losses/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/engine/kernels/cpu/cpu.h"
#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {
namespace {

constexpr float kNoLabel = std::numeric_limits<float>::quiet_NaN();

struct RowSum {
  float top;     // the largest element
  double total;  // sum of exp(x - top)
  // -log(probability) of an element.
  double surprise(float x) const { return std::log(total) - static_cast<double>(x - top); }
};

RowSum row_sum(const float* x, int64_t classes) {
  RowSum row{*std::max_element(x, x + classes), 0};
  for (int64_t c = 0; c < classes; ++c) row.total += static_cast<double>(std::exp(x[c] - row.top));
  return row;
}

// y = softmax of row x.
RowSum softmax_row(const float* x, float* y, int64_t classes) {
  RowSum row{*std::max_element(x, x + classes), 0};
  for (int64_t c = 0; c < classes; ++c) {
    y[c] = std::exp(x[c] - row.top);
    row.total += static_cast<double>(y[c]);
  }
  const auto factor = static_cast<float>(1 / row.total);
  for (int64_t c = 0; c < classes; ++c) y[c] *= factor;
  return row;
}

Kernel from_logits(const TensorSpec& scores, int64_t rows, int64_t classes) {
  const TensorSpec labels = plain_spec(Shape{rows}, DType::i32), loss = plain_spec(Shape{rows});
  Kernel kernel;
  kernel.rows_apart = true;
  kernel.forward =
      own_pass({input(0, scores), input(1, labels)}, {output(0, loss), output(1, scores)},
               [=](void* const* r, void* const* w, const StepInfo&) {
                 const auto* label = in<int32_t>(r, 1);
                 for (int64_t n = 0; n < rows; ++n) {
                   const float* x = in(r, 0) + n * classes;
                   const RowSum row = softmax_row(x, out(w, 1) + n * classes, classes);
                   const bool valid = label[n] >= 0 && label[n] < classes;
                   out(w, 0)[n] = valid ? static_cast<float>(row.surprise(x[label[n]])) : kNoLabel;
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
  kernel.rows_apart = true;
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

// ---- shares of classes ----

// The sum over classes of share x surprise.
template <class Surprise>
float expected(const float* shares, int64_t classes, const Surprise& surprise) {
  double sum = 0;
  for (int64_t c = 0; c < classes; ++c) {
    if (shares[c] != 0) sum += static_cast<double>(shares[c]) * surprise(c);
  }
  return static_cast<float>(sum);
}

Kernel shares_from_logits(const TensorSpec& scores, int64_t rows, int64_t classes) {
  const TensorSpec shares = plain_spec(scores.shape), loss = plain_spec(Shape{rows});
  Kernel kernel;
  kernel.rows_apart = true;
  kernel.forward =
      own_pass({input(0, scores), input(1, shares)}, {output(0, loss), output(1, scores)},
               [=](void* const* r, void* const* w, const StepInfo&) {
                 for (int64_t n = 0; n < rows; ++n) {
                   const float* x = in(r, 0) + n * classes;
                   const RowSum row = softmax_row(x, out(w, 1) + n * classes, classes);
                   out(w, 0)[n] = expected(in(r, 1) + n * classes, classes,
                                           [&](int64_t c) { return row.surprise(x[c]); });
                 }
               });
  kernel.backward.push_back(
      own_pass({output(1, scores), input(1, shares), diff_output(0, loss)}, {diff_input(0, scores)},
               [=](void* const* r, void* const* w, const StepInfo&) {
                 for (int64_t n = 0; n < rows; ++n) {
                   const float *y = in(r, 0) + n * classes, *t = in(r, 1) + n * classes;
                   float* dx = out(w, 0) + n * classes;
                   const float g = in(r, 2)[n];
                   const float all = expected(t, classes, [](int64_t) { return 1.0; });
                   for (int64_t c = 0; c < classes; ++c) dx[c] = g * (all * y[c] - t[c]);
                 }
               }));
  kernel.backward.push_back(
      own_pass({input(0, scores), diff_output(0, loss)}, {diff_input(1, shares)},
               [=](void* const* r, void* const* w, const StepInfo&) {
                 for (int64_t n = 0; n < rows; ++n) {
                   const float* x = in(r, 0) + n * classes;
                   float* dt = out(w, 0) + n * classes;
                   const RowSum row = row_sum(x, classes);
                   const float g = in(r, 1)[n];
                   for (int64_t c = 0; c < classes; ++c) {
                     dt[c] = g == 0 ? 0 : g * static_cast<float>(row.surprise(x[c]));
                   }
                 }
               }));
  return kernel;
}

Kernel shares_from_probabilities(const TensorSpec& scores, int64_t rows, int64_t classes) {
  const TensorSpec shares = plain_spec(scores.shape), loss = plain_spec(Shape{rows});
  Kernel kernel;
  kernel.rows_apart = true;
  kernel.forward = own_pass(
      {input(0, scores), input(1, shares)}, {output(0, loss)},
      [=](void* const* r, void* const* w, const StepInfo&) {
        for (int64_t n = 0; n < rows; ++n) {
          const float* p = in(r, 0) + n * classes;
          out(w, 0)[n] = expected(in(r, 1) + n * classes, classes,
                                  [&](int64_t c) { return -std::log(static_cast<double>(p[c])); });
        }
      });
  kernel.backward.push_back(
      own_pass({input(0, scores), input(1, shares), diff_output(0, loss)}, {diff_input(0, scores)},
               [=](void* const* r, void* const* w, const StepInfo&) {
                 for (int64_t i = 0; i < rows * classes; ++i) {
                   const float share = in(r, 1)[i];
                   out(w, 0)[i] = share == 0 ? 0 : -in(r, 2)[i / classes] * share / in(r, 0)[i];
                 }
               }));
  kernel.backward.push_back(own_pass({input(0, scores), diff_output(0, loss)},
                                     {diff_input(1, shares)},
                                     [=](void* const* r, void* const* w, const StepInfo&) {
                                       for (int64_t i = 0; i < rows * classes; ++i) {
                                         const float g = in(r, 1)[i / classes];
                                         out(w, 0)[i] = g == 0 ? 0 : -g * std::log(in(r, 0)[i]);
                                       }
                                     }));
  return kernel;
}

}  // namespace

Kernel cross_entropy(const CrossEntropyProblem& p) {
  const TensorSpec scores = p.scores.plain();
  const int64_t rows = scores.shape[0], classes = scores.shape[1];
  if (p.shares) {
    return p.from_logits ? shares_from_logits(scores, rows, classes)
                         : shares_from_probabilities(scores, rows, classes);
  }
  return p.from_logits ? from_logits(scores, rows, classes)
                       : from_probabilities(scores, rows, classes);
}

}  // namespace lockstep::kernels::cpu
