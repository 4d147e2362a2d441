// Convolution and pooling along one and three axes. The reference always has three. Missing axes
// have one element.
#include <array>
#include <cmath>

#include "lockstep/engine/ops/networks/convolution.h"
#include "lockstep/engine/ops/networks/pooling.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {
namespace {

using Axes = std::array<int64_t, 3>;

struct Slide {
  Axes in{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, before{}, out{1, 1, 1};
  static int64_t count(const Axes& a) { return a[0] * a[1] * a[2]; }
};

// `x` and the kernel's extents. Other ops::Sizes have the same number of axes.
Slide slide_of(const Array& x, const ops::Sizes& kernel, const ops::Sizes& stride,
               const ops::Sizes& dilation, const ops::WindowPadding& padding) {
  Slide s;
  const auto axes = static_cast<size_t>(kernel.axes()), gap = 3 - axes;
  for (size_t a = 0; a < axes; ++a) {
    const int64_t size = x.dim(static_cast<int>(a) + 2);
    const int64_t extent = dilation[a] * (kernel[a] - 1) + 1;
    int64_t before = padding.before[a], after = padding.after[a];
    if (padding.same) {
      const int64_t wanted = (size + stride[a] - 1) / stride[a];
      const int64_t missing = std::max<int64_t>(0, (wanted - 1) * stride[a] + extent - size);
      before = missing / 2;
      after = missing - before;
    }
    s.in[gap + a] = size;
    s.kernel[gap + a] = kernel[a];
    s.stride[gap + a] = stride[a];
    s.dilation[gap + a] = dilation[a];
    s.before[gap + a] = before;
    s.out[gap + a] = (size + before + after - extent) / stride[a] + 1;
  }
  return s;
}

// Calls visit(position in the output, in the input, in the kernel) for each pair within a window.
template <class Visit>
void each(const Slide& s, Visit visit) {
  const auto flat = [](const Axes& at, const Axes& size) {
    return (at[0] * size[1] + at[1]) * size[2] + at[2];
  };
  const auto loop = [](const Axes& size, auto&& body) {
    Axes at{};
    for (at[0] = 0; at[0] < size[0]; ++at[0]) {
      for (at[1] = 0; at[1] < size[1]; ++at[1]) {
        for (at[2] = 0; at[2] < size[2]; ++at[2]) body(at);
      }
    }
  };
  loop(s.out, [&](const Axes& to) {
    loop(s.kernel, [&](const Axes& k) {
      Axes from;
      for (size_t a = 0; a < 3; ++a) {
        from[a] = to[a] * s.stride[a] + k[a] * s.dilation[a] - s.before[a];
        if (from[a] < 0 || from[a] >= s.in[a]) return;
      }
      visit(flat(to, s.out), flat(from, s.in), flat(k, s.kernel));
    });
  });
}

std::vector<int64_t> result_dims(const Array& x, int64_t channels, const Slide& s) {
  std::vector<int64_t> dims{x.dim(0), channels};
  for (size_t a = 5 - x.dims.size(); a < 3; ++a) dims.push_back(s.out[a]);
  return dims;
}

// Calls visit(index in y, in x, in weights) for every product.
template <class Visit>
void products(const Array& x, const Array& w, const Slide& s, int64_t groups, Visit visit) {
  const int64_t in = Slide::count(s.in), out = Slide::count(s.out), kernel = Slide::count(s.kernel);
  const int64_t filters = w.dim(0), each_group = w.dim(1);
  each(s, [&](int64_t to, int64_t from, int64_t k) {
    for (int64_t n = 0; n < x.dim(0); ++n) {
      for (int64_t f = 0; f < filters; ++f) {
        for (int64_t c = 0; c < each_group; ++c) {
          const int64_t channel = f / (filters / groups) * each_group + c;
          visit((n * filters + f) * out + to, (n * x.dim(1) + channel) * in + from,
                (f * each_group + c) * kernel + k);
        }
      }
    }
  });
}

Case convolution(std::string name, std::vector<int64_t> x, std::vector<int64_t> weights,
                 const ops::ConvolutionParams& p, bool bias = true) {
  Case c;
  c.name = std::move(name);
  c.op = ops::make_convolution(p, bias);
  c.inputs = {{random_array(x, 61)}, {random_array(weights, 62)}};
  if (bias) c.inputs.push_back({random_array({weights[0]}, 63)});
  ops::Sizes kernel = ops::Sizes::all(p.stride.axes(), 0);
  for (size_t a = 0; a + 2 < weights.size(); ++a) kernel[a] = weights[a + 2];
  const auto slide = [=](const Array& a) {
    return slide_of(a, kernel, p.stride, p.dilation, p.padding);
  };
  c.forward = [=](const std::vector<Array>& in) {
    const Slide s = slide(in[0]);
    Array y(result_dims(in[0], in[1].dim(0), s));
    products(in[0], in[1], s, p.groups,
             [&](int64_t to, int64_t from, int64_t k) { y[to] += in[0][from] * in[1][k]; });
    const int64_t space = Slide::count(s.out);
    for (int64_t i = 0; bias && i < y.count(); ++i) y[i] += in[2][i / space % y.dim(1)];
    return std::vector<Array>{y};
  };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    const Slide s = slide(in[0]);
    std::vector<Array> d{Array(in[0].dims), Array(in[1].dims)};
    products(in[0], in[1], s, p.groups, [&](int64_t to, int64_t from, int64_t k) {
      d[0][from] += dy[to] * in[1][k];
      d[1][k] += dy[to] * in[0][from];
    });
    if (bias) d.push_back(reference::convolution_diff_bias(dy));
    return d;
  };
  return c;
}

enum class Kind { max, average_with_padding, average_without_padding };

Case pooling(std::string name, std::vector<int64_t> dims, Kind kind, ops::PoolingParams p,
             bool global = false) {
  p.count_padding = kind == Kind::average_with_padding;
  Case c;
  c.name = std::move(name);
  c.op = global              ? ops::make_global_average_pooling(p.pool.axes())
         : kind == Kind::max ? ops::make_max_pooling(p)
                             : ops::make_average_pooling(p);
  c.inputs = {{random_array(std::move(dims), 64)}};
  const auto slide = [=](const Array& x) {
    return slide_of(x, p.pool, p.stride, ops::Sizes::all(p.pool.axes(), 1), p.padding);
  };
  // For each output the inputs in its window.
  const auto windows = [](const Slide& s) {
    std::vector<std::vector<int64_t>> all(static_cast<size_t>(Slide::count(s.out)));
    each(s,
         [&](int64_t to, int64_t from, int64_t) { all[static_cast<size_t>(to)].push_back(from); });
    return all;
  };
  // Calls visit(output, input, factor) for each input that counts.
  const auto terms = [=](const Array& x, auto visit) {
    const Slide s = slide(x);
    const auto all = windows(s);
    const int64_t in = Slide::count(s.in), out = Slide::count(s.out);
    for (int64_t plane = 0; plane < x.dim(0) * x.dim(1); ++plane) {
      for (int64_t to = 0; to < out; ++to) {
        const auto& inputs = all[static_cast<size_t>(to)];
        if (kind == Kind::max) {
          int64_t best = inputs.front();
          for (int64_t i : inputs) {
            if (x[plane * in + i] > x[plane * in + best]) best = i;
          }
          visit(plane * out + to, plane * in + best, 1.0);
          continue;
        }
        const int64_t divisor = kind == Kind::average_with_padding
                                    ? Slide::count(s.kernel)
                                    : static_cast<int64_t>(inputs.size());
        for (int64_t i : inputs) {
          visit(plane * out + to, plane * in + i, 1.0 / static_cast<double>(divisor));
        }
      }
    }
  };
  c.forward = [=](const std::vector<Array>& in) {
    Array y(result_dims(in[0], in[0].dim(1), slide(in[0])));
    terms(in[0], [&](int64_t to, int64_t from, double f) { y[to] += f * in[0][from]; });
    return std::vector<Array>{y};
  };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    Array dx(in[0].dims);
    terms(in[0], [&](int64_t to, int64_t from, double f) { dx[from] += f * dy[to]; });
    return std::vector<Array>{dx};
  };
  return c;
}

constexpr PaddingAlong<1> same1{.same = true};
constexpr PaddingAlong<3> same3{.same = true};

}  // namespace

std::vector<Case> space_cases() {
  using P1 = Padding1d;
  using P3 = Padding3d;
  std::vector<Case> cases{
      convolution("one_of_everything", {1, 1, 1}, {1, 1, 1}, {{1}, P1{}, {1}, 1}),
      convolution("odd_sizes", {3, 3, 7}, {7, 3, 3}, {{1}, P1::all(1), {1}, 1}),
      convolution("channels_11_to_22_same", {2, 11, 9}, {22, 11, 3}, {{1}, same1, {1}, 1}),
      convolution("channels_16_to_32", {4, 16, 33}, {32, 16, 5}, {{1}, P1::all(2), {1}, 1}),
      convolution("channels_33_to_1_batch_1", {1, 33, 6}, {1, 33, 3}, {{1}, P1{}, {1}, 1}, false),
      convolution("winograd_would_fit", {16, 32, 70}, {32, 32, 3}, {{1}, P1::all(1), {1}, 1}),
      convolution("stride_3_dilation_2", {2, 7, 20}, {5, 7, 3}, {{3}, P1{}, {2}, 1}),
      convolution("same_stride_2_even_kernel", {2, 3, 9}, {4, 3, 4}, {{2}, same1, {1}, 1}),
      convolution("padding_behind", {2, 3, 5}, {4, 3, 3}, {{1}, P1{false, {0}, {2}}, {1}, 1}),
      convolution("groups_3", {2, 9, 6}, {6, 3, 3}, {{1}, P1::all(1), {1}, 3}),
      convolution("depthwise_17", {2, 17, 8}, {17, 1, 3}, {{2}, P1::all(1), {1}, 17}),
      convolution("kernel_covers_the_input", {3, 5, 4}, {7, 5, 4}, {{1}, P1{}, {1}, 1}),
      convolution("one_of_everything", {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1},
                  {{1, 1, 1}, P3{}, {1, 1, 1}, 1}),
      convolution("odd_sizes", {2, 3, 4, 5, 3}, {7, 3, 3, 3, 3},
                  {{1, 1, 1}, P3::all(1), {1, 1, 1}, 1}),
      convolution("channels_11_to_22_same", {2, 11, 3, 4, 5}, {22, 11, 3, 1, 2},
                  {{1, 1, 1}, same3, {1, 1, 1}, 1}),
      convolution("channels_16_to_16_stride", {2, 16, 5, 4, 6}, {16, 16, 3, 3, 3},
                  {{2, 1, 2}, P3::all(1), {1, 1, 1}, 1}),
      convolution("dilation", {1, 3, 5, 6, 7}, {4, 3, 2, 2, 3}, {{1, 2, 1}, P3{}, {2, 1, 3}, 1}),
      convolution("asymmetric_padding", {2, 4, 3, 4, 3}, {5, 4, 2, 3, 3},
                  {{1, 1, 1}, P3{false, {0, 1, 2}, {1, 0, 1}}, {1, 1, 1}, 1}, false),
      convolution("groups_2", {2, 6, 3, 3, 4}, {4, 3, 2, 2, 2}, {{1, 1, 1}, P3{}, {1, 1, 1}, 2}),
      convolution("depthwise_16", {1, 16, 3, 4, 4}, {16, 1, 3, 3, 3},
                  {{1, 1, 1}, P3::all(1), {1, 1, 1}, 16}),
  };
  struct Row {
    std::string name;
    std::vector<int64_t> x;
    ops::PoolingParams params;
  };
  const std::vector<Row> rows = {
      {"one_of_everything", {1, 1, 1}, {{1}, {1}, P1{}}},
      {"pool_2_stride_2", {2, 16, 9}, {{2}, {2}, P1{}}},
      {"overlapping_padded", {3, 11, 8}, {{3}, {2}, P1::all(1)}},
      {"same_stride_3", {2, 7, 10}, {{4}, {3}, same1}},
      {"padding_behind", {1, 5, 6}, {{3}, {1}, P1{false, {0}, {2}}}},
      {"one_of_everything", {1, 1, 1, 1, 1}, {{1, 1, 1}, {1, 1, 1}, P3{}}},
      {"pool_2_stride_2", {2, 16, 4, 6, 5}, {{2, 2, 2}, {2, 2, 2}, P3{}}},
      {"same", {2, 3, 3, 4, 5}, {{2, 3, 2}, {1, 2, 3}, same3}},
      {"asymmetric_padding",
       {1, 11, 3, 4, 3},
       {{3, 2, 3}, {1, 2, 2}, P3{false, {0, 1, 2}, {2, 0, 1}}}},
  };
  for (const Row& row : rows) {
    cases.push_back(pooling(row.name, row.x, Kind::max, row.params));
    cases.push_back(
        pooling(row.name + "_counting_padding", row.x, Kind::average_with_padding, row.params));
    cases.push_back(
        pooling(row.name + "_without_padding", row.x, Kind::average_without_padding, row.params));
  }
  cases.push_back(
      pooling("sequences", {2, 11, 7}, Kind::average_without_padding, {{7}, {1}, P1{}}, true));
  cases.push_back(pooling("images", {2, 3, 4, 5, 2}, Kind::average_without_padding,
                          {{4, 5, 2}, {1, 1, 1}, P3{}}, true));
  return cases;
}

}  // namespace lockstep::optest
