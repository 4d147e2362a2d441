#include "lockstep/engine/kernels/cpu/matrices/products.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "lockstep/base/numeric/alignment.h"
#include "lockstep/engine/kernels/cpu/matrices/soon.h"
#include "lockstep/engine/kernels/interface/pass_threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/engine/kernels/cpu/matrices/products.cpp"
#include <hwy/foreach_target.h>  // compiles what follows once for each instruction set
#include <hwy/highway.h>

#include "lockstep/engine/kernels/cpu/matrices/tiles.h"

#ifndef LOCKSTEP_PRODUCTS_ONCE
#define LOCKSTEP_PRODUCTS_ONCE
namespace lockstep::kernels::cpu {

// Panels that are multiplied with a block of rows at a time, while the next ones arrive.
constexpr int64_t kPanelsAtOnce = 4, kColumnsAtOnce = kPanelsAtOnce * kPanel;
// Rows of the other factor: whole tiles on every instruction set.
constexpr int64_t kRowsAtOnce = 132;
// Between copied rows: an odd number of cache lines.
template <class T>
constexpr int64_t kCopyStride = kSumBlock<T> + Soon::kLine / static_cast<int64_t>(sizeof(T));

}  // namespace lockstep::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// With one or two rows, tiles are wider, so that enough sums are added at once.
constexpr int kRowsOfWideTiles = 2,
              kVectorsOfRow = static_cast<int>(kPanelsAtOnce) * kVectorsOfPanel;
static_assert(kMostSharedRows <= kRowsOfWideTiles);

template <class T>
class Multiplication {
 public:
  // `scratch`: product_scratch() bytes; null: by_panels() of kMostSharedRows rows or fewer.
  Multiplication(const Product& p, const T* a, const float* bias, float* result, void* scratch)
      : p_(p), a_(a), bias_(bias), result_(result), copy_(static_cast<T*>(scratch)) {}

  // `columns`: of the result; the first one is a multiple of kColumnsAtOnce.
  void by_panels(const T* panels, IndexRange columns) const {
    if (p_.terms == 0) return write_sums_of_nothing(p_.rows, p_.columns, bias_, result_);
    const int64_t panel = size_of_panel(p_.terms);
    for_each_block([&](const Rows& rows, int64_t first, int64_t count) {
      const T* const b = panels + first * kPanel;
      for (int64_t column = columns.first; column < columns.end(); column += kColumnsAtOnce) {
        const int64_t left = columns.end() - column;
        const int64_t next = std::min(kColumnsAtOnce, left - kColumnsAtOnce);
        Soon soon;
        if (next > 0) {
          soon = Soon(b + (column / kPanel + kPanelsAtOnce) * panel, panels_of(next), panel,
                      steps_of<T>(count) * kTogether<T> * kPanel, tiles(rows));
        }
        multiply(rows, first, count, b + column / kPanel * panel, panel, column,
                 std::min(kColumnsAtOnce, left), soon);
      }
    });
  }

  void by_rows(const float* b) const {
    static_assert(std::is_same_v<T, BFloat16>, "blocked_products.h multiplies f32");
    if (p_.terms == 0) return write_sums_of_nothing(p_.rows, p_.columns, bias_, result_);
    T* const panels = copy_ + kRowsAtOnce * kCopyStride<T>;
    for_each_block([&](const Rows& rows, int64_t first, int64_t count) {
      for (int64_t column = 0; column < p_.columns; column += kColumnsAtOnce) {
        const int64_t left = p_.columns - column;
        const int64_t columns = std::min(kColumnsAtOnce, left);
        const float* const block = b + first * p_.columns + column;
        Soon soon;
        if (left > columns) {
          soon = Soon(block + columns, count, p_.columns, std::min(columns, left - columns),
                      tiles(rows));
        }
        make_panels(block, count, columns, panels);
        multiply(rows, first, count, panels, size_of_panel(count), column, columns, soon);
      }
    });
  }

 private:
  // Rows [first, first + count) of a, from the block's first term on.
  struct Rows {
    const T* terms;
    int64_t stride, first, count;
  };

  static int64_t size_of_panel(int64_t terms) { return steps_of<T>(terms) * kTogether<T> * kPanel; }
  // Of kPanelsAtOnce panels.
  static int64_t tiles(const Rows& rows) {
    return (rows.count + kTileRows - 1) / kTileRows * (kPanelsAtOnce / kTilePanels);
  }

  template <class Body>
  void for_each_block(const Body& body) const {
    for (int64_t row = 0; row < p_.rows; row += kRowsAtOnce) {
      for (int64_t first = 0; first < p_.terms; first += kSumBlock<T>) {
        const int64_t count = std::min(kSumBlock<T>, p_.terms - first);
        body(rows_of(row, first, count), first, count);
      }
    }
  }

  // The rows of a tile that lie a multiple of 2 KiB apart would share few sets of the first
  // cache, so they are copied.
  Rows rows_of(int64_t row, int64_t first, int64_t count) const {
    const T* from = a_ + row * p_.terms + first;
    const int64_t rows = std::min(kRowsAtOnce, p_.rows - row);
    const bool copies = p_.terms * static_cast<int64_t>(sizeof(T)) % 2048 == 0 && rows > 2 &&
                        p_.columns > kTilePanels * kPanel;
    if (!copies) return {from, p_.terms, row, rows};
    for (int64_t r = 0; r < rows; ++r, from += p_.terms) {
      std::memcpy(copy_ + r * kCopyStride<T>, from, static_cast<size_t>(count) * sizeof(T));
    }
    return {copy_, kCopyStride<T>, row, rows};
  }

  // Copies rows of b to panels, all columns of a step at once.
  void make_panels(const float* b, int64_t count, int64_t columns, T* panels) const {
    const int64_t whole = columns / kPanel, rest = columns % kPanel;
    const int64_t panel = size_of_panel(count);
    HWY_ALIGN static constexpr float kZeros[kColumnsAtOnce] = {};
    for (int64_t k = 0; k < count; k += kTogether<T>, b += kTogether<T> * p_.columns) {
      const float* rows[kTogether<T>];
      for (int64_t i = 0; i < kTogether<T>; ++i)
        rows[i] = k + i < count ? b + i * p_.columns : kZeros;
      T* to = panels + k * kPanel;
      for (int64_t i = 0; i < whole; ++i, to += panel) {
        put_step(rows, to);
        for (const float*& row : rows) row += kPanel;
      }
      if (rest > 0) {
        HWY_ALIGN float last[kTogether<T>][kPanel] = {};
        for (int64_t i = 0; i < kTogether<T>; ++i) {
          std::memcpy(last[i], rows[i], static_cast<size_t>(rest) * sizeof(float));
          rows[i] = last[i];
        }
        put_step(rows, to);
      }
    }
  }

  // One step of a panel, from kPanel numbers of each of its rows.
  static HWY_INLINE void put_step(const float* const* rows, T* to) {
    const D d;
    for (int v = 0; v < kVectorsOfPanel; ++v) {
      const V step = rounded_pairs(d, hn::LoadU(d, rows[0] + v * kLanesOfVector),
                                   hn::LoadU(d, rows[1] + v * kLanesOfVector));
      hn::StoreU(step, d, reinterpret_cast<float*>(to + v * kLanesOfVector * kTogether<T>));
    }
  }

  // Adds the products of terms [first, first + count) to the columns from `column` on. `b`: the
  // panels of these terms and columns, `panel` numbers apart.
  void multiply(const Rows& rows, int64_t first, int64_t count, const T* b, int64_t panel,
                int64_t column, int64_t columns, Soon& soon) const {
    const int64_t rest = rows.count % kTileRows, few = rest <= kRowsOfWideTiles ? rest : 0;
    if (rows.count > few) {
      Rows whole = rows;
      whole.count -= few;
      multiply_columns<kTileRows, kTileVectors>(whole, first, count, b, panel, column, columns,
                                                soon);
    }
    if (few == 0) return;
    const Rows last{rows.terms + (rows.count - few) * rows.stride, rows.stride,
                    rows.first + rows.count - few, few};
    if (few == 1) {
      multiply_columns<1, kVectorsOfRow>(last, first, count, b, panel, column, columns, soon);
    } else {
      multiply_columns<2, kVectorsOfRow / 2>(last, first, count, b, panel, column, columns, soon);
    }
  }

  // In tiles of `most` rows of `vectors`, and of a panel for what is left.
  template <int most, int vectors>
  void multiply_columns(const Rows& rows, int64_t first, int64_t count, const T* b, int64_t panel,
                        int64_t column, int64_t columns, Soon& soon) const {
    constexpr int64_t kWidth = vectors * kLanesOfVector;
    int64_t c = 0;
    for (; columns - c > kWidth - kPanel; c += kWidth) {
      multiply_tiles<most, vectors>(rows, first, count, b + c / kPanel * panel, panel, column + c,
                                    columns - c, soon);
    }
    for (; c < columns; c += kPanel) {
      multiply_tiles<most, kVectorsOfPanel>(rows, first, count, b + c / kPanel * panel, panel,
                                            column + c, columns - c, soon);
    }
  }

  // Of `most` rows at most.
  template <int most, int vectors>
  void multiply_tiles(const Rows& rows, int64_t first, int64_t count, const T* b, int64_t panel,
                      int64_t column, int64_t columns, Soon& soon) const {
    constexpr int64_t kColumns = vectors * kLanesOfVector;
    columns = std::min(columns, kColumns);
    const bool begins = first == 0;
    const float* const bias = bias_ && first + count == p_.terms ? bias_ + column : nullptr;
    for (int64_t row = 0; row < rows.count; row += most) {
      soon.fetch_portion();
      with_constant<most>(rows.count - row, [&](auto constant) {
        multiply_tile<decltype(constant)::value, vectors>(
            rows.terms + row * rows.stride, rows.stride, b, panel, count, begins, bias,
            {result_ + (rows.first + row) * p_.columns + column, p_.columns, columns});
      });
    }
  }

  // Not inlined, because sums of larger functions leave their registers.
  template <int rows, int vectors>
  static HWY_NOINLINE void multiply_tile(const T* a, int64_t a_row, const T* b, int64_t panel,
                                         int64_t count, bool begins, const float* bias,
                                         const TileResults& to) {
    V sum[rows][vectors];
    sum_products<rows, vectors>(a, a_row, Constant<kTogether<T>>(), b, panel, count, sum);
    finish_tile(sum, begins, bias, to);
  }

  const Product& p_;
  const T* const a_;
  const float* const bias_;
  float* const result_;
  T* const copy_;
};

void by_panels(const Product& p, const float* a, const float* panels, const float* bias,
               float* result, void* scratch, IndexRange columns) {
  Multiplication(p, a, bias, result, scratch).by_panels(panels, columns);
}
void by_panels_bf16(const Product& p, const BFloat16* a, const BFloat16* panels, const float* bias,
                    float* result, void* scratch, IndexRange columns) {
  Multiplication(p, a, bias, result, scratch).by_panels(panels, columns);
}

void by_rows_bf16(const Product& p, const BFloat16* a, const float* b, float* result,
                  void* scratch) {
  Multiplication(p, a, nullptr, result, scratch).by_rows(b);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(by_panels);
HWY_EXPORT(by_panels_bf16);
HWY_EXPORT(by_rows_bf16);

size_t product_scratch() {
  // by_rows() makes panels, of bf16.
  constexpr int64_t panels = kColumnsAtOnce * kSumBlock<BFloat16>;
  return std::max(
      static_cast<size_t>(kRowsAtOnce * kCopyStride<float>) * sizeof(float),
      static_cast<size_t>(kRowsAtOnce * kCopyStride<BFloat16> + panels) * sizeof(BFloat16));
}

void multiply_panels(const Product& p, const float* a, const float* b_panels, const float* bias,
                     float* result, void* scratch) {
  HWY_DYNAMIC_DISPATCH(by_panels)(p, a, b_panels, bias, result, scratch, {0, p.columns});
}

void multiply_panels(const Product& p, const BFloat16* a, const BFloat16* b_panels,
                     const float* bias, float* result, void* scratch) {
  HWY_DYNAMIC_DISPATCH(by_panels_bf16)(p, a, b_panels, bias, result, scratch, {0, p.columns});
}

namespace {

// Bytes of the panels that a part has at least: to read them takes longer than to hand it over.
constexpr int64_t kLeastShared = 32 << 10;

template <class T, class Multiply>
void share_columns(const Product& p, const Multiply& multiply) {
  if (p.terms == 0) return multiply(IndexRange{0, p.columns});
  const int64_t bytes = kColumnsAtOnce * static_cast<int64_t>(sizeof(T)) * p.terms;
  const int64_t parts = (p.columns + kColumnsAtOnce - 1) / kColumnsAtOnce;
  const int64_t least = (kLeastShared + bytes - 1) / bytes;
  share(parts, least, [&](IndexRange range) {
    const int64_t first = range.first * kColumnsAtOnce;
    multiply(IndexRange{first, std::min(range.end() * kColumnsAtOnce, p.columns) - first});
  });
}

}  // namespace

void share_panels(const Product& p, const float* a, const float* b_panels, const float* bias,
                  float* result) {
  share_columns<float>(p, [&](IndexRange columns) {
    HWY_DYNAMIC_DISPATCH(by_panels)(p, a, b_panels, bias, result, nullptr, columns);
  });
}

void share_panels(const Product& p, const BFloat16* a, const BFloat16* b_panels, const float* bias,
                  float* result) {
  share_columns<BFloat16>(p, [&](IndexRange columns) {
    HWY_DYNAMIC_DISPATCH(by_panels_bf16)(p, a, b_panels, bias, result, nullptr, columns);
  });
}

void multiply(const Product& p, const BFloat16* a, const float* b, float* result, void* scratch) {
  HWY_DYNAMIC_DISPATCH(by_rows_bf16)(p, a, b, result, scratch);
}

}  // namespace lockstep::kernels::cpu
#endif
