#include <limits>

#include "lockstep/engine/kernels/cross_entropy.h"
#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/cuda/softmax_row.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr float kNoLabel = std::numeric_limits<float>::quiet_NaN();

// A block for each observation.
__global__ void logits_forward(const float* scores, const int32_t* labels, float* loss,
                               float* probabilities, int64_t classes) {
  const int64_t n = blockIdx.x;
  const float* x = scores + n * classes;
  const RowSum row = softmax_row(x, probabilities + n * classes, classes, shared_memory<double>());
  if (threadIdx.x != 0) return;
  const int32_t label = labels[n];
  const bool valid = label >= 0 && label < classes;
  loss[n] = valid
                ? static_cast<float>(std::log(row.total) - static_cast<double>(x[label] - row.top))
                : kNoLabel;
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
    loss[n] = valid ? -std::log(probabilities[n * classes + label]) : kNoLabel;
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

}  // namespace

Kernel cross_entropy(const CrossEntropyProblem& p) {
  const TensorSpec scores = p.scores.plain();
  const int64_t rows = scores.shape[0], classes = scores.shape[1], count = rows * classes;
  const TensorSpec labels = plain_spec(Shape{rows}, DType::i32), loss = plain_spec(Shape{rows});
  Kernel kernel;
  if (p.from_logits) {
    const Grid grid = grid_of_rows(rows, classes);
    kernel.forward = own_pass({input(0, scores), input(1, labels)},
                              {output(0, loss), output(1, scores)}, [=](const Bound& b) {
                                launch("cross-entropy", logits_forward, grid, b.queue, b.in(0),
                                       b.in<int32_t>(1), b.out(0), b.out(1), classes);
                              });
    kernel.backward.push_back(own_pass({output(1, scores), input(1, labels), diff_output(0, loss)},
                                       {diff_input(0, scores)}, [=](const Bound& b) {
                                         launch_each("cross-entropy, backward", count, b.queue,
                                                     LogitsBackward{b.in(0), b.in<int32_t>(1),
                                                                    b.in(2), b.out(0), classes});
                                       }));
    return kernel;
  }
  kernel.forward =
      own_pass({input(0, scores), input(1, labels)}, {output(0, loss)}, [=](const Bound& b) {
        launch_each("cross-entropy", rows, b.queue,
                    ProbabilitiesForward{b.in(0), b.in<int32_t>(1), b.out(0), classes});
      });
  kernel.backward.push_back(own_pass(
      {input(0, scores), input(1, labels), diff_output(0, loss)}, {diff_input(0, scores)},
      [=](const Bound& b) {
        launch_each("cross-entropy, backward", count, b.queue,
                    ProbabilitiesBackward{b.in(0), b.in<int32_t>(1), b.in(2), b.out(0), classes});
      }));
  return kernel;
}

}  // namespace lockstep::kernels::cuda
