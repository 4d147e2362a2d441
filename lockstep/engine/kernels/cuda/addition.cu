#include "lockstep/engine/kernels/addition.h"
#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"

namespace lockstep::kernels::cuda {
namespace {

struct Terms {
  static constexpr int kMost = 8;
  const float* term[kMost];
  int count;
  float* sum;
  __device__ void operator()(int64_t i) const {
    float total = term[0][i];
    for (int t = 1; t < kMost; ++t) {  // unrolled: addresses stay in registers
      if (t < count) total += term[t][i];
    }
    sum[i] = total;
  }
};

}  // namespace

// All operands in the first one's layout; sums go from the first to the last.
Kernel addition(const AdditionProblem& p) {
  const TensorSpec spec = p.src.front();
  const int64_t count = spec.shape.elements();
  const int terms = static_cast<int>(p.src.size());
  Kernel kernel;
  std::vector<Operand> reads;
  for (int i = 0; i < terms; ++i) reads.push_back(input(i, spec));
  kernel.forward = own_pass(reads, {output(0, spec)}, [=](const Bound& b) {
    // A launch adds as many as it can to what the launch before it left.
    int next = 0;
    do {
      Terms some{{}, 0, b.out(0)};
      if (next > 0) some.term[some.count++] = b.out(0);
      while (some.count < Terms::kMost && next < terms) some.term[some.count++] = b.in(next++);
      launch_each("addition", count, b.queue, some);
    } while (next < terms);
  });
  for (int i = 0; i < terms; ++i) {
    kernel.backward.push_back(
        own_pass({diff_output(0, spec)}, {diff_input(i, spec)}, [spec](const Bound& b) {
          launch_copy("addition, backward", b.out(0), b.in(0), spec.bytes(), b.queue);
        }));
    kernel.backward.back().copies = true;
  }
  return kernel;
}

}  // namespace lockstep::kernels::cuda
