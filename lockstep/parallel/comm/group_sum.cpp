#include "lockstep/parallel/comm/group_sum.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "lockstep/base/alignment.h"
#include "lockstep/base/arithmetic.h"
#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/engine/kernels/table.h"
#include "lockstep/engine/tensor/allocator.h"

namespace lockstep {
namespace {

constexpr size_t kBlock = 1024;        // floats: slices are whole ones
constexpr size_t kPiece = 2 * kBlock;  // that one thread adds at a time

struct Slice {
  size_t first = 0, count = 0;
};

Slice slice_of(size_t count, int rank, int size) {
  const size_t blocks = (count + kBlock - 1) / kBlock;
  const auto r = static_cast<size_t>(rank), n = static_cast<size_t>(size);
  const size_t first = std::min(count, blocks * r / n * kBlock);
  return {first, std::min(count, blocks * (r + 1) / n * kBlock) - first};
}

size_t longest_slice(size_t count, int size) {
  return std::min(count, (count / kBlock / static_cast<size_t>(size) + 2) * kBlock);
}

// A run within a tree over n leaves leaves at most two partial sums at each level.
size_t most_partials(int64_t leaves) {
  return 2 * static_cast<size_t>(std::bit_width(static_cast<uint64_t>(leaves))) + 1;
}

}  // namespace

struct GroupSum::State {
  State(LocalGroup& g, ThreadPool& p, const GroupSumOptions& o)
      : group(g),
        pool(p),
        options(o),
        tree(o.count, o.order),
        said(round_up(o.leaf_bytes) * static_cast<size_t>(o.most_leaves)),
        said_by(round_up(o.member_bytes) * static_cast<size_t>(g.size())) {}

  // One addition of the tree's upper part: of partial sums, or of what was added before.
  struct Operand {
    const float* partial = nullptr;  // of the whole array; null: `number` of the sums before
    size_t number = 0;
  };
  struct Addition {
    Operand left, right;
  };

  LocalGroup& group;
  ThreadPool& pool;
  const GroupSumOptions options;
  TreeReduction tree;                    // of this member's leaves; its result is the whole sum
  std::vector<std::byte> said, said_by;  // by leaf; by member
  int64_t leaves = 0;
  std::vector<LeafRun> runs;
  std::vector<float*> partials;  // where this member's go
  std::vector<Addition> additions;
  Operand top;
  std::vector<std::vector<float>> scratch;  // by thread

  LeafRun own() const { return runs[static_cast<size_t>(group.rank())]; }

  // A window: what leaves say, what the member says, the partial sums, the slice.
  std::byte* words(int rank) const { return group.window(rank); }
  std::byte* words_by(int rank) const { return group.window(rank) + said.size(); }
  std::byte* by(int rank) {
    return said_by.data() + static_cast<size_t>(rank) * round_up(options.member_bytes);
  }
  float* partial(int rank, size_t number) const {
    return reinterpret_cast<float*>(group.window(rank) + said.size() +
                                    round_up(options.member_bytes) +
                                    number * round_up(options.count * sizeof(float)));
  }
  float* slice(int rank) const { return partial(rank, most_partials(options.most_leaves)); }

  struct Root {
    LeafRun leaves;
    const float* sum;
  };

  Operand plan(const LeafRun& node, const std::vector<Root>& roots) {
    for (const Root& root : roots) {
      if (root.leaves == node) return {root.sum, 0};
    }
    const int64_t left = tree_split(node.count);
    const Operand a = plan({node.first, left}, roots);
    const Operand b = plan({node.first + left, node.count - left}, roots);
    additions.push_back({a, b});
    return {nullptr, additions.size() - 1};
  }

  void plan_additions() {
    std::vector<Root> roots;
    for (int r = 0; r < group.size(); ++r) {
      size_t number = 0;
      for (const LeafRun& root : tree.roots(leaves, runs[static_cast<size_t>(r)])) {
        roots.push_back({root, partial(r, number++)});
      }
    }
    additions.clear();
    if (options.order == TreeReduction::Order::tree && tree.order() == options.order) {
      top = plan({0, leaves}, roots);
      return;
    }
    top = {roots[0].sum, 0};
    for (size_t i = 1; i < roots.size(); ++i) {
      additions.push_back({top, {roots[i].sum, 0}});
      top = {nullptr, additions.size() - 1};
    }
  }

  // The tree's upper part for some elements of the array.
  void add_piece(size_t first, size_t count, float* to, std::vector<float>& sums) const {
    if (additions.empty()) {
      std::memcpy(to, top.partial + first, count * sizeof(float));
      return;
    }
    sums.resize(std::max(sums.size(), additions.size() * kPiece));
    const auto add = kernels::table_for({}).add;
    const auto at = [&](const Operand& o) {
      return o.partial ? o.partial + first : sums.data() + o.number * kPiece;
    };
    for (size_t i = 0; i < additions.size(); ++i) {
      float* const sum = i + 1 < additions.size() ? sums.data() + i * kPiece : to;
      add(at(additions[i].left), at(additions[i].right), sum, count, nullptr);
    }
  }

  void add_slice() {
    const Slice own_slice = slice_of(options.count, group.rank(), group.size());
    const auto pieces = static_cast<int64_t>((own_slice.count + kPiece - 1) / kPiece);
    float* const to = slice(group.rank());
    const auto body = [&](int64_t piece, int thread) {
      const ArithmeticMode mode;
      const size_t first = static_cast<size_t>(piece) * kPiece;
      add_piece(own_slice.first + first, std::min(kPiece, own_slice.count - first), to + first,
                scratch[static_cast<size_t>(thread)]);
      mode.check();
    };
    if (pieces < 2) {
      if (pieces == 1) body(0, 0);
    } else {
      pool.for_each(pieces, body);
    }
  }

  void take_slices() {
    for (int r = 0; r < group.size(); ++r) {
      const Slice s = slice_of(options.count, r, group.size());
      std::memcpy(tree.result() + s.first, slice(r), s.count * sizeof(float));
    }
  }

  void take_words() {
    for (int r = 0; options.member_bytes > 0 && r < group.size(); ++r) {
      std::memcpy(by(r), words_by(r), options.member_bytes);
    }
    const size_t width = round_up(options.leaf_bytes);
    for (int r = 0; r < group.size(); ++r) {
      const LeafRun& run = runs[static_cast<size_t>(r)];
      const auto first = static_cast<size_t>(run.first), count = static_cast<size_t>(run.count);
      if (r == group.rank() || count == 0 || width == 0) continue;
      std::memcpy(said.data() + first * width, words(r) + first * width, count * width);
    }
  }
};

size_t GroupSum::window_bytes(const GroupSumOptions& o, int members) {
  if (members == 1) return 0;
  return round_up(o.leaf_bytes) * static_cast<size_t>(o.most_leaves) + round_up(o.member_bytes) +
         most_partials(o.most_leaves) * round_up(o.count * sizeof(float)) +
         round_up(longest_slice(o.count, members) * sizeof(float));
}

GroupSum::GroupSum(LocalGroup& group, ThreadPool& pool, const GroupSumOptions& options)
    : state_(std::make_unique<State>(group, pool, options)) {
  state_->scratch.resize(static_cast<size_t>(pool.size()));
}

GroupSum::~GroupSum() = default;

void GroupSum::begin(int64_t leaves, std::span<const LeafRun> runs) {
  State& s = *state_;
  if (leaves > s.options.most_leaves || runs.size() != static_cast<size_t>(s.group.size())) {
    throw InvalidArgument("[group] a sum over " + std::to_string(leaves) +
                          " leaves is more than was planned");
  }
  if (s.group.size() == 1) {
    s.tree.begin(leaves);
    return;
  }
  const bool same =
      leaves == s.leaves && std::equal(runs.begin(), runs.end(), s.runs.begin(), s.runs.end());
  if (!same) {
    s.leaves = leaves;
    s.runs.assign(runs.begin(), runs.end());
    s.plan_additions();
    s.partials.clear();
    for (size_t i = 0; i < s.tree.roots(leaves, s.own()).size(); ++i) {
      s.partials.push_back(s.partial(s.group.rank(), i));
    }
  }
  if (s.own().count > 0) s.tree.begin(leaves, s.own(), s.partials);
}

std::byte* GroupSum::leaf(int64_t leaf) {
  return state_->said.data() + static_cast<size_t>(leaf) * round_up(state_->options.leaf_bytes);
}

std::byte* GroupSum::own() { return state_->by(state_->group.rank()); }

const std::byte* GroupSum::said_by(int rank) const { return state_->by(rank); }

void GroupSum::add(int64_t leaf, const float* values) { state_->tree.add(leaf, values); }

void GroupSum::finish(const TimeLimit& limit) {
  State& s = *state_;
  if (s.group.size() == 1) return;
  const size_t width = round_up(s.options.leaf_bytes);
  const auto first = static_cast<size_t>(s.own().first) * width;
  if (s.own().count > 0 && width > 0) {
    std::memcpy(s.words(s.group.rank()) + first, s.said.data() + first,
                static_cast<size_t>(s.own().count) * width);
  }
  if (s.options.member_bytes > 0) {
    std::memcpy(s.words_by(s.group.rank()), s.by(s.group.rank()), s.options.member_bytes);
  }
  s.group.barrier(limit);
  s.take_words();
  s.add_slice();
  fail_point("gather");
  s.group.barrier(limit);
  s.take_slices();
}

float* GroupSum::result() const { return state_->tree.result(); }

const std::byte* GroupSum::said(int64_t leaf) const {
  return state_->said.data() + static_cast<size_t>(leaf) * round_up(state_->options.leaf_bytes);
}

}  // namespace lockstep
