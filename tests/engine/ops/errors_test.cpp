// Every op refuses invalid inputs. The message names the op and the input.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep {
namespace {

Tensor of(const Shape& shape, DType dtype = DType::f32) { return Tensor::zeros(shape, dtype); }

struct Row {
  std::string name;
  std::function<void()> call;
  std::vector<std::string> message;  // its parts, first the op in brackets
};

void PrintTo(const Row& row, std::ostream* to) { *to << row.name; }

std::vector<Row> rows() {
  using namespace ops;
  const Tensor image = of({2, 6, 5, 7}), none;
  const auto conv = [=](const Shape& weights, const Shape& bias,
                        const Convolution2dParams& p = {}) {
    return [=] { convolution2d(image, of(weights), of(bias), p); };
  };
  const auto transposed = [=](const Shape& weights, const Shape& bias,
                              const TransposedConvolution2dParams& p = {}) {
    return [=] { transposed_convolution2d(image, of(weights), of(bias), p); };
  };
  return {
      {"conv_channels",
       conv({8, 3, 3, 3}, {8}),
       {"[convolution2d]", "3 input channels", "has 6", "2x6x5x7", "8x3x3x3"}},
      {"conv_input_rank",
       [] {
         convolution2d(of({6, 5, 7}), of({8, 6, 3, 3}), {});
       },
       {"[convolution2d]", "6x5x7"}},
      {"conv_empty_input",
       [] {
         convolution2d(of({0, 6, 5, 7}), of({8, 6, 3, 3}), {});
       },
       {"[convolution2d]", "0x6x5x7"}},
      {"conv_weights_rank", conv({8, 6, 9}, {8}), {"[convolution2d]", "8x6x9"}},
      {"conv_bias", conv({8, 6, 3, 3}, {7}), {"[convolution2d]", "8 elements", "received 7"}},
      {"conv_bias_rank", conv({8, 6, 3, 3}, {8, 1}), {"[convolution2d]", "8x1"}},
      {"conv_groups_and_channels",
       conv({8, 1, 3, 3}, {8}, {.groups = 4}),
       {"[convolution2d]", "4 groups", "2x6x5x7", "8x1x3x3"}},
      {"conv_groups_and_filters",
       conv({8, 2, 3, 3}, {8}, {.groups = 3}),
       {"[convolution2d]", "3 groups", "8x2x3x3"}},
      {"conv_no_groups", conv({8, 6, 3, 3}, {8}, {.groups = 0}), {"[convolution2d]", "0 groups"}},
      {"conv_does_not_fit", conv({8, 6, 6, 3}, {8}), {"[convolution2d]", "6x3", "5x7"}},
      {"conv_dilated_does_not_fit",
       conv({8, 6, 3, 3}, {8}, {.dilation = {3, 1}}),
       {"[convolution2d]", "3x3", "3x1", "5x7"}},
      {"conv_stride",
       conv({8, 6, 3, 3}, {8}, {.stride = {1, 0}}),
       {"[convolution2d]", "stride", "1x0"}},
      {"conv_dilation",
       conv({8, 6, 3, 3}, {8}, {.dilation = {0, 1}}),
       {"[convolution2d]", "dilation", "0x1"}},
      {"conv_padding",
       conv({8, 6, 3, 3}, {8}, {.padding = {false, 0, -2, 0, 0}}),
       {"[convolution2d]", "padding", "-2"}},
      {"conv_padding_huge",
       conv({8, 6, 3, 3}, {8}, {.padding = padding(std::numeric_limits<int64_t>::max())}),
       {"[convolution2d]", "padding", "at most 1048576", "9223372036854775807"}},
      {"conv_padding_same_huge",
       conv({8, 6, 3, 3}, {8}, {.padding = same_padding, .dilation = {1, 1 << 30}}),
       {"[convolution2d]", "padding", "at most 1048576"}},
      {"conv_stride_huge",
       conv({8, 6, 3, 3}, {8}, {.stride = {1, int64_t{1} << 62}}),
       {"[convolution2d]", "stride", "at most 2^30"}},
      {"conv_undefined",
       [=] { convolution2d(image, none, none); },
       {"[convolution2d]", "undefined"}},
      {"conv_type",
       [] {
         convolution2d(of({1, 1, 3, 3}, DType::u8), of({1, 1, 3, 3}), {});
       },
       {"[convolution2d]", "f32", "1x1x3x3 u8"}},
      {"conv_count",
       [=] { apply_op(make_convolution2d({}, true), {image}); },
       {"[convolution2d]", "takes 3 inputs", "received 1"}},
      {"fc_weights",
       [=] {
         fully_connected(image, of({4, 200}), {});
       },
       {"[fully_connected]", "210", "2x6x5x7", "4x200"}},
      {"fc_weights_rank",
       [=] {
         fully_connected(image, of({4, 6, 35}), {});
       },
       {"[fully_connected]", "4x6x35"}},
      {"fc_no_units",
       [=] {
         fully_connected(image, of({0, 210}), {});
       },
       {"[fully_connected]", "0x210"}},
      {"fc_rank",
       [] {
         fully_connected(of({6}), of({4, 6}), {});
       },
       {"[fully_connected]", "input 6,"}},
      {"fc_empty",
       [] {
         fully_connected(of({0, 6}), of({4, 6}), {});
       },
       {"[fully_connected]", "0x6"}},
      {"fc_bias",
       [] {
         fully_connected(of({2, 6}), of({4, 6}), of({5}));
       },
       {"[fully_connected]", "4 elements", "received 5"}},
      {"fc_type",
       [] {
         fully_connected(of({2, 6}, DType::i32), of({4, 6}), {});
       },
       {"[fully_connected]", "2x6 i32"}},
      {"bn_rank",
       [] { batch_normalization_training(of({3}), of({3}), of({3})); },
       {"[batch_normalization_training]", "received 3"}},
      {"bn_empty",
       [] {
         batch_normalization_training(of({0, 3}), of({3}), of({3}));
       },
       {"[batch_normalization_training]", "0x3"}},
      {"bn_one_value",
       [] {
         batch_normalization_training(of({1, 3}), of({3}), of({3}));
       },
       {"[batch_normalization_training]", "1x3", "one value for each channel"}},
      {"bn_one_value_of_an_image",
       [] {
         batch_normalization_training(of({1, 3, 1, 1}), of({3}), of({3}));
       },
       {"[batch_normalization_training]", "1x3x1x1", "one value for each channel"}},
      {"gn_one_value",
       [] {
         group_normalization(of({4, 3}), of({3}), of({3}), 3);
       },
       {"[group_normalization]", "4x3", "one value for each group"}},
      {"gn_one_value_per_channel",
       [] {
         group_normalization(of({4, 3, 1, 1}), of({3}), of({3}), group_per_channel);
       },
       {"[group_normalization]", "one value for each group"}},
      {"bn_scale",
       [=] { batch_normalization_training(image, of({5}), of({6})); },
       {"[batch_normalization_training]", "6 elements", "received 5"}},
      {"bn_shift",
       [=] {
         batch_normalization_training(image, of({6}), of({6, 1}));
       },
       {"[batch_normalization_training]", "6x1"}},
      {"bn_mean",
       [=] { batch_normalization(image, of({6}), of({6}), of({1}), of({6})); },
       {"[batch_normalization]", "received 1"}},
      {"bn_epsilon",
       [] { make_batch_normalization(0, true); },
       {"[batch_normalization]", "epsilon", "received 0"}},
      {"bn_epsilon_nan",
       [] { make_batch_normalization(std::numeric_limits<double>::quiet_NaN(), true); },
       {"[batch_normalization]", "epsilon"}},
      {"bn_type",
       [] {
         batch_normalization_training(of({2, 3}, DType::u8), of({3}), of({3}));
       },
       {"[batch_normalization_training]", "2x3 u8"}},
      {"bn_count",
       [=] {
         apply_op(make_batch_normalization(1e-5, false), {image, of({6}), of({6})});
       },
       {"[batch_normalization]", "takes 5", "received 3"}},
      {"max_pool_rank",
       [] {
         max_pooling2d(of({2, 3, 4}));
       },
       {"[max_pooling2d]", "2x3x4"}},
      {"max_pool_empty",
       [] {
         max_pooling2d(of({2, 0, 4, 4}));
       },
       {"[max_pooling2d]", "2x0x4x4"}},
      {"max_pool_fit",
       [=] {
         max_pooling2d(image, {.pool = {6, 2}});
       },
       {"[max_pooling2d]", "6x2", "5x7"}},
      {"max_pool_size",
       [=] {
         max_pooling2d(image, {.pool = {0, 2}});
       },
       {"[max_pooling2d]", "0x2"}},
      {"max_pool_stride",
       [=] {
         max_pooling2d(image, {.stride = {2, -1}});
       },
       {"[max_pooling2d]", "2x-1"}},
      {"max_pool_padding",
       [=] {
         max_pooling2d(image, {.pool = {2, 2}, .padding = padding(2)});
       },
       {"[max_pooling2d]", "padding", "2x2", "received 2"}},
      {"max_pool_type",
       [] {
         max_pooling2d(of({1, 1, 3, 3}, DType::u8));
       },
       {"[max_pooling2d]", "1x1x3x3 u8"}},
      {"average_pool_fit",
       [=] {
         average_pooling2d(image, {.pool = {2, 8}});
       },
       {"[average_pooling2d]", "2x8", "5x7"}},
      {"average_pool_padding",
       [=] {
         average_pooling2d(image, {.pool = {1, 2}, .padding = {false, 0, 1, 0, 0}});
       },
       {"[average_pooling2d]", "padding", "1x2"}},
      {"global_pool_rank",
       [] {
         global_average_pooling2d(of({2, 3}));
       },
       {"[global_average_pooling2d]", "2x3"}},
      {"transposed_channels",
       transposed({5, 8, 3, 3}, {8}),
       {"[transposed_convolution2d]", "5 input channels", "has 6", "2x6x5x7", "5x8x3x3"}},
      {"transposed_input_rank",
       [] {
         transposed_convolution2d(of({6, 5, 7}), of({6, 8, 3, 3}), {});
       },
       {"[transposed_convolution2d]", "6x5x7"}},
      {"transposed_weights_rank",
       transposed({6, 8, 9}, {8}),
       {"[transposed_convolution2d]", "6x8x9"}},
      {"transposed_bias",
       transposed({6, 4, 3, 3}, {4}, {.groups = 2}),
       {"[transposed_convolution2d]", "8 elements", "received 4"}},
      {"transposed_groups",
       transposed({6, 8, 3, 3}, {32}, {.groups = 4}),
       {"[transposed_convolution2d]", "4 groups", "2x6x5x7"}},
      {"transposed_same_small_window",
       transposed({6, 8, 2, 3}, {8}, {.stride = {3, 3}, .padding = same_padding}),
       {"[transposed_convolution2d]", "2x3", "smaller than the stride of 3x3"}},
      {"transposed_padding_takes_all",
       transposed({6, 8, 3, 3}, {8}, {.padding = padding(3)}),
       {"[transposed_convolution2d]", "padding of 3 and 3 must be smaller than the window of 3x3"}},
      {"transposed_padding_leaves_nothing",
       [] {
         transposed_convolution2d(of({2, 6, 1, 1}), of({6, 8, 3, 3}), of({8}),
                                  {.padding = padding(2)});
       },
       {"[transposed_convolution2d]", "padding of 2 and 2 removes the whole result", "3x3", "1x1"}},
      {"transposed_stride",
       transposed({6, 8, 3, 3}, {8}, {.stride = {0, 1}}),
       {"[transposed_convolution2d]", "stride", "0x1"}},
      {"transposed_huge",
       transposed({6, 8, 3, 3}, {8}, {.stride = {1 << 30, 1 << 30}}),
       {"[shape]", "more elements"}},
      {"clipped_relu_ceiling", [=] { clipped_relu(image, 0); }, {"[clipped_relu]", "above 0"}},
      {"clipped_relu_infinite",
       [=] { clipped_relu(image, std::numeric_limits<double>::infinity()); },
       {"[clipped_relu]", "finite"}},
      {"leaky_relu_scale", [=] { leaky_relu(image, -1); }, {"[leaky_relu]", "at least 0", "-1"}},
      {"leaky_relu_nan",
       [=] { leaky_relu(image, std::numeric_limits<double>::quiet_NaN()); },
       {"[leaky_relu]", "nan"}},
      {"elu_alpha",
       [=] { elu(image, std::numeric_limits<double>::infinity()); },
       {"[elu]", "finite", "inf"}},
      {"gelu_type",
       [] {
         gelu(of({2, 3}, DType::u8), GeluApproximation::tanh);
       },
       {"[gelu]", "2x3 u8"}},
      {"swish_undefined", [=] { swish(none); }, {"[swish]", "undefined"}},
      {"tanh_type", [] { ops::tanh(of({2}, DType::i32)); }, {"[tanh]", "2 i32"}},
      {"sigmoid_count",
       [=] {
         apply_op(make_sigmoid(), {image, image});
       },
       {"[sigmoid]", "takes 1", "received 2"}},
      {"softplus_nothing", [] { apply_op(make_softplus(), {}); }, {"[softplus]", "received 0"}},
      {"relu_undefined", [=] { relu(none); }, {"[relu]", "undefined"}},
      {"relu_type",
       [] {
         relu(of({2, 3}, DType::i32));
       },
       {"[relu]", "2x3 i32"}},
      {"relu_count",
       [=] {
         apply_op(make_relu(), {image, image});
       },
       {"[relu]", "takes 1", "received 2"}},
      {"relu_nothing", [] { apply_op(make_relu(), {}); }, {"[relu]", "takes 1", "received 0"}},
      {"add_shapes",
       [=] {
         add({image, of({2, 6, 7, 5})});
       },
       {"[add]", "2x6x5x7", "2x6x7x5"}},
      {"add_nothing", [] { add(std::vector<Tensor>()); }, {"[add]", "received 0"}},
      {"add_type",
       [] {
         add({of({3}), of({3}, DType::i32)});
       },
       {"[add]", "3 i32"}},
      {"multiply_shapes",
       [=] {
         multiply({image, of({2, 6, 7, 5})});
       },
       {"[multiply]", "2x6x5x7", "2x6x7x5"}},
      {"multiply_nothing", [] { multiply(std::vector<Tensor>()); }, {"[multiply]", "received 0"}},
      {"multiply_type",
       [] {
         multiply({of({3}), of({3}, DType::i32)});
       },
       {"[multiply]", "3 i32"}},
      {"reshape_elements",
       [=] {
         reshape(image, {6, 5, 8});
       },
       {"[reshape]", "6x5x8 has 240", "has 210", "2x6x5x7"}},
      {"reshape_scalar", [] { reshape(of({}), {1}); }, {"[reshape]", "scalar"}},
      {"group_normalization_rank",
       [] { group_normalization(of({6}), of({6}), of({6}), 2); },
       {"[group_normalization]", "received 6"}},
      {"group_normalization_empty",
       [] {
         group_normalization(of({0, 6}), of({6}), of({6}), 2);
       },
       {"[group_normalization]", "0x6"}},
      {"group_normalization_groups",
       [=] { group_normalization(image, of({6}), of({6}), 4); },
       {"[group_normalization]", "6 channels", "4 groups", "2x6x5x7"}},
      {"group_normalization_negative",
       [=] { group_normalization(image, of({6}), of({6}), -1); },
       {"[group_normalization]", "1 or more groups", "-1"}},
      {"group_normalization_epsilon",
       [=] { group_normalization(image, of({6}), of({6}), 1, 0); },
       {"[group_normalization]", "epsilon"}},
      {"group_normalization_scale",
       [=] { group_normalization(image, of({5}), of({6}), 1); },
       {"[group_normalization]", "6 elements", "received 5"}},
      {"group_normalization_shift",
       [=] {
         group_normalization(image, of({6}), of({6, 1}), 1);
       },
       {"[group_normalization]", "6 elements", "received 6x1"}},
      {"group_normalization_type",
       [] {
         group_normalization(of({2, 6}, DType::u8), of({6}), of({6}), 1);
       },
       {"[group_normalization]", "2x6 u8"}},
      {"concat_shapes",
       [=] {
         concat({image, of({2, 6, 5, 6})});
       },
       {"[concat]", "2x6x5x7", "2x6x5x6"}},
      {"concat_ranks",
       [=] {
         concat({image, of({2, 6})});
       },
       {"[concat]", "2x6x5x7", "2x6"}},
      {"concat_axis", [=] { concat({image}, 4); }, {"[concat]", "2x6x5x7", "axis 4"}},
      {"concat_negative_axis", [=] { concat({image}, -5); }, {"[concat]", "axis -5"}},
      {"concat_nothing", [] { concat(std::vector<Tensor>()); }, {"[concat]", "received 0"}},
      {"concat_type",
       [] {
         concat({of({1, 2}, DType::u8), of({1, 2}, DType::u8)});
       },
       {"[concat]", "1x2 u8"}},
      {"flatten_scalar", [] { flatten(of({})); }, {"[flatten]", "scalar"}},
      {"dropout_scalar", [] { dropout(of({}), 0.5, 1, {}); }, {"[dropout]", "scalar"}},
      {"dropout_one", [=] { dropout(image, 1, 1, {}); }, {"[dropout]", "received 1"}},
      {"dropout_negative", [=] { dropout(image, -0.5, 1, {}); }, {"[dropout]", "received -0.5"}},
      {"dropout_nan",
       [=] { dropout(image, std::numeric_limits<double>::quiet_NaN(), 1, {}); },
       {"[dropout]", "nan"}},
      {"softmax_rank", [] { softmax(of({3})); }, {"[softmax]", "received 3"}},
      {"softmax_empty",
       [] {
         softmax(of({2, 0}));
       },
       {"[softmax]", "2x0"}},
      {"cross_entropy_labels",
       [] {
         cross_entropy(of({2, 3}), of({3}, DType::i32));
       },
       {"[cross_entropy]", "2x3", " 3"}},
      {"cross_entropy_rank",
       [] {
         cross_entropy(of({2, 3, 1, 1}), of({2}, DType::i32));
       },
       {"[cross_entropy]", "2x3x1x1"}},
      {"cross_entropy_type",
       [] {
         cross_entropy(of({2, 3}), of({2}));
       },
       {"[cross_entropy]", "i32", "received f32"}},
      {"cross_entropy_score_type",
       [] {
         cross_entropy(of({2, 3}, DType::i32), of({2}, DType::i32));
       },
       {"[cross_entropy]", "2x3 i32"}},
      {"softmax_cross_entropy_labels",
       [] {
         softmax_cross_entropy(of({2, 3}), of({2, 1}, DType::i32));
       },
       {"[softmax_cross_entropy]", "2x3", "2x1"}},
      {"softmax_cross_entropy_type",
       [] {
         softmax_cross_entropy(of({2, 3}), of({2}, DType::u8));
       },
       {"[softmax_cross_entropy]", "i32", "received u8"}},
      {"cross_entropy_shares_type",
       [] {
         cross_entropy(of({2, 3}), of({2, 3}, DType::i32));
       },
       {"[cross_entropy]", "shares of f32", "received i32"}},
      {"mse_shapes",
       [] {
         mean_squared_error(of({2, 3}), of({3, 2}));
       },
       {"[mean_squared_error]", "2x3", "3x2"}},
      {"mse_scalar",
       [] { mean_squared_error(of({}), of({})); },
       {"[mean_squared_error]", "scalar"}},
      {"mse_empty",
       [] {
         mean_squared_error(of({2, 0}), of({2, 0}));
       },
       {"[mean_squared_error]", "2x0"}},
      {"mse_type",
       [] { mean_squared_error(of({2}), of({2}, DType::i32)); },
       {"[mean_squared_error]", "2 i32"}},
      {"mean_empty",
       [] {
         mean(of({0, 3}));
       },
       {"[mean]", "0x3"}},
      {"sum_type", [] { sum(of({3}, DType::i32)); }, {"[sum]", "3 i32"}},
      {"sum_undefined", [=] { sum(none); }, {"[sum]", "undefined"}},
      {"images_rank",
       [] { normalize_images(of({3}), of({3}), of({3})); },
       {"[normalize_images]", "received 3"}},
      {"features_empty",
       [] {
         normalize_images(of({0, 3}), of({3}), of({3}));
       },
       {"[normalize_images]", "0x3"}},
      {"features_offset",
       [] {
         normalize_images(of({2, 3}), of({2}), of({3}));
       },
       {"[normalize_images]", "3 elements", "received 2"}},
      {"images_offset",
       [=] { normalize_images(image, of({3}), of({6})); },
       {"[normalize_images]", "6 elements", "received 3"}},
      {"images_factor",
       [=] {
         normalize_images(image, of({6}), of({6, 1}));
       },
       {"[normalize_images]", "6x1"}},
      {"images_type",
       [] {
         normalize_images(of({1, 1, 2, 2}, DType::i32), of({1}), of({1}));
       },
       {"[normalize_images]", "1x1x2x2 i32"}},
      {"images_offset_type",
       [] {
         normalize_images(of({1, 1, 2, 2}), of({1}, DType::u8), of({1}));
       },
       {"[normalize_images]", "1 u8"}},
  };
}

class OpErrors : public testing::TestWithParam<Row> {};

TEST_P(OpErrors, NameTheOpAndWhatItReceived) {
  try {
    GetParam().call();
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& e) {
    const std::string message = e.what();
    EXPECT_EQ(message.find(GetParam().message[0]), 0u) << message;
    for (const std::string& part : GetParam().message) {
      EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OpErrors, testing::ValuesIn(rows()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace lockstep
