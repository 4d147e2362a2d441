#include "lockstep/engine/plan/runs_in_turn.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/engine/plan/compile.h"

namespace lockstep {

PlanSizes PlanSizes::with(const PlanSizes& other) const {
  return {std::max(arena, other.arena), std::max(scratch, other.scratch),
          std::max(gradients, other.gradients)};
}

PlanSizes sizes_of(const Plan& plan) {
  const Plan::State& p = plan.state();
  return {p.arena_bytes, p.scratch_bytes, p.gradient_layout.bytes};
}

PlanMemory::PlanMemory(const PlanSizes& sizes, Device device) {
  const auto zeros = [&](size_t bytes) {
    return allocate_zeros(std::max<size_t>(bytes, 64), device);
  };
  arena = zeros(sizes.arena);
  scratch = zeros(sizes.scratch);
  gradients = zeros(sizes.gradients);
}

void RunsInTurn::add(const std::shared_ptr<const Plan>& plan) {
  if (std::ranges::find(plans_, plan) != plans_.end()) return;
  if (!plan->device().is_cpu()) throw Error("[plan] runs in turn are for the CPU");
  const PlanSizes sizes = sizes_.with(sizes_of(*plan));
  plans_.push_back(plan);
  if (!memory_ || sizes != sizes_) return make_again(sizes);
  runs_.emplace_back(plan, *parameters_, states_, memory_);
}

// The former memory is gone before there is more, also from the cache: else that would keep memory
// of every size through which this has grown.
void RunsInTurn::make_again(const PlanSizes& sizes) {
  constexpr size_t much = size_t{1} << 20;
  const std::vector<std::shared_ptr<const Plan>> plans = std::exchange(plans_, {});
  const size_t before = std::exchange(sizes_, {}).all();
  runs_.clear();
  memory_.reset();
  if (before >= much) release_cached_memory();
  memory_ = std::make_shared<PlanMemory>(sizes, Device{});
  sizes_ = sizes;
  for (const auto& plan : plans) runs_.emplace_back(plan, *parameters_, states_, memory_);
  plans_ = plans;
}

PlanRun* RunsInTurn::find(const Plan& plan) {
  const auto found = std::ranges::find(plans_, &plan, &std::shared_ptr<const Plan>::get);
  return found == plans_.end() ? nullptr : &runs_[static_cast<size_t>(found - plans_.begin())];
}

PlanRun& RunsInTurn::of(const Plan& plan) {
  PlanRun* const run = find(plan);
  if (run == nullptr) throw Error("[plan] there is not a run of this plan");
  return *run;
}

}  // namespace lockstep
