#include "lockstep/engine/kernels/cpu/matrices/products.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/engine/kernels/cpu/matrices/products.cpp"
#include <hwy/foreach_target.h>  // compiles what follows once for each instruction set
#include <hwy/highway.h>

#include "lockstep/engine/kernels/cpu/matrices/tiles.h"

#ifndef LOCKSTEP_PRODUCTS_ONCE
#define LOCKSTEP_PRODUCTS_ONCE
namespace lockstep::kernels::cpu {

// Panels of a row-major factor that are made at a time.
constexpr int64_t kPanelsAtOnce = 4;

}  // namespace lockstep::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
class Multiplication {
 public:
  Multiplication(const Product& p, const T* a, const float* bias, float* result)
      : p_(p), a_(a), bias_(bias), result_(result) {}

  void by_panels(const T* panels) const {
    const int64_t panel = size_of_panel(p_.terms);
    for_each_block([&](int64_t first, int64_t count) {
      multiply(first, count, panels + first * kPanel, panel, 0, p_.columns);
    });
  }

  void by_rows(const float* b, T* scratch) const {
    for_each_block([&](int64_t first, int64_t count) {
      for (int64_t column = 0; column < p_.columns; column += kPanelsAtOnce * kPanel) {
        const int64_t columns = std::min(kPanelsAtOnce * kPanel, p_.columns - column);
        make_panels(b + first * p_.columns + column, count, columns, scratch);
        multiply(first, count, scratch, size_of_panel(count), column, columns);
      }
    });
  }

 private:
  static int64_t size_of_panel(int64_t terms) { return steps_of<T>(terms) * kTogether<T> * kPanel; }

  // At least one block, because the results are written even if there are no terms.
  template <class Body>
  void for_each_block(const Body& body) const {
    int64_t first = 0;
    do {
      body(first, std::min(kSumBlock<T>, p_.terms - first));
      first += kSumBlock<T>;
    } while (first < p_.terms);
  }

  // Copies rows of b to panels, all columns of a step at once.
  void make_panels(const float* b, int64_t count, int64_t columns, T* panels) const {
    const int64_t whole = columns / kPanel, rest = columns % kPanel;
    const int64_t panel = size_of_panel(count);
    HWY_ALIGN static constexpr float kZeros[kPanelsAtOnce * kPanel] = {};
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
      V step = hn::LoadU(d, rows[0] + v * kLanesOfVector);
      if constexpr (kTogether<T> == 2) {
        step = rounded_pairs(d, step, hn::LoadU(d, rows[1] + v * kLanesOfVector));
      }
      hn::StoreU(step, d, reinterpret_cast<float*>(to + v * kLanesOfVector * kTogether<T>));
    }
  }

  // Adds the products of terms [first, first + count) to the columns from `column` on. `b`: the
  // panels of these terms and columns, `panel` numbers apart.
  void multiply(int64_t first, int64_t count, const T* b, int64_t panel, int64_t column,
                int64_t columns) const {
    int64_t c = 0;
    for (; columns - c > (kTilePanels - 1) * kPanel; c += kTilePanels * kPanel) {
      multiply_tiles<kTileVectors>(first, count, b + c / kPanel * panel, panel, column + c,
                                   columns - c);
    }
    for (; c < columns; c += kPanel) {
      multiply_tiles<kVectorsOfPanel>(first, count, b + c / kPanel * panel, panel, column + c,
                                      columns - c);
    }
  }

  template <int vectors>
  void multiply_tiles(int64_t first, int64_t count, const T* b, int64_t panel, int64_t column,
                      int64_t columns) const {
    const D d;
    constexpr int64_t kColumns = vectors * kLanesOfVector;
    columns = std::min(columns, kColumns);
    const bool begins = first == 0, adds_bias = bias_ && first + count == p_.terms;
    HWY_ALIGN float bias[kColumns] = {};
    if (adds_bias) std::memcpy(bias, bias_ + column, static_cast<size_t>(columns) * sizeof(float));
    for (int64_t row = 0; row < p_.rows; row += kTileRows) {
      with_constant<kTileRows>(p_.rows - row, [&](auto constant) {
        constexpr int kRows = decltype(constant)::value;
        V sum[kRows][vectors];
        sum_products<kRows, vectors>(a_ + row * p_.terms + first, p_.terms, kTogether<T>, b, panel,
                                     count, sum);
        float* to = result_ + row * p_.columns + column;
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          if (!begins) {
            HWY_ALIGN float earlier[kColumns];
            const float* from = to;
            if (columns < kColumns) {
              std::memcpy(earlier, to, static_cast<size_t>(columns) * sizeof(float));
              from = earlier;
            }
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v) {
              sum[r][v] = hn::Add(hn::LoadU(d, from + v * kLanesOfVector), sum[r][v]);
            }
          }
          if (adds_bias) {
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v) {
              sum[r][v] = hn::Add(sum[r][v], hn::Load(d, bias + v * kLanesOfVector));
            }
          }
          store_row<vectors>(sum[r], columns, to);
          to += p_.columns;
        }
      });
    }
  }

  const Product& p_;
  const T* const a_;
  const float* const bias_;
  float* const result_;
};

void by_panels(const Product& p, const float* a, const float* panels, const float* bias,
               float* result) {
  Multiplication(p, a, bias, result).by_panels(panels);
}
void by_panels_bf16(const Product& p, const BFloat16* a, const BFloat16* panels, const float* bias,
                    float* result) {
  Multiplication(p, a, bias, result).by_panels(panels);
}

void by_rows(const Product& p, const float* a, const float* b, float* result, void* scratch) {
  Multiplication(p, a, nullptr, result).by_rows(b, static_cast<float*>(scratch));
}
void by_rows_bf16(const Product& p, const BFloat16* a, const float* b, float* result,
                  void* scratch) {
  Multiplication(p, a, nullptr, result).by_rows(b, static_cast<BFloat16*>(scratch));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(by_panels);
HWY_EXPORT(by_panels_bf16);
HWY_EXPORT(by_rows);
HWY_EXPORT(by_rows_bf16);

size_t product_scratch() {
  return static_cast<size_t>(kPanelsAtOnce * kPanel) *
         std::max(kSumBlock<float> * sizeof(float), kSumBlock<BFloat16> * sizeof(BFloat16));
}

void multiply_panels(const Product& p, const float* a, const float* b_panels, const float* bias,
                     float* result) {
  HWY_DYNAMIC_DISPATCH(by_panels)(p, a, b_panels, bias, result);
}

void multiply_panels(const Product& p, const BFloat16* a, const BFloat16* b_panels,
                     const float* bias, float* result) {
  HWY_DYNAMIC_DISPATCH(by_panels_bf16)(p, a, b_panels, bias, result);
}

void multiply(const Product& p, const float* a, const float* b, float* result, void* scratch) {
  HWY_DYNAMIC_DISPATCH(by_rows)(p, a, b, result, scratch);
}

void multiply(const Product& p, const BFloat16* a, const float* b, float* result, void* scratch) {
  HWY_DYNAMIC_DISPATCH(by_rows_bf16)(p, a, b, result, scratch);
}

}  // namespace lockstep::kernels::cpu
#endif
