#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {
namespace {

using Params = ops::TransposedConvolution2dParams;

// The op computes the gradient of this convolution with respect to its input. Returns the
// convolution's window and an input of the right size.
reference::Window window_of(const Params& p, const Array& x, const Array& weights, Array& result) {
  reference::Window w;
  w.groups = p.groups;
  const int64_t given[2][2] = {{p.padding.top, p.padding.bottom},
                               {p.padding.left, p.padding.right}};
  int64_t size[2];
  for (size_t a = 0; a < 2; ++a) {
    const int axis = static_cast<int>(a) + 2;
    w.stride[a] = p.stride[a];
    w.dilation[a] = p.dilation[a];
    const int64_t extent = p.dilation[a] * (weights.dim(axis) - 1) + 1;
    w.before[a] = p.padding.same ? (extent - p.stride[a]) / 2 : given[a][0];
    w.after[a] = p.padding.same ? extent - p.stride[a] - w.before[a] : given[a][1];
    size[a] = p.stride[a] * (x.dim(axis) - 1) + extent - w.before[a] - w.after[a];
  }
  result = Array({x.dim(0), weights.dim(1) * p.groups, size[0], size[1]});
  return w;
}

}  // namespace

Case transposed_convolution(std::string name, std::vector<int64_t> x, std::vector<int64_t> weights,
                            const Params& params, bool bias) {
  Case c;
  c.name = std::move(name);
  c.op = ops::make_transposed_convolution2d(params, bias);
  c.inputs = {{random_array(x, 51)}, {random_array(weights, 52)}};
  if (bias) c.inputs.push_back({random_array({weights[1] * params.groups}, 53)});
  c.forward = [=](const std::vector<Array>& in) {
    Array y;
    const auto w = window_of(params, in[0], in[1], y);
    y = reference::convolution_diff_x(y, in[1], w, in[0]);
    const int64_t plane = y.dim(2) * y.dim(3);
    for (int64_t i = 0; bias && i < y.count(); ++i) y[i] += in[2][i / plane % y.dim(1)];
    return std::vector<Array>{y};
  };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    Array y;
    const auto w = window_of(params, in[0], in[1], y);
    std::vector<Array> d{reference::convolution(dy, in[1], Array(), w),
                         reference::convolution_diff_weights(dy, in[1], w, in[0])};
    if (bias) d.push_back(reference::convolution_diff_bias(dy));
    return d;
  };
  return c;
}

namespace {

Case transposed(std::string name, std::vector<int64_t> x, std::vector<int64_t> weights,
                const Params& params = {}, bool bias = true) {
  return transposed_convolution(std::move(name), std::move(x), std::move(weights), params, bias);
}

}  // namespace

std::vector<Case> transposed_convolution_cases() {
  return {
      transposed("one_of_everything", {1, 1, 1, 1}, {1, 1, 1, 1}),
      transposed("one_channel", {1, 1, 4, 3}, {1, 1, 3, 3}),
      transposed("doubles_32_to_16", {2, 32, 4, 4}, {32, 16, 2, 2}, {.stride = {2, 2}}),
      transposed("doubles_8_to_1_same", {3, 8, 5, 4}, {8, 1, 3, 3},
                 {.stride = {2, 2}, .padding = same_padding}),
      transposed("wide_images", {1, 3, 2, 750}, {3, 5, 3, 3}, {.padding = padding(1)}),
      transposed("odd_channels", {2, 11, 5, 3}, {11, 7, 3, 3}, {.padding = padding(1)}),
      transposed("channels_17_to_33", {2, 17, 3, 4}, {17, 33, 3, 3}, {.stride = {2, 2}}),
      transposed("channels_16_to_16_same", {2, 16, 4, 5}, {16, 16, 3, 3},
                 {.padding = same_padding}),
      transposed("kernel_4_stride_2_padding_1", {2, 7, 4, 3}, {7, 5, 4, 4},
                 {.stride = {2, 2}, .padding = padding(1)}),
      transposed("stride_larger_than_the_kernel", {2, 3, 3, 4}, {3, 11, 2, 2}, {.stride = {3, 3}}),
      transposed("kernel_1x5_stride_2x1", {2, 7, 3, 4}, {7, 11, 1, 5}, {.stride = {2, 1}}),
      transposed("asymmetric_padding", {2, 7, 4, 5}, {7, 3, 3, 3},
                 {.stride = {2, 2}, .padding = {false, 0, 1, 2, 0}}),
      transposed("dilation_2", {2, 3, 4, 4}, {3, 16, 3, 3},
                 {.padding = padding(1), .dilation = {2, 2}}),
      transposed("dilation_1x2_stride_2_same", {1, 3, 4, 5}, {3, 5, 3, 3},
                 {.stride = {2, 2}, .padding = same_padding, .dilation = {1, 2}}),
      transposed("input_of_one_pixel", {2, 17, 1, 1}, {17, 11, 4, 4}),
      transposed("padding_leaves_one_pixel", {2, 3, 1, 1}, {3, 5, 3, 3}, {.padding = padding(1)}),
      transposed("without_bias", {2, 11, 4, 4}, {11, 7, 3, 3}, {.stride = {2, 2}}, false),
      transposed("groups_2", {2, 6, 4, 3}, {6, 5, 3, 3}, {.stride = {2, 2}, .groups = 2}),
      transposed("groups_2_of_16", {2, 32, 3, 3}, {32, 16, 2, 2}, {.stride = {2, 2}, .groups = 2}),
      transposed("groups_3_without_bias", {1, 9, 4, 4}, {9, 2, 3, 3},
                 {.padding = padding(1), .groups = 3}, false),
      transposed("depthwise_7", {2, 7, 4, 3}, {7, 1, 4, 4},
                 {.stride = {2, 2}, .padding = padding(1), .groups = 7}),
  };
}

}  // namespace lockstep::optest
