#include "lockstep/engine/kernels/cpu/matrices/shard_gradients.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "lockstep/base/numeric/alignment.h"
#include "lockstep/base/numeric/bfloat16.h"
#include "lockstep/base/numeric/clones.h"
#include "lockstep/base/prefetch.h"
#include "lockstep/engine/kernels/cpu/matrices/products.h"
#include "lockstep/engine/kernels/interface/update_ranges.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/engine/kernels/cpu/matrices/shard_gradients.cpp"
#include <hwy/foreach_target.h>  // compiles what follows once for each instruction set
#include <hwy/highway.h>

#include "lockstep/engine/kernels/cpu/matrices/tiles.h"

#ifndef LOCKSTEP_SHARD_GRADIENTS_ONCE
#define LOCKSTEP_SHARD_GRADIENTS_ONCE
namespace lockstep::kernels::cpu {
namespace {

// Units of one update range of work.
constexpr int64_t kUnits = kUnitsOfUpdateRange;
// Sums of the tree that wait for their siblings: one for each level.
constexpr int kLevels = 48;

constexpr int64_t update_ranges_of(const WeightsGradient& p) {
  return (p.units + kUnits - 1) / kUnits;
}

// Numbers of all leaves in a panel or block of one column: whole steps of each leaf.
template <class T>
int64_t numbers_of(std::span<const ShardLeaf> leaves) {
  int64_t steps = 0;
  for (const ShardLeaf& leaf : leaves) steps += steps_of<T>(leaf.rows);
  return steps * kTogether<T>;
}

// Kept rows: inputs in panels (panels x steps x kPanel x the numbers of a step), then output
// gradients in blocks of kUnits (blocks x steps x kUnits x the numbers of a step). Zeros fill the
// last panel and block, and the last step of each leaf. `numbers`: numbers_of(leaves).
template <class T>
struct Kept {
  Kept(const WeightsGradient& p, const void* kept, int64_t of_leaves)
      : numbers(of_leaves),
        inputs(static_cast<const T*>(kept)),
        gradients(inputs + panels_of(p.inputs) * numbers * kPanel) {}
  int64_t numbers;
  const T* inputs;
  const T* gradients;
};

// A block and where it is written.
struct Block {
  const WeightsGradient& problem;
  std::span<const ShardLeaf> leaves;
  std::span<const ShardRoot> roots;
  const ShardBlock& part;

  // Of the first result, from unit `unit` and column `column` on.
  float* result(const ShardRoot& root, int64_t unit, int64_t column) const {
    auto* const to = static_cast<float*>(root.writes[0]);
    return part.alone
               ? to + (unit - part.update_range * kUnits) * stride() + column - part.columns.first
               : to + unit * stride() + column;
  }
  int64_t stride() const { return part.alone ? part.columns.count : problem.inputs; }
};

}  // namespace
}  // namespace lockstep::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// With many registers, tiles of short leaves are half as large, so that the sums of two leaves fit.
#if HWY_TARGET <= HWY_AVX3
constexpr bool kSiblings = true;
#else
constexpr bool kSiblings = false;
#endif
constexpr int kLeafRows = kSiblings ? kTileRows / 2 : kTileRows;

// Rows of a long leaf that all units of an update range use before the next ones: with their
// gradients, they are near in the cache then. kSumBlock is a multiple.
template <class T>
constexpr int64_t kNear = 64 * kTogether<T>;

// Where the sums of a tile of at most `most` rows are in memory.
template <int most, int vectors>
struct TileSums {
  static constexpr int64_t kTile = most * vectors * kLanesOfVector;

  template <int rows>
  static HWY_INLINE void load(const float* from, V (&tile)[rows][vectors]) {
    each<rows>([&](int r, int v, int64_t at)
                   __attribute__((always_inline)) { tile[r][v] = hn::Load(D(), from + at); });
  }
  template <int rows>
  static HWY_INLINE void store(const V (&tile)[rows][vectors], float* to) {
    each<rows>([&](int r, int v, int64_t at)
                   __attribute__((always_inline)) { hn::Store(tile[r][v], D(), to + at); });
  }
  // tile = sums in memory + tile
  template <int rows>
  static HWY_INLINE void add_before(const float* from, V (&tile)[rows][vectors]) {
    each<rows>([&](int r, int v, int64_t at) __attribute__((always_inline)) {
      tile[r][v] = hn::Add(hn::Load(D(), from + at), tile[r][v]);
    });
  }

  HWY_ALIGN float block[kTile];  // of the rows of a block until now
  HWY_ALIGN float leaf[kTile];   // of the blocks before it

 private:
  // Calls body with each row and vector, and their offset in memory.
  template <int rows, class Body>
  static HWY_INLINE void each(const Body& body) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) body(r, v, (r * vectors + v) * kLanesOfVector);
    }
  }
};

// The tree's sums of one tile of at most `most` rows that wait for their siblings.
template <int most, int vectors>
class Waiting {
 public:
  template <int rows>
  HWY_INLINE void put(const V (&tile)[rows][vectors]) {
    TileSums<most, vectors>::store(tile, memory_ + static_cast<int64_t>(count_++) * kTile);
  }
  // tile = the last sum + tile.
  template <int rows>
  HWY_INLINE void add_to(V (&tile)[rows][vectors]) {
    TileSums<most, vectors>::add_before(memory_ + static_cast<int64_t>(--count_) * kTile, tile);
  }

 private:
  static constexpr int64_t kTile = TileSums<most, vectors>::kTile;
  int count_ = 0;
  HWY_ALIGN float memory_[kLevels * kTile];
};

// Adds at most kNear<T> rows, those from number `first` of the leaf on.
template <int rows, int vectors, class T>
HWY_NOINLINE void add_near_rows(const T* gradients, const T* inputs, int64_t panel, int64_t first,
                                int64_t count, TileSums<kTileRows, vectors>& sums) {
  V sum[rows][vectors];
  if (first % kSumBlock<T> == 0) {
    sum_products<rows, vectors>(gradients, Constant<kTogether<T>>(),
                                Constant<kUnits * kTogether<T>>(), inputs, panel, count, sum);
  } else {
    TileSums<kTileRows, vectors>::load(sums.block, sum);
    add_products<rows, vectors>(gradients, Constant<kTogether<T>>(),
                                Constant<kUnits * kTogether<T>>(), inputs, panel, count, sum);
  }
  TileSums<kTileRows, vectors>::store(sum, sums.block);
}

// leaf += block, or leaf = block for the first one.
template <int rows, int vectors>
HWY_INLINE void end_block(bool first, TileSums<kTileRows, vectors>& sums) {
  V sum[rows][vectors];
  TileSums<kTileRows, vectors>::load(sums.block, sum);
  if (!first) TileSums<kTileRows, vectors>::add_before(sums.leaf, sum);
  TileSums<kTileRows, vectors>::store(sum, sums.leaf);
}

// The sum of two leaves of at most kSumBlock rows each, which lie one after another.
template <int rows, int vectors, class T>
HWY_INLINE void sum_leaf_and_sibling(const T* gradients, const T* inputs, int64_t panel,
                                     int64_t count, int64_t of_sibling, V (&sum)[rows][vectors]) {
  constexpr Constant<kTogether<T>> kRow;
  constexpr Constant<kUnits * kTogether<T>> kStep;
  V second[rows][vectors];
  sum_products<rows, vectors>(gradients, kRow, kStep, inputs, panel, count, sum);
  sum_products<rows, vectors>(gradients + count * kUnits, kRow, kStep, inputs + count * kPanel,
                              panel, of_sibling, second);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) sum[r][v] = hn::Add(sum[r][v], second[r][v]);
  }
}

// Results and what is used next are often in no cache; they arrive while the sums are computed.
template <int rows, int vectors>
HWY_INLINE void prefetch(const Block& block, int64_t unit, int64_t column, int64_t columns) {
  const auto each_line = [&](const float* row, int64_t stride, const auto& fetch) {
    for (int r = 0; r < rows; ++r, row += stride) {
      for (int64_t c = 0; c < std::min<int64_t>(columns, vectors * kLanesOfVector); c += kPanel) {
        fetch(row + c);
      }
    }
  };
  if (!block.part.alone) {
    for (const ShardRoot& root : block.roots) {
      each_line(block.result(root, unit, column), block.stride(),
                [](const float* line) { prefetch_to_write(line); });
    }
  }
  const int64_t inputs = block.problem.inputs;
  for (const float* const array : block.part.used_next) {
    each_line(array + unit * inputs + column, inputs,
              [](const float* line) { prefetch_to_write(line); });
  }
}

// Adds the sums that waited for this leaf's. The result waits, or is written.
template <int rows, int vectors, int most>
HWY_INLINE void end_leaf(const Block& block, const ShardLeaf& leaf, int additions, int64_t unit,
                         int64_t column, int64_t columns, V (&sum)[rows][vectors],
                         Waiting<most, vectors>& waiting) {
  for (; additions > 0; --additions) waiting.add_to(sum);
  if (leaf.root < 0) {
    waiting.put(sum);
    return;
  }
  float* to = block.result(block.roots[static_cast<size_t>(leaf.root)], unit, column);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r, to += block.stride()) store_row<vectors>(sum[r], columns, to);
}

// The gradients of `rows` units and `vectors` vectors of inputs, if no leaf has more than
// kSumBlock<T> rows. `columns`: that are left.
template <int rows, int vectors, class T>
void add_tile(const Block& block, const T* gradients, const T* inputs, int64_t panel, int64_t unit,
              int64_t column, int64_t columns) {
  const std::span<const ShardLeaf> leaves = block.leaves;
  const auto numbers = [&](size_t i) { return steps_of<T>(leaves[i].rows) * kTogether<T>; };
  prefetch<rows, vectors>(block, unit, column, columns);
  Waiting<kLeafRows, vectors> waiting;
  for (size_t i = 0; i < leaves.size(); ++i) {
    V sum[rows][vectors];
    const int64_t count = numbers(i);
    int additions = leaves[i].additions;
    // The sums of two siblings are added in registers.
    const bool two = kSiblings && additions == 0 && leaves[i].root < 0 && i + 1 < leaves.size();
    if (two) {
      sum_leaf_and_sibling<rows, vectors>(gradients, inputs, panel, count, numbers(i + 1), sum);
      gradients += count * kUnits;
      inputs += count * kPanel;
      additions = leaves[++i].additions - 1;
    } else {
      sum_products<rows, vectors>(gradients, Constant<kTogether<T>>(),
                                  Constant<kUnits * kTogether<T>>(), inputs, panel, count, sum);
    }
    gradients += numbers(i) * kUnits;
    inputs += numbers(i) * kPanel;
    end_leaf(block, leaves[i], additions, unit, column, columns, sum, waiting);
  }
}

// The same for all units of an update range, from `unit` to `end`, and leaves of any size. All
// units use a block of rows before the next one, so that it comes from a distant cache once.
template <int vectors, class T>
void add_long_tiles(const Block& block, const T* gradients, const T* inputs, int64_t panel,
                    int64_t unit, int64_t end, int64_t column, int64_t columns) {
  constexpr int kTiles = kUnits / kTileRows;
  static_assert(kUnits % kTileRows == 0);
  static_assert(kSumBlock<T> % kNear<T> == 0);
  TileSums<kTileRows, vectors> sums[kTiles];
  Waiting<kTileRows, vectors> waiting[kTiles];
  const auto for_each_tile = [&](const auto& work) {
    for (int64_t tile = 0, first = unit; first < end; ++tile, first += kTileRows) {
      with_constant<kTileRows>(end - first, [&](auto constant) { work(constant, tile, first); });
    }
  };
  for_each_tile([&](auto constant, int64_t, int64_t first) {
    prefetch<decltype(constant)::value, vectors>(block, first, column, columns);
  });
  for (const ShardLeaf& leaf : block.leaves) {
    const int64_t count = steps_of<T>(leaf.rows) * kTogether<T>;
    int64_t begin = 0;
    do {
      const int64_t rows = std::min(count - begin, kNear<T>);
      const bool ends = begin + rows == count || (begin + rows) % kSumBlock<T> == 0;
      for_each_tile([&](auto constant, int64_t tile, int64_t) {
        constexpr int of_tile = decltype(constant)::value;
        add_near_rows<of_tile>(gradients + begin * kUnits + tile * kTileRows * kTogether<T>,
                               inputs + begin * kPanel, panel, begin, rows, sums[tile]);
        if (ends) end_block<of_tile>(begin < kSumBlock<T>, sums[tile]);
      });
      begin += rows;
    } while (begin < count);
    gradients += count * kUnits;
    inputs += count * kPanel;
    for_each_tile([&](auto constant, int64_t tile, int64_t first) {
      constexpr int rows = decltype(constant)::value;
      V sum[rows][vectors];
      TileSums<kTileRows, vectors>::load(sums[tile].leaf, sum);
      end_leaf(block, leaf, leaf.additions, first, column, columns, sum, waiting[tile]);
    });
  }
}

template <int vectors, class T>
void add_panels(const Block& block, const Kept<T>& kept, int64_t panel) {
  const int64_t size = kept.numbers * kPanel, range = block.part.update_range;
  const T* const gradients = kept.gradients + range * kept.numbers * kUnits;
  const T* const inputs = kept.inputs + panel * size;
  const int64_t column = panel * kPanel;
  const int64_t columns = block.part.columns.end() - column;
  const int64_t end = std::min(block.problem.units, (range + 1) * kUnits);
  const bool any_long = std::ranges::any_of(block.leaves, [](const ShardLeaf& leaf) {
    return steps_of<T>(leaf.rows) * kTogether<T> > kSumBlock<T>;
  });
  if (any_long) {
    add_long_tiles<vectors>(block, gradients, inputs, size, range * kUnits, end, column, columns);
    return;
  }
  for (int64_t unit = range * kUnits; unit < end; unit += kLeafRows) {
    with_constant<kLeafRows>(end - unit, [&](auto constant) {
      add_tile<decltype(constant)::value, vectors>(block, gradients + unit % kUnits * kTogether<T>,
                                                   inputs, size, unit, column, columns);
    });
  }
}

template <class T>
void add_weights(const Block& block, const Kept<T>& kept) {
  const int64_t panels = panels_of(block.part.columns.end());
  int64_t panel = block.part.columns.first / kPanel;
  for (; panel + kTilePanels <= panels; panel += kTilePanels) {
    add_panels<kTileVectors>(block, kept, panel);
  }
  for (; panel < panels; ++panel) add_panels<kVectorsOfPanel>(block, kept, panel);
}

void add_weights_f32(const Block& block, const Kept<float>& kept) { add_weights(block, kept); }
void add_weights_bf16(const Block& block, const Kept<BFloat16>& kept) { add_weights(block, kept); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(add_weights_f32);
HWY_EXPORT(add_weights_bf16);

namespace {

void add_weights(const Block& block, const Kept<float>& kept) {
  HWY_DYNAMIC_DISPATCH(add_weights_f32)(block, kept);
}
void add_weights(const Block& block, const Kept<BFloat16>& kept) {
  HWY_DYNAMIC_DISPATCH(add_weights_bf16)(block, kept);
}

// Copies `count` of the `width` columns of a step's rows. Zeros follow.
template <int64_t width>
LOCKSTEP_INLINE void keep_step(const float* from, int64_t, int64_t, int64_t count, float* to) {
  if (count == width) {
    std::memcpy(to, from, width * sizeof(float));
    return;
  }
  std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  std::memset(to + count, 0, static_cast<size_t>(width - count) * sizeof(float));
}
template <int64_t width>
LOCKSTEP_INLINE void keep_step(const BFloat16* from, int64_t columns, int64_t rows, int64_t count,
                               BFloat16* to) {
  static constexpr BFloat16 kZeros[width] = {};
  const BFloat16* const second = rows > 1 ? from + columns : kZeros;
  if (count == width) {
    uint32_t pairs[width];
    for (int64_t c = 0; c < width; ++c) pairs[c] = from[c].bits | uint32_t{second[c].bits} << 16;
    std::memcpy(to, pairs, sizeof pairs);
    return;
  }
  for (int64_t c = 0; c < count; ++c) {
    to[2 * c] = from[c];
    to[2 * c + 1] = second[c];
  }
  std::fill(to + 2 * count, to + 2 * width, BFloat16());
}

// Steps that are fetched before they are written.
constexpr int64_t kAhead = 8;
template <class T>
inline constexpr int64_t kLine = 64 / sizeof(T);

// Copies the `rows` of a leaf into panels of `width` columns, which are `panel` numbers apart.
template <int64_t width, class T>
LOCKSTEP_INLINE void keep_rows(const T* from, int64_t columns, int64_t rows, T* to, int64_t panel) {
  for (int64_t column = 0; column < columns; column += width, to += panel) {
    const int64_t count = std::min(width, columns - column);
    T* step = to;
    for (int64_t n = 0; n < rows; n += kTogether<T>, step += kTogether<T> * width) {
      // Another thread has read the earlier contents.
      if (n + kAhead * kTogether<T> < rows) {
        for (int64_t i = 0; i < width * kTogether<T>; i += kLine<T>) {
          prefetch_to_write(step + kAhead * kTogether<T> * width + i);
        }
      }
      keep_step<width>(from + n * columns + column, columns, rows - n, count, step);
    }
  }
}

template <class T>
LOCKSTEP_INLINE void keep_leaf_of(const WeightsGradient& p, const T* inputs, const T* gradients,
                                  int64_t rows, T* kept, int64_t numbers, int64_t at) {
  keep_rows<kPanel>(inputs, p.inputs, rows, kept + at * kPanel, numbers * kPanel);
  keep_rows<kUnits>(gradients, p.units, rows,
                    kept + panels_of(p.inputs) * numbers * kPanel + at * kUnits, numbers * kUnits);
}
// `at`: numbers of the leaves before this one.
LOCKSTEP_CLONES void keep_leaf(const WeightsGradient& p, const float* inputs,
                               const float* gradients, int64_t rows, float* kept, int64_t numbers,
                               int64_t at) {
  keep_leaf_of(p, inputs, gradients, rows, kept, numbers, at);
}
LOCKSTEP_CLONES void keep_leaf(const WeightsGradient& p, const BFloat16* inputs,
                               const BFloat16* gradients, int64_t rows, BFloat16* kept,
                               int64_t numbers, int64_t at) {
  keep_leaf_of(p, inputs, gradients, rows, kept, numbers, at);
}

template <class T>
void keep(const WeightsGradient& p, std::span<void* const> reads, const IndexRange& rows,
          std::span<const ShardLeaf> leaves, T* kept) {
  const int64_t numbers = numbers_of<T>(leaves);
  int64_t first = 0, at = 0;
  for (const ShardLeaf& leaf : leaves) {
    if (first >= rows.first && first + leaf.rows <= rows.end()) {
      const int64_t n = first - rows.first;
      keep_leaf(p, static_cast<const T*>(reads[0]) + n * p.inputs,
                static_cast<const T*>(reads[1]) + n * p.units, leaf.rows, kept, numbers, at);
    }
    first += leaf.rows;
    at += steps_of<T>(leaf.rows) * kTogether<T>;
  }
}

// Adds the numbers of each unit u to sums[u], in the order of the steps.
LOCKSTEP_CLONES void add_units(const float* from, int64_t steps, double* sums) {
  for (int64_t n = 0; n < steps; ++n, from += kUnits) {
    for (int64_t u = 0; u < kUnits; ++u) sums[u] += static_cast<double>(from[u]);
  }
}
LOCKSTEP_CLONES void add_units(const BFloat16* from, int64_t steps, double* sums) {
  for (int64_t n = 0; n < steps; ++n, from += kUnits * 2) {
    uint32_t pairs[kUnits];
    std::memcpy(pairs, from, sizeof pairs);
    for (int64_t u = 0; u < kUnits; ++u) {
      const auto first = std::bit_cast<float>(pairs[u] << 16),
                 second = std::bit_cast<float>(pairs[u] & 0xffff0000u);
      sums[u] = sums[u] + static_cast<double>(first) + static_cast<double>(second);
    }
  }
}

template <class T>
void add_bias(const Block& block, const Kept<T>& kept) {
  const int64_t first = block.part.update_range * kUnits;
  const T* from = kept.gradients + first * kept.numbers;
  const auto units = static_cast<size_t>(std::min(kUnits, block.problem.units - first));
  float waiting[kLevels][kUnits];
  int count = 0;
  for (const ShardLeaf& leaf : block.leaves) {
    double sums[kUnits] = {};
    const int64_t steps = steps_of<T>(leaf.rows);
    add_units(from, steps, sums);
    from += steps * kUnits * kTogether<T>;
    float sum[kUnits];
    for (int64_t u = 0; u < kUnits; ++u) sum[u] = static_cast<float>(sums[u]);
    for (int i = 0; i < leaf.additions; ++i) {
      --count;
      for (int64_t u = 0; u < kUnits; ++u) sum[u] = waiting[count][u] + sum[u];
    }
    float* to = nullptr;
    if (leaf.root < 0) {
      to = waiting[count++];
    } else {
      to = static_cast<float*>(block.roots[static_cast<size_t>(leaf.root)].writes[1]);
      if (!block.part.alone) to += first;
    }
    std::memcpy(to, sum, (leaf.root < 0 ? static_cast<size_t>(kUnits) : units) * sizeof(float));
  }
}

template <class T>
SumOverShards sum_of(const WeightsGradient& p) {
  SumOverShards sum;
  sum.update_ranges = update_ranges_of(p);
  sum.columns = p.inputs;
  sum.kept_bytes = [p](std::span<const ShardLeaf> leaves) {
    const int64_t columns = panels_of(p.inputs) * kPanel + update_ranges_of(p) * kUnits;
    return round_up(static_cast<size_t>(numbers_of<T>(leaves) * columns) * sizeof(T));
  };
  sum.keep = [p](std::span<void* const> reads, const IndexRange& rows,
                 std::span<const ShardLeaf> leaves,
                 void* kept) { keep(p, reads, rows, leaves, static_cast<T*>(kept)); };
  sum.add = [p](const void* memory, std::span<const ShardLeaf> leaves,
                std::span<const ShardRoot> roots, const ShardBlock& part) {
    const Kept<T> kept(p, memory, numbers_of<T>(leaves));
    const Block block{p, leaves, roots, part};
    add_weights(block, kept);
    if (p.bias && part.columns.first == 0) add_bias(block, kept);
  };
  return sum;
}

}  // namespace

SumOverShards sum_of_weights_gradient(const WeightsGradient& p) {
  return p.dtype == DType::bf16 ? sum_of<BFloat16>(p) : sum_of<float>(p);
}

}  // namespace lockstep::kernels::cpu
#endif
