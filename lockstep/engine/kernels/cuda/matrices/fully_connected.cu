#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/cuda/elements.h"
#include "lockstep/engine/kernels/cuda/elementwise/bias.h"
#include "lockstep/engine/kernels/cuda/matrices/product.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/matrices/fully_connected.h"

namespace lockstep::kernels::cuda {
namespace {

// Weights have the source's layout, so that channels last needs no conversion. Results and
// gradients of weights are f32 for all types, because both are long sums.
Kernel connected(const FullyConnectedProblem& p) {
  const int64_t n = p.src.shape[0], units = p.units, columns = p.src.shape.elements() / n;
  const DType type = p.src.dtype;
  const TensorSpec src = p.src, dst = plain_spec(Shape{n, units}), bias = plain_spec(Shape{units}),
                   diff_dst = plain_spec(dst.shape, type);
  const auto weights = [&](DType dtype) {
    return src.row_major() ? plain_spec(Shape{units, columns}, dtype)
                           : channels_last(src.shape.with_batch(units), dtype);
  };
  const bool biased = p.bias;
  const Product forward({.a = {n, columns},
                         .b = {units, columns},
                         .b_transposed = true,
                         .bias = biased,
                         .factors = type});
  const Product data({.a = {n, units}, .b = {units, columns}, .factors = type, .result = type});
  const Product filters(
      {.a = {n, units}, .b = {n, columns}, .a_transposed = true, .factors = type});
  const ChannelLayout layout{n, units, 1};
  Kernel kernel;
  std::vector<Operand> reads{input(0, src), input(1, weights(type))};
  std::vector<Operand> gradients{diff_input(1, weights(DType::f32))};
  if (biased) {
    reads.push_back(input(2, bias));
    gradients.push_back(diff_input(2, bias));
  }
  kernel.forward = own_pass(
      reads, {output(0, dst)},
      [=](const Bound& b) {
        forward.run(b.in(0), b.in(1), biased ? b.in(2) : nullptr, b.out(0), b.scratch, b.stream);
      },
      forward.scratch_bytes());
  kernel.backward.push_back(own_pass(
      {diff_output(0, diff_dst), input(1, weights(type))}, {diff_input(0, src)},
      [=](const Bound& b) { data.run(b.in(0), b.in(1), nullptr, b.out(0), b.scratch, b.stream); },
      data.scratch_bytes()));
  kernel.backward.push_back(own_pass(
      {input(0, src), diff_output(0, diff_dst)}, gradients,
      [=](const Bound& b) {
        filters.run(b.in(1), b.in(0), nullptr, b.out(0), b.scratch, b.stream);
        if (!biased) return;
        for_elements(type, [&]<class T>(T) {
          launch_bias_gradient(layout, b.in<T>(1), b.out(1), b.scratch, b.stream);
        });
      },
      std::max(filters.scratch_bytes(), biased ? bias_gradient_scratch(layout, type) : 0)));
  return kernel;
}

}  // namespace

Kernel fully_connected(const FullyConnectedProblem& p) {
  try {
    return connected(p);
  } catch (const Unsupported&) {
    if (p.src.dtype == DType::f32) throw;
  }
  FullyConnectedProblem wide = p;
  wide.src = p.src.row_major() ? plain_spec(p.src.shape) : channels_last(p.src.shape);
  return connected(wide);
}

}  // namespace lockstep::kernels::cuda
