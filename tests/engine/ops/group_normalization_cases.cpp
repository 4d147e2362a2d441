#include <cmath>

#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {
namespace {

// Calls visit(indices of the group's elements) for each group of an observation.
template <class Visit>
void by_group(const Array& x, int64_t groups, Visit visit) {
  const int64_t each = x.count() / x.dim(0) / groups;
  for (int64_t first = 0; first < x.count(); first += each) visit(first, first + each);
}

struct Moments {
  double mean = 0, deviation = 0;
};

Moments moments(const Array& x, int64_t first, int64_t end, double epsilon) {
  const auto count = static_cast<double>(end - first);
  double mean = 0, variance = 0;
  for (int64_t i = first; i < end; ++i) mean += x[i] / count;
  for (int64_t i = first; i < end; ++i) variance += (x[i] - mean) * (x[i] - mean) / count;
  return {mean, std::sqrt(variance + epsilon)};
}

// The channel of element i.
int64_t channel(const Array& x, int64_t i) {
  return i / (x.count() / (x.dim(0) * x.dim(1))) % x.dim(1);
}

}  // namespace

Case group_normalization(std::string name, const Array& x, int64_t groups, double epsilon) {
  const int64_t channels = x.dim(1);
  Case c;
  c.name = std::move(name);
  c.op = ops::make_group_normalization(groups, epsilon);
  c.inputs = {{x}, {random_array({channels}, 90, 0.5, 1.5)}, {random_array({channels}, 91)}};
  const int64_t cut = groups == ops::group_per_channel ? channels : groups;
  c.forward = [=](const std::vector<Array>& in) {
    Array y(in[0].dims);
    by_group(in[0], cut, [&](int64_t first, int64_t end) {
      const Moments m = moments(in[0], first, end, epsilon);
      for (int64_t i = first; i < end; ++i) {
        const int64_t k = channel(in[0], i);
        y[i] = in[1][k] * (in[0][i] - m.mean) / m.deviation + in[2][k];
      }
    });
    return std::vector<Array>{y};
  };
  // By the mean and the variance, step by step.
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    Array dx(in[0].dims), dscale({channels}), dshift({channels});
    by_group(in[0], cut, [&](int64_t first, int64_t end) {
      const auto count = static_cast<double>(end - first);
      const Moments m = moments(in[0], first, end, epsilon);
      double diff_mean = 0, diff_variance = 0;
      for (int64_t i = first; i < end; ++i) {
        const int64_t k = channel(in[0], i);
        const double centered = in[0][i] - m.mean, diff = dy[i] * in[1][k];
        dscale[k] += dy[i] * centered / m.deviation;
        dshift[k] += dy[i];
        diff_mean -= diff / m.deviation;
        diff_variance -= diff * centered / (2 * m.deviation * m.deviation * m.deviation);
      }
      for (int64_t i = first; i < end; ++i) {
        dx[i] = dy[i] * in[1][channel(in[0], i)] / m.deviation + diff_mean / count +
                diff_variance * 2 * (in[0][i] - m.mean) / count;
      }
    });
    return std::vector<Array>{dx, dscale, dshift};
  };
  return c;
}

std::vector<Case> group_normalization_cases() {
  struct Row {
    std::string name;
    std::vector<int64_t> x;
    std::vector<int64_t> groups;
  };
  const std::vector<Row> rows = {
      {"images_of_3", {3, 3, 5, 7}, {1, 3}},
      {"images_of_11", {4, 11, 6, 5}, {1, 11}},
      {"images_of_16", {3, 16, 4, 4}, {1, 2, 8, 16}},
      {"images_of_17", {2, 17, 3, 3}, {1, 17}},
      {"image_of_33", {1, 33, 5, 3}, {1, 3, 11, 33}},
      {"images_of_one_channel", {2, 1, 3, 3}, {1}},
      {"images_of_one_pixel", {5, 12, 1, 1}, {1, 4}},
      {"rank_2_of_7", {9, 7}, {1}},
      {"rank_2_of_33", {4, 33}, {1, 3}},
      {"rank_2_of_100", {3, 100}, {1, 5}},
      {"large", {2, 6, 40, 33}, {1, 2, 6}},
  };
  std::vector<Case> cases;
  for (const Row& row : rows) {
    const Array x = random_array(row.x, 92, -2, 3);
    for (const int64_t groups : row.groups) {
      cases.push_back(group_normalization(row.name + "_in_" + std::to_string(groups), x, groups));
    }
  }
  cases.push_back(group_normalization("group_per_channel", random_array({2, 5, 4, 3}, 93),
                                      ops::group_per_channel));
  cases.push_back(group_normalization("large_epsilon", random_array({3, 6, 4, 5}, 94), 2, 0.5));
  // Values far from 0: mean and variance must not lose small differences.
  cases.push_back(
      group_normalization("far_from_zero", random_array({4, 10, 5, 5}, 95, 999, 1001), 5));
  cases.back().smooth = false;
  cases.push_back(
      group_normalization("far_from_zero_rank_2", random_array({4, 33}, 96, -1001, -999), 1));
  cases.back().smooth = false;
  cases.push_back(
      group_normalization("large_values", random_array({2, 6, 3, 3}, 97, -1e15, 1e15), 3));
  cases.back().smooth = false;
  // One element in a group: the variance is 0, y is the shift, and x's exact gradient is a
  // difference of equal terms of size dy * scale / sqrt(epsilon).
  for (const auto& dims : {std::vector<int64_t>{3, 11, 1, 1}, std::vector<int64_t>{1, 1},
                           std::vector<int64_t>{5, 16}}) {
    cases.push_back(group_normalization("one_element_" + std::to_string(dims[1]),
                                        random_array(dims, 98), ops::group_per_channel));
    cases.back().cancelling = std::sqrt(static_cast<double>(dims[0] * dims[1]) / 3 / 1e-5);
    cases.back().smooth = false;
  }
  // All elements are equal: same, with more elements (8, so that the reference's mean is exact).
  cases.push_back(group_normalization("no_variance", Array({2, 4, 2, 2}, 0.75), 2));
  cases.back().smooth = false;
  return cases;
}

}  // namespace lockstep::optest
