#include <cmath>

#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {
namespace {

using reference::Pooling;

Case pooling_of(std::string name, OpPtr op, Array x, Pooling kind, Size2d pool,
                std::function<reference::Window(const Array&)> window) {
  Case c;
  c.name = std::move(name);
  c.op = std::move(op);
  c.inputs = {{std::move(x)}};
  c.forward = [=](const std::vector<Array>& in) {
    return std::vector<Array>{reference::pooling(in[0], kind, pool[0], pool[1], window(in[0]))};
  };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    return std::vector<Array>{
        reference::pooling_diff(in[0], kind, pool[0], pool[1], window(in[0]), dy)};
  };
  return c;
}

}  // namespace

Case pooling(std::string name, Array x, Pooling kind, ops::Pooling2dParams p) {
  p.count_padding = kind != Pooling::average_without_padding;
  auto window = [p](const Array& a) {
    reference::Window w;
    w.stride[0] = p.stride[0];
    w.stride[1] = p.stride[1];
    if (p.padding.same) return same_window(a, p.pool[0], p.pool[1], w);
    w.before[0] = p.padding.top;
    w.before[1] = p.padding.left;
    w.after[0] = p.padding.bottom;
    w.after[1] = p.padding.right;
    return w;
  };
  return pooling_of(
      std::move(name),
      kind == Pooling::max ? ops::make_max_pooling2d(p) : ops::make_average_pooling2d(p),
      std::move(x), kind, p.pool, window);
}

Case global_pooling(std::string name, Array x) {
  const Size2d all{x.dim(2), x.dim(3)};
  return pooling_of(std::move(name), ops::make_global_average_pooling2d(), std::move(x),
                    Pooling::average_without_padding, all,
                    [](const Array&) { return reference::Window{}; });
}

std::vector<Case> pooling_cases() {
  struct Row {
    std::string name;
    std::vector<int64_t> x;
    ops::Pooling2dParams params;
  };
  const std::vector<Row> rows = {
      {"one_of_everything", {1, 1, 1, 1}, {.pool = {1, 1}}},
      {"pool_2_stride_2", {2, 16, 6, 8}, {.pool = {2, 2}, .stride = {2, 2}}},
      {"pool_2_stride_2_leaves_a_row_over", {2, 11, 7, 5}, {.pool = {2, 2}, .stride = {2, 2}}},
      {"overlapping", {2, 7, 6, 5}, {.pool = {3, 3}, .stride = {1, 1}}},
      {"overlapping_padded",
       {3, 17, 7, 7},
       {.pool = {3, 3}, .stride = {2, 2}, .padding = padding(1)}},
      {"same_stride_1", {2, 3, 5, 6}, {.pool = {2, 2}, .padding = same_padding}},
      {"same_stride_2", {2, 33, 7, 6}, {.pool = {3, 3}, .stride = {2, 2}, .padding = same_padding}},
      {"same_stride_3", {1, 11, 8, 7}, {.pool = {2, 2}, .stride = {3, 3}, .padding = same_padding}},
      {"asymmetric_padding",
       {2, 16, 5, 6},
       {.pool = {3, 4}, .stride = {2, 1}, .padding = {false, 2, 0, 1, 3}}},
      {"not_square", {2, 22, 5, 9}, {.pool = {1, 5}, .stride = {1, 3}}},
      {"window_covers_the_input", {3, 7, 3, 4}, {.pool = {3, 4}}},
      {"window_larger_than_the_input", {2, 3, 2, 2}, {.pool = {5, 5}, .padding = padding(2)}},
      {"stride_wider_than_the_window", {2, 17, 7, 8}, {.pool = {2, 1}, .stride = {3, 2}}},
      {"window_of_more_than_255_elements", {1, 2, 18, 16}, {.pool = {16, 16}, .stride = {2, 1}}},
      {"batch_1_of_one_channel", {1, 1, 5, 5}, {.pool = {2, 2}, .stride = {2, 2}}},
  };
  std::vector<Case> cases;
  for (const Row& row : rows) {
    const Array x = random_array(row.x, 8);
    cases.push_back(pooling(row.name, x, Pooling::max, row.params));
    cases.push_back(
        pooling(row.name + "_counting_padding", x, Pooling::average_with_padding, row.params));
    cases.push_back(
        pooling(row.name + "_without_padding", x, Pooling::average_without_padding, row.params));
  }
  // Of equal elements the first one gets the gradient.
  for (int64_t channels : {3, 16}) {
    Array ties = random_array({2, channels, 6, 7}, 9);
    for (double& value : ties.values) value = std::floor(value * 2);
    const std::string name = "ties_of_" + std::to_string(channels) + "_channels";
    cases.push_back(pooling(name, ties, Pooling::max,
                            {.pool = {3, 3}, .stride = {2, 2}, .padding = padding(1)}));
    cases.back().smooth = false;
    cases.push_back(pooling("all_equal_" + name, Array({2, channels, 5, 5}, -2.5), Pooling::max,
                            {.pool = {2, 3}, .stride = {1, 2}, .padding = same_padding}));
    cases.back().smooth = false;
  }
  // Padding does not count, even if all values are far below 0.
  cases.push_back(pooling("negative_beside_padding", random_array({2, 11, 4, 4}, 10, -9, -8),
                          Pooling::max, {.pool = {3, 3}, .padding = padding(2)}));
  cases.push_back(global_pooling("odd", random_array({2, 11, 5, 3}, 7)));
  cases.push_back(global_pooling("16_channels", random_array({3, 16, 4, 4}, 7)));
  cases.push_back(global_pooling("one_pixel", random_array({2, 7, 1, 1}, 7)));
  cases.push_back(global_pooling("one_of_everything", random_array({1, 1, 1, 1}, 7)));
  cases.push_back(global_pooling("33_channels_of_one_row", random_array({1, 33, 1, 9}, 7)));
  return cases;
}

}  // namespace lockstep::optest
