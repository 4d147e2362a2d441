#include "lockstep/engine/kernels/cpu/matrices/blocked_products.h"

#include <algorithm>
#include <cstring>

#include "lockstep/engine/kernels/cpu/matrices/products.h"
#include "lockstep/engine/kernels/cpu/matrices/soon.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/engine/kernels/cpu/matrices/blocked_products.cpp"
#include <hwy/foreach_target.h>  // compiles what follows once for each instruction set
#include <hwy/highway.h>

#include "lockstep/engine/kernels/cpu/matrices/tiles.h"

#ifndef LOCKSTEP_BLOCKED_PRODUCTS_ONCE
#define LOCKSTEP_BLOCKED_PRODUCTS_ONCE
namespace lockstep::kernels::cpu {

// Panels of b that stay in the second cache while all rows of a pass: 512 KiB. More terms would
// leave less room for columns, and a is read once for each block of columns; more columns would
// leave less room for terms, and results are read and written once for each block of terms.
constexpr int64_t kTermsOfBlock = 2 * kSumBlock<float>, kColumnsOfBlock = 256;
// Where the rows of all tiles pass once: panels of b in a near cache.
constexpr int64_t kTermsForFewRows = kSumBlock<float>, kColumnsForFewRows = 64;
// Rows of a that pass at a time: whole tiles on every instruction set.
constexpr int64_t kRowsOfBlock = 132;
// Between copied rows of a: an odd number of cache lines.
constexpr int64_t kCopiedRow = kSumBlock<float> + 16;
// Elements of b that are read where they are: they fit in the first cache.
constexpr int64_t kFewElements = 8192;
// Columns of a matrix whose rows do not need too many pages.
constexpr int64_t kMostInPlace = 1024;

}  // namespace lockstep::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// With as few rows, tiles are wider, so that enough sums are added at once.
constexpr int kFewRows = 2, kWideVectors = std::max(8, kVectorsOfPanel);

// Terms of some columns of b, and how to read them: panels are `panel` numbers apart, the terms of
// a panel `step`.
struct Columns {
  const float* first;
  int64_t panel, step;
};
// The number of terms, and whether they are the first and the last ones of the results' sums.
struct Terms {
  int64_t count;
  bool first, last;
};
// The same terms of some rows of a.
struct Rows {
  const float* first;
  int64_t row, step;  // between rows of a tile, and between terms
  int64_t tile;       // between tiles
};

class Multiplier {
 public:
  Multiplier(const BlockedProduct& p, const float* a, const float* b, const float* bias,
             float* result, void* scratch, const NextFactors& next)
      : p_(p),
        a_(a),
        b_(b),
        bias_(bias),
        result_(result),
        rows_(static_cast<float*>(scratch)),
        packs_(p.b_transposed || !reads_in_place()),
        terms_(pass_once() ? kTermsForFewRows : kTermsOfBlock),
        columns_(pass_once() ? kColumnsForFewRows : kColumnsOfBlock),
        next_(next) {}

  void run() {
    if (p_.terms == 0) return write_sums_of_nothing(p_.rows, p_.columns, bias_, result_);
    for (int64_t first = 0; first < p_.terms; first += terms_) {
      const int64_t terms = std::min(terms_, p_.terms - first);
      for (int64_t column = 0; column < p_.columns; column += columns_) {
        multiply_block(first, terms, column, std::min(columns_, p_.columns - column));
      }
    }
  }

 private:
  float* panels() const { return rows_ + kRowsOfBlock * kCopiedRow; }

  // Whether all rows use panels while these are in a near cache.
  bool pass_once() const { return packs_ && p_.rows > kTileRows && p_.rows <= kRowsOfBlock; }

  // Whether b is read where it is: for one tile of rows copies do not pay. For more rows it must
  // fit in the first cache, where rows that lie a multiple of 256 bytes apart share few sets.
  bool reads_in_place() const {
    if (p_.rows <= kTileRows || p_.terms * p_.columns <= kFewElements) return true;
    return p_.rows <= kRowsOfBlock && p_.columns <= kMostInPlace && p_.columns % 64 != 0;
  }

  static int64_t tiles(int64_t rows, int64_t columns) {
    constexpr int64_t kWidth = kTilePanels * kPanel;
    return ((rows + kTileRows - 1) / kTileRows) * ((columns + kWidth - 1) / kWidth);
  }

  // Of terms and columns of b that are packed after `tiles` tiles.
  Soon soon_of_b(int64_t first, int64_t column, int64_t tiles) const {
    const float* of = b_;
    if (first >= p_.terms) {
      if (!next_.b) return {};
      of = next_.b;
      first = 0;
    }
    const int64_t terms = std::min(terms_, p_.terms - first),
                  columns = std::min(columns_, p_.columns - column);
    if (p_.b_transposed) {
      return Soon(of + column * p_.terms + first, columns, p_.terms, terms, tiles);
    }
    return Soon(of + first * p_.columns + column, terms, p_.columns, columns, tiles);
  }

  // Of terms of the rows of a that follow after `tiles` tiles; in the `last` block of b those of
  // the next product follow the last row.
  Soon soon_of_a(int64_t row, int64_t first, int64_t count, int64_t tiles, bool last) const {
    const float* of = a_;
    if (row >= p_.rows) {
      if (!next_.a || !last) return {};
      of = next_.a;
      row = first = 0;
    }
    const int64_t rows = std::min(kRowsOfBlock, p_.rows - row);
    if (p_.a_transposed) return Soon(of + first * p_.rows + row, count, p_.rows, rows, tiles);
    return Soon(of + row * p_.terms + first, rows, p_.terms, count, tiles);
  }

  void multiply_block(int64_t first, int64_t terms, int64_t column, int64_t columns) {
    const int64_t last = columns / kPanel * kPanel;  // the first column of a part of a panel
    float* to = panels();
    for (int64_t k = 0; k < terms; k += kSumBlock<float>) {
      const int64_t count = std::min(kSumBlock<float>, terms - k);
      const int64_t from = packs_ ? 0 : last;
      pack(first + k, count, column + from, columns - from, to);
      to += panels_of(columns - from) * count * kPanel;
    }
    const bool more = column + columns < p_.columns;
    next_b_ =
        soon_of_b(more ? first : first + terms, more ? column + columns : 0,
                  tiles(p_.rows, columns) * ((terms + kSumBlock<float> - 1) / kSumBlock<float>));
    for (int64_t row = 0; row < p_.rows; row += kRowsOfBlock) {
      const int64_t rows = std::min(kRowsOfBlock, p_.rows - row);
      const float* b = panels();
      for (int64_t k = 0; k < terms; k += kSumBlock<float>) {
        const int64_t count = std::min(kSumBlock<float>, terms - k);
        const Rows a = rows_of(row, rows, first + k, count);
        const int64_t rest = terms - k - count;
        next_a_ = soon_of_a(rest > 0 ? row : row + rows, rest > 0 ? first + k + count : first,
                            std::min(kSumBlock<float>, rest > 0 ? rest : terms),
                            tiles(rows, columns), !more && first + terms >= p_.terms);
        const Terms of_sum{count, first + k == 0, first + k + count == p_.terms};
        const auto multiply_columns = [&](const Columns& of, int64_t at, int64_t some) {
          multiply_tiles(a, of, of_sum, row, rows, column + at, some);
        };
        if (packs_) {
          multiply_columns({b, count * kPanel, kPanel}, 0, columns);
          b += panels_of(columns) * count * kPanel;
        } else {
          if (last > 0) {
            multiply_columns({b_ + (first + k) * p_.columns + column, kPanel, p_.columns}, 0, last);
          }
          if (columns > last) multiply_columns({b, count * kPanel, kPanel}, last, columns - last);
          b += panels_of(columns - last) * count * kPanel;
        }
      }
    }
  }

  // Copies terms [first, first + count) of some columns to panels.
  void pack(int64_t first, int64_t count, int64_t column, int64_t columns, float* to) const {
    const D d;
    if (p_.b_transposed) {
      for (int64_t c = 0; c < columns; c += kPanel) {
        pack_panel(b_ + (column + c) * p_.terms + first, p_.terms, count,
                   std::min(kPanel, columns - c), to + c * count);
      }
      return;
    }
    const int64_t whole = columns / kPanel, rest = columns % kPanel;
    const float* from = b_ + first * p_.columns + column;
    for (int64_t k = 0; k < count; ++k, from += p_.columns) {
      float* const step = to + k * kPanel;
      for (int64_t i = 0; i < whole; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectorsOfPanel; ++v) {
          const int64_t lane = v * kLanesOfVector;
          hn::StoreU(hn::LoadU(d, from + i * kPanel + lane), d, step + i * count * kPanel + lane);
        }
      }
      if (rest > 0) {
        HWY_ALIGN float padded[kPanel] = {};
        std::memcpy(padded, from + whole * kPanel, static_cast<size_t>(rest) * sizeof(float));
        std::memcpy(step + whole * count * kPanel, padded, sizeof padded);
      }
    }
  }

  // Rows that lie a multiple of 2 KiB apart would share few sets of the first cache, so they are
  // copied. Those of a transposed matrix become tiles of consecutive terms.
  Rows rows_of(int64_t row, int64_t rows, int64_t first, int64_t count) {
    const bool copies = p_.terms % 512 == 0 && rows > kFewRows;
    if (!copies && !p_.a_transposed) {
      return {a_ + row * p_.terms + first, p_.terms, 1, kTileRows * p_.terms};
    }
    if (copied_row_ != row || copied_term_ != first) {
      copied_row_ = row;
      copied_term_ = first;
      p_.a_transposed ? transpose_rows(row, rows, first, count)
                      : copy_rows(row, rows, first, count);
    }
    if (p_.a_transposed) return {rows_, 1, kTileRows, kTileRows * kSumBlock<float>};
    return {rows_, kCopiedRow, 1, kTileRows * kCopiedRow};
  }

  void copy_rows(int64_t row, int64_t rows, int64_t first, int64_t count) const {
    const D d;
    const float* from = a_ + row * p_.terms + first;
    for (int64_t r = 0; r < rows; ++r, from += p_.terms) {
      float* const to = rows_ + r * kCopiedRow;
      // Whole vectors, because the terms are a multiple of 512.
      for (int64_t k = 0; k < count; k += kLanesOfVector)
        hn::StoreU(hn::LoadU(d, from + k), d, to + k);
    }
  }

  void transpose_rows(int64_t row, int64_t rows, int64_t first, int64_t count) const {
    for (int64_t r = 0; r < rows; r += kTileRows) {
      const float* from = a_ + first * p_.rows + row + r;
      float* to = rows_ + r * kSumBlock<float>;
      const size_t bytes =
          sizeof(float) * static_cast<size_t>(std::min<int64_t>(kTileRows, rows - r));
      if (bytes == kTileRows * sizeof(float)) {  // known to the compiler
        for (int64_t k = 0; k < count; ++k, from += p_.rows, to += kTileRows) {
          std::memcpy(to, from, kTileRows * sizeof(float));
        }
      } else {
        for (int64_t k = 0; k < count; ++k, from += p_.rows, to += kTileRows) {
          std::memcpy(to, from, bytes);
        }
      }
    }
  }

  // The products of `terms`: results from row `row` and column `column` on.
  void multiply_tiles(const Rows& a, const Columns& b, const Terms& terms, int64_t row,
                      int64_t rows, int64_t column, int64_t columns) {
    float* const result = result_ + row * p_.columns + column;
    const float* const bias = terms.last && bias_ ? bias_ + column : nullptr;
    int64_t c = 0;
    const auto columns_of_tiles = [&]<int most, int vectors>() {
      constexpr int64_t kWidth = vectors * kLanesOfVector;
      // Also a last one whose columns are not all there, if that has as many panels.
      for (; columns - c > kWidth - kPanel; c += kWidth) {
        column_of_tiles<most, vectors>(a, rows, {b.first + c / kPanel * b.panel, b.panel, b.step},
                                       terms, bias ? bias + c : nullptr,
                                       {result + c, p_.columns, std::min(kWidth, columns - c)});
      }
    };
    if (rows <= kFewRows) {
      columns_of_tiles.template operator()<kFewRows, kWideVectors>();
    } else {
      columns_of_tiles.template operator()<kTileRows, kTileVectors>();
    }
    columns_of_tiles.template operator()<kTileRows, kVectorsOfPanel>();
  }

  template <int most, int vectors>
  void column_of_tiles(const Rows& a, int64_t rows, const Columns& b, const Terms& terms,
                       const float* bias, TileResults to) {
    constexpr int64_t kWidth = vectors * kLanesOfVector;
    const float* from = a.first;
    for (int64_t row = 0; row < rows; row += kTileRows, from += a.tile) {
      next_a_.fetch_portion();
      next_b_.fetch_portion();
      with_constant<most>(rows - row, [&](auto constant) {
        constexpr int kRows = decltype(constant)::value;
        // The results arrive during the sums.
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
          for (int64_t c = 0; c < kWidth; c += kPanel) {
            __builtin_prefetch(to.first + r * to.stride + c, 1, 3);
          }
        }
        const auto multiply = [&](auto a_row, auto a_step, auto panel, auto b_step) {
          multiply_tile<kRows, vectors>(from, a_row, a_step, b.first, panel, b_step, terms, bias,
                                        to);
        };
        // Most tiles are whole, and their distances are known.
        if constexpr (kRows == most || kRows <= kFewRows) {
          if (!packs_ && !p_.a_transposed && b.step == p_.columns) {
            return multiply(a.row, Constant<1>(), Constant<kPanel>(), b.step);
          }
          if (b.step == kPanel && p_.a_transposed) {
            return multiply(Constant<1>(), Constant<kTileRows>(), b.panel, Constant<kPanel>());
          }
          if (b.step == kPanel) {
            return multiply(a.row, Constant<1>(), b.panel, Constant<kPanel>());
          }
        }
        multiply(a.row, a.step, b.panel, b.step);
      });
      to.first += kTileRows * to.stride;
    }
  }

  // Not inlined, because sums of larger functions leave their registers.
  template <int rows, int vectors, class Row, class StepOfA, class Panel, class StepOfB>
  static HWY_NOINLINE void multiply_tile(const float* a, Row a_row, StepOfA a_step, const float* b,
                                         Panel panel, StepOfB b_step, const Terms& terms,
                                         const float* bias, const TileResults& to) {
    V sum[rows][vectors];
    sum_products<rows, vectors>(a, a_row, a_step, b, panel, terms.count, sum, b_step);
    finish_tile(sum, terms.first, bias, to);
  }

  const BlockedProduct& p_;
  const float *const a_, *const b_, *const bias_;
  float *const result_, *const rows_;
  const bool packs_;
  const int64_t terms_, columns_;  // of a block of b
  const NextFactors next_;
  int64_t copied_row_ = -1, copied_term_ = -1;
  Soon next_a_, next_b_;
};

void multiply_blocked(const BlockedProduct& p, const float* a, const float* b, const float* bias,
                      float* result, void* scratch, const NextFactors& next) {
  Multiplier(p, a, b, bias, result, scratch, next).run();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(multiply_blocked);

void multiply(const BlockedProduct& p, const float* a, const float* b, const float* bias,
              float* result, void* scratch, const NextFactors& next) {
  HWY_DYNAMIC_DISPATCH(multiply_blocked)(p, a, b, bias, result, scratch, next);
}

size_t blocked_product_scratch() {
  return static_cast<size_t>(kRowsOfBlock * kCopiedRow + kTermsOfBlock * kColumnsOfBlock) *
         sizeof(float);
}

}  // namespace lockstep::kernels::cpu
#endif
