#include "lockstep/train/programs/shard_sums.h"

#include "lockstep/engine/device/poison.h"
#include "lockstep/parallel/reduce/tree.h"

namespace lockstep {
namespace {

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

}  // namespace

std::vector<kernels::ShardLeaf> shard_leaves(std::span<const ShardSubtree> subtrees,
                                             std::span<const IndexRange> rows, int64_t first) {
  std::vector<kernels::ShardLeaf> leaves;
  for (size_t i = 0; i < subtrees.size(); ++i) {
    add_leaves(subtrees[i].shards, rows, first, leaves);
    leaves.back().root = static_cast<int>(i);
  }
  return leaves;
}

ShardSums::ShardSums(const std::vector<PlanShardSum>& sums, const GradientLayout& layout)
    : sums_(sums), layout_(layout), kept_(sums.size()), kept_bytes_(sums.size(), 0) {
  for (size_t s = 0; s < sums_.size(); ++s) {
    for (int64_t i = 0; i < sums_[s].sum.pieces; ++i) pieces_.push_back({s, i});
  }
}

void ShardSums::begin(const ShardBundles& work) {
  leaves_ = shard_leaves(work.subtrees, work.rows, work.own.first);
  rows_ = work.rows.back().end() - work.rows.front().first;
  roots_.assign(sums_.size(), {});
  for (size_t s = 0; s < sums_.size(); ++s) {
    const size_t bytes = sums_[s].sum.kept_bytes(rows_);
    if (bytes > kept_bytes_[s]) {
      kept_[s] = allocate(bytes);
      kept_bytes_[s] = bytes;
    }
    if (poison() != Poison::none) fill_with_poison(kept_[s].data(), kept_bytes_[s]);
    for (const ShardSubtree& subtree : work.subtrees) {
      kernels::ShardRoot root;
      for (const int p : sums_[s].parameters) {
        const GradientLayout::Entry& entry = layout_.entries[static_cast<size_t>(p)];
        root.writes.push_back(subtree.sum + entry.offset);
        if (poison() != Poison::none) fill_with_poison(root.writes.back(), entry.spec.bytes());
      }
      roots_[s].push_back(std::move(root));
    }
  }
}

void ShardSums::keep(const PlanRun& run, int64_t first) {
  for (size_t s = 0; s < sums_.size(); ++s) run.keep(s, first, rows_, kept_[s].data());
}

void ShardSums::add(int64_t piece) const {
  const auto& [s, number] = pieces_[static_cast<size_t>(piece)];
  sums_[s].sum.add(kept_[s].data(), rows_, leaves_, roots_[s], number);
}

}  // namespace lockstep
