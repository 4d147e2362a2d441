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
struct WindowPart {
  int64_t result;                          // position in the result
  int64_t first_row, end_row, first, end;  // in the window
  int64_t image, row, kernel_columns;  // position of the window's first element; distance of rows
  int64_t elements() const { return (end_row - first_row) * (end - first); }
  int64_t first_element() const { return elements() > 0 ? image + first_row * row + first : 0; }
  Span2d span() const { return {end_row - first_row, end - first, row}; }
  // The number of an element in its window.
  uint32_t number(int64_t r, int64_t q) const {
    return static_cast<uint32_t>(r * kernel_columns + q);
  }
};

template <class Body>
LOCKSTEP_INLINE void for_each_window(const Sizes2d& s, const Body& body) {
  const auto &k = s.window.kernel, &stride = s.window.stride, &pad = s.window.pad_begin;
  for (int64_t c = 0; c < s.channels; ++c) {
    for (int64_t oy = 0; oy < s.result_rows; ++oy) {
      const int64_t y = oy * stride[0] - pad[0];
      for (int64_t ox = 0; ox < s.result_columns; ++ox) {
        const int64_t x = ox * stride[1] - pad[1];
        WindowPart at{};
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

// One element of each of `width` images, and what belongs to it: kLanes, or half as many.
template <int64_t width>
struct Vectors {
  typedef float Lanes __attribute__((vector_size(width * sizeof(float)), may_alias));
  typedef uint32_t Words __attribute__((vector_size(width * sizeof(uint32_t)), may_alias));
  typedef uint8_t Bytes __attribute__((vector_size(width), may_alias));
  typedef double Doubles __attribute__((vector_size(width * sizeof(double)), may_alias));
};
using WideLanes = Vectors<kLanes>::Lanes;
using WideWords = Vectors<kLanes>::Words;
using Halves = uint16_t __attribute__((vector_size(kLanes * sizeof(uint16_t)), may_alias));
constexpr int64_t kHalf = kLanes / 2;

template <class Some>
LOCKSTEP_INLINE void load(const float* from, Some& to) {
  std::memcpy(&to, from, sizeof to);
}
LOCKSTEP_INLINE void load(const BFloat16* from, WideLanes& to) {
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  const WideWords words = __builtin_convertvector(halves, WideWords) << 16;
  std::memcpy(&to, &words, sizeof to);
}
template <class Some>
LOCKSTEP_INLINE void store(const Some& v, float* to) {
  std::memcpy(to, &v, sizeof v);
}
LOCKSTEP_INLINE void store(const WideLanes& v, BFloat16* to) {
  for (int64_t i = 0; i < kLanes; ++i) to[i] = to_bfloat16(v[i]);
}

// Stores elements that were loaded as T, unchanged.
template <class Some>
LOCKSTEP_INLINE void store_exactly(const Some& v, float* to) {
  store(v, to);
}
LOCKSTEP_INLINE void store_exactly(const WideLanes& v, BFloat16* to) {
  WideWords words;
  std::memcpy(&words, &v, sizeof v);
  const Halves halves = __builtin_convertvector(words >> 16, Halves);
  std::memcpy(static_cast<void*>(to), &halves, sizeof halves);
}

// Calls body(window, first image) for each vector of results.
template <int64_t width, class Body>
LOCKSTEP_INLINE void for_each_vector(const Sizes2d& s, const Body& body) {
  for_each_window(
      s, [&](const WindowPart& at) __attribute__((always_inline)) {
        for (int64_t i = 0; i < s.n; i += width) body(at, i);
      });
}

// The greatest element of each window, the first of equal ones, and its number in the window.
template <int64_t width, class T>
LOCKSTEP_INLINE void maximums(const Sizes2d& s, const T* x, T* y, uint8_t* marks) {
  using Of = Vectors<width>;
  for_each_vector<width>(
      s, [&](const WindowPart& at, int64_t i) __attribute__((always_inline)) {
        typename Of::Lanes greatest{};
        typename Of::Words number{};
        bool first = true;
        for (int64_t r = at.first_row; r < at.end_row; ++r) {
          for (int64_t q = at.first; q < at.end; ++q) {
            typename Of::Lanes v;
            load(x + (at.image + r * at.row + q) * s.n + i, v);
            const auto here = typename Of::Words{} + at.number(r, q);
            const auto more = v > greatest;
            greatest = first ? v : more ? v : greatest;
            number = first ? here : more ? here : number;
            first = false;
          }
        }
        store_exactly(greatest, y + at.result * s.n + i);
        const auto bytes = __builtin_convertvector(number, typename Of::Bytes);
        std::memcpy(marks + at.result * s.n + i, &bytes, sizeof bytes);
      });
}
LOCKSTEP_CLONES void take_maximums(const Sizes2d& s, const float* x, float* y, uint8_t* marks) {
  s.n % kLanes == 0 ? maximums<kLanes>(s, x, y, marks) : maximums<kHalf>(s, x, y, marks);
}
LOCKSTEP_CLONES void take_maximums(const Sizes2d& s, const BFloat16* x, BFloat16* y,
                                   uint8_t* marks) {
  maximums<kLanes>(s, x, y, marks);
}

// Gives each window's gradient to the element that was the greatest. Adds it to what is there, or
// overwrites.
template <int64_t width, bool overwrite, class T>
LOCKSTEP_INLINE void give_to_maximums(const Sizes2d& s, const T* dy, const uint8_t* marks, T* dx) {
  using Of = Vectors<width>;
  for_each_vector<width>(
      s, [&](const WindowPart& at, int64_t i) __attribute__((always_inline)) {
        typename Of::Lanes gradient, sum{};
        load(dy + at.result * s.n + i, gradient);
        typename Of::Bytes bytes;
        std::memcpy(&bytes, marks + at.result * s.n + i, sizeof bytes);
        const auto number = __builtin_convertvector(bytes, typename Of::Words);
        for (int64_t r = at.first_row; r < at.end_row; ++r) {
          for (int64_t q = at.first; q < at.end; ++q) {
            T* const to = dx + (at.image + r * at.row + q) * s.n + i;
            const auto chosen = number == at.number(r, q);
            const typename Of::Lanes given = chosen ? gradient : typename Of::Lanes{};
            if constexpr (sizeof(T) != sizeof(float)) {
              store_exactly(given, to);
            } else {
              // In f32 a sum from 0 also where it overwrites, so that -0 becomes 0.
              if (!overwrite) load(to, sum);
              store_exactly(given + sum, to);
            }
          }
        }
      });
}
LOCKSTEP_CLONES void add_to_maximums(const Sizes2d& s, const float* dy, const uint8_t* marks,
                                     float* dx) {
  s.n % kLanes == 0 ? give_to_maximums<kLanes, false>(s, dy, marks, dx)
                    : give_to_maximums<kHalf, false>(s, dy, marks, dx);
}
LOCKSTEP_CLONES void set_maximums(const Sizes2d& s, const float* dy, const uint8_t* marks,
                                  float* dx) {
  s.n % kLanes == 0 ? give_to_maximums<kLanes, true>(s, dy, marks, dx)
                    : give_to_maximums<kHalf, true>(s, dy, marks, dx);
}
LOCKSTEP_CLONES void set_maximums(const Sizes2d& s, const BFloat16* dy, const uint8_t* marks,
                                  BFloat16* dx) {
  give_to_maximums<kLanes, true>(s, dy, marks, dx);
}

// Up to kMostInF32 elements are summed in f32. Longer sums add short f32 sums of kShort elements in
// double.
constexpr int64_t kMostInF32 = 64, kShort = 8;

template <int64_t width, class T>
LOCKSTEP_INLINE void average_of_many(const T* x, const Span2d& of, float factor, int64_t n, T* y) {
  using Lanes = typename Vectors<width>::Lanes;
  using Doubles = typename Vectors<width>::Doubles;
  for (int64_t i = 0; i < n; i += width) {
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
template <int64_t width, class T>
LOCKSTEP_INLINE void average(const T* x, const Span2d& of, float factor, int64_t n, T* y) {
  using Lanes = typename Vectors<width>::Lanes;
  if (of.rows * of.columns > kMostInF32) {
    average_of_many<width>(x, of, factor, n, y);
    return;
  }
  for (int64_t i = 0; i < n; i += width) {
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
  n % kLanes == 0 ? average<kLanes>(x, of, factor, n, y) : average<kHalf>(x, of, factor, n, y);
}
LOCKSTEP_CLONES void take_average(const BFloat16* x, const Span2d& of, float factor, int64_t n,
                                  BFloat16* y) {
  average<kLanes>(x, of, factor, n, y);
}

template <int64_t width>
LOCKSTEP_INLINE void add_shares(const float* dy, const Span2d& to, float factor, int64_t n,
                                float* dx) {
  using Lanes = typename Vectors<width>::Lanes;
  for (int64_t i = 0; i < n; i += width) {
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
LOCKSTEP_CLONES void give_shares(const float* dy, const Span2d& to, float factor, int64_t n,
                                 float* dx) {
  n % kLanes == 0 ? add_shares<kLanes>(dy, to, factor, n, dx)
                  : add_shares<kHalf>(dy, to, factor, n, dx);
}
// For windows that do not overlap: overwrites dx.
LOCKSTEP_CLONES void give_shares(const BFloat16* dy, const Span2d& to, float factor, int64_t n,
                                 BFloat16* dx) {
  for (int64_t i = 0; i < n; i += kLanes) {
    WideLanes share;
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

// Whether no element lies in two windows.
bool lie_apart(const Window& w, const Shape& dst) {
  const auto along = [&](size_t axis) {
    return w.stride[axis] >= w.kernel[axis] || dst[2 + static_cast<int>(axis)] == 1;
  };
  return along(0) && along(1);
}
// Whether each element lies in exactly one window.
bool cover_once(const Sizes2d& s) {
  const Window& w = s.window;
  return w.stride == w.kernel && s.result_rows * w.kernel[0] == s.rows &&
         s.result_columns * w.kernel[1] == s.columns && w.pad_begin[0] == 0 && w.pad_begin[1] == 0;
}

template <class T>
Kernel max_pooling(const Sizes2d& s, const TensorSpec& src, const TensorSpec& dst) {
  const Operand marks = workspace(static_cast<size_t>(dst.shape.elements()));
  Kernel kernel;
  kernel.forward = own_pass({input(0, src)}, {output(0, dst), marks},
                            [=](void* const* r, void* const* w, const RandomContext&) {
                              take_maximums(s, in<T>(r, 0), out<T>(w, 0), out<uint8_t>(w, 1));
                            });
  const bool apart = lie_apart(s.window, dst.shape), all = cover_once(s);
  kernel.backward.push_back(
      own_pass({diff_output(0, dst), marks}, {diff_input(0, src)},
               [=, bytes = src.bytes()](void* const* r, void* const* w, const RandomContext&) {
                 const auto* const where = in<uint8_t>(r, 1);
                 if (!all) std::memset(w[0], 0, bytes);
                 if constexpr (sizeof(T) == sizeof(float)) {
                   if (!apart) {
                     add_to_maximums(s, in<T>(r, 0), where, out<T>(w, 0));
                     return;
                   }
                 }
                 set_maximums(s, in<T>(r, 0), where, out<T>(w, 0));
               }));
  return kernel;
}

template <class T>
Kernel average_pooling(const Sizes2d& s, const TensorSpec& src, const TensorSpec& dst) {
  const int64_t n = s.n, all = s.window.kernel[0] * s.window.kernel[1];
  const auto share = [=](const WindowPart& at) {
    return 1 / static_cast<float>(s.with_padding ? all : at.elements());
  };
  Kernel kernel;
  kernel.forward = own_pass({input(0, src)}, {output(0, dst)},
                            [=](void* const* r, void* const* w, const RandomContext&) {
                              for_each_window(s, [&](const WindowPart& at) {
                                take_average(in<T>(r, 0) + at.first_element() * n, at.span(),
                                             share(at), n, out<T>(w, 0) + at.result * n);
                              });
                            });
  kernel.backward.push_back(
      own_pass({diff_output(0, dst)}, {diff_input(0, src)},
               [=, bytes = src.bytes()](void* const* r, void* const* w, const RandomContext&) {
                 std::memset(w[0], 0, bytes);
                 for_each_window(s, [&](const WindowPart& at) {
                   give_shares(in<T>(r, 0) + at.result * n, at.span(), share(at), n,
                               out<T>(w, 0) + at.first_element() * n);
                 });
               }));
  return kernel;
}

}  // namespace

bool pools_in_lanes(const PoolingProblem& p) {
  const Window& w = p.window;
  const bool wide = p.src.dtype == DType::f32;
  if (w.axes() != 2 || w.dilation != Size2d{1, 1}) return false;
  const bool can_convert = p.src.row_major() && wide && lanes_are_chosen() &&
                           p.src.shape[0] % least_images(DType::f32) == 0;
  if (!in_lanes(p.src) && !can_convert) return false;
  // Gradients of overlapping windows are accumulated in dx, which would round bf16 sums.
  if (!wide && !lie_apart(w, p.dst)) return false;
  return p.kind != PoolingProblem::Kind::max || w.kernel[0] * w.kernel[1] <= kMostElements;
}

Kernel lanes_pooling(const PoolingProblem& p) {
  const Sizes2d sizes(p);
  const TensorSpec src = lanes_spec(p.src.shape, p.src.dtype);
  const TensorSpec dst = lanes_spec(p.dst, p.src.dtype);
  return with_elements(p.src.dtype, [&]<class T>(T*) {
    return p.kind == PoolingProblem::Kind::max ? max_pooling<T>(sizes, src, dst)
                                               : average_pooling<T>(sizes, src, dst);
  });
}

}  // namespace lockstep::kernels::cpu
