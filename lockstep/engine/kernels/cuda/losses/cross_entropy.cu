#include <limits>

#include "lockstep/engine/kernels/cuda/losses/softmax_row.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/losses/cross_entropy.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr float kNoLabel = std::numeric_limits<float>::quiet_NaN();

// One block per observation.
__global__ void logits_forward(const float* scores, const int32_t* labels, float* loss,
                               float* probabilities, int64_t classes) {
  const int64_t n = blockIdx.x;
  const float* x = scores + n * classes;
  const RowSum row = softmax_row(x, probabilities + n * classes, classes, shared_memory<double>());
  if (threadIdx.x != 0) return;
  const int32_t label = labels[n];
  const bool valid = label >= 0 && label < classes;
  loss[n] = valid ? static_cast<float>(row.surprise(x[label])) : kNoLabel;
}

struct LogitsBackward {
  const float* probabilities;
  const int32_t* labels;
  const float* g;
  float* dx;
  int64_t classes;
  __device__ void operator()(int64_t i) const {
    const Division at = divide(i, classes);
    const float wanted = at.remainder == labels[at.quotient] ? 1.0f : 0.0f;
    dx[i] = g[at.quotient] * (probabilities[i] - wanted);
  }
};

struct ProbabilitiesForward {
  const float* probabilities;
  const int32_t* labels;
  float* loss;
  int64_t classes;
  __device__ void operator()(int64_t n) const {
    const int32_t label = labels[n];
    const bool valid = label >= 0 && label < classes;
    loss[n] = valid ? -logarithm(probabilities[n * classes + label]) : kNoLabel;
  }
};

struct ProbabilitiesBackward {
  const float* probabilities;
  const int32_t* labels;
  const float* g;
  float* dx;
  int64_t classes;
  __device__ void operator()(int64_t i) const {
    const Division at = divide(i, classes);
    dx[i] = at.remainder == labels[at.quotient] ? -g[at.quotient] / probabilities[i] : 0.0f;
  }
};

// ---- shares of classes ----

// The sum over classes of share x surprise, computed by one block.
template <class Surprise>
__device__ float expected(const float* shares, int64_t classes, const Surprise& surprise,
                          double* shared) {
  double sum = 0;
  for (int64_t c = threadIdx.x; c < classes; c += blockDim.x) {
    if (shares[c] != 0) sum += static_cast<double>(shares[c]) * surprise(c);
  }
  return static_cast<float>(block_reduce(sum, shared, Plus{}));
}

__global__ void shares_logits_forward(const float* scores, const float* shares, float* loss,
                                      float* probabilities, int64_t classes) {
  const int64_t n = blockIdx.x;
  const float* x = scores + n * classes;
  double* const shared = shared_memory<double>();
  const RowSum row = softmax_row(x, probabilities + n * classes, classes, shared);
  const auto surprise = [&](int64_t c) { return row.surprise(x[c]); };
  const float sum = expected(shares + n * classes, classes, surprise, shared);
  if (threadIdx.x == 0) loss[n] = sum;
}

__global__ void shares_logits_backward(const float* probabilities, const float* shares,
                                       const float* g, float* dx, int64_t classes) {
  const int64_t n = blockIdx.x;
  const float* t = shares + n * classes;
  const auto one = [](int64_t) { return 1.0; };
  const float all = expected(t, classes, one, shared_memory<double>());
  for (int64_t c = threadIdx.x; c < classes; c += blockDim.x) {
    dx[n * classes + c] = g[n] * (all * probabilities[n * classes + c] - t[c]);
  }
}

__global__ void shares_logits_backward_shares(const float* scores, const float* g, float* dt,
                                              int64_t classes) {
  const int64_t n = blockIdx.x;
  const float* x = scores + n * classes;
  const RowSum row = row_sum(x, classes, shared_memory<double>());
  for (int64_t c = threadIdx.x; c < classes; c += blockDim.x) {
    dt[n * classes + c] = g[n] == 0 ? 0 : g[n] * static_cast<float>(row.surprise(x[c]));
  }
}

__global__ void shares_forward(const float* probabilities, const float* shares, float* loss,
                               int64_t classes) {
  const int64_t n = blockIdx.x;
  const float* p = probabilities + n * classes;
  const auto surprise = [&](int64_t c) { return -in_double::logarithm(static_cast<double>(p[c])); };
  const float sum = expected(shares + n * classes, classes, surprise, shared_memory<double>());
  if (threadIdx.x == 0) loss[n] = sum;
}

struct SharesBackward {
  const float* probabilities;
  const float* shares;
  const float* g;
  float* dp;
  int64_t classes;
  __device__ void operator()(int64_t i) const {
    dp[i] = shares[i] == 0 ? 0 : -g[i / classes] * shares[i] / probabilities[i];
  }
};

struct SharesBackwardShares {
  const float* probabilities;
  const float* g;
  float* dt;
  int64_t classes;
  __device__ void operator()(int64_t i) const {
    const float of_row = g[i / classes];
    dt[i] = of_row == 0 ? 0 : -of_row * logarithm(probabilities[i]);
  }
};

Kernel shares_from_logits(const TensorSpec& scores, int64_t rows, int64_t classes) {
  const TensorSpec shares = plain_spec(scores.shape), loss = plain_spec(Shape{rows});
  const Grid grid = grid_of_rows(rows, classes);
  Kernel kernel;
  kernel.forward = own_pass({input(0, scores), input(1, shares)},
                            {output(0, loss), output(1, scores)}, [=](const Bound& b) {
                              launch("cross-entropy", shares_logits_forward, grid, b.stream,
                                     b.in(0), b.in(1), b.out(0), b.out(1), classes);
                            });
  kernel.backward.push_back(own_pass({output(1, scores), input(1, shares), diff_output(0, loss)},
                                     {diff_input(0, scores)}, [=](const Bound& b) {
                                       launch("cross-entropy, backward", shares_logits_backward,
                                              grid, b.stream, b.in(0), b.in(1), b.in(2), b.out(0),
                                              classes);
                                     }));
  kernel.backward.push_back(own_pass(
      {input(0, scores), diff_output(0, loss)}, {diff_input(1, shares)}, [=](const Bound& b) {
        launch("cross-entropy, backward", shares_logits_backward_shares, grid, b.stream, b.in(0),
               b.in(1), b.out(0), classes);
      }));
  return kernel;
}

Kernel shares_from_probabilities(const TensorSpec& scores, int64_t rows, int64_t classes) {
  const TensorSpec shares = plain_spec(scores.shape), loss = plain_spec(Shape{rows});
  const Grid grid = grid_of_rows(rows, classes);
  const int64_t count = rows * classes;
  Kernel kernel;
  kernel.forward =
      own_pass({input(0, scores), input(1, shares)}, {output(0, loss)}, [=](const Bound& b) {
        launch("cross-entropy", shares_forward, grid, b.stream, b.in(0), b.in(1), b.out(0),
               classes);
      });
  kernel.backward.push_back(
      own_pass({input(0, scores), input(1, shares), diff_output(0, loss)}, {diff_input(0, scores)},
               [=](const Bound& b) {
                 launch_each("cross-entropy, backward", count, b.stream,
                             SharesBackward{b.in(0), b.in(1), b.in(2), b.out(0), classes});
               }));
  kernel.backward.push_back(own_pass(
      {input(0, scores), diff_output(0, loss)}, {diff_input(1, shares)}, [=](const Bound& b) {
        launch_each("cross-entropy, backward", count, b.stream,
                    SharesBackwardShares{b.in(0), b.in(1), b.out(0), classes});
      }));
  return kernel;
}

}  // namespace

Kernel cross_entropy(const CrossEntropyProblem& p) {
  const TensorSpec scores = p.scores.plain();
  const int64_t rows = scores.shape[0], classes = scores.shape[1], count = rows * classes;
  if (p.shares) {
    return p.from_logits ? shares_from_logits(scores, rows, classes)
                         : shares_from_probabilities(scores, rows, classes);
  }
  const TensorSpec labels = plain_spec(Shape{rows}, DType::i32), loss = plain_spec(Shape{rows});
  Kernel kernel;
  if (p.from_logits) {
    const Grid grid = grid_of_rows(rows, classes);
    kernel.forward = own_pass({input(0, scores), input(1, labels)},
                              {output(0, loss), output(1, scores)}, [=](const Bound& b) {
                                launch("cross-entropy", logits_forward, grid, b.stream, b.in(0),
                                       b.in<int32_t>(1), b.out(0), b.out(1), classes);
                              });
    kernel.backward.push_back(own_pass({output(1, scores), input(1, labels), diff_output(0, loss)},
                                       {diff_input(0, scores)}, [=](const Bound& b) {
                                         launch_each("cross-entropy, backward", count, b.stream,
                                                     LogitsBackward{b.in(0), b.in<int32_t>(1),
                                                                    b.in(2), b.out(0), classes});
                                       }));
    return kernel;
  }
  kernel.forward =
      own_pass({input(0, scores), input(1, labels)}, {output(0, loss)}, [=](const Bound& b) {
        launch_each("cross-entropy", rows, b.stream,
                    ProbabilitiesForward{b.in(0), b.in<int32_t>(1), b.out(0), classes});
      });
  kernel.backward.push_back(own_pass(
      {input(0, scores), input(1, labels), diff_output(0, loss)}, {diff_input(0, scores)},
      [=](const Bound& b) {
        launch_each("cross-entropy, backward", count, b.stream,
                    ProbabilitiesBackward{b.in(0), b.in<int32_t>(1), b.in(2), b.out(0), classes});
      }));
  return kernel;
}

}  // namespace lockstep::kernels::cuda
