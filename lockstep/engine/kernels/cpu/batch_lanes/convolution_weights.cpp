// Gradients of weights and biases: see batch_lanes/convolution.h.
#include <algorithm>
#include <type_traits>

#include "lockstep/engine/kernels/cpu/batch_lanes/convolution.h"
#include "lockstep/engine/kernels/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/engine/kernels/cpu/batch_lanes/convolution_weights.cpp"
#include <hwy/foreach_target.h>  // compiles what follows once for each instruction set
#include <hwy/highway.h>

#include "lockstep/engine/kernels/cpu/batch_lanes/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// Number of filters, and of channels for some columns of the window, whose sums a tile keeps in
// registers.
constexpr int kFilters = 4;
constexpr int kMostColumns = 3;
constexpr int channels_of(int columns) {
  return columns > kMostColumns ? 1 : (columns == 1 ? 2 : 1) * (kManyRegisters ? 2 : 1);
}
// With few filters, tiles are wider, so that enough sums are added at once.
constexpr int64_t most_columns(int64_t filters) {
  return filters == kFilters ? kMostColumns : filters == 1 ? 7 : 5;
}

// Adds in a fixed order: halves are added until one number is left.
HWY_INLINE float sum_of_lanes(const float* lanes) {
#if HWY_TARGET == HWY_SCALAR
  float s[kLanes];
  std::copy_n(lanes, kLanes, s);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) s[i] += s[i + half];
  }
  return s[0];
#else
  const hn::FixedTag<float, 4> d;
  auto s = hn::Add(hn::Add(hn::Load(d, lanes), hn::Load(d, lanes + 8)),
                   hn::Add(hn::Load(d, lanes + 4), hn::Load(d, lanes + 12)));
  s = hn::Add(s, hn::Shuffle1032(s));
  s = hn::Add(s, hn::Shuffle2301(s));
  return hn::GetLane(s);
#endif
}

// Number of positions that are processed together. Enough that loading the sums pays, and few
// enough that the data shared by filters and channels stays in the first-level caches. bf16 takes
// two positions at a time for windows with stride 1.
template <class T>
int64_t positions(int64_t channels) {
  if (kTogether<T> == 2) return 256;
  return channels <= 4 ? 128 : 64;
}

int64_t rounded_up(int64_t a, int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }
int64_t rounded_down(int64_t a, int64_t b) { return -rounded_up(-a, b); }

// Strides in images and results, and range, for some columns of the window.
struct Path {
  int64_t n, columns, result_columns;
  int64_t x_row, x_channel, y_row, y_filter;  // strides; x_row: between rows of adjacent results
  int64_t stride, dilation;                   // of columns
  int64_t shift = 0;                          // offset of the window's first column
  int64_t begin = 0, end = 0;                 // results whose whole window lies in the images
};

// Storage for the sums of a block between bands of rows: for each filter `channels` x `elements`
// sums of kLanes lanes.
struct Gradient {
  float* kept;
  int64_t channels, elements;
  bool first;  // no sums are stored yet

  Gradient at(int64_t filter, int64_t channel, int64_t element) const {
    return {kept + ((filter * channels + channel) * elements + element) * kLanes, channels,
            elements, first};
  }
};

enum class Take { checked, all, checked_last, last };
template <Take take>
using How = std::integral_constant<Take, take>;

// Sums the products of some rows for adjacent columns of the window. `slides`: columns of results
// and of the window are one element apart.
template <bool slides, int filters, int channels, int columns, class T>
HWY_INLINE void gradient_tile(const Path& p, const T* x, const T* dy, int64_t rows, int64_t lane,
                              const Gradient& to) {
  const D d;
  V s[filters][channels][columns];
  for (int f = 0; f < filters; ++f) {
    for (int c = 0; c < channels; ++c) {
      for (int k = 0; k < columns; ++k) {
        s[f][c][k] = to.first ? hn::Zero(d) : hn::Load(d, to.at(f, c, k).kept + lane);
      }
    }
  }
  const int64_t begin = p.begin, end = p.end;
  for (int64_t row = 0; row < rows; ++row) {
    const T* const from = x + row * p.x_row;
    const T* const diff = dy + row * p.y_row;
    V window[channels][columns];
    // how: whether all columns are loaded, or the last one after the others of the window before;
    // and whether they may lie outside the images (checked).
    const auto take = [&](int64_t column, auto how) __attribute__((always_inline)) {
      const int64_t at = column * p.stride + p.shift;
      for (int c = 0; c < channels; ++c) {
        for (int k = 0; k < columns; ++k) {
          if ((how == Take::last || how == Take::checked_last) && k + 1 < columns) {
            window[c][k] = window[c][k + 1];
            continue;
          }
          const int64_t there = at + k * p.dilation;
          const bool checked = how == Take::checked || how == Take::checked_last;
          const bool outside = checked && (there < 0 || there >= p.columns);
          window[c][k] = outside ? hn::Zero(d) : load_images(from + c * p.x_channel + there * p.n);
        }
      }
      for (int f = 0; f < filters; ++f) {
        const V g = load_images(diff + f * p.y_filter + column * p.n);
        for (int c = 0; c < channels; ++c) {
          for (int k = 0; k < columns; ++k) s[f][c][k] = hn::MulAdd(g, window[c][k], s[f][c][k]);
        }
      }
    };
    using Edge = How<(slides ? Take::checked_last : Take::checked)>;
    using Inner = How<(slides ? Take::last : Take::all)>;
    int64_t column = 0;
    if (slides) take(column++, How<Take::checked>());
    for (; column < begin; ++column) take(column, Edge());
    for (; column < end; ++column) take(column, Inner());
    for (; column < p.result_columns; ++column) take(column, Edge());
  }
  for (int f = 0; f < filters; ++f) {
    for (int c = 0; c < channels; ++c) {
      for (int k = 0; k < columns; ++k) hn::Store(s[f][c][k], d, to.at(f, c, k).kept + lane);
    }
  }
}

#if HWY_TARGET <= HWY_AVX3
// For bfloat16 and windows with stride 1. A vector holds kPairs consecutive elements of a row, from
// any images or columns, because all products are summed. Elements outside a row count as 0.
constexpr int64_t kPairs = 2 * kLanes;

// Mask of the kPairs elements from `at` on that lie in [begin, end).
HWY_INLINE __mmask32 within(int64_t at, int64_t begin, int64_t end) {
  const auto below = [&](int64_t to) {
    return to <= at ? 0 : to >= at + kPairs ? ~uint32_t{0} : (uint32_t{1} << (to - at)) - 1;
  };
  return below(end) & ~below(begin);
}
HWY_INLINE V load_pairs(const BFloat16* from, __mmask32 mask) {
  return V{_mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, from))};
}
HWY_INLINE V load_pairs(const BFloat16* from) {
  return V{_mm512_loadu_ps(reinterpret_cast<const float*>(from))};
}

template <int filters, int channels, int columns>
HWY_INLINE void gradient_of_pairs(const Path& p, const BFloat16* x, const BFloat16* dy,
                                  int64_t rows, const Gradient& to) {
  V s[filters][channels][columns];
  for (int f = 0; f < filters; ++f) {
    for (int c = 0; c < channels; ++c) {
      for (int k = 0; k < columns; ++k) {
        s[f][c][k] = to.first ? hn::Zero(D()) : hn::Load(D(), to.at(f, c, k).kept);
      }
    }
  }
  const int64_t x_end = p.columns * p.n, y_end = p.result_columns * p.n;
  const int64_t lowest = p.shift * p.n, highest = lowest + (columns - 1) * p.dilation * p.n;
  for (int64_t row = 0; row < rows; ++row, x += p.x_row, dy += p.y_row) {
    const auto take = [&](int64_t at, auto edge) __attribute__((always_inline)) {
      V window[channels][columns];
      for (int k = 0; k < columns; ++k) {
        const int64_t shift = lowest + k * p.dilation * p.n;
        // Where dy is masked to 0, x must be as well: beyond the row it may be NaN, and 0 * NaN is
        // NaN.
        __mmask32 inside = 0;
        if (edge) {
          inside = within(at, std::max<int64_t>(0, -shift), std::min(y_end, x_end - shift));
        }
        for (int c = 0; c < channels; ++c) {
          const BFloat16* const from = x + c * p.x_channel + at + shift;
          window[c][k] = edge ? load_pairs(from, inside) : load_pairs(from);
        }
      }
      __mmask32 inside = 0;
      if (edge) inside = within(at, 0, y_end);
      for (int f = 0; f < filters; ++f) {
        const BFloat16* const from = dy + f * p.y_filter + at;
        const V g = edge ? load_pairs(from, inside) : load_pairs(from);
        for (int c = 0; c < channels; ++c) {
          for (int k = 0; k < columns; ++k) s[f][c][k] = add_products(g, window[c][k], s[f][c][k]);
        }
      }
    };
    const int64_t inner = std::clamp<int64_t>((-lowest + kPairs - 1) / kPairs * kPairs, 0, y_end);
    int64_t at = 0;
    for (; at < inner; at += kPairs) take(at, std::true_type());
    const int64_t outer = std::min(y_end, x_end - highest);
    for (; at + kPairs <= outer; at += kPairs) take(at, std::false_type());
    for (; at < y_end; at += kPairs) take(at, std::true_type());
  }
  for (int f = 0; f < filters; ++f) {
    for (int c = 0; c < channels; ++c) {
      for (int k = 0; k < columns; ++k) hn::Store(s[f][c][k], D(), to.at(f, c, k).kept);
    }
  }
}
#endif

// Whether gradient_of_pairs() handles whole rows.
template <class T>
bool by_pairs(const Path& p) {
  return HWY_TARGET <= HWY_AVX3 && kTogether<T> == 2 && p.stride == 1;
}

template <int filters, int channels, int columns, class T>
void gradient(const Path& p, const T* x, const T* dy, int64_t rows, int64_t lane,
              const Gradient& to) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (kTogether<T> == 2) {
    if (by_pairs<T>(p)) return gradient_of_pairs<filters, channels, columns>(p, x, dy, rows, to);
  }
#endif
  if (columns > 1 && p.stride == 1 && p.dilation == 1) {
    gradient_tile<true, filters, channels, columns>(p, x, dy, rows, lane, to);
  } else {
    gradient_tile<false, filters, channels, columns>(p, x, dy, rows, lane, to);
  }
}

// Gradients of all channels of `to`, in blocks.
template <int filters, int columns, class T>
void gradient_channels(const Path& p, const T* x, const T* dy, int64_t rows, int64_t lane,
                       const Gradient& to) {
  constexpr int some = channels_of(columns);
  // Splitting into two and one channels would load a filter's elements twice for few sums.
  constexpr bool kThree = kManyRegisters && filters == 4 && columns == 3 && kTogether<T> == 1;
  int64_t c = 0;
  for (; c + some <= to.channels; c += some) {
    if (kThree && to.channels - c == 3) {
      for (int f = 0; f < filters; f += 2) {
        gradient<2, 3, columns>(p, x + c * p.x_channel, dy + f * p.y_filter, rows, lane,
                                to.at(f, c, 0));
      }
      return;
    }
    gradient<filters, some, columns>(p, x + c * p.x_channel, dy, rows, lane, to.at(0, c, 0));
  }
  for (; c < to.channels; ++c) {
    gradient<filters, 1, columns>(p, x + c * p.x_channel, dy, rows, lane, to.at(0, c, 0));
  }
}

template <int columns, class T>
void gradient_filters(const Path& p, const T* x, const T* dy, int64_t rows, int64_t filters,
                      const Gradient& to) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  for (int64_t lane = 0; lane < (by_pairs<T>(p) ? 1 : p.n); lane += lanes) {
    // Sums have kLanes lanes. Images beyond kLanes are added to the same lanes.
    Gradient own = to;
    own.first = to.first && lane < kLanes;
    const auto take = [&]<int some>(std::integral_constant<int, some>, int64_t f) {
      gradient_channels<some, columns>(p, x + lane, dy + f * p.y_filter + lane, rows, lane % kLanes,
                                       own.at(f, 0, 0));
    };
    if constexpr (columns <= most_columns(kFilters)) {
      if (filters == kFilters) {
        take(std::integral_constant<int, kFilters>(), 0);
        continue;
      }
    }
    int64_t f = 0;
    if constexpr (columns <= most_columns(2)) {
      for (; f + 2 <= filters; f += 2) take(std::integral_constant<int, 2>(), f);
    }
    for (; f < filters; ++f) take(std::integral_constant<int, 1>(), f);
  }
}

// Gradients from rows [top, bottom) of results, for some filters and channels. `to` holds the sums.
template <class T>
void gradient_rows(const LanesConvolution& q, const T* x, const T* dy, int64_t top, int64_t bottom,
                   int64_t filters, const Gradient& to) {
  const Window& w = q.window;
  const int64_t row = q.columns * q.n;
  Path p{.n = q.n,
         .columns = q.columns,
         .result_columns = q.result_columns,
         .x_row = w.stride[0] * row,
         .x_channel = q.rows * row,
         .y_row = q.result_columns * q.n,
         .y_filter = q.result_rows * q.result_columns * q.n,
         .stride = w.stride[1],
         .dilation = w.dilation[1]};
  const int64_t most = most_columns(filters), groups = (w.kernel[1] + most - 1) / most;
  struct Group {
    int64_t first, columns, aside, begin, end;
  };
  Group all[LanesConvolution::kMostKernel];
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t k = w.kernel[1] * g / groups, columns = w.kernel[1] * (g + 1) / groups - k;
    const int64_t aside = k * p.dilation - w.pad_begin[1];
    const int64_t reach = aside + (columns - 1) * p.dilation;
    const int64_t begin = std::clamp<int64_t>(rounded_up(-aside, p.stride), 0, p.result_columns);
    const int64_t end = std::clamp<int64_t>(rounded_down(p.columns - 1 - reach, p.stride) + 1,
                                            begin, p.result_columns);
    all[g] = {k, columns, aside, begin, end};
  }
  for (int64_t r = 0; r < w.kernel[0]; ++r) {
    // Rows of results for which row r of the window lies in the images.
    const int64_t shift = r * w.dilation[0] - w.pad_begin[0];
    const int64_t first = std::max(top, rounded_up(-shift, w.stride[0]));
    const int64_t last = std::min(bottom, rounded_down(q.rows - 1 - shift, w.stride[0]) + 1);
    const int64_t rows = std::max<int64_t>(0, last - first);
    const T* const from = rows > 0 ? x + (first * w.stride[0] + shift) * row : x;
    const T* const diff = rows > 0 ? dy + first * p.y_row : dy;
    for (int64_t g = 0; g < groups; ++g) {
      const Group& group = all[g];
      p.shift = group.aside;
      p.begin = group.begin;
      p.end = group.end;
      const Gradient own = to.at(0, 0, r * w.kernel[1] + group.first);
      const auto take = [&]<int some>(std::integral_constant<int, some>) {
        if (group.columns == some) gradient_filters<some>(p, from, diff, rows, filters, own);
      };
      take(std::integral_constant<int, 1>());
      take(std::integral_constant<int, 2>());
      take(std::integral_constant<int, 3>());
      take(std::integral_constant<int, 4>());
      take(std::integral_constant<int, 5>());
      take(std::integral_constant<int, 6>());
      take(std::integral_constant<int, 7>());
    }
  }
}

template <class T>
void weights(const LanesConvolution& q, const T* x, const T* dy, float* dweights, float* scratch) {
  const int64_t elements = q.window_elements(), block = q.channel_block();
  const int64_t band = std::max<int64_t>(1, positions<T>(q.channels) / q.result_columns);
  const int64_t x_channel = q.rows * q.columns * q.n,
                y_filter = q.result_rows * q.result_columns * q.n;
  for (int64_t begin = 0; begin < q.filters; begin += q.kFilterBlock) {
    const int64_t all = std::min(q.kFilterBlock, q.filters - begin);
    for (int64_t c = 0; c < q.channels; c += block) {
      const int64_t channels = std::min(block, q.channels - c);
      for (int64_t top = 0; top < q.result_rows; top += band) {
        const int64_t bottom = std::min(top + band, q.result_rows);
        const Gradient sums{scratch, channels, elements, top == 0};
        for (int64_t f = 0; f < all; f += kFilters) {
          const int64_t filters = std::min<int64_t>(kFilters, all - f);
          gradient_rows(q, x + c * x_channel, dy + (begin + f) * y_filter, top, bottom, filters,
                        sums.at(f, 0, 0));
        }
      }
      for (int64_t f = 0; f < all; ++f) {
        float* const to = dweights + ((begin + f) * q.channels + c) * elements;
        float* const from = scratch + f * channels * elements * kLanes;
        for (int64_t i = 0; i < channels * elements; ++i) {
          float* const lanes = from + i * kLanes;
          if (q.n < kLanes) std::fill(lanes + q.n, lanes + kLanes, 0.0f);
          to[i] = sum_of_lanes(lanes);
        }
      }
    }
  }
}

void weights_of(const LanesConvolution& q, const void* x, const void* dy, float* dweights,
                float* scratch) {
  with_elements(q.dtype, [&]<class T>(T*) {
    weights(q, static_cast<const T*>(x), static_cast<const T*>(dy), dweights, scratch);
  });
}

template <class T>
void bias(const LanesConvolution& q, const T* dy, float* dbias) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t plane = q.result_rows * q.result_columns * q.n;
  // Sums a few vectors in f32 and the rest in double. If a gradient is the same everywhere,
  // rounding errors do not average out.
  constexpr int64_t kFew = 8 * kLanes;
  for (int64_t f = 0; f < q.filters; ++f) {
    double totals[kLanes] = {};
    for (int64_t first = 0; first < plane; first += kFew) {
      const int64_t end = std::min(plane, first + kFew);
      HWY_ALIGN float sums[kLanes];
      for (int64_t lane = 0; lane < kLanes; lane += lanes) {
        V sum = hn::Zero(d);
        for (int64_t i = first + lane; i < end; i += kLanes) {
          sum = hn::Add(sum, load_images(dy + f * plane + i));
        }
        hn::Store(sum, d, sums + lane);
      }
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        totals[lane] += static_cast<double>(sums[lane]);
      }
    }
    double total = 0;
    for (const double t : totals) total += t;
    dbias[f] = static_cast<float>(total);
  }
}

void bias_of(const LanesConvolution& q, const void* dy, float* dbias) {
  with_elements(q.dtype, [&]<class T>(T*) { bias(q, static_cast<const T*>(dy), dbias); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(weights_of);
HWY_EXPORT(bias_of);

size_t LanesConvolution::weights_scratch() const {
  const int64_t windows = std::min(channels, channel_block()) * std::min(filters, kFilterBlock);
  return static_cast<size_t>(windows * window_elements() * kLanes) * sizeof(float);
}

void lanes_convolution_weights(const LanesConvolution& p, const void* x, const void* dy,
                               float* dweights, float* scratch) {
  HWY_DYNAMIC_DISPATCH(weights_of)(p, x, dy, dweights, scratch);
}

void lanes_convolution_bias(const LanesConvolution& p, const void* dy, float* dbias) {
  HWY_DYNAMIC_DISPATCH(bias_of)(p, dy, dbias);
}

}  // namespace lockstep::kernels::cpu
#endif
