#include "lockstep/engine/kernels/losses/cross_entropy.h"

#include <algorithm>
#include <limits>

#include "lockstep/engine/kernels/cpu/losses/row_sums.h"
#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {
namespace {

constexpr float kNoLabel = std::numeric_limits<float>::quiet_NaN();

// -log(probability) of a class of a row of logits.
LOCKSTEP_INLINE double surprise(double log_total, float x, float top) {
  return log_total - static_cast<double>(x - top);
}

LOCKSTEP_FMA_CLONES void forward_of_labels(const float* x, const int32_t* labels, float* loss,
                                           float* y, int64_t rows, int64_t n) {
  softmax_of_rows(
      x, y, rows,
      n, [=](int64_t first, int count, const RowSums& sums) __attribute__((always_inline)) {
        for (int r = 0; r < count; ++r) {
          const int64_t row = first + r, label = labels[row];
          const double log_total = in_double::logarithm(sums.total[r]);
          loss[row] = label >= 0 && label < n
                          ? static_cast<float>(surprise(log_total, x[row * n + label], sums.top[r]))
                          : kNoLabel;
        }
      });
}

LOCKSTEP_FMA_CLONES void backward_of_labels(const float* y, const int32_t* labels, const float* g,
                                            float* dx, int64_t rows, int64_t n) {
  for (int64_t row = 0; row < rows; ++row, y += n, dx += n) {
    const float of_row = g[row];
#pragma GCC ivdep
    for (int64_t c = 0; c < n; ++c) dx[c] = of_row * y[c];
    const int64_t label = labels[row];
    if (label >= 0 && label < n) dx[label] = of_row * (y[label] - 1.0f);
  }
}

// The sum over classes of share x surprise. A share of 0 adds nothing.
template <class Surprise>
LOCKSTEP_INLINE float expected(const float* shares, int64_t n, const Surprise& of) {
  return static_cast<float>(sum_over_classes(
      n, [=](int64_t c) __attribute__((always_inline)) {
        const double term = double{shares[c]} * of(c);
        return shares[c] != 0 ? term : 0.0;
      }));
}

LOCKSTEP_FMA_CLONES void forward_of_shares(const float* x, const float* shares, float* loss,
                                           float* y, int64_t rows, int64_t n) {
  softmax_of_rows(
      x, y, rows,
      n, [=](int64_t first, int count, const RowSums& sums) __attribute__((always_inline)) {
        for (int r = 0; r < count; ++r) {
          const float* scores = x + (first + r) * n;
          const float top = sums.top[r];
          const double log_total = in_double::logarithm(sums.total[r]);
          loss[first + r] = expected(
              shares + (first + r) * n, n, [=](int64_t c) __attribute__((always_inline)) {
                return surprise(log_total, scores[c], top);
              });
        }
      });
}

LOCKSTEP_FMA_CLONES void backward_of_shares(const float* y, const float* shares, const float* g,
                                            float* dx, int64_t rows, int64_t n) {
  for (int64_t row = 0; row < rows; ++row, y += n, shares += n, dx += n) {
    const float of_row = g[row];
    const float all = expected(
        shares, n, [](int64_t) __attribute__((always_inline)) { return 1.0; });
#pragma GCC ivdep
    for (int64_t c = 0; c < n; ++c) dx[c] = of_row * (all * y[c] - shares[c]);
  }
}

// With respect to the shares.
LOCKSTEP_FMA_CLONES void gradient_of_shares(const float* x, const float* g, float* dt, int64_t rows,
                                            int64_t n) {
  RowSums sums;
  for (int64_t row = 0; row < rows; ++row, x += n, dt += n) {
    exponentials_of_row(x, dt, n, sums);
    const float of_row = g[row], top = sums.top[0];
    const double log_total = in_double::logarithm(sums.total[0]);
#pragma GCC ivdep
    for (int64_t c = 0; c < n; ++c) {
      const float change = of_row * static_cast<float>(surprise(log_total, x[c], top));
      dt[c] = of_row == 0 ? 0.0f : change;
    }
  }
}

LOCKSTEP_FMA_CLONES void forward_of_shared_probabilities(const float* p, const float* shares,
                                                         float* loss, int64_t rows, int64_t n) {
  for (int64_t row = 0; row < rows; ++row, p += n, shares += n) {
    loss[row] = expected(
        shares, n, [=](int64_t c) __attribute__((always_inline)) {
          return -in_double::logarithm(double{p[c]});
        });
  }
}

LOCKSTEP_FMA_CLONES void gradient_of_shares_of_probabilities(const float* p, const float* g,
                                                             float* dt, int64_t rows, int64_t n) {
  for (int64_t row = 0; row < rows; ++row, p += n, dt += n) {
    const float of_row = g[row];
#pragma GCC ivdep
    for (int64_t c = 0; c < n; ++c) {
      const float change = -of_row * logarithm(p[c]);
      dt[c] = of_row == 0 ? 0.0f : change;
    }
  }
}

Kernel from_logits(const TensorSpec& scores, int64_t rows, int64_t classes) {
  const TensorSpec labels = plain_spec(Shape{rows}, DType::i32), loss = plain_spec(Shape{rows});
  Kernel kernel;
  kernel.rows_apart = true;
  kernel.forward = own_pass(
      {input(0, scores), input(1, labels)}, {output(0, loss), output(1, scores)},
      [=](void* const* r, void* const* w, const RandomContext&) {
        forward_of_labels(in(r, 0), in<int32_t>(r, 1), out(w, 0), out(w, 1), rows, classes);
      });
  kernel.backward.push_back(own_pass(
      {output(1, scores), input(1, labels), diff_output(0, loss)}, {diff_input(0, scores)},
      [=](void* const* r, void* const* w, const RandomContext&) {
        backward_of_labels(in(r, 0), in<int32_t>(r, 1), in(r, 2), out(w, 0), rows, classes);
      }));
  return kernel;
}

Kernel from_probabilities(const TensorSpec& scores, int64_t rows, int64_t classes) {
  const TensorSpec labels = plain_spec(Shape{rows}, DType::i32), loss = plain_spec(Shape{rows});
  Kernel kernel;
  kernel.rows_apart = true;
  kernel.forward = own_pass({input(0, scores), input(1, labels)}, {output(0, loss)},
                            [=](void* const* r, void* const* w, const RandomContext&) {
                              const auto* label = in<int32_t>(r, 1);
                              for (int64_t n = 0; n < rows; ++n) {
                                const bool valid = label[n] >= 0 && label[n] < classes;
                                out(w, 0)[n] =
                                    valid ? -logarithm(in(r, 0)[n * classes + label[n]]) : kNoLabel;
                              }
                            });
  kernel.backward.push_back(own_pass({input(0, scores), input(1, labels), diff_output(0, loss)},
                                     {diff_input(0, scores)},
                                     [=](void* const* r, void* const* w, const RandomContext&) {
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

Kernel shares_from_logits(const TensorSpec& scores, int64_t rows, int64_t classes) {
  const TensorSpec shares = plain_spec(scores.shape), loss = plain_spec(Shape{rows});
  Kernel kernel;
  kernel.rows_apart = true;
  kernel.forward =
      own_pass({input(0, scores), input(1, shares)}, {output(0, loss), output(1, scores)},
               [=](void* const* r, void* const* w, const RandomContext&) {
                 forward_of_shares(in(r, 0), in(r, 1), out(w, 0), out(w, 1), rows, classes);
               });
  kernel.backward.push_back(
      own_pass({output(1, scores), input(1, shares), diff_output(0, loss)}, {diff_input(0, scores)},
               [=](void* const* r, void* const* w, const RandomContext&) {
                 backward_of_shares(in(r, 0), in(r, 1), in(r, 2), out(w, 0), rows, classes);
               }));
  kernel.backward.push_back(
      own_pass({input(0, scores), diff_output(0, loss)}, {diff_input(1, shares)},
               [=](void* const* r, void* const* w, const RandomContext&) {
                 gradient_of_shares(in(r, 0), in(r, 1), out(w, 0), rows, classes);
               }));
  return kernel;
}

Kernel shares_from_probabilities(const TensorSpec& scores, int64_t rows, int64_t classes) {
  const TensorSpec shares = plain_spec(scores.shape), loss = plain_spec(Shape{rows});
  Kernel kernel;
  kernel.rows_apart = true;
  kernel.forward =
      own_pass({input(0, scores), input(1, shares)}, {output(0, loss)},
               [=](void* const* r, void* const* w, const RandomContext&) {
                 forward_of_shared_probabilities(in(r, 0), in(r, 1), out(w, 0), rows, classes);
               });
  kernel.backward.push_back(
      own_pass({input(0, scores), input(1, shares), diff_output(0, loss)}, {diff_input(0, scores)},
               [=](void* const* r, void* const* w, const RandomContext&) {
                 for (int64_t i = 0; i < rows * classes; ++i) {
                   const float share = in(r, 1)[i];
                   out(w, 0)[i] = share == 0 ? 0 : -in(r, 2)[i / classes] * share / in(r, 0)[i];
                 }
               }));
  kernel.backward.push_back(
      own_pass({input(0, scores), diff_output(0, loss)}, {diff_input(1, shares)},
               [=](void* const* r, void* const* w, const RandomContext&) {
                 gradient_of_shares_of_probabilities(in(r, 0), in(r, 1), out(w, 0), rows, classes);
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
