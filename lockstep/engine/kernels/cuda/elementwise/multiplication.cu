#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/elementwise/multiplication.h"

namespace lockstep::kernels::cuda {
namespace {

struct Factors {
  static constexpr int kMost = 8;
  const float* factor[kMost];
  int count;
  float* product;
  __device__ void operator()(int64_t i) const {
    float total = factor[0][i];
    for (int f = 1; f < kMost; ++f) {  // unrolled, so that addresses stay in registers
      if (f < count) total *= factor[f][i];
    }
    product[i] = total;
  }
};

// The product of all operands that a pass reads, from the first to the last. Each launch multiplies
// the previous launch's result by as many factors as possible.
void launch_product(const char* name, int64_t count, const Bound& b) {
  const int factors = static_cast<int>(b.reads.size());
  int next = 0;
  do {
    Factors some{{}, 0, b.out(0)};
    if (next > 0) some.factor[some.count++] = b.out(0);
    while (some.count < Factors::kMost && next < factors) some.factor[some.count++] = b.in(next++);
    launch_each(name, count, b.stream, some);
  } while (next < factors);
}

}  // namespace

// All operands have the first one's layout. A gradient is dy times all other inputs; dividing the
// product by its own input would fail for 0.
Kernel multiplication(const MultiplicationProblem& p) {
  const TensorSpec spec = p.src.front();
  const int64_t count = spec.shape.elements();
  Kernel kernel;
  std::vector<Operand> reads;
  for (size_t i = 0; i < p.src.size(); ++i) reads.push_back(input(static_cast<int>(i), spec));
  kernel.forward = own_pass(reads, {output(0, spec)}, [count](const Bound& b) {
    launch_product("multiplication", count, b);
  });
  for (size_t i = 0; i < p.src.size(); ++i) {
    std::vector<Operand> others = reads;
    others.erase(others.begin() + static_cast<ptrdiff_t>(i));
    others.insert(others.begin(), diff_output(0, spec));
    kernel.backward.push_back(own_pass(
        others, {diff_input(static_cast<int>(i), spec)},
        [count](const Bound& b) { launch_product("multiplication, backward", count, b); }));
  }
  return kernel;
}

}  // namespace lockstep::kernels::cuda
