#include "lockstep/engine/kernels/matrices/fully_connected.h"

#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"
#include "lockstep/engine/kernels/cpu/matrices/blocked_products.h"
#include "lockstep/engine/kernels/cpu/matrices/panels.h"
#include "lockstep/engine/kernels/cpu/matrices/products.h"
#include "lockstep/engine/kernels/cpu/matrices/shard_gradients.h"
#include "lockstep/engine/kernels/cpu/normalization/channel_sums.h"
#include "lockstep/engine/kernels/cpu/onednn.h"
#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {
namespace {

// Gradients of biases are sums over observations. With more observations than this, bias_gradient()
// computes them in double instead of oneDNN.
constexpr int64_t kMostObservations = 256;

// With this many rows each product packs panels of the weights itself, in its thread's cache.
// Panels that are packed once an iteration cost memory and traffic between cores. They are for few
// rows, and for bf16, where rounding costs more.
constexpr int64_t kRowsForOwnPanels = 32;

// Throws Unsupported if the sizes of padded operands cannot be counted. The smallest such operand
// would need 2^50 bytes.
void check_countable(const FullyConnectedProblem& p) {
  const int64_t rows = p.src.shape[0], inputs = p.src.shape.elements() / rows;
  for (const Shape& shape : {Shape{rows, inputs}, Shape{rows, p.units}, Shape{p.units, inputs}}) {
    if (shape.elements() <= kMostInPanels) continue;
    throw Unsupported("[kernels] a fully connected op does not support an operand of " +
                      shape.to_string());
  }
}

// Row-major inputs: products of this project, whose rows do not depend on each other. Inputs and
// output gradients are T; results and all gradients are f32.
template <class T>
Kernel by_own_products(const FullyConnectedProblem& p) {
  check_countable(p);
  const DType type = p.src.dtype;
  const int64_t rows = p.src.shape[0], inputs = p.src.shape.elements() / rows, units = p.units;
  const TensorSpec src = p.src, dst = plain_spec(Shape{rows, units}),
                   diff_dst = plain_spec(dst.shape, type),
                   weights = plain_spec(Shape{units, inputs}), bias = plain_spec(Shape{units});
  Kernel kernel;
  kernel.rows_apart = true;
  const bool packed = rows < kRowsForOwnPanels || type != DType::f32;
  std::vector<Operand> reads{input(0, src),
                             input(1, packed ? panels_spec(weights.shape, type) : weights)};
  if (p.bias) reads.push_back(input(2, bias));
  const Product forward{rows, inputs, units};
  kernel.forward = own_pass_with_scratch(
      reads, {output(0, dst)}, packed ? product_scratch() : blocked_product_scratch(),
      [=, biased = p.bias](void* const* r, void* const* w, void* scratch) {
        const float* const to_add = biased ? in(r, 2) : nullptr;
        if constexpr (std::is_same_v<T, float>) {
          if (!packed) {
            multiply(BlockedProduct{rows, inputs, units, false, true}, in(r, 0), in(r, 1), to_add,
                     out(w, 0), scratch);
            return;
          }
        }
        if (rows <= kMostSharedRows) {
          return share_panels(forward, in<T>(r, 0), in<T>(r, 1), to_add, out(w, 0));
        }
        multiply_panels(forward, in<T>(r, 0), in<T>(r, 1), to_add, out(w, 0), scratch);
      });
  kernel.backward.push_back(own_pass_with_scratch(
      {diff_output(0, diff_dst), input(1, weights)}, {diff_input(0, plain_spec(src.shape))},
      std::is_same_v<T, float> ? blocked_product_scratch() : product_scratch(),
      [=](void* const* r, void* const* w, void* scratch) {
        if constexpr (std::is_same_v<T, float>) {
          multiply(BlockedProduct{rows, units, inputs}, in(r, 0), in(r, 1), nullptr, out(w, 0),
                   scratch);
        } else {
          multiply(Product{rows, units, inputs}, in<T>(r, 0), in(r, 1), out(w, 0), scratch);
        }
      }));
  const SumOverShards sum = sum_of_weights_gradient({inputs, units, p.bias, type});
  const ShardLeaf only{.rows = rows, .additions = 0, .root = 0};
  std::vector<Operand> writes{diff_input(1, weights)};
  if (p.bias) writes.push_back(diff_input(2, bias));
  kernel.backward.push_back(own_pass_with_scratch(
      {input(0, src), diff_output(0, diff_dst)}, writes, sum.kept_bytes({&only, 1}),
      [=, results = writes.size()](void* const* r, void* const* w, void* scratch) {
        sum.keep({r, 2}, {0, rows}, {&only, 1}, scratch);
        const ShardRoot root{{w, w + results}};
        for (int64_t i = 0; i < sum.update_ranges; ++i) {
          sum.add(scratch, {&only, 1}, {&root, 1},
                  {.update_range = i, .columns = {0, sum.columns}});
        }
      }));
  kernel.backward.back().over_shards = sum;
  return kernel;
}

// oneDNN's inner product: images in its layouts.
Kernel by_onednn(const FullyConnectedProblem& p) {
  SingleThread one;
  prepare_products();
  using dnnl::prop_kind;
  // oneDNN flattens inputs: weights have the source's trailing dimensions and the same elements. It
  // does not support all ranks, so ranks 3 and above 4 are flattened here.
  TensorSpec src_spec = p.src;
  if (in_lanes(src_spec)) src_spec = src_spec.plain();  // oneDNN has no fast kernel for it
  if (src_spec.shape.rank() > 4 || src_spec.shape.rank() == 3) {
    const int64_t n = p.src.shape[0];
    src_spec = {Shape{n, p.src.shape.elements() / n}, p.src.dtype, nullptr};
  }
  const Shape src_shape = src_spec.shape;
  const Shape dst_shape{src_shape[0], p.units};
  const Shape weights_shape = src_shape.with_batch(p.units);
  const Shape bias_shape{p.units};
  const DType type = src_spec.dtype;
  // Results and gradients of weights are f32 for all types, because both are long sums.
  const auto src = desc_of(src_spec), dst = plain_desc(dst_shape),
             w = any_desc(weights_shape, type);
  const auto diff_dst = plain_desc(dst_shape, type), diff_w = any_desc(weights_shape);
  const auto bias = p.bias ? plain_desc(bias_shape) : dnnl::memory::desc();

  const auto forward =
      describe<dnnl::inner_product_forward>(prop_kind::forward_training, src, w, bias, dst);
  const auto data = describe_backward<dnnl::inner_product_backward_data>(
      forward, any_desc(src_shape, type), w, diff_dst);
  const bool own_bias = p.bias && dst_shape[0] > kMostObservations;
  const auto filters = describe_backward<dnnl::inner_product_backward_weights>(
      forward, src, diff_w, own_bias ? dnnl::memory::desc() : bias, diff_dst);

  const TensorSpec dst_spec{dst_shape, DType::f32, nullptr};
  const TensorSpec diff_spec = spec_of(diff_dst);
  const TensorSpec bias_spec{bias_shape, DType::f32, nullptr};
  Kernel kernel;
  std::vector<Argument> reads{{DNNL_ARG_SRC, input(0, src_spec)},
                              {DNNL_ARG_WEIGHTS, input(1, spec_of(forward.weights_desc()))}};
  if (p.bias) reads.push_back({DNNL_ARG_BIAS, input(2, bias_spec)});
  kernel.forward = primitive_pass(dnnl::inner_product_forward(forward), scratch_of(forward), reads,
                                  {{DNNL_ARG_DST, output(0, dst_spec)}});
  kernel.backward.push_back(
      primitive_pass(dnnl::inner_product_backward_data(data), scratch_of(data),
                     {{DNNL_ARG_DIFF_DST, diff_output(0, diff_spec)},
                      {DNNL_ARG_WEIGHTS, input(1, spec_of(data.weights_desc()))}},
                     {{DNNL_ARG_DIFF_SRC, diff_input(0, spec_of(data.diff_src_desc()))}}));
  std::vector<Argument> writes{
      {DNNL_ARG_DIFF_WEIGHTS, diff_input(1, spec_of(filters.diff_weights_desc()))}};
  if (p.bias && !own_bias) writes.push_back({DNNL_ARG_DIFF_BIAS, diff_input(2, bias_spec)});
  kernel.backward.push_back(primitive_pass(
      dnnl::inner_product_backward_weights(filters), scratch_of(filters),
      {{DNNL_ARG_SRC, input(0, src_spec)}, {DNNL_ARG_DIFF_DST, diff_output(0, diff_spec)}},
      writes));
  if (own_bias) kernel.backward.push_back(bias_gradient(diff_spec));
  return kernel;
}

}  // namespace

Kernel fully_connected(const FullyConnectedProblem& p) {
  if (p.src.row_major()) {
    return with_elements(p.src.dtype, [&]<class T>(T*) { return by_own_products<T>(p); });
  }
  return translated("fully connected op", [&] { return by_onednn(p); });
}

}  // namespace lockstep::kernels::cpu
