#include "lockstep/engine/kernels/cpu/lanes_pooling.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "lockstep/engine/kernels/cpu/lanes_layout.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels::cpu {
namespace {

constexpr int64_t kMostElements = 255;  // of a window: a maximum is marked by a byte

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

// What of a window lies in the image. Places are numbers of vectors of n.
struct Place {
  int64_t result;                          // place in the result
  int64_t first_row, end_row, first, end;  // in the window
  int64_t image, row, kernel_columns;      // place of the window's first element, and a row's
  int64_t elements() const { return (end_row - first_row) * (end - first); }
  // body(place in the images, number in the window) for every element, in order.
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
// To windows that do not overlap.
LOCKSTEP_CLONES void give_where(const uint8_t* marks, uint8_t number, const BFloat16* dy, int64_t n,
                                BFloat16* dx) {
  for (int64_t i = 0; i < n; ++i) {
    dx[i].bits = marks[i] == number ? dy[i].bits : uint16_t{0};
  }
}

LOCKSTEP_CLONES void add_to(const float* x, int64_t n, float* sums) {
  for (int64_t i = 0; i < n; ++i) sums[i] += x[i];
}
LOCKSTEP_CLONES void add_to(const BFloat16* x, int64_t n, float* sums) {
  for (int64_t i = 0; i < n; ++i) sums[i] += to_float(x[i]);
}
LOCKSTEP_CLONES void put_scaled(const float* sums, float factor, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = sums[i] * factor;
}
LOCKSTEP_CLONES void put_scaled(const float* sums, float factor, int64_t n, BFloat16* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = to_bfloat16(sums[i] * factor);
}

LOCKSTEP_CLONES void add_scaled(const float* x, float factor, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] += x[i] * factor;
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

// To windows that do not overlap.
void give_shares(const Place& at, const BFloat16* dy, float share, int64_t n, BFloat16* dx) {
  for (int64_t i = 0; i < n; i += kLanes) {
    float all[kLanes] = {};
    BFloat16 scaled[kLanes];
    add_to(dy + i, kLanes, all);
    put_scaled(all, share, kLanes, scaled);
    at.each([&](int64_t to, int64_t) { std::copy_n(scaled, kLanes, dx + to * n + i); });
  }
}

template <class T>
Kernel average_pooling(const Sizes2d& s, const TensorSpec& src, const TensorSpec& dst) {
  const int64_t n = s.n, all = s.window.kernel[0] * s.window.kernel[1];
  const auto share = [=](const Place& at) {
    return 1 / static_cast<float>(s.with_padding ? all : at.elements());
  };
  Kernel kernel;
  kernel.forward = own_pass(
      {input(0, src)}, {output(0, dst)}, [=](void* const* r, void* const* w, const StepInfo&) {
        constexpr int64_t kSums = 64;
        for_each_window(s, [&](const Place& at) {
          for (int64_t i = 0; i < n; i += kSums) {
            const int64_t count = std::min(kSums, n - i);
            float sums[kSums] = {};
            at.each([&](int64_t from, int64_t) { add_to(in<T>(r, 0) + from * n + i, count, sums); });
            put_scaled(sums, share(at), count, out<T>(w, 0) + at.result * n + i);
          }
        });
      });
  kernel.backward.push_back(own_pass(
      {diff_output(0, dst)}, {diff_input(0, src)},
      [=, bytes = src.bytes()](void* const* r, void* const* w, const StepInfo&) {
        T* const dx = out<T>(w, 0);
        std::memset(w[0], 0, bytes);
        for_each_window(s, [&](const Place& at) {
          const T* const dy = in<T>(r, 0) + at.result * n;
          if constexpr (std::is_same_v<T, float>) {
            at.each([&](int64_t from, int64_t) { add_scaled(dy, share(at), n, dx + from * n); });
          } else {
            give_shares(at, dy, share(at), n, dx);
          }
        });
      }));
  return kernel;
}

}  // namespace

bool pools_in_lanes(const PoolingProblem& p) {
  const Window& w = p.window;
  // Gradients that windows have in common are added up, which must not round them.
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
