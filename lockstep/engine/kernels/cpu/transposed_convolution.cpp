#include "lockstep/engine/kernels/transposed_convolution.h"

#include "lockstep/engine/kernels/cpu/cpu.h"
#include "lockstep/engine/kernels/cpu/onednn.h"

namespace lockstep::kernels::cpu {
namespace {

// oneDNN puts the output's channels first, Lockstep the input's: the same memory, axes swapped.
TensorSpec swapped_spec(const dnnl::memory::desc& desc, bool grouped) {
  return spec_of(
      desc.permute_axes(grouped ? std::vector<int>{0, 2, 1, 3, 4} : std::vector<int>{1, 0, 2, 3}));
}

}  // namespace

Kernel transposed_convolution(const TransposedConvolutionProblem& p) {
  SingleThread one;
  using dnnl::algorithm, dnnl::prop_kind;
  constexpr auto direct = algorithm::deconvolution_direct;
  const bool grouped = p.groups > 1;
  const int64_t ic = p.weights[0] / p.groups, oc = p.weights[1];
  const Shape weights = grouped ? Shape{p.groups, oc, ic, p.weights[2], p.weights[3]}
                                : Shape{oc, ic, p.weights[2], p.weights[3]};
  const Shape bias_shape{oc * p.groups};
  const WindowDims window(p.window);
  const auto &strides = window.strides, &dilates = window.dilates, &pad_l = window.pad_begin,
             &pad_r = window.pad_end;
  const DType type = p.src.dtype;
  const auto src = any_desc(p.src.shape, type), w = any_desc(weights, type),
             dst = any_desc(p.dst, type), diff_w = any_desc(weights);
  const auto bias = p.bias ? plain_desc(bias_shape) : dnnl::memory::desc();

  const auto forward = describe<dnnl::deconvolution_forward>(
      prop_kind::forward_training, direct, src, w, bias, dst, strides, dilates, pad_l, pad_r);
  const auto data = describe_backward<dnnl::deconvolution_backward_data>(
      forward, direct, src, w, dst, strides, dilates, pad_l, pad_r);
  const auto filters = describe_backward<dnnl::deconvolution_backward_weights>(
      forward, direct, src, diff_w, bias, dst, strides, dilates, pad_l, pad_r);

  const TensorSpec bias_spec{bias_shape, DType::f32, nullptr};
  const auto weights_argument = [&](int name, const dnnl::memory::desc& desc, auto operand) {
    return Argument{name, operand(1, swapped_spec(desc, grouped)), desc};
  };
  Kernel kernel;
  std::vector<Argument> reads{{DNNL_ARG_SRC, input(0, spec_of(forward.src_desc()))},
                              weights_argument(DNNL_ARG_WEIGHTS, forward.weights_desc(), input)};
  if (p.bias) reads.push_back({DNNL_ARG_BIAS, input(2, bias_spec)});
  kernel.forward = primitive_pass(dnnl::deconvolution_forward(forward), scratch_of(forward), reads,
                                  {{DNNL_ARG_DST, output(0, spec_of(forward.dst_desc()))}});

  kernel.backward.push_back(
      primitive_pass(dnnl::deconvolution_backward_data(data), scratch_of(data),
                     {{DNNL_ARG_DIFF_DST, diff_output(0, spec_of(data.diff_dst_desc()))},
                      weights_argument(DNNL_ARG_WEIGHTS, data.weights_desc(), input)},
                     {{DNNL_ARG_DIFF_SRC, diff_input(0, spec_of(data.diff_src_desc()))}}));

  std::vector<Argument> writes{
      weights_argument(DNNL_ARG_DIFF_WEIGHTS, filters.diff_weights_desc(), diff_input)};
  if (p.bias) writes.push_back({DNNL_ARG_DIFF_BIAS, diff_input(2, bias_spec)});
  kernel.backward.push_back(
      primitive_pass(dnnl::deconvolution_backward_weights(filters), scratch_of(filters),
                     {{DNNL_ARG_SRC, input(0, spec_of(filters.src_desc()))},
                      {DNNL_ARG_DIFF_DST, diff_output(0, spec_of(filters.diff_dst_desc()))}},
                     writes));
  return kernel;
}

}  // namespace lockstep::kernels::cpu
