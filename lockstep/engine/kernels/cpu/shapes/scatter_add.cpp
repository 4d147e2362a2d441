#include "lockstep/engine/kernels/shapes/scatter_add.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/shapes/indexed_axis.h"

namespace lockstep::kernels::cpu {
namespace {

// Elements at one index that are summed at a time, in the first cache.
constexpr int64_t kColumnsOfRows = 512;
// Columns whose sums at all indices are kept at a time.
constexpr int64_t kColumnsOfElements = 16;

int64_t columns_of_elements(const IndexedAxis& a) {
  return std::min(a.x.inner, kColumnsOfElements);
}

size_t scatter_scratch(const IndexedAxis& a) {
  const int64_t numbers =
      a.per_element ? a.x.size * columns_of_elements(a) : a.x.size + 1 + a.count;
  return static_cast<size_t>(numbers) * 8;
}

// Positions by index, those of one index in order: ends[t] is the end of index t in `positions`.
// Indices outside are left out.
void sort_positions(const IndexedAxis& a, const Indices& indices, int64_t* ends,
                    int64_t* positions) {
  const auto inside = [&](int64_t index) { return index >= 0 && index < a.x.size; };
  std::fill_n(ends, a.x.size + 1, 0);
  for (int64_t j = 0; j < a.count; ++j) {
    if (inside(indices[j])) ++ends[indices[j] + 1];
  }
  for (int64_t t = 0; t < a.x.size; ++t) ends[t + 1] += ends[t];
  for (int64_t j = 0; j < a.count; ++j) {
    if (inside(indices[j])) positions[ends[indices[j]]++] = j;
  }
}

void scatter_rows(const IndexedAxis& a, const float* updates, const Indices& indices, float* dst,
                  void* scratch) {
  auto* const ends = static_cast<int64_t*>(scratch);
  int64_t* const positions = ends + a.x.size + 1;
  sort_positions(a, indices, ends, positions);
  const int64_t inner = a.x.inner;
  for (int64_t o = 0; o < a.x.outer; ++o, updates += a.count * inner) {
    int64_t first = 0;
    for (int64_t t = 0; t < a.x.size; first = ends[t++], dst += inner) {
      for (int64_t c = 0; c < inner; c += kColumnsOfRows) {
        const int64_t columns = std::min(kColumnsOfRows, inner - c);
        double sums[kColumnsOfRows];
        std::fill_n(sums, columns, 0.0);
        for (int64_t p = first; p < ends[t]; ++p) {
          const float* const from = updates + positions[p] * inner + c;
          for (int64_t i = 0; i < columns; ++i) sums[i] += static_cast<double>(from[i]);
        }
        for (int64_t i = 0; i < columns; ++i) dst[c + i] = static_cast<float>(sums[i]);
      }
    }
  }
}

void scatter_elements(const IndexedAxis& a, const float* updates, const Indices& indices,
                      float* dst, void* scratch) {
  auto* const sums = static_cast<double*>(scratch);
  const int64_t inner = a.x.inner, most = columns_of_elements(a);
  for (int64_t o = 0; o < a.x.outer; ++o, dst += a.x.size * inner) {
    for (int64_t c = 0; c < inner; c += most) {
      const int64_t columns = std::min(most, inner - c);
      std::fill_n(sums, a.x.size * columns, 0.0);
      for (int64_t j = 0; j < a.count; ++j) {
        const int64_t n = (o * a.count + j) * inner + c;
        for (int64_t i = 0; i < columns; ++i) {
          const int64_t index = indices[n + i];
          if (index < 0 || index >= a.x.size) continue;
          sums[index * columns + i] += static_cast<double>(updates[n + i]);
        }
      }
      for (int64_t t = 0; t < a.x.size; ++t) {
        for (int64_t i = 0; i < columns; ++i) {
          dst[t * inner + c + i] = static_cast<float>(sums[t * columns + i]);
        }
      }
    }
  }
}

}  // namespace

Kernel scatter_add(const ScatterAddProblem& p) {
  const IndexedAxis axis = scattered_axis(p);
  Kernel kernel;
  kernel.forward = own_pass_with_scratch(
      {input(0, p.updates.plain()), input(1, p.indices.plain())}, {output(0, plain_spec(p.dst))},
      scatter_scratch(axis), [axis](void* const* r, void* const* w, void* scratch) {
        const auto scatter = axis.per_element ? scatter_elements : scatter_rows;
        scatter(axis, in(r, 0), axis.indices(r[1]), out(w, 0), scratch);
      });
  kernel.rows_apart = p.per_element && p.axis > 0;
  return kernel;
}

}  // namespace lockstep::kernels::cpu
