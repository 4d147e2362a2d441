#include <cmath>

#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {
namespace {

using reference::Statistics;

OpPtr op_of(const NormalizationKind& kind) {
  OpPtr op = ops::make_batch_normalization(kind.epsilon, kind.training);
  if (kind.bias) op = op->with_bias();
  if (kind.relu) op = op->fuse(*ops::make_relu()).value().op;
  if (kind.window.empty()) return op;
  const Size2d window{kind.window[0], kind.window[1]};
  return op->fuse(*ops::make_max_pooling2d({.pool = window, .stride = window})).value().op;
}

// x plus the last input, a bias of each channel.
Array with_bias(const std::vector<Array>& in) {
  Array x = in[0];
  const int64_t space = x.count() / (x.dim(0) * x.dim(1));
  for (size_t i = 0; i < x.values.size(); ++i) {
    x.values[i] += in.back().values[i / static_cast<size_t>(space) % in.back().values.size()];
  }
  return x;
}

Array sums_of_channels(const Array& dx) {
  Array sums({dx.dim(1)});
  const int64_t space = dx.count() / (dx.dim(0) * dx.dim(1));
  for (size_t i = 0; i < dx.values.size(); ++i) {
    sums.values[i / static_cast<size_t>(space) % sums.values.size()] += dx.values[i];
  }
  return sums;
}

}  // namespace

Case batch_normalization(std::string name, const Array& x, const NormalizationKind& kind) {
  const int64_t channels = x.dim(1);
  Case c;
  c.name = std::move(name);
  c.op = op_of(kind);
  c.inputs = {{x}, {random_array({channels}, 12, 0.5, 1.5)}, {random_array({channels}, 13)}};
  if (!kind.training) {
    c.inputs.push_back({.value = random_array({channels}, 14), .gradient = false});
    c.inputs.push_back({.value = random_array({channels}, 15, 0.1, 2), .gradient = false});
  }
  if (kind.bias) c.inputs.push_back({random_array({channels}, 19, -3, 5)});
  const auto source = [=](const std::vector<Array>& in) {
    return kind.bias ? with_bias(in) : in[0];
  };
  const auto statistics = [=](const std::vector<Array>& in) {
    return kind.training ? reference::statistics(source(in)) : Statistics{in[3], in[4]};
  };
  const auto activated = [=](const std::vector<Array>& in, const Statistics& s) {
    const Array y = reference::batch_normalization(source(in), in[1], in[2], s, kind.epsilon);
    return kind.relu ? reference::relu(y) : y;
  };
  const auto& pool = kind.window;
  reference::Window side_by_side;
  for (size_t a = 0; a < pool.size(); ++a) side_by_side.stride[a] = pool[a];
  c.forward = [=](const std::vector<Array>& in) {
    const Statistics s = statistics(in);
    std::vector<Array> out{activated(in, s)};
    if (!pool.empty()) {
      out[0] = reference::pooling(out[0], reference::Pooling::max, pool[0], pool[1], side_by_side);
    }
    if (kind.training) out.insert(out.end(), {s.mean, s.variance});
    return out;
  };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    const Statistics s = statistics(in);
    Array diff = dy;
    if (!pool.empty()) {
      diff = reference::pooling_diff(activated(in, s), reference::Pooling::max, pool[0], pool[1],
                                     side_by_side, dy);
    }
    if (kind.relu) {
      diff = reference::relu_diff(
          reference::batch_normalization(source(in), in[1], in[2], s, kind.epsilon), diff);
    }
    auto d = reference::batch_normalization_diff(source(in), in[1], s, kind.epsilon, kind.training,
                                                 diff);
    std::vector<Array> all{d.x, d.scale, d.shift};
    all.resize(in.size());
    // In training the mean takes the bias away: its gradient is 0, not the sum's rounding.
    if (kind.bias) all.back() = kind.training ? Array({channels}) : sums_of_channels(d.x);
    return all;
  };
  return c;
}

namespace {

Case images(std::string name, std::vector<int64_t> dims, DType dtype) {
  Case c;
  c.name = std::move(name);
  c.op = ops::make_normalize_images();
  Array x = random_array(dims, 16);
  if (dtype == DType::u8) {
    x = random_array(dims, 16, 0, 256);
    for (double& value : x.values) value = std::floor(value);
    x.values.front() = 0;
    x.values.back() = 255;
  }
  const int64_t channels = dims[1];
  c.inputs = {{.value = x, .dtype = dtype, .gradient = dtype == DType::f32},
              {.value = random_array({channels}, 17, 100, 140), .gradient = false},
              {.value = random_array({channels}, 18, 0.01, 0.03), .gradient = false}};
  c.forward = [](const std::vector<Array>& in) {
    return std::vector<Array>{reference::normalize_images(in[0], in[1], in[2])};
  };
  if (dtype == DType::f32) {
    c.backward = [](const std::vector<Array>& in, const Array& dy) {
      return std::vector<Array>{reference::normalize_images_diff(in[0], in[2], dy), {}, {}};
    };
  }
  return c;
}

}  // namespace

std::vector<Case> normalization_cases() {
  struct Row {
    std::string name;
    std::vector<int64_t> x;
  };
  const std::vector<Row> rows = {
      {"image_of_3_channels", {3, 3, 5, 7}},
      {"image_of_11_channels", {4, 11, 6, 5}},
      {"image_of_16_channels", {3, 16, 4, 4}},
      {"image_of_33_channels_batch_1", {1, 33, 5, 3}},
      {"one_channel", {2, 1, 3, 3}},
      {"image_of_22_channels_one_row", {5, 22, 1, 4}},
      {"rank_2", {9, 7}},
      {"rank_2_of_17_channels", {12, 17}},
      {"rank_2_of_one_channel", {11, 1}},
      {"rank_2_of_32_channels", {16, 32}},
      {"images_of_one_pixel", {13, 11, 1, 1}},
      {"sequence_of_11_channels", {3, 11, 6}},
      {"sequence_of_16_channels", {4, 16, 5}},
      {"image_with_depth_of_3_channels", {2, 3, 4, 3, 2}},
      {"image_with_depth_of_16_channels", {2, 16, 2, 3, 3}},
  };
  std::vector<Case> cases;
  for (const Row& row : rows) {
    const Array x = random_array(row.x, 27, -2, 3);
    for (bool training : {true, false}) {
      const std::string suffix = training ? "_training" : "_inference";
      cases.push_back(batch_normalization(row.name + suffix, x, {.training = training}));
      cases.push_back(batch_normalization(row.name + suffix + "_relu", x,
                                          {.training = training, .relu = true}));
      cases.push_back(batch_normalization(row.name + suffix + "_relu_bias", x,
                                          {.training = training, .relu = true, .bias = true}));
    }
  }
  // With ReLU and a maximum over windows, some of which omit rows and columns.
  const std::vector<std::pair<Row, std::vector<int64_t>>> pooled = {
      {{"pooled_16_channels", {3, 16, 8, 8}}, {2, 2}},
      {{"pooled_11_channels_odd_sizes", {4, 11, 7, 5}}, {2, 2}},
      {{"pooled_33_channels_3x2", {2, 33, 7, 6}}, {3, 2}},
      {{"pooled_one_channel_whole", {5, 1, 3, 4}}, {3, 4}},
      {{"pooled_24_channels_1x1", {2, 24, 3, 5}}, {1, 1}},
      {{"pooled_many_positions", {2, 17, 25, 13}}, {2, 2}},
  };
  for (const auto& [row, window] : pooled) {
    const Array x = random_array(row.x, 28, -2, 3);
    for (bool training : {true, false}) {
      cases.push_back(batch_normalization(row.name + (training ? "_training" : "_inference"), x,
                                          {.training = training, .relu = true, .window = window}));
    }
  }
  cases.push_back(batch_normalization("pooled_far_from_zero",
                                      random_array({4, 11, 6, 6}, 29, 19, 21),
                                      {.relu = true, .window = {2, 2}}));
  cases.back().smooth = false;
  cases.push_back(
      batch_normalization("large_epsilon", random_array({3, 7, 4, 5}, 19), {.epsilon = 0.5}));
  cases.push_back(batch_normalization("large_epsilon_inference", random_array({3, 7, 4, 5}, 19),
                                      {.training = false, .epsilon = 0.5}));
  // Values far from 0: the variance must not be a difference of large sums.
  cases.push_back(
      batch_normalization("far_from_zero", random_array({4, 11, 5, 5}, 20, 19, 21), {}));
  cases.back().smooth = false;
  // One element for each channel: the variance is 0, y is the shift, and x's exact gradient is a
  // difference of equal terms of size dy * scale / sqrt(epsilon).
  for (const auto& dims : {std::vector<int64_t>{1, 11, 1, 1}, std::vector<int64_t>{1, 7},
                           std::vector<int64_t>{1, 16, 1, 1}}) {
    for (bool relu : {false, true}) {
      cases.push_back(batch_normalization(std::string("one_element_") + (relu ? "relu_" : "") +
                                              std::to_string(dims.size()) + "d_" +
                                              std::to_string(dims[1]),
                                          random_array(dims, 21), {.relu = relu}));
      cases.back().cancelling = std::sqrt(static_cast<double>(dims[1]) / 3 / 1e-5);
      cases.back().smooth = false;
    }
  }
  // All elements are equal: same, with more elements.
  cases.push_back(batch_normalization("no_variance", Array({2, 3, 2, 3}, 0.75), {}));
  cases.back().smooth = false;

  for (DType dtype : {DType::f32, DType::u8}) {
    cases.push_back(images("rgb", {3, 3, 7, 5}, dtype));
    cases.push_back(images("gray_batch_1", {1, 1, 3, 8}, dtype));
    cases.push_back(images("one_of_everything", {1, 1, 1, 1}, dtype));
    cases.push_back(images("channels_11", {2, 11, 4, 4}, dtype));
    cases.push_back(images("features_17", {5, 17}, dtype));
    cases.push_back(images("one_feature_batch_1", {1, 1}, dtype));
    cases.push_back(images("channels_17_one_pixel", {2, 17, 1, 1}, dtype));
  }
  return cases;
}

}  // namespace lockstep::optest
