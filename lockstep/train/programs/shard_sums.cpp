#include "lockstep/train/programs/shard_sums.h"

#include <algorithm>

#include "lockstep/base/numeric/alignment.h"
#include "lockstep/engine/device/poison.h"
#include "lockstep/engine/kernels/interface/shard_pieces.h"
#include "lockstep/parallel/reduce/tree.h"

namespace lockstep {
namespace {

// Adds the leaves of a subtree in order, each with the additions that it completes. `rows`: by
// shard, from shard number `first` on.
void add_leaves(const IndexRange& node, std::span<const IndexRange> rows, int64_t first,
                std::vector<kernels::ShardLeaf>& leaves) {
  if (node.count == 1) {
    leaves.push_back({.rows = rows[static_cast<size_t>(node.first - first)].count});
    return;
  }
  const int64_t left = tree_split(node.count);
  add_leaves({node.first, left}, rows, first, leaves);
  add_leaves({node.first + left, node.count - left}, rows, first, leaves);
  ++leaves.back().additions;
}

// A block of kUnitsOfPiece rows of so many columns fits in a second cache of 1 MiB with its
// parameters and the solver's state. Smaller blocks were slower.
constexpr int64_t kMostColumns = 4 * kernels::kBlockColumns;

}  // namespace

ShardSums::ShardSums(const std::vector<PlanShardSum>& sums, const GradientLayout& layout)
    : sums_(sums), layout_(layout), kept_(sums.size()), roots_(sums.size()) {
  for (size_t s = 0; s < sums_.size(); ++s) {
    for (int64_t i = 0; i < sums_[s].sum.pieces; ++i) pieces_.push_back({s, i});
  }
}

void ShardSums::begin(const ShardBundles& work) {
  blocks_.resize(static_cast<size_t>(work.threads));
  leaves_.clear();
  for (size_t i = 0; i < work.subtrees.size(); ++i) {
    add_leaves(work.subtrees[i].shards, work.rows, work.own.first, leaves_);
    leaves_.back().root = static_cast<int>(i);
  }
  for (size_t s = 0; s < sums_.size(); ++s) {
    make_space(s);
    set_roots(s, work.subtrees);
  }
}

void ShardSums::make_space(size_t s) {
  const size_t bytes = sums_[s].sum.kept_bytes(leaves_);
  if (bytes > kept_[s].bytes()) kept_[s] = allocate(bytes);
  if (poison() != Poison::none) fill_with_poison(kept_[s].data(), kept_[s].bytes());
}

void ShardSums::set_roots(size_t s, std::span<const ShardSubtree> subtrees) {
  roots_[s].resize(subtrees.size());
  for (size_t i = 0; i < subtrees.size(); ++i) {
    std::vector<void*>& writes = roots_[s][i].writes;
    writes.clear();
    for (const int p : sums_[s].parameters) {
      const GradientLayout::Entry& entry = layout_.entries[static_cast<size_t>(p)];
      writes.push_back(subtrees[i].sum + entry.offset);
      if (poison() != Poison::none) fill_with_poison(writes.back(), entry.spec.bytes());
    }
  }
}

void ShardSums::keep(const PlanRun& run, int64_t first) {
  for (size_t s = 0; s < sums_.size(); ++s) run.keep(s, first, leaves_, kept_[s].data());
}

void ShardSums::add(int64_t piece) const {
  const auto& [s, number] = pieces_[static_cast<size_t>(piece)];
  const kernels::SumOverShards& sum = sums_[s].sum;
  sum.add(kept_[s].data(), leaves_, roots_[s], {.piece = number, .columns = {0, sum.columns}});
}

void ShardSums::compute(int64_t piece, int thread, GradientUser& user) {
  const auto& [s, number] = pieces_[static_cast<size_t>(piece)];
  const kernels::SumOverShards& sum = sums_[s].sum;
  const std::vector<ParameterPart> parts = this->parts(piece);
  const IndexRange& first = parts.front().elements;
  const int64_t rows = first.count / std::max<int64_t>(sum.columns, 1);
  const int64_t most = std::min(sum.columns, kMostColumns);

  ThreadBlock& own = blocks_[static_cast<size_t>(thread)];
  const size_t offset =
      round_up(static_cast<size_t>(kernels::kUnitsOfPiece * most) * sizeof(float));
  const size_t bytes = offset + kernels::kUnitsOfPiece * sizeof(float);
  if (own.memory.bytes() < bytes) own.memory = allocate(bytes);
  own.root.writes.clear();
  for (size_t i = 0; i < parts.size(); ++i) {
    own.root.writes.push_back(static_cast<std::byte*>(own.memory.data()) + (i > 0 ? offset : 0));
  }

  int64_t column = 0;
  do {
    const IndexRange columns{column, std::min(most, sum.columns - column)};
    if (poison() != Poison::none) fill_with_poison(own.memory.data(), bytes);
    sum.add(kept_[s].data(), leaves_, {&own.root, 1},
            {number, columns, true, user.arrays(parts.front().parameter)});
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto* const values = static_cast<const float*>(own.root.writes[i]);
      const IndexRange& elements = parts[i].elements;
      if (i == 0) {
        user.use({parts[i].parameter, first.first + column, rows, columns.count, sum.columns},
                 values, thread);
      } else if (column == 0) {
        user.use({parts[i].parameter, elements.first, 1, elements.count, elements.count}, values,
                 thread);
      }
    }
    column = columns.end();
  } while (column < sum.columns);
}

std::vector<ParameterPart> ShardSums::parts(int64_t piece) const {
  const auto& [s, number] = pieces_[static_cast<size_t>(piece)];
  std::vector<ParameterPart> parts;
  for (size_t i = 0; i < sums_[s].parameters.size(); ++i) {
    const auto parameter = static_cast<size_t>(sums_[s].parameters[i]);
    const Shape& shape = layout_.entries[parameter].spec.shape;
    parts.push_back(
        {parameter, kernels::elements_of_piece(shape[0], shape.elements() / shape[0], number)});
  }
  return parts;
}

}  // namespace lockstep
