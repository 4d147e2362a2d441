#include <algorithm>

#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {
namespace {

reference::Window window_of(const ops::Convolution2dParams& p, const Array& x,
                            const Array& weights) {
  reference::Window w;
  for (int a = 0; a < 2; ++a) {
    w.stride[a] = p.stride[static_cast<size_t>(a)];
    w.dilation[a] = p.dilation[static_cast<size_t>(a)];
  }
  w.groups = p.groups;
  if (p.padding.same) return same_window(x, weights.dim(2), weights.dim(3), w);
  w.before[0] = p.padding.top;
  w.before[1] = p.padding.left;
  w.after[0] = p.padding.bottom;
  w.after[1] = p.padding.right;
  return w;
}

}  // namespace

Case convolution(std::string name, std::vector<int64_t> x, std::vector<int64_t> weights,
                 const ops::Convolution2dParams& params, bool bias) {
  Case c;
  c.name = std::move(name);
  c.op = ops::make_convolution2d(params, bias);
  c.inputs = {{random_array(x, 1)}, {random_array(weights, 2)}};
  if (bias) c.inputs.push_back({random_array({weights[0]}, 3)});
  // Winograd's algorithm rounds transformed values.
  const bool winograd = weights[2] == 3 && weights[3] == 3 && params.stride == Size2d{1, 1};
  if (winograd && x[0] % 16 == 0 && std::min(x[1], weights[0]) >= 10) c.narrow_error = 2e-2;
  c.forward = [=](const std::vector<Array>& in) {
    return std::vector<Array>{reference::convolution(in[0], in[1], bias ? in[2] : Array(),
                                                     window_of(params, in[0], in[1]))};
  };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    const auto w = window_of(params, in[0], in[1]);
    std::vector<Array> d{reference::convolution_diff_x(in[0], in[1], w, dy),
                         reference::convolution_diff_weights(in[0], in[1], w, dy)};
    if (bias) d.push_back(reference::convolution_diff_bias(dy));
    return d;
  };
  return c;
}

Case fully_connected(std::string name, std::vector<int64_t> x, int64_t units, bool bias) {
  Case c;
  c.name = std::move(name);
  c.op = ops::make_fully_connected(bias);
  int64_t width = 1;
  for (size_t a = 1; a < x.size(); ++a) width *= x[a];
  c.inputs = {{random_array(x, 4)}, {random_array({units, width}, 5)}};
  if (bias) c.inputs.push_back({random_array({units}, 6)});
  c.forward = [=](const std::vector<Array>& in) {
    return std::vector<Array>{reference::fully_connected(in[0], in[1], bias ? in[2] : Array())};
  };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    std::vector<Array> d{reference::fully_connected_diff_x(in[0], in[1], dy),
                         reference::fully_connected_diff_weights(in[0], in[1], dy)};
    if (bias) d.push_back(reference::fully_connected_diff_bias(dy));
    return d;
  };
  return c;
}

std::vector<Case> convolution_cases() {
  using Params = ops::Convolution2dParams;
  return {
      convolution("one_of_everything", {1, 1, 1, 1}, {1, 1, 1, 1}),
      convolution("one_channel", {1, 1, 5, 4}, {1, 1, 3, 3}),
      convolution("odd_sizes", {3, 3, 7, 5}, {7, 3, 3, 3}, {.padding = padding(1)}),
      convolution("channels_11_to_22", {2, 11, 9, 9}, {22, 11, 3, 3}, {.padding = same_padding}),
      convolution("channels_22_to_11", {2, 22, 5, 6}, {11, 22, 3, 3}, {.padding = same_padding}),
      convolution("channels_16_to_16", {2, 16, 6, 6}, {16, 16, 3, 3}, {.padding = padding(1)}),
      convolution("channels_17_to_33", {2, 17, 5, 7}, {33, 17, 3, 3}, {.padding = padding(1)}),
      convolution("channels_3_to_32_batch_16", {16, 3, 8, 8}, {32, 3, 3, 3},
                  {.padding = same_padding}),
      convolution("channels_33_to_1", {1, 33, 4, 3}, {1, 33, 3, 3}, {.padding = padding(1)}),
      // Large enough for Winograd's algorithm on processors that have it. The last case lacks the
      // channels.
      convolution("winograd_32_to_32", {4, 32, 16, 16}, {32, 32, 3, 3}, {.padding = padding(1)}),
      convolution("winograd_odd_sizes", {14, 32, 7, 11}, {48, 32, 3, 3}, {.padding = same_padding}),
      convolution("winograd_without_padding", {9, 64, 13, 12}, {32, 64, 3, 3}, {}, false),
      convolution("channels_33_to_34_many_positions", {5, 33, 15, 14}, {34, 33, 3, 3},
                  {.padding = padding(1)}),
      // Images in the lanes of vectors, on processors with kernels for that.
      convolution("lanes_11_to_22", {16, 11, 8, 8}, {22, 11, 3, 3}, {.padding = padding(1)}),
      convolution("lanes_odd_sizes", {32, 5, 7, 9}, {7, 5, 3, 3}, {.padding = same_padding}, false),
      convolution("lanes_one_row", {16, 3, 1, 5}, {13, 3, 3, 3}, {.padding = padding(1)}),
      convolution("lanes_two_rows_48_images", {48, 17, 2, 4}, {6, 17, 3, 3},
                  {.padding = padding(1)}),
      convolution("lanes_one_filter", {16, 1, 5, 6}, {1, 1, 3, 3}, {.padding = padding(1)}),
      convolution("lanes_winograd_16_to_16", {16, 16, 6, 8}, {16, 16, 3, 3},
                  {.padding = padding(1)}),
      convolution("lanes_winograd_one_row", {16, 17, 1, 4}, {19, 17, 3, 3}, {.padding = padding(1)},
                  false),
      convolution("lanes_winograd_odd_sizes", {32, 18, 5, 7}, {16, 18, 3, 3},
                  {.padding = same_padding}),
      convolution("lanes_33_channels", {16, 33, 9, 12}, {25, 33, 3, 3}, {.padding = padding(1)}),
      convolution("lanes_5x5", {16, 1, 12, 9}, {20, 1, 5, 5}),
      convolution("lanes_stride_2", {32, 16, 9, 8}, {11, 16, 3, 3},
                  {.stride = {2, 2}, .padding = padding(1)}, false),
      convolution("lanes_dilation_2", {16, 3, 9, 11}, {5, 3, 3, 2},
                  {.padding = padding(1), .dilation = {2, 2}}),
      convolution("lanes_7x7_stride_2", {16, 3, 14, 13}, {12, 3, 7, 7},
                  {.stride = {2, 2}, .padding = padding(3)}),
      convolution("lanes_kernel_larger_than_images", {16, 3, 2, 3}, {4, 3, 5, 6},
                  {.padding = same_padding}),
      convolution("lanes_groups_3", {16, 9, 6, 5}, {6, 3, 3, 3},
                  {.padding = padding(1), .groups = 3}),
      convolution("lanes_groups_2_winograd", {16, 22, 8, 8}, {24, 11, 3, 3},
                  {.padding = padding(1), .groups = 2}),
      convolution("lanes_groups_2_stride_2", {32, 34, 7, 9}, {32, 17, 3, 3},
                  {.stride = {2, 2}, .padding = padding(1), .groups = 2}, false),
      convolution("lanes_groups_4_1x1", {16, 8, 5, 4}, {12, 2, 1, 1}, {.groups = 4}),
      convolution("lanes_depthwise", {16, 7, 11, 21}, {7, 1, 3, 3},
                  {.padding = padding(1), .groups = 7}),
      convolution("lanes_depthwise_5x5_without_bias", {32, 3, 9, 10}, {3, 1, 5, 5},
                  {.padding = padding(2), .groups = 3}, false),
      convolution("lanes_depthwise_stride_2", {16, 17, 9, 22}, {17, 1, 3, 3},
                  {.stride = {2, 2}, .padding = same_padding, .groups = 17}),
      convolution("lanes_depthwise_stride_3_dilation_2", {16, 2, 12, 40}, {2, 1, 3, 2},
                  {.stride = {3, 3}, .padding = padding(2), .dilation = {2, 2}, .groups = 2}),
      convolution("lanes_depthwise_three_filters_each", {16, 5, 8, 12}, {15, 1, 3, 3},
                  {.padding = padding(1), .groups = 5}),
      convolution("lanes_depthwise_7x7", {16, 3, 9, 12}, {3, 1, 7, 7},
                  {.padding = padding(3), .groups = 3}),
      convolution("lanes_depthwise_11x11_two_filters_each", {16, 2, 12, 13}, {4, 1, 11, 11},
                  {.padding = padding(5), .groups = 2}),
      convolution("lanes_depthwise_kernel_larger_than_images", {16, 2, 2, 3}, {2, 1, 5, 6},
                  {.padding = {false, 4, 3, 4, 5}, .groups = 2}),
      convolution("lanes_1x1", {16, 11, 5, 4}, {7, 11, 1, 1}),
      convolution("lanes_1x1_without_bias", {32, 3, 4, 7}, {1, 3, 1, 1}, {}, false),
      convolution("lanes_1x1_many_channels", {16, 40, 4, 5}, {33, 40, 1, 1}),
      convolution("lanes_1x1_many_channels_without_bias", {16, 32, 3, 4}, {70, 32, 1, 1}, {},
                  false),
      convolution("lanes_1x1_several_blocks", {16, 64, 16, 9}, {40, 64, 1, 1}),
      convolution("lanes_1x1_several_blocks_without_bias", {16, 24, 19, 21}, {30, 24, 1, 1}, {},
                  false),
      convolution("lanes_1x1_stride_2", {16, 17, 8, 7}, {32, 17, 1, 1}, {.stride = {2, 2}}),
      convolution("wide_images", {1, 3, 2, 750}, {5, 3, 3, 3}, {.padding = padding(1)}),
      convolution("kernel_1x1", {3, 33, 5, 4}, {11, 33, 1, 1}),
      convolution("kernel_1x1_stride_2", {2, 16, 7, 6}, {17, 16, 1, 1}, {.stride = {2, 2}}),
      convolution("kernel_1x1_stride_3_batch_1", {1, 7, 8, 5}, {3, 7, 1, 1}, {.stride = {3, 3}}),
      convolution("kernel_2x2", {2, 7, 5, 6}, {11, 7, 2, 2}),
      convolution("kernel_2x2_same", {2, 3, 5, 6}, {11, 3, 2, 2}, {.padding = same_padding}),
      convolution("kernel_2x2_same_stride_3", {2, 7, 8, 7}, {3, 7, 2, 2},
                  {.stride = {3, 3}, .padding = same_padding}),
      convolution("kernel_3x3_same_stride_2_even", {2, 11, 8, 6}, {22, 11, 3, 3},
                  {.stride = {2, 2}, .padding = same_padding}),
      convolution("kernel_3x3_same_stride_2_odd", {2, 16, 9, 7}, {16, 16, 3, 3},
                  {.stride = {2, 2}, .padding = same_padding}),
      convolution("kernel_5x5_stride_2", {2, 3, 11, 9}, {7, 3, 5, 5},
                  {.stride = {2, 2}, .padding = padding(2)}),
      convolution("kernel_5x5", {1, 16, 7, 7}, {17, 16, 5, 5}),
      convolution("kernel_1x5_stride_2x1", {2, 7, 6, 9}, {11, 7, 1, 5}, {.stride = {2, 1}}),
      convolution("kernel_3x2_stride_1x3_dilation_2x1", {2, 3, 9, 10}, {7, 3, 3, 2},
                  Params{.stride = {1, 3}, .padding = padding(1), .dilation = {2, 1}}),
      convolution("stride_3_leaves_rows_over", {2, 11, 9, 10}, {3, 11, 2, 2}, {.stride = {3, 3}}),
      convolution("dilation_2", {2, 16, 9, 8}, {16, 16, 3, 3},
                  Params{.padding = padding(2), .dilation = {2, 2}}),
      convolution("dilation_3_same", {1, 7, 8, 9}, {11, 7, 3, 3},
                  Params{.padding = same_padding, .dilation = {3, 3}}),
      convolution("dilation_1x2_same_stride_2", {2, 3, 9, 9}, {17, 3, 3, 3},
                  Params{.stride = {2, 2}, .padding = same_padding, .dilation = {1, 2}}),
      convolution("asymmetric_padding", {2, 7, 5, 6}, {11, 7, 3, 3},
                  {.padding = {false, 1, 2, 0, 3}}),
      convolution("asymmetric_padding_stride_2", {2, 16, 6, 5}, {16, 16, 3, 3},
                  {.stride = {2, 2}, .padding = {false, 0, 1, 2, 0}}),
      convolution("kernel_larger_than_the_input", {2, 3, 2, 3}, {7, 3, 5, 5},
                  {.padding = padding(2)}),
      convolution("kernel_covers_the_input", {3, 11, 4, 3}, {7, 11, 4, 3}),
      convolution("padding_wider_than_the_kernel", {2, 3, 3, 4}, {7, 3, 2, 2},
                  {.padding = padding(3)}),
      convolution("input_of_one_pixel", {2, 17, 1, 1}, {11, 17, 3, 3}, {.padding = padding(1)}),
      convolution("without_bias", {2, 11, 5, 5}, {7, 11, 3, 3}, {.padding = padding(1)}, false),
      convolution("without_bias_16", {2, 16, 5, 5}, {32, 16, 3, 3}, {.padding = padding(1)}, false),
      convolution("groups_3", {2, 9, 6, 5}, {6, 3, 3, 3},
                  Params{.padding = padding(1), .groups = 3}),
      convolution("groups_2_of_11", {2, 22, 5, 5}, {22, 11, 3, 3},
                  Params{.padding = padding(1), .groups = 2}),
      convolution("groups_2_of_16_stride_2", {2, 32, 6, 6}, {32, 16, 3, 3},
                  Params{.stride = {2, 2}, .padding = padding(1), .groups = 2}),
      convolution("groups_2_without_bias", {2, 6, 4, 4}, {4, 3, 2, 2}, Params{.groups = 2}, false),
      convolution("depthwise_7", {2, 7, 6, 5}, {7, 1, 3, 3},
                  Params{.padding = padding(1), .groups = 7}),
      convolution("depthwise_16_kernel_5", {2, 16, 7, 7}, {16, 1, 5, 5},
                  Params{.padding = padding(2), .groups = 16}),
      convolution("depthwise_17_stride_2", {2, 17, 7, 6}, {17, 1, 3, 3},
                  Params{.stride = {2, 2}, .padding = same_padding, .groups = 17}),
      convolution("depthwise_33_dilation_2", {1, 33, 7, 7}, {33, 1, 3, 3},
                  Params{.padding = padding(2), .dilation = {2, 2}, .groups = 33}),
      convolution("depthwise_twice_the_filters", {2, 7, 5, 5}, {14, 1, 3, 3},
                  Params{.padding = padding(1), .groups = 7}),
      fully_connected("one_of_everything", {1, 1}, 1),
      fully_connected("odd", {5, 7}, 3),
      fully_connected("batch_1", {1, 33}, 17),
      fully_connected("one_unit", {7, 11}, 1),
      fully_connected("without_bias", {3, 17}, 11, false),
      fully_connected("batch_16_of_64", {16, 64}, 10),
      fully_connected("many_of_everything", {20, 600}, 50),
      fully_connected("rows_300", {300, 5}, 49),
      fully_connected("three_dimensions", {2, 3, 5}, 7),
      fully_connected("five_dimensions", {2, 2, 3, 2, 2}, 3),
      fully_connected("image_of_11_channels", {3, 11, 5, 3}, 6),
      fully_connected("image_of_16_channels", {4, 16, 3, 3}, 10),
      fully_connected("image_of_22_channels", {2, 22, 2, 3}, 11),
      fully_connected("image_of_33_channels_without_bias", {2, 33, 3, 2}, 7, false),
      fully_connected("image_of_one_pixel", {3, 17, 1, 1}, 5),
      fully_connected("image_batch_1", {1, 7, 4, 4}, 1),
  };
}

}  // namespace lockstep::optest
