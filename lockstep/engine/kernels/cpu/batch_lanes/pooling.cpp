#include "lockstep/engine/kernels/cpu/batch_lanes/pooling.h"

#include <algorithm>
#include <cstring>

#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels::cpu {
namespace {

constexpr int64_t kMostElements = 255;  // of a window, because one byte marks a maximum

struct Sizes2d {
  int64_t n, channels, rows, columns, result_rows, result_columns;
  Window window;
  bool with_padding;

  explicit Sizes2d(const PoolingProblem& p)
      : n(p.src.shape[0]),
        channels(p.src.shape[1]),
        rows(p.src.shape[2]),
        columns(p.src.shape[3]),
        result_rows(p.dst[2]),
        result_columns(p.dst[3]),
        window(p.window),
        with_padding(p.kind == PoolingProblem::Kind::average_with_padding) {}
};

// Extent of a window's elements. Rows are `row` vectors of n apart.
struct Span2d {
  int64_t rows, columns, row;
};

// The part of a window that lies in the image. Positions count vectors of n.
struct Place {
  int64_t result;                          // position in the result
  int64_t first_row, end_row, first, end;  // in the window
  int64_t image, row, kernel_columns;  // position of the window's first element; distance of rows
  int64_t elements() const { return (end_row - first_row) * (end - first); }
  int64_t first_element() const { return elements() > 0 ? image + first_row * row + first : 0; }
  Span2d span() const { return {end_row - first_row, end - first, row}; }
  // Calls body(position in the images, index in the window) for every element, in order.
  template <class Body>
  void each(const Body& body) const {
    for (int64_t r = first_row; r < end_row; ++r) {
      for (int64_t q = first; q < end; ++q) body(image + r * row + q, r * kernel_columns + q);
    }
  }
};

template <class Body>
void for_each_window(const Sizes2d& s, const Body& body) {
  const auto &k = s.window.kernel, &stride = s.window.stride, &pad = s.window.pad_begin;
  for (int64_t c = 0; c < s.channels; ++c) {
    for (int64_t oy = 0; oy < s.result_rows; ++oy) {
      const int64_t y = oy * stride[0] - pad[0];
      for (int64_t ox = 0; ox < s.result_columns; ++ox) {
        const int64_t x = ox * stride[1] - pad[1];
        Place at{};
        at.result = (c * s.result_rows + oy) * s.result_columns + ox;
        at.first_row = std::max<int64_t>(0, -y);
        at.end_row = std::max(at.first_row, std::min(k[0], s.rows - y));
        at.first = std::max<int64_t>(0, -x);
        at.end = std::max(at.first, std::min(k[1], s.columns - x));
        at.image = (c * s.rows + y) * s.columns + x;
        at.row = s.columns;
        at.kernel_columns = k[1];
        body(at);
      }
    }
  }
}

LOCKSTEP_CLONES void take_greater(const float* x, int64_t n, uint8_t number, bool first, float* y,
                                  uint8_t* marks) {
  for (int64_t i = 0; i < n; ++i) {
    const bool more = first || x[i] > y[i];
    y[i] = more ? x[i] : y[i];
    marks[i] = more ? number : marks[i];
  }
}
LOCKSTEP_CLONES void take_greater(const BFloat16* x, int64_t n, uint8_t number, bool first,
                                  BFloat16* y, uint8_t* marks) {
  for (int64_t i = 0; i < n; ++i) {
    const bool more = first || to_float(x[i]) > to_float(y[i]);
    y[i].bits = more ? x[i].bits : y[i].bits;
    marks[i] = more ? number : marks[i];
  }
}

LOCKSTEP_CLONES void give_where(const uint8_t* marks, uint8_t number, const float* dy, int64_t n,
                                float* dx) {
  for (int64_t i = 0; i < n; ++i) dx[i] += marks[i] == number ? dy[i] : 0.0f;
}
// For windows that do not overlap: overwrites dx.
LOCKSTEP_CLONES void give_where(const uint8_t* marks, uint8_t number, const BFloat16* dy, int64_t n,
                                BFloat16* dx) {
  for (int64_t i = 0; i < n; ++i) {
    dx[i].bits = marks[i] == number ? dy[i].bits : uint16_t{0};
  }
}

// One element of each of kLanes images.
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float)), may_alias));
using Halves = uint16_t __attribute__((vector_size(kLanes * sizeof(uint16_t)), may_alias));
using Words = uint32_t __attribute__((vector_size(kLanes * sizeof(uint32_t)), may_alias));

LOCKSTEP_INLINE void load(const float* from, Lanes& to) { std::memcpy(&to, from, sizeof to); }
LOCKSTEP_INLINE void load(const BFloat16* from, Lanes& to) {
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  const Words words = __builtin_convertvector(halves, Words) << 16;
  std::memcpy(&to, &words, sizeof to);
}
LOCKSTEP_INLINE void store(const Lanes& v, float* to) { std::memcpy(to, &v, sizeof v); }
LOCKSTEP_INLINE void store(const Lanes& v, BFloat16* to) {
  for (int64_t i = 0; i < kLanes; ++i) to[i] = to_bfloat16(v[i]);
}

// Up to kMostInF32 elements are summed in f32. Longer sums add short f32 sums of kShort elements in
// double.
constexpr int64_t kMostInF32 = 64, kShort = 8;
using Doubles = double __attribute__((vector_size(kLanes * sizeof(double)), may_alias));

template <class T>
LOCKSTEP_INLINE void average_of_many(const T* x, const Span2d& of, float factor, int64_t n, T* y) {
  for (int64_t i = 0; i < n; i += kLanes) {
    Doubles total{};
    for (int64_t r = 0; r < of.rows; ++r) {
      for (int64_t first = 0; first < of.columns; first += kShort) {
        Lanes sum{};
        for (int64_t q = first; q < std::min(first + kShort, of.columns); ++q) {
          Lanes v;
          load(x + (r * of.row + q) * n + i, v);
          sum += v;
        }
        total += __builtin_convertvector(sum, Doubles);
      }
    }
    store(__builtin_convertvector(total * static_cast<double>(factor), Lanes), y + i);
  }
}

// The sum of a window's elements, times `factor`.
template <class T>
LOCKSTEP_INLINE void average(const T* x, const Span2d& of, float factor, int64_t n, T* y) {
  if (of.rows * of.columns > kMostInF32) {
    average_of_many(x, of, factor, n, y);
    return;
  }
  for (int64_t i = 0; i < n; i += kLanes) {
    Lanes sum{};
    for (int64_t r = 0; r < of.rows; ++r) {
      for (int64_t q = 0; q < of.columns; ++q) {
        Lanes v;
        load(x + (r * of.row + q) * n + i, v);
        sum += v;
      }
    }
    store(sum * factor, y + i);
  }
}
LOCKSTEP_CLONES void take_average(const float* x, const Span2d& of, float factor, int64_t n,
                                  float* y) {
  average(x, of, factor, n, y);
}
LOCKSTEP_CLONES void take_average(const BFloat16* x, const Span2d& of, float factor, int64_t n,
                                  BFloat16* y) {
  average(x, of, factor, n, y);
}

LOCKSTEP_CLONES void give_shares(const float* dy, const Span2d& to, float factor, int64_t n,
                                 float* dx) {
  for (int64_t i = 0; i < n; i += kLanes) {
    Lanes share;
    load(dy + i, share);
    share *= factor;
    for (int64_t r = 0; r < to.rows; ++r) {
      for (int64_t q = 0; q < to.columns; ++q) {
        float* const at = dx + (r * to.row + q) * n + i;
        Lanes sum;
        load(at, sum);
        store(sum + share, at);
      }
    }
  }
}
// For windows that do not overlap: overwrites dx.
LOCKSTEP_CLONES void give_shares(const BFloat16* dy, const Span2d& to, float factor, int64_t n,
                                 BFloat16* dx) {
  for (int64_t i = 0; i < n; i += kLanes) {
    Lanes share;
    load(dy + i, share);
    BFloat16 rounded[kLanes];
    store(share * factor, rounded);
    for (int64_t r = 0; r < to.rows; ++r) {
      for (int64_t q = 0; q < to.columns; ++q) {
        std::memcpy(static_cast<void*>(dx + (r * to.row + q) * n + i), rounded, sizeof rounded);
      }
    }
  }
}

template <class T>
Kernel max_pooling(const Sizes2d& s, const TensorSpec& src, const TensorSpec& dst) {
  const int64_t n = s.n;
  const Operand marks = workspace(static_cast<size_t>(dst.shape.elements()));
  Kernel kernel;
  kernel.forward =
      own_pass({input(0, src)}, {output(0, dst), marks},
               [=](void* const* r, void* const* w, const StepInfo&) {
                 const T* x = in<T>(r, 0);
                 for_each_window(s, [&](const Place& at) {
                   T* const y = out<T>(w, 0) + at.result * n;
                   auto* const where = out<uint8_t>(w, 1) + at.result * n;
                   bool first = true;
                   at.each([&](int64_t from, int64_t number) {
                     take_greater(x + from * n, n, static_cast<uint8_t>(number), first, y, where);
                     first = false;
                   });
                 });
               });
  kernel.backward.push_back(
      own_pass({diff_output(0, dst), marks}, {diff_input(0, src)},
               [=, bytes = src.bytes()](void* const* r, void* const* w, const StepInfo&) {
                 T* const dx = out<T>(w, 0);
                 std::memset(w[0], 0, bytes);
                 for_each_window(s, [&](const Place& at) {
                   const T* const dy = in<T>(r, 0) + at.result * n;
                   const auto* const where = in<uint8_t>(r, 1) + at.result * n;
                   at.each([&](int64_t from, int64_t number) {
                     give_where(where, static_cast<uint8_t>(number), dy, n, dx + from * n);
                   });
                 });
               }));
  return kernel;
}

template <class T>
Kernel average_pooling(const Sizes2d& s, const TensorSpec& src, const TensorSpec& dst) {
  const int64_t n = s.n, all = s.window.kernel[0] * s.window.kernel[1];
  const auto share = [=](const Place& at) {
    return 1 / static_cast<float>(s.with_padding ? all : at.elements());
  };
  Kernel kernel;
  kernel.forward = own_pass({input(0, src)}, {output(0, dst)},
                            [=](void* const* r, void* const* w, const StepInfo&) {
                              for_each_window(s, [&](const Place& at) {
                                take_average(in<T>(r, 0) + at.first_element() * n, at.span(),
                                             share(at), n, out<T>(w, 0) + at.result * n);
                              });
                            });
  kernel.backward.push_back(
      own_pass({diff_output(0, dst)}, {diff_input(0, src)},
               [=, bytes = src.bytes()](void* const* r, void* const* w, const StepInfo&) {
                 std::memset(w[0], 0, bytes);
                 for_each_window(s, [&](const Place& at) {
                   give_shares(in<T>(r, 0) + at.result * n, at.span(), share(at), n,
                               out<T>(w, 0) + at.first_element() * n);
                 });
               }));
  return kernel;
}

}  // namespace

bool pools_in_lanes(const PoolingProblem& p) {
  const Window& w = p.window;
  // Gradients of overlapping windows are accumulated in dx, which would round bf16 sums.
  const auto apart = [&](size_t axis) {
    return w.stride[axis] >= w.kernel[axis] || p.dst[2 + static_cast<int>(axis)] == 1;
  };
  return in_lanes(p.src) && w.axes() == 2 &&
         (p.src.dtype == DType::f32 || (apart(0) && apart(1))) && w.dilation == Size2d{1, 1} &&
         (p.kind != PoolingProblem::Kind::max || w.kernel[0] * w.kernel[1] <= kMostElements);
}

Kernel lanes_pooling(const PoolingProblem& p) {
  const Sizes2d sizes(p);
  const TensorSpec dst = lanes_spec(p.dst, p.src.dtype);
  return with_elements(p.src.dtype, [&]<class T>(T*) {
    return p.kind == PoolingProblem::Kind::max ? max_pooling<T>(sizes, p.src, dst)
                                               : average_pooling<T>(sizes, p.src, dst);
  });
}

}  // namespace lockstep::kernels::cpu
