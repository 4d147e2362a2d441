#include <cfloat>

#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/pooling.h"

namespace lockstep::kernels::cuda {
namespace {

struct Axis {
  int64_t in, out, kernel, stride, dilation, pad;

  // The window's elements [first, last) that lie inside at output y.
  struct Range {
    int64_t first, last;
  };
  __device__ Range inside(int64_t y) const {
    const int64_t start = y * stride - pad;
    const int64_t first = start >= 0 ? 0 : divide(-start + dilation - 1, dilation).quotient;
    const int64_t room = in - start;  // elements of the window before the far edge
    const int64_t fit = room <= 0 ? 0 : divide(room + dilation - 1, dilation).quotient;
    return {first, fit < kernel ? fit : kernel};
  }
  __device__ int64_t place(int64_t y, int64_t k) const { return y * stride - pad + k * dilation; }

  // The outputs [first, last) whose window may hold input i.
  __device__ Range outputs(int64_t i) const {
    const int64_t reach = i + pad - dilation * (kernel - 1);
    const int64_t first = reach <= 0 ? 0 : divide(reach + stride - 1, stride).quotient;
    const int64_t end = divide(i + pad, stride).quotient + 1;
    return {first, end < out ? end : out};
  }
  // Which element of output y's window input i is, or -1.
  __device__ int64_t element(int64_t i, int64_t y) const {
    const Division at = divide(i + pad - y * stride, dilation);
    return at.remainder == 0 ? at.quotient : -1;
  }
};

struct Geometry {
  Axis row, column;
  int64_t channels;
};

// Where in channels-last memory of rows x columns element i lies.
struct Place {
  int64_t image, row, column, channel;
};
__device__ Place place_of(int64_t i, int64_t rows, int64_t columns, int64_t channels) {
  const Division pixel = divide(i, channels);
  const Division line = divide(pixel.quotient, columns);
  const Division image = divide(line.quotient, rows);
  return {image.quotient, image.remainder, line.remainder, pixel.remainder};
}

// Position is the type of the workspace: the place of the maximum in its window, row by row.
template <class Position>
struct MaxForward {
  Geometry g;
  const float* x;
  float* y;
  Position* where;
  __device__ void operator()(int64_t i) const {
    const Place at = place_of(i, g.row.out, g.column.out, g.channels);
    const Axis::Range rows = g.row.inside(at.row), columns = g.column.inside(at.column);
    // As on the CPU: NaN is above nothing; a window with nothing above the lowest number gives
    // that, and its gradient to its first place.
    float best = -FLT_MAX;
    Position position = 0;
    for (int64_t p = rows.first; p < rows.last; ++p) {
      const int64_t line = at.image * g.row.in + g.row.place(at.row, p);
      for (int64_t q = columns.first; q < columns.last; ++q) {
        const float v =
            x[(line * g.column.in + g.column.place(at.column, q)) * g.channels + at.channel];
        if (v > best) {
          best = v;
          position = static_cast<Position>(p * g.column.kernel + q);
        }
      }
    }
    y[i] = best;
    where[i] = position;
  }
};

// Each input gathers from the windows that hold it, in order: no two threads write to one place.
template <class Position>
struct MaxBackward {
  Geometry g;
  const float* dy;
  const Position* where;
  float* dx;
  __device__ void operator()(int64_t i) const {
    const Place at = place_of(i, g.row.in, g.column.in, g.channels);
    const Axis::Range rows = g.row.outputs(at.row), columns = g.column.outputs(at.column);
    float total = 0;
    for (int64_t y = rows.first; y < rows.last; ++y) {
      const int64_t p = g.row.element(at.row, y);
      if (p < 0) continue;
      for (int64_t x = columns.first; x < columns.last; ++x) {
        const int64_t q = g.column.element(at.column, x);
        if (q < 0) continue;
        const int64_t o = ((at.image * g.row.out + y) * g.column.out + x) * g.channels + at.channel;
        if (where[o] == static_cast<Position>(p * g.column.kernel + q)) total += dy[o];
      }
    }
    dx[i] = total;
  }
};

// How many elements an average is taken of.
struct Divisor {
  bool with_padding;
  __device__ float operator()(const Geometry& g, int64_t y, int64_t x) const {
    if (with_padding) return static_cast<float>(g.row.kernel * g.column.kernel);
    const Axis::Range rows = g.row.inside(y), columns = g.column.inside(x);
    return static_cast<float>((rows.last - rows.first) * (columns.last - columns.first));
  }
};

struct AverageForward {
  Geometry g;
  Divisor divisor;
  const float* x;
  float* y;
  __device__ void operator()(int64_t i) const {
    const Place at = place_of(i, g.row.out, g.column.out, g.channels);
    const Axis::Range rows = g.row.inside(at.row), columns = g.column.inside(at.column);
    double total = 0;
    for (int64_t p = rows.first; p < rows.last; ++p) {
      const int64_t line = at.image * g.row.in + g.row.place(at.row, p);
      for (int64_t q = columns.first; q < columns.last; ++q) {
        total += static_cast<double>(
            x[(line * g.column.in + g.column.place(at.column, q)) * g.channels + at.channel]);
      }
    }
    y[i] = static_cast<float>(total) / divisor(g, at.row, at.column);
  }
};

struct AverageBackward {
  Geometry g;
  Divisor divisor;
  const float* dy;
  float* dx;
  __device__ void operator()(int64_t i) const {
    const Place at = place_of(i, g.row.in, g.column.in, g.channels);
    const Axis::Range rows = g.row.outputs(at.row), columns = g.column.outputs(at.column);
    float total = 0;
    for (int64_t y = rows.first; y < rows.last; ++y) {
      if (g.row.element(at.row, y) < 0) continue;
      for (int64_t x = columns.first; x < columns.last; ++x) {
        if (g.column.element(at.column, x) < 0) continue;
        const int64_t o = ((at.image * g.row.out + y) * g.column.out + x) * g.channels + at.channel;
        total += dy[o] / divisor(g, y, x);
      }
    }
    dx[i] = total;
  }
};

template <class Position>
Kernel max_pooling(const Geometry& g, const TensorSpec& src, const TensorSpec& dst) {
  const int64_t in = src.shape.elements(), out = dst.shape.elements();
  const Operand where = workspace(static_cast<size_t>(out) * sizeof(Position));
  Kernel kernel;
  kernel.forward = own_pass({input(0, src)}, {output(0, dst), where}, [=](const Bound& b) {
    launch_each("max pooling", out, b.queue,
                MaxForward<Position>{g, b.in(0), b.out(0), b.out<Position>(1)});
  });
  kernel.backward.push_back(
      own_pass({diff_output(0, dst), where}, {diff_input(0, src)}, [=](const Bound& b) {
        launch_each("max pooling, backward", in, b.queue,
                    MaxBackward<Position>{g, b.in(0), b.in<Position>(1), b.out(0)});
      }));
  return kernel;
}

// A sequence is an image of one row.
constexpr Axis kOneRow{1, 1, 1, 1, 1, 0};

Axis axis_of(const PoolingProblem& p, int axis) {
  const auto a = static_cast<size_t>(axis);
  return {p.src.shape[2 + axis], p.dst[2 + axis],      p.window.kernel[a],
          p.window.stride[a],    p.window.dilation[a], p.window.pad_begin[a]};
}

}  // namespace

Kernel pooling(const PoolingProblem& p) {
  const int axes = p.window.axes();
  if (axes > 2) {
    throw Unsupported("[cuda] pooling along three axes has no CUDA kernel", "the CPU has one");
  }
  const TensorSpec src = channels_last(p.src.shape), dst = channels_last(p.dst);
  const Geometry g{axes == 2 ? axis_of(p, 0) : kOneRow, axis_of(p, axes - 1), p.src.shape[1]};
  if (p.kind == PoolingProblem::Kind::max) {
    return g.row.kernel * g.column.kernel <= 256 ? max_pooling<uint8_t>(g, src, dst)
                                                 : max_pooling<int32_t>(g, src, dst);
  }
  const Divisor divisor{p.kind == PoolingProblem::Kind::average_with_padding};
  const int64_t in = src.shape.elements(), out = p.dst.elements();
  Kernel kernel;
  kernel.forward = own_pass({input(0, src)}, {output(0, dst)}, [=](const Bound& b) {
    launch_each("average pooling", out, b.queue, AverageForward{g, divisor, b.in(0), b.out(0)});
  });
  kernel.backward.push_back(
      own_pass({diff_output(0, dst)}, {diff_input(0, src)}, [=](const Bound& b) {
        launch_each("average pooling, backward", in, b.queue,
                    AverageBackward{g, divisor, b.in(0), b.out(0)});
      }));
  return kernel;
}

}  // namespace lockstep::kernels::cuda
