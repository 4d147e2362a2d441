#include "lockstep/engine/kernels/cuda/elements.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/windows/pooling.h"

namespace lockstep::kernels::cuda {
namespace {

struct Axis {
  int64_t in, out, kernel, stride, dilation, pad;

  // The range of window elements [first, last) that lie inside the input at output y.
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
  __device__ int64_t input(int64_t y, int64_t k) const { return y * stride - pad + k * dilation; }

  // The range of outputs [first, last) whose window may contain input i.
  __device__ Range outputs(int64_t i) const {
    const int64_t reach = i + pad - dilation * (kernel - 1);
    const int64_t first = reach <= 0 ? 0 : divide(reach + stride - 1, stride).quotient;
    const int64_t end = divide(i + pad, stride).quotient + 1;
    return {first, end < out ? end : out};
  }
  // The index of input i in the window of output y, or -1.
  __device__ int64_t element(int64_t i, int64_t y) const {
    const Division at = divide(i + pad - y * stride, dilation);
    return at.remainder == 0 ? at.quotient : -1;
  }
};

// The coordinates of an element in channels-last memory.
struct Coordinates {
  int64_t observation, plane, row, column, channel;
};

// Images have one plane.
struct Geometry {
  Axis plane, row, column;
  int64_t channels;

  __device__ Coordinates input_coordinates(int64_t i) const {
    return coordinates(i, plane.in, row.in, column.in);
  }
  __device__ Coordinates output_coordinates(int64_t i) const {
    return coordinates(i, plane.out, row.out, column.out);
  }
  __device__ Coordinates coordinates(int64_t i, int64_t planes, int64_t rows,
                                     int64_t columns) const {
    const Division pixel = divide(i, channels);
    const Division line = divide(pixel.quotient, columns);
    const Division slice = divide(line.quotient, rows);
    const Division observation = divide(slice.quotient, planes);
    return {observation.quotient, observation.remainder, slice.remainder, line.remainder,
            pixel.remainder};
  }
};

// Calls visit(index in x, index in the window) for the elements of an output's window that lie
// inside the input, in order.
template <class Visit>
__device__ void for_window(const Geometry& g, const Coordinates& at, const Visit& visit) {
  const Axis::Range planes = g.plane.inside(at.plane), rows = g.row.inside(at.row),
                    columns = g.column.inside(at.column);
  for (int64_t o = planes.first; o < planes.last; ++o) {
    const int64_t slice = at.observation * g.plane.in + g.plane.input(at.plane, o);
    for (int64_t p = rows.first; p < rows.last; ++p) {
      const int64_t line = slice * g.row.in + g.row.input(at.row, p);
      for (int64_t q = columns.first; q < columns.last; ++q) {
        visit((line * g.column.in + g.column.input(at.column, q)) * g.channels + at.channel,
              (o * g.row.kernel + p) * g.column.kernel + q);
      }
    }
  }
}

// Calls visit(position of the output, its index in y, index of the input in its window) for the
// outputs whose window contains an input, in order.
template <class Visit>
__device__ void for_outputs(const Geometry& g, const Coordinates& at, const Visit& visit) {
  const Axis::Range planes = g.plane.outputs(at.plane), rows = g.row.outputs(at.row),
                    columns = g.column.outputs(at.column);
  for (int64_t z = planes.first; z < planes.last; ++z) {
    const int64_t o = g.plane.element(at.plane, z);
    if (o < 0) continue;
    for (int64_t y = rows.first; y < rows.last; ++y) {
      const int64_t p = g.row.element(at.row, y);
      if (p < 0) continue;
      for (int64_t x = columns.first; x < columns.last; ++x) {
        const int64_t q = g.column.element(at.column, x);
        if (q < 0) continue;
        const int64_t line = (at.observation * g.plane.out + z) * g.row.out + y;
        visit(Coordinates{at.observation, z, y, x, at.channel},
              (line * g.column.out + x) * g.channels + at.channel,
              (o * g.row.kernel + p) * g.column.kernel + q);
      }
    }
  }
}

// Position is the type of the workspace, which holds the maximum's index in its window.
template <class T, class Position>
struct MaxForward {
  Geometry g;
  const T* x;
  T* y;
  Position* where;
  __device__ void operator()(int64_t i) const {
    // As on the CPU, NaN never becomes the maximum. If no element exceeds the lowest finite number,
    // the result is that number and the gradient goes to the window's first position.
    float best = lowest<T>();
    Position position = 0;
    for_window(g, g.output_coordinates(i), [&](int64_t from, int64_t number) {
      const float v = value_of(x[from]);
      if (v > best) {
        best = v;
        position = static_cast<Position>(number);
      }
    });
    y[i] = rounded<T>(best);
    where[i] = position;
  }
};

// Each input gathers from the windows that contain it, in order, so no two threads write to the
// same element.
template <class T, class Position>
struct MaxBackward {
  Geometry g;
  const T* dy;
  const Position* where;
  T* dx;
  __device__ void operator()(int64_t i) const {
    float total = 0;
    for_outputs(g, g.input_coordinates(i), [&](const Coordinates&, int64_t from, int64_t number) {
      if (where[from] == static_cast<Position>(number)) total += value_of(dy[from]);
    });
    dx[i] = rounded<T>(total);
  }
};

// Number of elements in an average.
struct Divisor {
  bool with_padding;
  __device__ float operator()(const Geometry& g, const Coordinates& at) const {
    if (with_padding) return static_cast<float>(g.plane.kernel * g.row.kernel * g.column.kernel);
    const Axis::Range planes = g.plane.inside(at.plane), rows = g.row.inside(at.row),
                      columns = g.column.inside(at.column);
    return static_cast<float>((planes.last - planes.first) * (rows.last - rows.first) *
                              (columns.last - columns.first));
  }
};

template <class T>
struct AverageForward {
  Geometry g;
  Divisor divisor;
  const T* x;
  T* y;
  __device__ void operator()(int64_t i) const {
    const Coordinates at = g.output_coordinates(i);
    double total = 0;
    for_window(g, at,
               [&](int64_t from, int64_t) { total += static_cast<double>(value_of(x[from])); });
    y[i] = rounded<T>(static_cast<float>(total) / divisor(g, at));
  }
};

template <class T>
struct AverageBackward {
  Geometry g;
  Divisor divisor;
  const T* dy;
  T* dx;
  __device__ void operator()(int64_t i) const {
    float total = 0;
    for_outputs(g, g.input_coordinates(i), [&](const Coordinates& to, int64_t from, int64_t) {
      total += value_of(dy[from]) / divisor(g, to);
    });
    dx[i] = rounded<T>(total);
  }
};

// Windows of two by two pixels side by side, whose indices in the window fit in a byte. A thread
// takes P neighboring channels of a window, and divides once for all of them.
struct WindowsOfFour {
  int64_t rows, columns;          // of windows, those that the input's edge cuts off included
  int64_t out_rows, out_columns;  // of whole windows
  int64_t in_rows, in_columns, packs;

  explicit WindowsOfFour(const Geometry& g, int pack)
      : rows((g.row.in + 1) / 2),
        columns((g.column.in + 1) / 2),
        out_rows(g.row.out),
        out_columns(g.column.out),
        in_rows(g.row.in),
        in_columns(g.column.in),
        packs(g.channels / pack) {}

  static bool suits(const Geometry& g) {
    const auto halves = [](const Axis& a) {
      return a.kernel == 2 && a.stride == 2 && a.dilation == 1 && a.pad == 0 && a.out == a.in / 2;
    };
    return g.plane.in == 1 && g.plane.kernel == 1 && g.plane.stride == 1 && g.plane.pad == 0 &&
           halves(g.row) && halves(g.column);
  }
};

// Thread number i's window: offsets count packs.
struct WindowOfFour {
  int64_t out;     // of the result
  int64_t in[4];   // of the pixels
  bool inside[4];  // whether the pixels exist
  bool whole;      // whether there is a result

  __device__ WindowOfFour(const WindowsOfFour& w, int64_t rows, int64_t columns, int64_t i) {
    const Division pixel = divide(i, w.packs), line = divide(pixel.quotient, columns),
                   image = divide(line.quotient, rows);
    const int64_t row = image.remainder, column = line.remainder;
    whole = row < w.out_rows && column < w.out_columns;
    out =
        ((image.quotient * w.out_rows + row) * w.out_columns + column) * w.packs + pixel.remainder;
    LOCKSTEP_UNROLL
    for (int k = 0; k < 4; ++k) {
      const int64_t y = 2 * row + k / 2, x = 2 * column + k % 2;
      inside[k] = y < w.in_rows && x < w.in_columns;
      in[k] = ((image.quotient * w.in_rows + y) * w.in_columns + x) * w.packs + pixel.remainder;
    }
  }
};

template <class T, int P>
struct MaxOfFour {
  WindowsOfFour windows;
  const T* x;
  T* y;
  uint8_t* where;
  bool aligned;
  __device__ void operator()(int64_t i) const {
    const WindowOfFour w(windows, windows.out_rows, windows.out_columns, i);
    Pack<T, P> in[4], best;
    Pack<uint8_t, P> position;
    LOCKSTEP_UNROLL
    for (int k = 0; k < 4; ++k) in[k] = load_pack<P>(x + w.in[k] * P, aligned);
    LOCKSTEP_UNROLL
    for (int c = 0; c < P; ++c) {
      // As MaxForward.
      float most = lowest<T>();
      uint8_t at = 0;
      LOCKSTEP_UNROLL
      for (int k = 0; k < 4; ++k) {
        const float v = value_of(in[k].element[c]);
        if (v > most) {
          most = v;
          at = static_cast<uint8_t>(k);
        }
      }
      best.element[c] = rounded<T>(most);
      position.element[c] = at;
    }
    store_pack<P>(best, y + w.out * P, aligned);
    store_pack<P>(position, where + w.out * P, aligned);
  }
};

template <class T, int P>
struct MaxOfFourBackward {
  WindowsOfFour windows;
  const T* dy;
  const uint8_t* where;
  T* dx;
  bool aligned;
  __device__ void operator()(int64_t i) const {
    const WindowOfFour w(windows, windows.rows, windows.columns, i);
    Pack<T, P> diff;
    Pack<uint8_t, P> position;
    if (w.whole) {
      diff = load_pack<P>(dy + w.out * P, aligned);
      position = load_pack<P>(where + w.out * P, aligned);
    }
    LOCKSTEP_UNROLL
    for (int k = 0; k < 4; ++k) {
      if (!w.inside[k]) continue;
      Pack<T, P> result;
      LOCKSTEP_UNROLL
      for (int c = 0; c < P; ++c) {
        const bool taken = w.whole && position.element[c] == k;
        // Adding 0 makes 0 of -0, as the sum over windows does.
        result.element[c] = rounded<T>(taken ? 0.0f + value_of(diff.element[c]) : 0.0f);
      }
      store_pack<P>(result, dx + w.in[k] * P, aligned);
    }
  }
};

template <class T, int P>
Kernel max_pooling_of_four(const Geometry& g, const TensorSpec& src, const TensorSpec& dst) {
  const WindowsOfFour windows(g, P);
  const int64_t images = src.shape[0];
  const int64_t results = images * windows.out_rows * windows.out_columns * windows.packs;
  const int64_t all = images * windows.rows * windows.columns * windows.packs;
  const Operand where = workspace(static_cast<size_t>(dst.shape.elements()));
  Kernel kernel;
  kernel.forward = own_pass({input(0, src)}, {output(0, dst), where}, [=](const Bound& b) {
    const T* const x = b.in<T>(0);
    T* const y = b.out<T>(0);
    uint8_t* const at = b.out<uint8_t>(1);
    const bool aligned = in_packs<P>(x) && in_packs<P>(y) && in_packs<P>(at);
    launch_each("max pooling", results, b.stream, MaxOfFour<T, P>{windows, x, y, at, aligned});
  });
  kernel.backward.push_back(
      own_pass({diff_output(0, dst), where}, {diff_input(0, src)}, [=](const Bound& b) {
        const T* const dy = b.in<T>(0);
        const uint8_t* const at = b.in<uint8_t>(1);
        T* const dx = b.out<T>(0);
        const bool aligned = in_packs<P>(dy) && in_packs<P>(at) && in_packs<P>(dx);
        launch_each("max pooling, backward", all, b.stream,
                    MaxOfFourBackward<T, P>{windows, dy, at, dx, aligned});
      }));
  return kernel;
}

template <class T, class Position>
Kernel max_pooling(const Geometry& g, const TensorSpec& src, const TensorSpec& dst) {
  const int64_t in = src.shape.elements(), out = dst.shape.elements();
  const Operand where = workspace(static_cast<size_t>(out) * sizeof(Position));
  Kernel kernel;
  kernel.forward = own_pass({input(0, src)}, {output(0, dst), where}, [=](const Bound& b) {
    launch_each("max pooling", out, b.stream,
                MaxForward<T, Position>{g, b.in<T>(0), b.out<T>(0), b.out<Position>(1)});
  });
  kernel.backward.push_back(
      own_pass({diff_output(0, dst), where}, {diff_input(0, src)}, [=](const Bound& b) {
        launch_each("max pooling, backward", in, b.stream,
                    MaxBackward<T, Position>{g, b.in<T>(0), b.in<Position>(1), b.out<T>(0)});
      }));
  return kernel;
}

// A sequence is an image with one row, and an image is a volume with one plane.
Axis axis_of(const PoolingProblem& p, int from_last) {
  const int axis = p.window.axes() - 1 - from_last;
  if (axis < 0) return {1, 1, 1, 1, 1, 0};
  const auto a = static_cast<size_t>(axis);
  return {p.src.shape[2 + axis], p.dst[2 + axis],      p.window.kernel[a],
          p.window.stride[a],    p.window.dilation[a], p.window.pad_begin[a]};
}

template <class T>
Kernel pooling_of(const PoolingProblem& p) {
  const TensorSpec src = channels_last(p.src.shape, p.src.dtype),
                   dst = channels_last(p.dst, p.src.dtype);
  const Geometry g{axis_of(p, 2), axis_of(p, 1), axis_of(p, 0), p.src.shape[1]};
  if (p.kind == PoolingProblem::Kind::max) {
    if (WindowsOfFour::suits(g)) {
      return for_packs<T>(
          g.channels, [&]<class P>(P) { return max_pooling_of_four<T, P::value>(g, src, dst); });
    }
    return g.plane.kernel * g.row.kernel * g.column.kernel <= 256
               ? max_pooling<T, uint8_t>(g, src, dst)
               : max_pooling<T, int32_t>(g, src, dst);
  }
  const Divisor divisor{p.kind == PoolingProblem::Kind::average_with_padding};
  const int64_t in = src.shape.elements(), out = p.dst.elements();
  Kernel kernel;
  kernel.forward = own_pass({input(0, src)}, {output(0, dst)}, [=](const Bound& b) {
    launch_each("average pooling", out, b.stream,
                AverageForward<T>{g, divisor, b.in<T>(0), b.out<T>(0)});
  });
  kernel.backward.push_back(
      own_pass({diff_output(0, dst)}, {diff_input(0, src)}, [=](const Bound& b) {
        launch_each("average pooling, backward", in, b.stream,
                    AverageBackward<T>{g, divisor, b.in<T>(0), b.out<T>(0)});
      }));
  return kernel;
}

}  // namespace

Kernel pooling(const PoolingProblem& p) {
  return for_elements(p.src.dtype, [&]<class T>(T) { return pooling_of<T>(p); });
}

}  // namespace lockstep::kernels::cuda
