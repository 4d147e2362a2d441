#include "lockstep/engine/kernels/convolution.h"

#include "lockstep/engine/kernels/cpu/cpu.h"
#include "lockstep/engine/kernels/cpu/onednn.h"

namespace lockstep::kernels::cpu {

Kernel convolution(const ConvolutionProblem& p) {
  SingleThread one;
  using dnnl::algorithm, dnnl::prop_kind;
  const int64_t n_groups = p.groups;
  // Grouped weights have a dimension of their own for the group; the elements are the same.
  Shape weights = p.weights;
  if (n_groups > 1) {
    weights = Shape{n_groups, p.weights[0] / n_groups, p.weights[1], p.weights[2], p.weights[3]};
  }
  const Shape bias_shape{p.weights[0]};
  const dnnl::memory::dims strides{p.window.stride[0], p.window.stride[1]};
  const dnnl::memory::dims dilates{p.window.dilation[0] - 1, p.window.dilation[1] - 1};
  const dnnl::memory::dims pad_l{p.window.pad_begin[0], p.window.pad_begin[1]};
  const dnnl::memory::dims pad_r{p.window.pad_end[0], p.window.pad_end[1]};
  const auto src = any_desc(p.src.shape), w = any_desc(weights), dst = any_desc(p.dst);
  const auto bias = p.bias ? plain_desc(bias_shape) : dnnl::memory::desc();

  const auto forward = describe<dnnl::convolution_forward>(
      prop_kind::forward_training, algorithm::convolution_direct, src, w, bias, dst, strides,
      dilates, pad_l, pad_r);
  const auto data = describe_backward<dnnl::convolution_backward_data>(
      forward, algorithm::convolution_direct, src, w, dst, strides, dilates, pad_l, pad_r);
  const auto filters = describe_backward<dnnl::convolution_backward_weights>(
      forward, algorithm::convolution_direct, src, w, bias, dst, strides, dilates, pad_l, pad_r);

  const TensorSpec bias_spec{bias_shape, DType::f32, nullptr};
  Kernel kernel;
  std::vector<Argument> reads{{DNNL_ARG_SRC, input(0, spec_of(forward.src_desc()))},
                              {DNNL_ARG_WEIGHTS, input(1, spec_of(forward.weights_desc()))}};
  if (p.bias) reads.push_back({DNNL_ARG_BIAS, input(2, bias_spec)});
  kernel.forward = primitive_pass(dnnl::convolution_forward(forward), scratch_of(forward), reads,
                                  {{DNNL_ARG_DST, output(0, spec_of(forward.dst_desc()))}});

  kernel.backward.push_back(
      primitive_pass(dnnl::convolution_backward_data(data), scratch_of(data),
                     {{DNNL_ARG_DIFF_DST, diff_output(0, spec_of(data.diff_dst_desc()))},
                      {DNNL_ARG_WEIGHTS, input(1, spec_of(data.weights_desc()))}},
                     {{DNNL_ARG_DIFF_SRC, diff_input(0, spec_of(data.diff_src_desc()))}}));

  std::vector<Argument> writes{
      {DNNL_ARG_DIFF_WEIGHTS, diff_input(1, spec_of(filters.diff_weights_desc()))}};
  if (p.bias) writes.push_back({DNNL_ARG_DIFF_BIAS, diff_input(2, bias_spec)});
  kernel.backward.push_back(
      primitive_pass(dnnl::convolution_backward_weights(filters), scratch_of(filters),
                     {{DNNL_ARG_SRC, input(0, spec_of(filters.src_desc()))},
                      {DNNL_ARG_DIFF_DST, diff_output(0, spec_of(filters.diff_dst_desc()))}},
                     writes));
  return kernel;
}

}  // namespace lockstep::kernels::cpu
