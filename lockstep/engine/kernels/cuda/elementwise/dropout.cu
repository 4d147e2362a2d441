#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/cuda/philox.h"
#include "lockstep/engine/kernels/elementwise/dropout.h"

namespace lockstep::kernels::cuda {
namespace {

struct Rule {
  uint64_t layer, threshold;  // a 32-bit number below the threshold drops its element
  float factor;
  const RandomContext* step;

  __device__ DeviceRandomStream stream(int64_t row) const {
    return DeviceRandomStream({step->seed, RandomUse::dropout, layer, step->iteration,
                               static_cast<uint64_t>(step->first_row + row)});
  }
};

// For row-major memory. Thread i handles four adjacent elements, which share a block of random
// words.
struct Forward {
  Rule rule;
  const float* x;
  float* y;
  uint8_t* kept;
  int64_t columns, groups;  // of one observation; a group has up to four elements
  __device__ void operator()(int64_t i) const {
    const Division at = divide(i, groups);
    const int64_t first = at.remainder * 4;
    const Words4 words = rule.stream(at.quotient).block(static_cast<uint64_t>(at.remainder));
    for (int k = 0; k < 4 && first + k < columns; ++k) {
      const int64_t e = at.quotient * columns + first + k;
      const bool keep = words.word[k] >= rule.threshold;
      kept[e] = keep;
      y[e] = keep ? x[e] * rule.factor : 0.0f;
    }
  }
};

// For channels last. Thread i handles one element, whose random number is indexed in row-major
// order.
struct ForwardChannelsLast {
  Rule rule;
  const float* x;
  float* y;
  uint8_t* kept;
  int64_t channels, space;
  __device__ void operator()(int64_t i) const {
    const Division pixel = divide(i, channels);
    const Division image = divide(pixel.quotient, space);
    const int64_t e = pixel.remainder * space + image.remainder;
    const Words4 words = rule.stream(image.quotient).block(static_cast<uint64_t>(e / 4));
    uint32_t word = words.word[0];
    for (int k = 1; k < 4; ++k) {  // unrolled, so that words stay in registers
      if (e % 4 == k) word = words.word[k];
    }
    const bool keep = word >= rule.threshold;
    kept[i] = keep;
    y[i] = keep ? x[i] * rule.factor : 0.0f;
  }
};

struct Backward {
  const float* dy;
  const uint8_t* kept;
  float factor;
  float* dx;
  __device__ void operator()(int64_t i) const { dx[i] = kept[i] ? dy[i] * factor : 0.0f; }
};

}  // namespace

// Works on memory in either order.
Kernel dropout(const DropoutProblem& p) {
  const TensorSpec spec = p.src;
  const Extents e = extents_of(spec.shape);
  const int64_t count = spec.shape.elements(), columns = count / e.outer;
  const auto factor = static_cast<float>(1.0 / (1.0 - p.probability));
  const auto threshold = static_cast<uint64_t>(p.probability * 4294967296.0);
  const Operand kept = workspace(static_cast<size_t>(count));
  Kernel kernel;
  kernel.forward =
      own_pass({input(0, spec)}, {output(0, spec), kept}, [=, layer = p.layer](const Bound& b) {
        const Rule rule{layer, threshold, factor, b.step};
        if (spec.row_major()) {
          const int64_t groups = (columns + 3) / 4;
          launch_each("dropout", e.outer * groups, b.stream,
                      Forward{rule, b.in(0), b.out(0), b.out<uint8_t>(1), columns, groups});
        } else {
          launch_each(
              "dropout", count, b.stream,
              ForwardChannelsLast{rule, b.in(0), b.out(0), b.out<uint8_t>(1), e.channels, e.space});
        }
      });
  kernel.backward.push_back(
      own_pass({diff_output(0, spec), kept}, {diff_input(0, spec)}, [=](const Bound& b) {
        launch_each("dropout, backward", count, b.stream,
                    Backward{b.in(0), b.in<uint8_t>(1), factor, b.out(0)});
      }));
  return kernel;
}

}  // namespace lockstep::kernels::cuda
