#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/losses/ctc.h"
#include "lockstep/engine/kernels/losses/ctc_row.h"

namespace lockstep::kernels::cuda {
namespace {

// The inputs. A thread computes an observation, in its part of the scratch memory.
struct CtcInputs {
  int64_t steps, classes, most_labels, blank;
  bool zero_infinity;
  const float* logits;
  const int32_t *lengths, *labels, *label_lengths;
  double* memory;
  int64_t memory_of_row;

  static __device__ int64_t within(int64_t length, int64_t most) {
    return length < 0 ? 0 : length < most ? length : most;
  }
  __device__ CtcRow row(int64_t i) const {
    return {logits + i * steps * classes,
            labels + i * most_labels,
            within(lengths[i], steps),
            within(label_lengths[i], most_labels),
            classes,
            blank};
  }
};

struct CtcForward {
  CtcInputs in;
  float* loss;
  __device__ void operator()(int64_t i) const {
    const CtcRow row = in.row(i);
    float found = static_cast<float>(__builtin_nan(""));
    if (row.has_known_labels()) {
      const double total = row.log_total(in.memory + i * in.memory_of_row);
      found = in.zero_infinity && total == CtcRow::kImpossible ? 0.0f : static_cast<float>(-total);
    }
    loss[i] = found;
  }
};

struct CtcBackward {
  CtcInputs in;
  const float* dy;
  float* dx;
  __device__ void operator()(int64_t i) const {
    CtcRow row = in.row(i);
    if (!row.has_known_labels()) row.steps = 0;
    float* const to = dx + i * in.steps * in.classes;
    for (int64_t k = row.steps * in.classes; k < in.steps * in.classes; ++k) to[k] = 0;
    row.gradient(static_cast<double>(dy[i]), in.memory + i * in.memory_of_row, to);
  }
};

}  // namespace

Kernel ctc(const CtcProblem& p) {
  const TensorSpec logits = p.logits.plain();
  const Shape& x = logits.shape;
  const int64_t rows = x[0], steps = x[1], classes = x[2], most_labels = p.most_labels;
  const TensorSpec lengths = plain_spec(Shape{rows}, DType::i32);
  const TensorSpec labels = plain_spec(Shape{rows, most_labels}, DType::i32);
  const TensorSpec loss = plain_spec(Shape{rows});
  const std::vector<Operand> reads{input(0, logits), input(1, lengths), input(2, labels),
                                   input(3, lengths)};
  const auto inputs = [=, blank = p.blank, zero_infinity = p.zero_infinity](const Bound& b,
                                                                            int64_t of_row) {
    return CtcInputs{steps,
                     classes,
                     most_labels,
                     blank,
                     zero_infinity,
                     b.in(0),
                     b.in<int32_t>(1),
                     b.in<int32_t>(2),
                     b.in<int32_t>(3),
                     static_cast<double*>(b.scratch),
                     of_row};
  };
  const auto bytes = [=](int64_t doubles) {
    return static_cast<size_t>(rows * doubles) * sizeof(double);
  };
  const int64_t forward = CtcRow::forward_memory(most_labels);
  const int64_t backward = CtcRow::backward_memory(steps, most_labels, classes);
  Kernel kernel;
  kernel.forward = own_pass(
      reads, {output(0, loss)},
      [=](const Bound& b) {
        launch_each("ctc", rows, b.stream, CtcForward{inputs(b, forward), b.out(0)});
      },
      bytes(forward));
  std::vector<Operand> backward_reads = reads;
  backward_reads.push_back(diff_output(0, loss));
  kernel.backward.push_back(own_pass(
      std::move(backward_reads), {diff_input(0, logits)},
      [=](const Bound& b) {
        launch_each("ctc, backward", rows, b.stream,
                    CtcBackward{inputs(b, backward), b.in(4), b.out(0)});
      },
      bytes(backward)));
  return kernel;
}

}  // namespace lockstep::kernels::cuda
