#include "lockstep/engine/kernels/reductions/sum.h"

#include <algorithm>
#include <bit>

#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {
namespace {

// The fixed tree: splits at the largest power of two below n.
double tree_sum(const float* x, int64_t n) {
  if (n == 1) return static_cast<double>(x[0]);
  const auto half = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n - 1)));
  return tree_sum(x, half) + tree_sum(x + half, n - half);
}

}  // namespace

Kernel sum(const SumProblem& p) {
  const TensorSpec src = p.src.plain(), dst = plain_spec(Shape{});
  const int64_t count = src.shape.elements();
  const double factor = p.factor;
  Kernel kernel;
  kernel.forward = own_pass(
      {input(0, src)}, {output(0, dst)}, [=](void* const* r, void* const* w, const RandomContext&) {
        *out(w, 0) = count == 0 ? 0.0f : static_cast<float>(factor * tree_sum(in(r, 0), count));
      });
  kernel.backward.push_back(own_pass({diff_output(0, dst)}, {diff_input(0, src)},
                                     [=](void* const* r, void* const* w, const RandomContext&) {
                                       const double g = factor * static_cast<double>(*in(r, 0));
                                       std::fill_n(out(w, 0), count, static_cast<float>(g));
                                     }));
  return kernel;
}

}  // namespace lockstep::kernels::cpu
