#include "lockstep/engine/kernels/windows/transposed_convolution.h"

#include "lockstep/base/numeric/alignment.h"
#include "lockstep/engine/kernels/cpu/normalization/channel_sums.h"
#include "lockstep/engine/kernels/cpu/onednn.h"
#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels::cpu {
namespace {

// oneDNN puts the output's channels first, Lockstep the input's. The memory is the same with
// swapped axes.
TensorSpec swapped_spec(const dnnl::memory::desc& desc, bool grouped) {
  return spec_of(
      desc.permute_axes(grouped ? std::vector<int>{0, 2, 1, 3, 4} : std::vector<int>{1, 0, 2, 3}));
}

// oneDNN adds the products of all observations sequentially in f32. If an observation has at least
// this many positions, the observations are divided into parts, whose sums are added. With fewer
// positions, the accuracy is not worth the additional time.
constexpr int64_t kFewestPositions = 256, kMostParts = 32;

int64_t parts_of(const Shape& src) {
  int64_t parts = 1;
  for (int64_t k = 2; k <= kMostParts && src[2] * src[3] >= kFewestPositions; ++k) {
    if (src[0] % k == 0) parts = k;
  }
  return parts;
}

// The sum of the results of `part` over equal parts of the observations. Undefined if the layout of
// a part is unknown.
Pass sum_of_parts(const Pass& part, int64_t parts) {
  Pass pass;
  for (Operand o : part.reads) {
    const auto all = of_more_observations(o.spec, o.spec.shape[0] * parts);
    if (!all) return {};
    o.spec = *all;
    pass.reads.push_back(o);
  }
  pass.writes = part.writes;
  const size_t results = part.writes[0].spec.bytes(), aligned = round_up(results);
  pass.scratch_bytes = aligned + part.scratch_bytes;
  pass.bind = [part, parts, results, aligned](const PassMemory& where) {
    void* const term = where.scratch;
    void* const scratch = static_cast<std::byte*>(where.scratch) + aligned;
    void* const sum = where.writes[0];
    std::vector<BoundPass> all;
    for (int64_t k = 0; k < parts; ++k) {
      std::vector<void*> reads;
      for (size_t i = 0; i < part.reads.size(); ++i) {
        reads.push_back(static_cast<std::byte*>(where.reads[i]) +
                        static_cast<size_t>(k) * part.reads[i].spec.bytes());
      }
      void* const to = k == 0 ? sum : term;
      all.push_back(part.bind({reads, std::span<void* const>(&to, 1), scratch}));
    }
    return BoundPass([all = std::move(all), term, sum, results](const RandomContext& step) {
      for (size_t k = 0; k < all.size(); ++k) {
        all[k](step);
        if (k == 0) continue;
        auto* const total = static_cast<float*>(sum);
        add(total, static_cast<const float*>(term), total, results / sizeof(float));
      }
    });
  };
  return pass;
}

// The problem described for oneDNN.
struct Described {
  bool grouped;
  Shape bias_shape;
  WindowDims window;
  dnnl::memory::desc src, weights, dst, diff_weights, bias;
  dnnl::deconvolution_forward::primitive_desc forward;

  explicit Described(const TransposedConvolutionProblem& p)
      : grouped(p.groups > 1), bias_shape{p.weights[1] * p.groups}, window(p.window) {
    const int64_t ic = p.weights[0] / p.groups, oc = p.weights[1];
    const Shape shape = grouped ? Shape{p.groups, oc, ic, p.weights[2], p.weights[3]}
                                : Shape{oc, ic, p.weights[2], p.weights[3]};
    const DType type = p.src.dtype;
    src = any_desc(p.src.shape, type);
    weights = any_desc(shape, type);
    dst = any_desc(p.dst, type);
    diff_weights = any_desc(shape);
    if (p.bias) bias = plain_desc(bias_shape);
    forward = describe<dnnl::deconvolution_forward>(
        dnnl::prop_kind::forward_training, kDirect, src, weights, bias, dst, window.strides,
        window.dilates, window.pad_begin, window.pad_end);
  }

  static constexpr auto kDirect = dnnl::algorithm::deconvolution_direct;

  Argument weights_argument(int name, const dnnl::memory::desc& desc,
                            Operand (*operand)(int, TensorSpec)) const {
    return {name, operand(1, swapped_spec(desc, grouped)), desc};
  }
};

// The gradient of the weights only, over all observations at once.
Pass weights_gradient(const TransposedConvolutionProblem& p) {
  // oneDNN computes it as a convolution from the results to the images.
  if (p.src.dtype == DType::bf16 && weights_gradient_fails_in_bf16(p.window, p.dst, p.src.shape)) {
    TransposedConvolutionProblem in_f32 = p;
    in_f32.src = {p.src.shape, DType::f32, nullptr};
    return weights_gradient(in_f32);
  }
  const Described d(p);
  const auto filters = describe_backward<dnnl::deconvolution_backward_weights>(
      d.forward, Described::kDirect, d.src, d.diff_weights, dnnl::memory::desc(), d.dst,
      d.window.strides, d.window.dilates, d.window.pad_begin, d.window.pad_end);
  return primitive_pass(
      dnnl::deconvolution_backward_weights(filters), scratch_of(filters),
      {{DNNL_ARG_SRC, input(0, spec_of(filters.src_desc()))},
       {DNNL_ARG_DIFF_DST, diff_output(0, spec_of(filters.diff_dst_desc()))}},
      {d.weights_argument(DNNL_ARG_DIFF_WEIGHTS, filters.diff_weights_desc(), diff_input)});
}

Pass weights_gradient_by_parts(const TransposedConvolutionProblem& p) {
  const int64_t parts = parts_of(p.src.shape);
  if (parts > 1) {
    TransposedConvolutionProblem part = p;
    part.src = {p.src.shape.with_batch(p.src.shape[0] / parts), p.src.dtype, nullptr};
    part.dst = p.dst.with_batch(p.dst[0] / parts);
    const Pass sum = sum_of_parts(weights_gradient(part), parts);
    if (sum.defined()) return sum;
  }
  return weights_gradient(p);
}

Kernel make_transposed_convolution(const TransposedConvolutionProblem& p) {
  SingleThread one;
  const Described d(p);
  const auto data = describe_backward<dnnl::deconvolution_backward_data>(
      d.forward, Described::kDirect, d.src, d.weights, d.dst, d.window.strides, d.window.dilates,
      d.window.pad_begin, d.window.pad_end);
  Kernel kernel;
  std::vector<Argument> reads{
      {DNNL_ARG_SRC, input(0, spec_of(d.forward.src_desc()))},
      d.weights_argument(DNNL_ARG_WEIGHTS, d.forward.weights_desc(), input)};
  if (p.bias) reads.push_back({DNNL_ARG_BIAS, input(2, {d.bias_shape, DType::f32, nullptr})});
  kernel.forward =
      primitive_pass(dnnl::deconvolution_forward(d.forward), scratch_of(d.forward), reads,
                     {{DNNL_ARG_DST, output(0, spec_of(d.forward.dst_desc()))}});
  kernel.backward.push_back(
      primitive_pass(dnnl::deconvolution_backward_data(data), scratch_of(data),
                     {{DNNL_ARG_DIFF_DST, diff_output(0, spec_of(data.diff_dst_desc()))},
                      d.weights_argument(DNNL_ARG_WEIGHTS, data.weights_desc(), input)},
                     {{DNNL_ARG_DIFF_SRC, diff_input(0, spec_of(data.diff_src_desc()))}}));
  kernel.backward.push_back(weights_gradient_by_parts(p));
  // oneDNN would add a channel's elements sequentially in f32.
  if (p.bias) {
    const Pass& weights = kernel.backward.back();
    kernel.backward.push_back(bias_gradient(weights.reads[1].spec));
  }
  return kernel;
}

}  // namespace

Kernel transposed_convolution(const TransposedConvolutionProblem& p) {
  return translated("transposed convolution", [&] { return make_transposed_convolution(p); });
}

}  // namespace lockstep::kernels::cpu
