#include "lockstep/engine/kernels/windows/convolution.h"

#include <algorithm>
#include <type_traits>

#include "lockstep/engine/kernels/cpu/batch_lanes/convolution.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/depthwise.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/pointwise.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/weights.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/winograd.h"
#include "lockstep/engine/kernels/cpu/normalization/channel_sums.h"
#include "lockstep/engine/kernels/cpu/onednn.h"
#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {

Kernel convolution(const ConvolutionProblem& p);
namespace {

// Source and weights of a forward or backward-weights pass, with descriptors of the memory as the
// primitive sees it.
struct Operands {
  TensorSpec src, weights;
  std::optional<dnnl::memory::desc> src_seen, weights_seen;
};

// With 4 to 15 input channels, oneDNN 2.6 uses slower kernels in other layouts instead of its
// blocked AVX-512 kernels. Blocked memory is padded to 16 channels with zeros anyway. The same
// memory with 16 channels gives the same sums, because the additional products are 0. Measured for
// whole networks (Cascade Lake): a tenth faster with 9 and 11 channels, a twentieth slower with 8.
constexpr int64_t kBlockOfChannels = 16;

bool seen_as_a_block(const ConvolutionProblem& p) {
  const int64_t channels = p.src.shape[1];
  return p.src.dtype == DType::f32 && p.window.axes() == 2 && p.groups == 1 && channels > 8 &&
         channels < kBlockOfChannels && uses(dnnl_cpu_isa_avx512_core);
}

Operands as_a_block(const ConvolutionProblem& p) {
  using Tag = dnnl::memory::format_tag;
  constexpr auto f32 = dnnl::memory::data_type::f32;
  const dnnl::memory::dims src = dims_of(p.src.shape), weights = dims_of(p.weights);
  dnnl::memory::dims wide_src = src, wide_weights = weights;
  wide_src[1] = wide_weights[1] = kBlockOfChannels;
  return {spec_of({src, f32, Tag::aBcd16b}), spec_of({weights, f32, Tag::ABcd16b16a}),
          dnnl::memory::desc(wide_src, f32, Tag::aBcd16b),
          dnnl::memory::desc(wide_weights, f32, Tag::ABcd16b16a)};
}

// Winograd's F(4x4, 3x3) (Lavin, Gray 2016) needs a quarter of the direct algorithm's
// multiplications, but has three to six times its rounding error (1e-6 by norm instead of 2e-7). In
// measurements of 60 shapes with one thread (Zen 5) it was faster from 32 channels in and out and
// enough positions on. Nothing is timed at run time, so equal shapes always use the same algorithm.
constexpr int64_t kWinogradChannels = 32, kWinogradPositions = 1'000;
constexpr size_t kWinogradScratch = 64u << 20;

bool winograd_pays(const ConvolutionProblem& p) {
  const auto& w = p.window;
  // Windows with another number of axes compare unequal.
  const bool fits = w.kernel == Size2d{3, 3} && w.stride == Size2d{1, 1} &&
                    w.dilation == Size2d{1, 1} && p.groups == 1;
  return fits && p.src.dtype == DType::f32 &&
         std::min(p.src.shape[1], p.weights[0]) >= kWinogradChannels &&
         p.dst[0] * p.dst[2] * p.dst[3] >= kWinogradPositions;
}

// Limits for images in lanes. The speed of such convolutions per channel does not depend on the
// number of channels. Winograd's algorithm is faster than oneDNN. Other convolutions alone are up
// to a third slower than oneDNN (docs/benchmarks.md), but a network keeps one layout. Narrow
// results leave too few columns. With few rows or channels, Winograd's algorithm transforms more
// than it multiplies; it also needs tiles for half of the vectors that it processes at once.
// Gradients of weights do not need those tiles, but keep 36 sums per window, which grow with the
// product of the channels. The direct algorithm copies rows, for bf16 those of all channels.
// Problems with more than kMostRows bytes of rows would be slow in any case.
constexpr int64_t kFewestColumns = 4, kFewestChannels = 10, kFewestForWeights = 16;
constexpr size_t kMostSums = 16u << 20, kMostRows = 16u << 20;

// The convolution of one group.
LanesConvolution lanes_of(const ConvolutionProblem& p) {
  return {.n = p.src.shape[0],
          .channels = p.src.shape[1] / p.groups,
          .filters = p.weights[0] / p.groups,
          .rows = p.src.shape[2],
          .columns = p.src.shape[3],
          .result_rows = p.dst[2],
          .result_columns = p.dst[3],
          .window = p.window,
          .dtype = p.src.dtype};
}

bool lanes_pay(const ConvolutionProblem& p) {
  const auto& w = p.window;
  const bool type = p.src.dtype == DType::f32 || (p.src.dtype == DType::bf16 && computes_bf16());
  if (!lanes_are_chosen() || !type || w.axes() != 2 ||
      *std::max_element(w.kernel.begin(), w.kernel.end()) > LanesConvolution::kMostKernel ||
      p.src.shape[0] % least_images(p.src.dtype) != 0 || p.dst[3] < kFewestColumns) {
    return false;
  }
  const LanesConvolution of = lanes_of(p);
  return std::max(of.scratch(false), of.scratch(true)) <= kMostRows;
}

// Whether the tiles fill half of the vectors that Winograd's algorithm processes at once.
bool fills_winograd(const LanesConvolution& p) {
  const int64_t tiles = (p.rows + kWinogradTile - 1) / kWinogradTile *
                        ((p.columns + kWinogradTile - 1) / kWinogradTile);
  return 2 * tiles * p.n >= kWinogradUnits * kLanes;
}

// Start of the operands of group `number`, given those of the first group.
struct Group {
  const LanesConvolution& of;
  int64_t number;
  size_t packed;  // bytes of one group's weights

  template <class T>
  T* images(T* first) const {
    return step(first, of.channels * of.rows * of.columns * of.n);
  }
  template <class T>
  T* results(T* first) const {
    return step(first, of.filters * of.result_rows * of.result_columns * of.n);
  }
  const std::byte* weights(const void* first) const {
    return static_cast<const std::byte*>(first) + static_cast<size_t>(number) * packed;
  }
  template <class T>
  T* gradient(T* first) const {
    return first + number * of.filters * of.channels * of.window_elements();
  }
  template <class T>
  T* bias(T* first) const {
    return first ? first + number * of.filters : nullptr;
  }

 private:
  template <class T>
  T* step(T* first, int64_t elements) const {
    using Raw = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    return static_cast<Raw*>(first) + number * elements * static_cast<int64_t>(size_of(of.dtype));
  }
};

bool is_depthwise(const ConvolutionProblem& p) {
  return p.groups > 1 && p.groups == p.src.shape[1];
}

// Depthwise convolutions support images in lanes, so that networks with them keep the layout.
Kernel depthwise_in_lanes(const ConvolutionProblem& p) {
  LanesConvolution all = lanes_of(p);
  const LanesConvolution one = all;
  all.channels *= p.groups;
  all.filters *= p.groups;
  const TensorSpec src = lanes_spec(p.src.shape, all.dtype), dst = lanes_spec(p.dst, all.dtype),
                   weights = plain_spec(p.weights), bias = plain_spec(Shape{p.weights[0]});
  std::vector<Operand> reads{input(0, src), input(1, weights)}, writes{diff_input(1, weights)};
  if (p.bias) {
    reads.push_back(input(2, bias));
    writes.push_back(diff_input(2, bias));
  }
  Kernel kernel;
  kernel.forward =
      own_pass_with_scratch(reads, {output(0, dst)}, lanes_depthwise_scratch(all, false),
                            [all, biased = p.bias](void* const* r, void* const* w, void* scratch) {
                              lanes_depthwise(all, r[0], in(r, 1), biased ? in(r, 2) : nullptr,
                                              w[0], static_cast<float*>(scratch));
                            });
  kernel.backward.push_back(own_pass_with_scratch(
      {diff_output(0, dst), input(1, weights)}, {diff_input(0, src)},
      lanes_depthwise_scratch(all, true), [all](void* const* r, void* const* w, void* scratch) {
        lanes_depthwise_data(all, r[0], in(r, 1), w[0], static_cast<float*>(scratch));
      }));
  kernel.backward.push_back(own_pass_with_scratch(
      {input(0, src), diff_output(0, dst)}, writes, one.weights_scratch(),
      [=, groups = p.groups, biased = p.bias](void* const* r, void* const* w, void* scratch) {
        for (int64_t g = 0; g < groups; ++g) {
          const Group group{one, g, 0};
          lanes_convolution_weights(one, group.images<const void>(r[0]),
                                    group.results<const void>(r[1]), group.gradient(out(w, 0)),
                                    static_cast<float*>(scratch));
        }
        if (biased) lanes_convolution_bias(all, r[1], out(w, 1));
      }));
  return kernel;
}

Kernel convolution_in_lanes(const ConvolutionProblem& p) {
  const Window& window = p.window;
  const LanesConvolution of = lanes_of(p);
  const int64_t fewest = std::min(of.channels, of.filters);
  const bool fits = window.kernel == Size2d{3, 3} && window.stride == Size2d{1, 1} &&
                    window.dilation == Size2d{1, 1} && window.pad_begin == Size2d{1, 1} &&
                    window.pad_end == Size2d{1, 1} && of.rows >= kFewestColumns;
  const bool winograd = fits && fewest >= kFewestChannels && fills_winograd(of);
  const auto weights = [&](bool turned) {
    return lanes_weights_spec({.channels = of.channels,
                               .filters = of.filters,
                               .rows = window.kernel[0],
                               .columns = window.kernel[1],
                               .turned = turned,
                               .winograd = winograd,
                               .groups = p.groups,
                               .dtype = of.dtype});
  };
  const int64_t groups = p.groups;
  const size_t packed = weights(false).bytes() / static_cast<size_t>(groups),
               packed_turned = weights(true).bytes() / static_cast<size_t>(groups);
  const TensorSpec src = lanes_spec(p.src.shape, of.dtype), dst = lanes_spec(p.dst, of.dtype),
                   plain = plain_spec(p.weights), bias = plain_spec(Shape{p.weights[0]});
  std::vector<Operand> reads{input(0, src), input(1, weights(false))};
  std::vector<Operand> writes{diff_input(1, plain)};
  if (p.bias) {
    reads.push_back(input(2, bias));
    writes.push_back(diff_input(2, bias));
  }
  const LanesWinograd there{of.n, of.channels, of.filters, of.rows, of.columns, of.dtype},
      back{of.n, of.filters, of.channels, of.rows, of.columns, of.dtype};
  const bool winograd_weights =
      fits && fewest >= kFewestForWeights && there.weights_scratch() <= kMostSums;
  Kernel kernel;
  kernel.forward = own_pass_with_scratch(
      reads, {output(0, dst)}, winograd ? there.scratch() : of.scratch(false),
      [=, biased = p.bias](void* const* r, void* const* w, void* scratch) {
        for (int64_t g = 0; g < groups; ++g) {
          const Group group{of, g, packed};
          const float* const b = group.bias<const float>(biased ? in(r, 2) : nullptr);
          const void *const x = group.images(r[0]), *const weights_of = group.weights(r[1]);
          void* const y = group.results(w[0]);
          if (winograd) {
            lanes_winograd(there, x, weights_of, b, y, static_cast<float*>(scratch));
          } else {
            lanes_convolution(of, x, weights_of, b, y, static_cast<float*>(scratch));
          }
        }
      });
  kernel.backward.push_back(own_pass_with_scratch(
      {diff_output(0, dst), input(1, weights(true))}, {diff_input(0, src)},
      winograd ? back.scratch() : of.scratch(true),
      [=](void* const* r, void* const* w, void* scratch) {
        for (int64_t g = 0; g < groups; ++g) {
          const Group group{of, g, packed_turned};
          const void *const dy = group.results(r[0]), *const weights_of = group.weights(r[1]);
          void* const dx = group.images(w[0]);
          if (winograd) {
            lanes_winograd(back, dy, weights_of, nullptr, dx, static_cast<float*>(scratch));
          } else {
            lanes_convolution_data(of, dy, weights_of, dx, static_cast<float*>(scratch));
          }
        }
      }));
  kernel.backward.push_back(own_pass_with_scratch(
      {input(0, src), diff_output(0, dst)}, writes,
      winograd_weights ? there.weights_scratch() : of.weights_scratch(),
      [=, biased = p.bias](void* const* r, void* const* w, void* scratch) {
        auto* const memory = static_cast<float*>(scratch);
        for (int64_t g = 0; g < groups; ++g) {
          const Group group{of, g, 0};
          const void *const x = group.images(r[0]), *const dy = group.results(r[1]);
          float* const dw = group.gradient(out(w, 0));
          if (winograd_weights) {
            lanes_winograd_weights(there, x, dy, dw, memory);
          } else {
            lanes_convolution_weights(of, x, dy, dw, memory);
          }
          if (biased) lanes_convolution_bias(of, dy, group.bias(out(w, 1)));
        }
      }));
  return kernel;
}

// Calls `describe` with Winograd's algorithm if `winograd` is set, the algorithm exists for this
// shape and processor, and it needs little memory. Otherwise calls it with the direct algorithm.
template <class Describe>
auto with_algorithm(bool winograd, const Describe& describe) {
  if (winograd) {
    try {
      auto described = describe(dnnl::algorithm::convolution_winograd);
      if (scratch_of(described) <= kWinogradScratch) return described;
    } catch (const dnnl::error& e) {
      // Not available for this shape or processor. Other errors must not affect the choice of the
      // algorithm.
      if (e.status != dnnl_unimplemented) throw;
    }
  }
  return describe(dnnl::algorithm::convolution_direct);
}

Kernel make_convolution(const ConvolutionProblem& p) {
  if (lanes_pay(p)) {
    return is_pointwise(p)   ? lanes_pointwise(p)
           : is_depthwise(p) ? depthwise_in_lanes(p)
                             : convolution_in_lanes(p);
  }
  SingleThread one;
  using dnnl::algorithm, dnnl::prop_kind;
  const int64_t n_groups = p.groups;
  // Grouped weights have an additional dimension for the group. Their elements are the same.
  Shape weights = p.weights;
  if (n_groups > 1) {
    weights = batch_shape(n_groups, p.weights.with_batch(p.weights[0] / n_groups));
  }
  const Shape bias_shape{p.weights[0]};
  const WindowDims window(p.window);
  const auto &strides = window.strides, &dilates = window.dilates, &pad_l = window.pad_begin,
             &pad_r = window.pad_end;
  const DType type = p.src.dtype;
  const auto src = any_desc(p.src.shape, type), w = any_desc(weights, type),
             dst = any_desc(p.dst, type);
  // Gradients of weights are long sums, so they are f32 for all types.
  const auto diff_w = any_desc(weights);
  const auto bias = p.bias ? plain_desc(bias_shape) : dnnl::memory::desc();
  const bool in_f32 =
      type == DType::bf16 && weights_gradient_fails_in_bf16(p.window, p.src.shape, p.dst);
  const bool own_bias = p.bias && (in_f32 || p.dst.elements() / p.dst[1] > kMostSummedInF32);
  const auto diff_bias = own_bias ? dnnl::memory::desc() : bias;

  const bool winograd = winograd_pays(p);
  const auto describe_forward = [&](const auto& s, const auto& f) {
    return with_algorithm(winograd, [&](algorithm how) {
      return describe<dnnl::convolution_forward>(prop_kind::forward_training, how, s, f, bias, dst,
                                                 strides, dilates, pad_l, pad_r);
    });
  };
  const auto any = describe_forward(src, w);
  const auto data = with_algorithm(winograd, [&](algorithm how) {
    return describe_backward<dnnl::convolution_backward_data>(any, how, src, w, dst, strides,
                                                              dilates, pad_l, pad_r);
  });
  Operands wide;
  if (seen_as_a_block(p)) wide = as_a_block(p);
  const auto& seen_src = wide.src_seen ? *wide.src_seen : src;
  const auto& seen_weights = wide.weights_seen ? *wide.weights_seen : w;
  const auto& seen_diff = wide.weights_seen ? *wide.weights_seen : diff_w;
  const auto forward = wide.src_seen ? describe_forward(seen_src, seen_weights) : any;
  const auto filters = with_algorithm(winograd, [&](algorithm how) {
    return describe_backward<dnnl::convolution_backward_weights>(
        forward, how, seen_src, seen_diff, diff_bias, dst, strides, dilates, pad_l, pad_r);
  });
  // Given layouts, or else the layouts that the primitives chose.
  const auto spec_or = [](const TensorSpec& told, const dnnl::memory::desc& chosen) {
    return told.layout ? told : spec_of(chosen);
  };

  const TensorSpec bias_spec{bias_shape, DType::f32, nullptr};
  Kernel kernel;
  std::vector<Argument> reads{
      {DNNL_ARG_SRC, input(0, spec_or(wide.src, forward.src_desc())), wide.src_seen},
      {DNNL_ARG_WEIGHTS, input(1, spec_or(wide.weights, forward.weights_desc())),
       wide.weights_seen}};
  if (p.bias) reads.push_back({DNNL_ARG_BIAS, input(2, bias_spec)});
  kernel.forward = primitive_pass(dnnl::convolution_forward(forward), scratch_of(forward), reads,
                                  {{DNNL_ARG_DST, output(0, spec_of(forward.dst_desc()))}});

  kernel.backward.push_back(
      primitive_pass(dnnl::convolution_backward_data(data), scratch_of(data),
                     {{DNNL_ARG_DIFF_DST, diff_output(0, spec_of(data.diff_dst_desc()))},
                      {DNNL_ARG_WEIGHTS, input(1, spec_of(data.weights_desc()))}},
                     {{DNNL_ARG_DIFF_SRC, diff_input(0, spec_of(data.diff_src_desc()))}}));

  std::vector<Argument> writes{{DNNL_ARG_DIFF_WEIGHTS,
                                diff_input(1, spec_or(wide.weights, filters.diff_weights_desc())),
                                wide.weights_seen}};
  if (p.bias && !own_bias) writes.push_back({DNNL_ARG_DIFF_BIAS, diff_input(2, bias_spec)});
  const TensorSpec diff_dst = spec_of(filters.diff_dst_desc());
  if (in_f32) {
    ConvolutionProblem weights_alone = p;
    weights_alone.src = {p.src.shape, DType::f32, nullptr};
    weights_alone.bias = false;
    kernel.backward.push_back(convolution(weights_alone).backward.back());
  } else {
    kernel.backward.push_back(primitive_pass(
        dnnl::convolution_backward_weights(filters), scratch_of(filters),
        {{DNNL_ARG_SRC, input(0, spec_or(wide.src, filters.src_desc())), wide.src_seen},
         {DNNL_ARG_DIFF_DST, diff_output(0, diff_dst)}},
        writes));
  }
  if (own_bias) kernel.backward.push_back(bias_gradient(diff_dst));
  return kernel;
}

}  // namespace

Kernel convolution(const ConvolutionProblem& p) {
  return translated("convolution", [&] { return make_convolution(p); });
}

}  // namespace lockstep::kernels::cpu
