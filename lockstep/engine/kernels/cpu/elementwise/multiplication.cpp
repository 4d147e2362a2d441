#include "lockstep/engine/kernels/elementwise/multiplication.h"

#include <cstring>

#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels::cpu {

// All operands have the first one's layout. Multiplies from the first to the last. A gradient is dy
// times all other inputs; dividing the product by its own input would fail for 0.
Kernel multiplication(const MultiplicationProblem& p) {
  const TensorSpec spec = p.src.front();
  const size_t count = spec.bytes() / sizeof(float);
  const int factors = static_cast<int>(p.src.size());
  const auto product = [count](int operands) {
    return [=](void* const* r, void* const* w, const RandomContext&) {
      if (operands == 1) {
        std::memcpy(out(w, 0), in(r, 0), count * sizeof(float));
        return;
      }
      multiply(in(r, 0), in(r, 1), out(w, 0), count);
      for (int i = 2; i < operands; ++i) multiply(out(w, 0), in(r, i), out(w, 0), count);
    };
  };
  Kernel kernel;
  std::vector<Operand> reads;
  for (int i = 0; i < factors; ++i) reads.push_back(input(i, spec));
  kernel.forward = own_pass(reads, {output(0, spec)}, product(factors));
  kernel.rows_apart = true;
  for (int i = 0; i < factors; ++i) {
    std::vector<Operand> others = reads;
    others.erase(others.begin() + i);
    others.insert(others.begin(), diff_output(0, spec));
    kernel.backward.push_back(own_pass(others, {diff_input(i, spec)}, product(factors)));
  }
  return kernel;
}

}  // namespace lockstep::kernels::cpu
