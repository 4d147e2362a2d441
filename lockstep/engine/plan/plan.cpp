#include "lockstep/engine/plan/plan.h"

#include <algorithm>

#include "lockstep/engine/plan/compile.h"

namespace lockstep {

Plan::~Plan() = default;

Device Plan::device() const { return state_->device; }

const GradientLayout& Plan::gradient_layout() const { return state_->gradient_layout; }

bool Plan::shards_together() const { return state_->shards_together; }

const std::vector<bool>& Plan::reached_parameters() const { return state_->reached_parameters; }

const std::vector<PlanShardSum>& Plan::shard_sums() const { return state_->shard_sums; }

const KeptPart* Plan::kept_part() const { return state_->kept ? &*state_->kept : nullptr; }

size_t Plan::arena_bytes() const { return state_->arena_bytes + state_->scratch_bytes; }

int Plan::reorders() const {
  return static_cast<int>(std::count_if(state_->steps.begin(), state_->steps.end(),
                                        [](const PlanStep& s) { return s.conversion; }));
}

std::vector<PlanPass> Plan::passes() const {
  std::vector<PlanPass> passes;
  for (const PlanStep& step : state_->steps) {
    const bool backward = static_cast<int>(passes.size()) >= state_->forward_steps;
    passes.push_back({step.name, backward, step.conversion});
  }
  return passes;
}

std::string Plan::describe() const {
  std::string text;
  for (size_t i = 0; i < state_->steps.size(); ++i) {
    const PlanStep& step = state_->steps[i];
    text += static_cast<int>(i) < state_->forward_steps ? "forward  " : "backward ";
    text += step.name + ":";
    for (int b : step.reads) text += " " + state_->buffers[static_cast<size_t>(b)].spec.to_string();
    text += " ->";
    for (int b : step.writes)
      text += " " + state_->buffers[static_cast<size_t>(b)].spec.to_string();
    text += "\n";
  }
  return text;
}

}  // namespace lockstep
