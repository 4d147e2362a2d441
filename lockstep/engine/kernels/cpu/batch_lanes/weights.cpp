#include "lockstep/engine/kernels/cpu/batch_lanes/weights.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "lockstep/base/numeric/bfloat16.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/winograd.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/cpu/transpose.h"
#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels::cpu {
namespace {

constexpr double kA = kPointA, kB = kPointB;

// Number of windows that are transformed together, one per lane.
constexpr int64_t kSide = 16;
// Number of blocks of kSide windows that are written together.
constexpr int64_t kSides = 8, kMany = kSides * kSide;
using Side = float __attribute__((vector_size(kSide * sizeof(float)), may_alias));

// One axis of G g: three numbers to six, `step` apart.
LOCKSTEP_INLINE void spread(const Side& g0, const Side& g1, const Side& g2, Side* u, int step) {
  u[0] = g0 * static_cast<float>(1 / kDivisor0);
  const Side even_a = (g0 + g2 * static_cast<float>(kA * kA)) * static_cast<float>(1 / kDivisorA),
             odd_a = g1 * static_cast<float>(kA / kDivisorA);
  const Side even_b = (g0 + g2 * static_cast<float>(kB * kB)) * static_cast<float>(1 / kDivisorB),
             odd_b = g1 * static_cast<float>(kB / kDivisorB);
  u[step] = even_a + odd_a;
  u[2 * step] = even_a - odd_a;
  u[3 * step] = even_b + odd_b;
  u[4 * step] = even_b - odd_b;
  u[5 * step] = g2;
}

// G g G^T. `turned`: rotates g by 180 degrees.
template <bool turned>
LOCKSTEP_INLINE void transform(const Side (&g)[9], Side (&u)[36]) {
  const auto at = [&](int i) -> const Side& { return g[turned ? 8 - i : i]; };
  Side half[6][3];
  for (int c = 0; c < 3; ++c) spread(at(c), at(3 + c), at(6 + c), &half[0][c], 3);
  for (int r = 0; r < 6; ++r) spread(half[r][0], half[r][1], half[r][2], u + 6 * r, 1);
}

// The inverse transformation of one window.
void gather(const float* u, int step, float& g0, float& g1, float& g2) {
  g0 = u[0] * static_cast<float>(kDivisor0);
  g1 = (u[step] - u[2 * step]) * static_cast<float>(kDivisorA / (2 * kA));
  g2 = u[5 * step];
}
void transform_back(const float (&u)[36], float (&g)[9]) {
  float half[6][3];
  for (int r = 0; r < 6; ++r) gather(u + 6 * r, 1, half[r][0], half[r][1], half[r][2]);
  for (int c = 0; c < 3; ++c) gather(&half[0][c], 3, g[c], g[3 + c], g[6 + c]);
}

// Loads `count` windows, one per lane.
LOCKSTEP_INLINE void load(const float* const* from, int64_t count, Side (&g)[9]) {
  auto* const to = reinterpret_cast<float*>(&g[0]);
  if (count == kSide) {
    for (int64_t k = 0; k < kSide; k += 4) {
      transpose_four(from + k, 0, to + k, kSide);
      transpose_four(from + k, 4, to + 4 * kSide + k, kSide);
    }
    for (int64_t k = 0; k < kSide; ++k) to[8 * kSide + k] = from[k][8];
    return;
  }
  std::memset(to, 0, sizeof g);
  for (int64_t k = 0; k < count; ++k) {
    for (int i = 0; i < 9; ++i) to[i * kSide + k] = from[k][i];
  }
}

LOCKSTEP_INLINE void put(float number, float* to) { *to = number; }
LOCKSTEP_INLINE void put(float number, BFloat16* to) { *to = to_bfloat16(number); }
LOCKSTEP_INLINE void put(const Side& numbers, float* to) {
  std::memcpy(to, &numbers, sizeof numbers);
}
LOCKSTEP_INLINE void put(const Side& numbers, BFloat16* to) {
  for (int64_t k = 0; k < kSide; ++k) to[k] = to_bfloat16(numbers[k]);
}

// Stores G g G^T of up to kMany windows. `from`: address of each window. In `to` the windows are
// adjacent, and the numbers of a window are `step` apart. `turned`: rotates windows by 180 degrees.
template <class T>
LOCKSTEP_INLINE void transform_windows(const float* const* from, int64_t count, bool turned, T* to,
                                       int64_t step) {
  Side g[9], u[kSides][36];
  for (int64_t s = 0; s * kSide < count; ++s) {
    load(from + s * kSide, std::min(kSide, count - s * kSide), g);
    turned ? transform<true>(g, u[s]) : transform<false>(g, u[s]);
  }
  // Writes of several consecutive cache lines are faster.
  for (int i = 0; i < 36; ++i) {
    if (count == kMany) {
      for (int64_t s = 0; s < kSides; ++s) put(u[s][i], to + i * step + s * kSide);
    } else {
      for (int64_t k = 0; k < count; ++k) put(u[k / kSide][i][k % kSide], to + i * step + k);
    }
  }
}

LOCKSTEP_CLONES void transform_all(const float* const* from, int64_t count, bool turned, float* to,
                                   int64_t step) {
  transform_windows(from, count, turned, to, step);
}
LOCKSTEP_CLONES void transform_all(const float* const* from, int64_t count, bool turned,
                                   BFloat16* to, int64_t step) {
  transform_windows(from, count, turned, to, step);
}

class Layout final : public OpaqueLayout {
 public:
  explicit Layout(const LanesWeights& w) : w_(w) {}

  size_t bytes() const override { return static_cast<size_t>(w_.groups) * group_bytes(); }
  bool equals(const OpaqueLayout& other) const override {
    const auto* o = dynamic_cast<const Layout*>(&other);
    return o && o->w_ == w_;
  }
  std::string to_string() const override {
    return std::string("for lanes, ") + (w_.winograd ? "Winograd's" : "direct") +
           (w_.turned ? ", turned" : "") + (w_.dtype == DType::bf16 ? ", bf16" : "");
  }
  void from_row_major(const void* source, void* destination) const override {
    for (int64_t g = 0; g < w_.groups; ++g) {
      const float* const from = static_cast<const float*>(source) + g * group_elements();
      void* const there =
          static_cast<std::byte*>(destination) + static_cast<size_t>(g) * group_bytes();
      with_elements(w_.dtype, [&]<class T>(T*) {
        auto* const to = static_cast<T*>(there);
        if (w_.winograd) {
          pack_winograd(from, to);
        } else {
          pack(from, to);
        }
      });
    }
  }
  void to_row_major(const void* source, void* destination) const override {
    for (int64_t g = 0; g < w_.groups; ++g) {
      float* const to = static_cast<float*>(destination) + g * group_elements();
      const void* const there =
          static_cast<const std::byte*>(source) + static_cast<size_t>(g) * group_bytes();
      with_elements(w_.dtype, [&]<class T>(T*) {
        const auto* const from = static_cast<const T*>(there);
        if (w_.winograd) {
          unpack_winograd(from, to);
        } else {
          unpack(from, to);
        }
      });
    }
  }

 private:
  static constexpr float kZeros[9] = {};  // the window that completes a pair

  // A pair of bfloat16 has the size of a float.
  size_t group_bytes() const {
    return static_cast<size_t>(w_.steps() * w_.out() * w_.window_elements()) * sizeof(float);
  }
  int64_t group_elements() const { return w_.filters * w_.channels * w_.rows * w_.columns; }

  // Index in a window of the number that kernels read as number i.
  int64_t element(int64_t i) const { return w_.turned ? w_.window_elements() - 1 - i : i; }

  template <class T>
  void pack(const float* from, T* to) const {
    const int64_t elements = w_.window_elements();
    for_each_direct_window<T>([&](int64_t window, int64_t at, int64_t step) {
      for (int64_t i = 0; i < elements; ++i) {
        put(window < 0 ? 0.0f : from[window * elements + element(i)], to + at + i * step);
      }
    });
  }
  template <class T>
  void unpack(const T* from, float* to) const {
    const int64_t elements = w_.window_elements();
    for_each_direct_window<T>([&](int64_t window, int64_t at, int64_t step) {
      if (window < 0) return;
      for (int64_t i = 0; i < elements; ++i) {
        to[window * elements + element(i)] = to_float(from[at + i * step]);
      }
    });
  }

  // For Winograd, windows are adjacent: one number of every window, then the next number.
  template <class T>
  void pack_winograd(const float* from, T* to) const {
    const float* windows[kMany];
    int64_t waiting = 0, first = 0;
    const auto transform_waiting = [&] {
      transform_all(windows, waiting, w_.turned, to + first, all<T>());
      first += waiting;
      waiting = 0;
    };
    for_each_window<T>([&](int64_t window) {
      windows[waiting++] = window < 0 ? kZeros : from + window * 9;
      if (waiting == kMany) transform_waiting();
    });
    if (waiting > 0) transform_waiting();
  }
  template <class T>
  void unpack_winograd(const T* from, float* to) const {
    for_each_window<T>([&](int64_t window) {
      if (window >= 0) {
        float u[36], g[9];
        for (int i = 0; i < 36; ++i) u[i] = to_float(from[i * all<T>()]);
        transform_back(u, g);
        for (int i = 0; i < 9; ++i) to[window * 9 + (w_.turned ? 8 - i : i)] = g[i];
      }
      ++from;
    });
  }

  // Number of windows, including those that complete pairs.
  template <class T>
  int64_t all() const {
    return w_.steps() * w_.out() * static_cast<int64_t>(sizeof(float) / sizeof(T));
  }
  int64_t window_of(int64_t in, int64_t out) const {
    return w_.turned ? in * w_.channels + out : out * w_.channels + in;
  }
  // Calls body(index of the window in row-major memory, or -1 for one that completes a pair), in
  // order.
  template <class T, class Body>
  void for_each_window(const Body& body) const {
    constexpr int64_t kTogether = sizeof(float) / sizeof(T);
    for (int64_t t = 0; t < weight_tiles(w_.out()); ++t) {
      const int64_t end = weight_tile_begin(w_.out(), t + 1);
      for (int64_t i = 0; i < w_.in(); i += kTogether) {
        for (int64_t o = weight_tile_begin(w_.out(), t); o < end; ++o) {
          for (int64_t k = i; k < i + kTogether; ++k) body(k < w_.in() ? window_of(k, o) : -1);
        }
      }
    }
  }
  // The same for the direct algorithm, with the position of a window's first number and the step to
  // the next.
  template <class T, class Body>
  void for_each_direct_window(const Body& body) const {
    constexpr int64_t kTogether = sizeof(float) / sizeof(T);
    const int64_t out = w_.out();
    for (int64_t t = 0; t < weight_tiles(out); ++t) {
      const int64_t begin = weight_tile_begin(out, t), of = weight_tile_begin(out, t + 1) - begin;
      for (int64_t i = 0; i < w_.steps() * kTogether; ++i) {
        const int64_t tile = (begin * w_.steps() + i / kTogether * of) * w_.window_elements();
        for (int64_t o = 0; o < of; ++o) {
          body(i < w_.in() ? window_of(i, begin + o) : -1, (tile + o) * kTogether + i % kTogether,
               of * kTogether);
        }
      }
    }
  }

  LanesWeights w_;
};

}  // namespace

TensorSpec lanes_weights_spec(const LanesWeights& w) {
  return {Shape{w.groups * w.filters, w.channels, w.rows, w.columns}, DType::f32,
          std::make_shared<Layout>(w)};
}

bool in_lanes_weights(const TensorSpec& spec) {
  return dynamic_cast<const Layout*>(spec.layout.get()) != nullptr;
}

}  // namespace lockstep::kernels::cpu
