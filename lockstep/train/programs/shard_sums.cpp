#include "lockstep/train/programs/shard_sums.h"

#include <algorithm>

#include "lockstep/base/numeric/alignment.h"
#include "lockstep/engine/device/poison.h"
#include "lockstep/engine/kernels/interface/update_ranges.h"
#include "lockstep/parallel/reduce/schedule.h"

namespace lockstep {
namespace {

// A block of kUnitsOfUpdateRange rows of this many columns fits in a second cache of 1 MiB with its
// parameters and the solver's state. Smaller blocks were slower.
constexpr int64_t kMostColumns = 4 * kernels::kBlockColumns;

}  // namespace

ShardSums::ShardSums(const std::vector<PlanShardSum>& sums, const GradientLayout& layout)
    : sums_(sums), layout_(layout), own_(sums.size()), kept_(sums.size()), roots_(sums.size()) {
  for (size_t s = 0; s < sums_.size(); ++s) {
    for (int64_t i = 0; i < sums_[s].sum.update_ranges; ++i) ranges_.push_back({s, i});
  }
}

void ShardSums::begin(const ShardBundles& work) {
  blocks_.resize(static_cast<size_t>(work.threads));
  leaves_.clear();
  for (size_t i = 0; i < work.subtrees.size(); ++i) {
    for (const SumTerm& term : sum_terms(work.subtrees[i].shards)) {
      const auto shard = static_cast<size_t>(term.leaves.first - work.shards.first);
      leaves_.push_back({.rows = work.rows[shard].count, .additions = term.additions});
    }
    leaves_.back().root = static_cast<int>(i);
  }
  shared_ = work.operands != nullptr;
  make_space(work.operands);
  for (size_t s = 0; s < sums_.size(); ++s) set_roots(s, work.subtrees);
}

size_t ShardSums::operand_bytes(std::span<const IndexRange> rows) const {
  std::vector<kernels::ShardLeaf> leaves;
  for (const IndexRange& shard : rows) leaves.push_back({.rows = shard.count});
  size_t bytes = 0;
  for (const PlanShardSum& sum : sums_) bytes += sum.sum.kept_bytes(leaves);
  return bytes;
}

void ShardSums::make_space(std::byte* shared) {
  for (size_t s = 0; s < sums_.size(); ++s) {
    const size_t bytes = sums_[s].sum.kept_bytes(leaves_);
    if (shared != nullptr) {
      kept_[s] = shared;
      shared += bytes;
      continue;
    }
    if (bytes > own_[s].bytes()) own_[s] = allocate(bytes);
    if (poison() != Poison::none) fill_with_poison(own_[s].data(), own_[s].bytes());
    kept_[s] = static_cast<std::byte*>(own_[s].data());
  }
}

void ShardSums::set_roots(size_t s, std::span<const ShardSubtree> subtrees) {
  roots_[s].resize(subtrees.size());
  for (size_t i = 0; i < subtrees.size(); ++i) {
    std::vector<void*>& writes = roots_[s][i].writes;
    writes.clear();
    for (const int p : sums_[s].parameters) {
      const GradientLayout::Entry& entry = layout_.entries[static_cast<size_t>(p)];
      writes.push_back(subtrees[i].sum + entry.offset);
      // Other members may still read the sum before. What they share is filled elsewhere, see
      // HostSum::fill_range().
      if (poison() != Poison::none && !shared_) fill_with_poison(writes.back(), entry.spec.bytes());
    }
  }
}

void ShardSums::keep(const PlanRun& run, int64_t first) {
  for (size_t s = 0; s < sums_.size(); ++s) run.keep(s, first, leaves_, kept_[s]);
}

void ShardSums::add(int64_t range) const {
  const auto& [s, number] = ranges_[static_cast<size_t>(range)];
  const kernels::SumOverShards& sum = sums_[s].sum;
  sum.add(kept_[s], leaves_, roots_[s], {.update_range = number, .columns = {0, sum.columns}});
}

const kernels::ShardRoot& ShardSums::own_block(int thread, size_t results, int64_t columns) {
  ThreadBlock& own = blocks_[static_cast<size_t>(thread)];
  const size_t offset =
      round_up(static_cast<size_t>(kernels::kUnitsOfUpdateRange * columns) * sizeof(float));
  const size_t bytes = offset + kernels::kUnitsOfUpdateRange * sizeof(float);
  if (own.memory.bytes() < bytes) own.memory = allocate(bytes);
  if (poison() != Poison::none) fill_with_poison(own.memory.data(), own.memory.bytes());
  own.root.writes.clear();
  for (size_t i = 0; i < results; ++i) {
    own.root.writes.push_back(static_cast<std::byte*>(own.memory.data()) + (i > 0 ? offset : 0));
  }
  return own.root;
}

void ShardSums::compute(int64_t range, int thread, GradientSink& sink) {
  const auto& [s, number] = ranges_[static_cast<size_t>(range)];
  const kernels::SumOverShards& sum = sums_[s].sum;
  const std::vector<ParameterPart> parts = this->parts(range);
  const IndexRange& first = parts.front().elements;
  const int64_t rows = first.count / std::max<int64_t>(sum.columns, 1);
  const int64_t most = std::min(sum.columns, kMostColumns);
  const bool alone = !shared_;
  const bool read = std::ranges::any_of(
      parts, [&](const ParameterPart& part) { return sink.reads(part.parameter); });

  int64_t column = 0;
  do {
    const IndexRange columns{column, std::min(most, sum.columns - column)};
    const kernels::ShardRoot& root =
        alone ? own_block(thread, parts.size(), most) : roots_[s].front();
    if (read) {
      sum.add(kept_[s], leaves_, {&root, 1},
              {number, columns, alone, sink.arrays(parts.front().parameter)});
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      const IndexRange& elements = parts[i].elements;
      const ParameterBlock block =
          i == 0 ? ParameterBlock{parts[i].parameter,
                                  first.first + column,
                                  rows,
                                  columns.count,
                                  sum.columns,
                                  alone ? columns.count : sum.columns}
                 : ParameterBlock{parts[i].parameter, elements.first, 1,
                                  elements.count,     elements.count, elements.count};
      const auto* const values = static_cast<const float*>(root.writes[i]);
      if (i == 0 || column == 0) sink.use(block, values + (alone ? 0 : block.first), thread);
    }
    column = columns.end();
  } while (column < sum.columns);
}

std::vector<ParameterPart> ShardSums::parts(int64_t range) const {
  const auto& [s, number] = ranges_[static_cast<size_t>(range)];
  std::vector<ParameterPart> parts;
  for (size_t i = 0; i < sums_[s].parameters.size(); ++i) {
    const auto parameter = static_cast<size_t>(sums_[s].parameters[i]);
    const Shape& shape = layout_.entries[parameter].spec.shape;
    parts.push_back({parameter, kernels::elements_of_update_range(
                                    shape[0], shape.elements() / shape[0], number)});
  }
  return parts;
}

void ShardSums::add_to(UpdateRanges& ranges) const {
  for (int64_t range = 0; range < update_ranges(); ++range) ranges.add(parts(range));
}

}  // namespace lockstep
