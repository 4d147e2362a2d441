#include "lockstep/engine/kernels/cpu/matrices/shard_gradients.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/numeric/alignment.h"
#include "lockstep/engine/kernels/cpu/matrices/products.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/engine/kernels/cpu/matrices/shard_gradients.cpp"
#include <hwy/foreach_target.h>  // compiles what follows once for each instruction set
#include <hwy/highway.h>

#include "lockstep/engine/kernels/cpu/matrices/tiles.h"

#ifndef LOCKSTEP_SHARD_GRADIENTS_ONCE
#define LOCKSTEP_SHARD_GRADIENTS_ONCE
namespace lockstep::kernels::cpu {
namespace {

// Units of one piece of work, a multiple of the rows of a tile on every instruction set.
constexpr int64_t kUnits = 48;
// Sums of the tree that wait for their siblings: one for each level.
constexpr int kLevels = 48;

constexpr int64_t pieces_of(const WeightsGradient& p) { return (p.units + kUnits - 1) / kUnits; }

// Kept rows: inputs in panels (panels x rows x kPanel), then output gradients in blocks of kUnits
// (blocks x rows x kUnits). Zeros fill the last panel and block.
struct Kept {
  const float* inputs;
  const float* gradients;
};
Kept kept_at(const WeightsGradient& p, const void* kept, int64_t rows) {
  const auto* const inputs = static_cast<const float*>(kept);
  return {inputs, inputs + panels_of(p.inputs) * rows * kPanel};
}

}  // namespace
}  // namespace lockstep::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// The tree's sums of one tile that wait for their siblings.
template <int rows, int vectors>
class Waiting {
 public:
  using Tile = V[rows][vectors];

  HWY_INLINE void put(const Tile& tile) {
    const D d;
    float* to = memory_ + static_cast<int64_t>(count_++) * kTile;
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v, to += kLanesOfVector) hn::Store(tile[r][v], d, to);
    }
  }
  // tile = the last sum + tile.
  HWY_INLINE void add_to(Tile& tile) {
    const D d;
    const float* from = memory_ + static_cast<int64_t>(--count_) * kTile;
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v, from += kLanesOfVector) {
        tile[r][v] = hn::Add(hn::Load(d, from), tile[r][v]);
      }
    }
  }

 private:
  static constexpr int64_t kTile = rows * vectors * kLanesOfVector;
  int count_ = 0;
  HWY_ALIGN float memory_[kLevels * kTile];
};

// The sum of a leaf of more than kSumBlock rows, to memory.
template <int rows, int vectors>
HWY_NOINLINE void sum_long_leaf(const float* gradients, const float* inputs, int64_t panel,
                                int64_t count, float* result) {
  const D d;
  for (int64_t first = 0; first < count; first += kSumBlock) {
    V block[rows][vectors];
    sum_products<rows, vectors>(gradients + first * kUnits, 1, kUnits, inputs + first * kPanel,
                                panel, std::min(count - first, kSumBlock), block);
    float* to = result;
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v, to += kLanesOfVector) {
        if (first > 0) block[r][v] = hn::Add(hn::Load(d, to), block[r][v]);
        hn::Store(block[r][v], d, to);
      }
    }
  }
}

template <int rows, int vectors>
HWY_INLINE void sum_leaf(const float* gradients, const float* inputs, int64_t panel, int64_t count,
                         V (&sum)[rows][vectors]) {
  if (HWY_LIKELY(count <= kSumBlock)) {
    sum_products<rows, vectors>(gradients, 1, kUnits, inputs, panel, count, sum);
    return;
  }
  const D d;
  HWY_ALIGN float result[rows * vectors * kLanesOfVector];
  sum_long_leaf<rows, vectors>(gradients, inputs, panel, count, result);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) {
      sum[r][v] = hn::Load(d, result + (r * vectors + v) * kLanesOfVector);
    }
  }
}

// The gradients of `rows` units and `vectors` vectors of inputs.
template <int rows, int vectors>
void add_tile(const WeightsGradient& p, const float* gradients, const float* inputs, int64_t panel,
              std::span<const ShardLeaf> leaves, int64_t at, int64_t columns,
              std::span<const ShardRoot> roots) {
  Waiting<rows, vectors> waiting;
  for (const ShardLeaf& leaf : leaves) {
    V sum[rows][vectors];
    sum_leaf<rows, vectors>(gradients, inputs, panel, leaf.rows, sum);
    gradients += leaf.rows * kUnits;
    inputs += leaf.rows * kPanel;
    for (int i = 0; i < leaf.additions; ++i) waiting.add_to(sum);
    if (leaf.root < 0) {
      waiting.put(sum);
      continue;
    }
    float* to = static_cast<float*>(roots[static_cast<size_t>(leaf.root)].writes[0]) + at;
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r, to += p.inputs) store_row<vectors>(sum[r], columns, to);
  }
}

template <int vectors>
void add_panels(const WeightsGradient& p, const Kept& kept, int64_t all, int64_t panel,
                int64_t piece, std::span<const ShardLeaf> leaves,
                std::span<const ShardRoot> roots) {
  const float* const gradients = kept.gradients + piece * all * kUnits;
  const float* const inputs = kept.inputs + panel * all * kPanel;
  const int64_t column = panel * kPanel;
  const int64_t end = std::min(p.units, (piece + 1) * kUnits);
  for (int64_t unit = piece * kUnits; unit < end; unit += kTileRows) {
    with_constant<kTileRows>(end - unit, [&](auto constant) {
      add_tile<decltype(constant)::value, vectors>(p, gradients + unit % kUnits, inputs,
                                                   all * kPanel, leaves, unit * p.inputs + column,
                                                   p.inputs - column, roots);
    });
  }
}

void add_weights(const WeightsGradient& p, const void* memory, int64_t all,
                 std::span<const ShardLeaf> leaves, std::span<const ShardRoot> roots,
                 int64_t piece) {
  const Kept kept = kept_at(p, memory, all);
  const int64_t panels = panels_of(p.inputs);
  int64_t panel = 0;
  for (; panel + kTilePanels <= panels; panel += kTilePanels) {
    add_panels<kTileVectors>(p, kept, all, panel, piece, leaves, roots);
  }
  for (; panel < panels; ++panel) {
    add_panels<kVectorsOfPanel>(p, kept, all, panel, piece, leaves, roots);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(add_weights);

namespace {

// Copies rows into panels of `width` columns, of which there are `all` rows.
template <int64_t width>
void keep_rows(const float* from, int64_t columns, const IndexRange& rows, int64_t all, float* to) {
  for (int64_t column = 0; column < columns; column += width, to += all * width) {
    const int64_t count = std::min(width, columns - column);
    float* row = to + rows.first * width;
    const float* source = from + column;
    if (count == width) {
      for (int64_t n = 0; n < rows.count; ++n, row += width, source += columns) {
        std::memcpy(row, source, width * sizeof(float));
      }
      continue;
    }
    for (int64_t n = 0; n < rows.count; ++n, row += width, source += columns) {
      std::memcpy(row, source, static_cast<size_t>(count) * sizeof(float));
      std::memset(row + count, 0, static_cast<size_t>(width - count) * sizeof(float));
    }
  }
}

void keep(const WeightsGradient& p, std::span<void* const> reads, const IndexRange& rows,
          int64_t all, void* memory) {
  auto* const inputs = static_cast<float*>(memory);
  keep_rows<kPanel>(static_cast<const float*>(reads[0]), p.inputs, rows, all, inputs);
  keep_rows<kUnits>(static_cast<const float*>(reads[1]), p.units, rows, all,
                    inputs + panels_of(p.inputs) * all * kPanel);
}

void add_bias(const WeightsGradient& p, const Kept& kept, int64_t all,
              std::span<const ShardLeaf> leaves, std::span<const ShardRoot> roots, int64_t piece) {
  const float* from = kept.gradients + piece * all * kUnits;
  const auto units = static_cast<size_t>(std::min(kUnits, p.units - piece * kUnits));
  float waiting[kLevels][kUnits];
  int count = 0;
  for (const ShardLeaf& leaf : leaves) {
    double sums[kUnits] = {};
    for (int64_t n = 0; n < leaf.rows; ++n, from += kUnits) {
      for (int64_t u = 0; u < kUnits; ++u) sums[u] += static_cast<double>(from[u]);
    }
    float sum[kUnits];
    for (int64_t u = 0; u < kUnits; ++u) sum[u] = static_cast<float>(sums[u]);
    for (int i = 0; i < leaf.additions; ++i) {
      --count;
      for (int64_t u = 0; u < kUnits; ++u) sum[u] = waiting[count][u] + sum[u];
    }
    float* const to =
        leaf.root < 0
            ? waiting[count++]
            : static_cast<float*>(roots[static_cast<size_t>(leaf.root)].writes[1]) + piece * kUnits;
    std::memcpy(to, sum, (leaf.root < 0 ? static_cast<size_t>(kUnits) : units) * sizeof(float));
  }
}

}  // namespace

SumOverShards sum_of_weights_gradient(const WeightsGradient& p) {
  SumOverShards sum;
  sum.pieces = pieces_of(p);
  sum.kept_bytes = [p](int64_t rows) {
    const int64_t columns = panels_of(p.inputs) * kPanel + pieces_of(p) * kUnits;
    return round_up(static_cast<size_t>(rows * columns) * sizeof(float));
  };
  sum.keep = [p](std::span<void* const> reads, const IndexRange& rows, int64_t all, void* kept) {
    keep(p, reads, rows, all, kept);
  };
  sum.add = [p](const void* kept, int64_t all, std::span<const ShardLeaf> leaves,
                std::span<const ShardRoot> roots, int64_t piece) {
    HWY_DYNAMIC_DISPATCH(add_weights)(p, kept, all, leaves, roots, piece);
    if (p.bias) add_bias(p, kept_at(p, kept, all), all, leaves, roots, piece);
  };
  return sum;
}

}  // namespace lockstep::kernels::cpu
#endif
