#include "lockstep/parallel/reduce/group_sum.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/numeric/alignment.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/engine/device/poison.h"
#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/parallel/reduce/sum_exchange.h"

namespace lockstep {
namespace {

constexpr size_t kSumTile = 2048;  // floats that one thread adds at a time

}  // namespace

struct GroupSum::State {
  State(Group& g, std::unique_ptr<SumExchange> e, ThreadPool& p, const GroupSumOptions& o)
      : group(g),
        exchange(std::move(e)),
        pool(p),
        options(o),
        tree(o.count, o.order),
        leaf_metadata(round_up(o.leaf_metadata_bytes) * static_cast<size_t>(o.most_leaves)),
        member_metadata(round_up(o.member_metadata_bytes) * static_cast<size_t>(g.size())),
        scratch(static_cast<size_t>(p.size())) {}

  // An operand of the additions over members: a partial sum, or a sum of them in a slot.
  struct Operand {
    const float* partial = nullptr;  // this member's slice; null: the sum in `slot`
    size_t slot = 0;
  };
  struct Addition {
    Operand left, right;
    size_t to = 0;  // slot, which may be that of `left`
  };

  Group& group;
  const std::unique_ptr<SumExchange> exchange;
  ThreadPool& pool;
  const GroupSumOptions options;
  TreeReduction tree;  // over this member's leaves; its result is that of a single member
  std::vector<std::byte> leaf_metadata, member_metadata;  // by leaf; by member
  std::shared_ptr<const SumSchedule> given;               // by the caller
  std::shared_ptr<const SumSchedule> schedule;            // the same, or in order of arrival
  std::vector<float*> partials;  // destinations of this member's partial sums
  std::vector<Addition> additions;
  size_t slots = 0;
  Operand top;
  float* total = nullptr;                   // over all members
  uint32_t begun = 0;                       // sums
  std::vector<std::vector<float>> scratch;  // by thread

  // In tests: fills the operands of the previous sum. All members have finished that sum, so no
  // member reads them. No member writes operands there before this one has begun another sum.
  void fill_former_operands() const {
    std::byte* const former = exchange->operands(begun - 1);
    if (former != nullptr && group.rank() == 0) fill_with_poison(former, options.operand_bytes);
  }

  const std::vector<IndexRange>& own_subtrees() const {
    return schedule->subtrees[static_cast<size_t>(group.rank())];
  }

  std::byte* by(int rank) {
    return member_metadata.data() +
           static_cast<size_t>(rank) * round_up(options.member_metadata_bytes);
  }

  void follow(std::shared_ptr<const SumSchedule> next) {
    given = std::move(next);
    schedule = tree.order() == TreeReduction::Order::tree
                   ? given
                   : std::make_shared<SumSchedule>(SumSchedule::by_rank(given->ranges));
    if (group.size() == 1) return;
    exchange->begin(schedule);
    partials.clear();
    for (size_t i = 0; i < own_subtrees().size(); ++i) partials.push_back(exchange->partial(i));
    plan_additions();
  }

  // Slots are the stack of the schedule.
  void plan_additions() {
    additions.clear();
    slots = 0;
    std::vector<Operand> stack;
    for (const SumSchedule::Term& term : schedule->terms) {
      stack.push_back({exchange->operand(term.rank, term.number), 0});
      for (int k = 0; k < term.additions; ++k) {
        const Operand right = stack.back();
        stack.pop_back();
        const size_t slot = stack.size() - 1;
        additions.push_back({stack.back(), right, slot});
        stack.back() = {nullptr, slot};
        slots = std::max(slots, slot + 1);
      }
    }
    top = stack.back();
  }

  // Computes the tree's upper part for some elements of the slice.
  void add_tile(size_t first, size_t count, float* to, std::vector<float>& sums) const {
    if (additions.empty()) {
      std::memcpy(to, top.partial + first, count * sizeof(float));
      return;
    }
    sums.resize(std::max(sums.size(), slots * kSumTile));
    const auto add = kernels::functions_for({}).add;
    const auto at = [&](const Operand& o) {
      return o.partial ? o.partial + first : sums.data() + o.slot * kSumTile;
    };
    for (size_t i = 0; i < additions.size(); ++i) {
      const bool last = i + 1 == additions.size();
      float* const sum = last ? to : sums.data() + additions[i].to * kSumTile;
      add(at(additions[i].left), at(additions[i].right), sum, count, nullptr);
    }
  }

  void add_slice() {
    const auto count =
        static_cast<size_t>(slice_of(options.count, group.rank(), group.size()).count);
    const auto tiles = static_cast<int64_t>((count + kSumTile - 1) / kSumTile);
    float* const to = exchange->slice();
    const auto body = [&](int64_t tile, int thread) {
      const ArithmeticMode mode;
      const size_t first = static_cast<size_t>(tile) * kSumTile;
      add_tile(first, std::min(kSumTile, count - first), to + first,
               scratch[static_cast<size_t>(thread)]);
      mode.check();
    };
    if (tiles < 2) {
      if (tiles == 1) body(0, 0);
    } else {
      pool.for_each(tiles, body);
    }
  }
};

size_t GroupSum::window_bytes(const GroupSumOptions& options, int members) {
  return SumExchange::window_bytes(options, members);
}

GroupSum::GroupSum(LocalGroup& group, ThreadPool& pool, const GroupSumOptions& options)
    : state_(
          std::make_unique<State>(group, SumExchange::by_windows(group, options), pool, options)) {}

GroupSum::GroupSum(Group& group, ThreadPool& pool, const GroupSumOptions& options)
    : state_(std::make_unique<State>(group, SumExchange::by_messages(group, options), pool,
                                     options)) {}

GroupSum::~GroupSum() = default;

void GroupSum::begin(std::shared_ptr<const SumSchedule> schedule) {
  State& s = *state_;
  const size_t members = schedule->ranges.size();
  if (schedule->leaves > s.options.most_leaves || members != static_cast<size_t>(s.group.size())) {
    throw InvalidArgument("[group] a sum over " + std::to_string(schedule->leaves) + " leaves of " +
                          std::to_string(members) + " members does not fit the planned one");
  }
  ++s.begun;
  if (schedule != s.given) s.follow(std::move(schedule));
  if (s.group.size() == 1) return s.tree.begin(s.schedule->leaves);
  if (poison() != Poison::none) s.fill_former_operands();
  if (!s.own_subtrees().empty()) s.tree.begin(s.own_subtrees(), s.partials);
}

std::byte* GroupSum::own_leaf_metadata(int64_t leaf) {
  return state_->leaf_metadata.data() +
         static_cast<size_t>(leaf) * round_up(state_->options.leaf_metadata_bytes);
}

std::byte* GroupSum::own_member_metadata() { return state_->by(state_->group.rank()); }

const std::byte* GroupSum::member_metadata(int rank) const { return state_->by(rank); }

void GroupSum::add(int64_t leaf, const float* values) { state_->tree.add(leaf, values); }

std::vector<GroupSum::Partial> GroupSum::partials() const {
  const State& s = *state_;
  if (s.tree.order() != TreeReduction::Order::tree) return {};
  if (s.group.size() == 1) return {{{0, s.schedule->leaves}, s.tree.result()}};
  std::vector<Partial> partials;
  for (const IndexRange& subtree : s.own_subtrees()) {
    partials.push_back({subtree, s.partials[partials.size()]});
  }
  return partials;
}

void GroupSum::finish(const TimeLimit& limit) {
  State& s = *state_;
  if (s.group.size() == 1) return;
  s.exchange->scatter(SumWay::partial_sums, s.leaf_metadata, s.member_metadata, limit);
  s.add_slice();
  fail_point("gather");
  s.total = s.exchange->gather(limit);
}

std::byte* GroupSum::operands() const {
  const State& s = *state_;
  const bool shared = s.group.size() > 1 && s.tree.order() == TreeReduction::Order::tree;
  return shared ? s.exchange->operands(s.begun) : nullptr;
}

void GroupSum::exchange_operands(const TimeLimit& limit) {
  State& s = *state_;
  s.exchange->scatter(SumWay::update_ranges, s.leaf_metadata, s.member_metadata, limit);
  s.total = s.exchange->shared_sum();
}

float* GroupSum::shared_sum() const { return state_->exchange->shared_sum(); }

bool GroupSum::claim(int64_t range) {
  std::atomic<uint32_t>& claimed = state_->exchange->update_range_marks()[range].claimed;
  return claimed.load(std::memory_order_relaxed) != state_->begun &&
         claimed.exchange(state_->begun, std::memory_order_relaxed) != state_->begun;
}

void GroupSum::publish(int64_t range) {
  state_->exchange->update_range_marks()[range].published.store(state_->begun,
                                                                std::memory_order_release);
}

bool GroupSum::published(int64_t range) const {
  return state_->exchange->update_range_marks()[range].published.load(std::memory_order_acquire) ==
         state_->begun;
}

void GroupSum::finish_update_ranges(const TimeLimit& limit) {
  fail_point("gather");
  state_->exchange->gather(limit);
}

float* GroupSum::result() const {
  return state_->group.size() == 1 ? state_->tree.result() : state_->total;
}

const std::byte* GroupSum::leaf_metadata(int64_t leaf) const {
  return state_->leaf_metadata.data() +
         static_cast<size_t>(leaf) * round_up(state_->options.leaf_metadata_bytes);
}

}  // namespace lockstep
