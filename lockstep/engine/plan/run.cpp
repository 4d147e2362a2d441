#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/engine/plan/compile.h"

namespace lockstep {

struct PlanRun::State {
  std::shared_ptr<const Plan> plan;
  Memory arena, scratch, gradients;
  std::vector<void*> addresses;  // by buffer
  std::vector<kernels::BoundPass> steps;

  void* address(int buffer) const {
    return buffer < 0 ? nullptr : addresses[static_cast<size_t>(buffer)];
  }
};

PlanRun::PlanRun(std::shared_ptr<const Plan> plan, PackedParameters& parameters,
                 const std::vector<const float*>& states)
    : state_(std::make_unique<State>()) {
  const Plan::State& p = plan->state();
  State& s = *state_;
  s.plan = std::move(plan);
  // Zeros, so that padding which kernels never write is defined.
  s.arena = allocate_zeros(std::max<size_t>(p.arena_bytes, 64));
  s.scratch = allocate_zeros(std::max<size_t>(p.scratch_bytes, 64));
  s.gradients = allocate_zeros(std::max<size_t>(p.gradient_layout.bytes, 64));
  for (const auto& b : p.buffers) {
    switch (b.place) {
      case PlanBuffer::Place::arena:
        s.addresses.push_back(s.arena.as<std::byte>() + b.offset);
        break;
      case PlanBuffer::Place::parameter:
        s.addresses.push_back(parameters.address(b.slot, b.spec));
        break;
      case PlanBuffer::Place::state:
        s.addresses.push_back(const_cast<float*>(states.at(static_cast<size_t>(b.slot))));
        break;
      case PlanBuffer::Place::gradient: {
        const auto& entry = p.gradient_layout.entries[static_cast<size_t>(b.slot)];
        s.addresses.push_back(s.gradients.as<std::byte>() + entry.offset);
        break;
      }
    }
  }
  for (const auto& step : p.steps) {
    std::vector<void*> reads, writes;
    for (int b : step.reads) reads.push_back(s.address(b));
    for (int b : step.writes) writes.push_back(s.address(b));
    s.steps.push_back(step.pass.bind({reads, writes, s.scratch.data()}));
  }
}

PlanRun::~PlanRun() = default;
PlanRun::PlanRun(PlanRun&&) noexcept = default;

void* PlanRun::input(int i) const {
  return state_->address(state_->plan->state().inputs.at(static_cast<size_t>(i)));
}

const float* PlanRun::output(int i) const {
  return static_cast<const float*>(
      state_->address(state_->plan->state().outputs.at(static_cast<size_t>(i))));
}

float* PlanRun::seed(int i) const {
  return static_cast<float*>(
      state_->address(state_->plan->state().seeds.at(static_cast<size_t>(i))));
}

const float* PlanRun::input_gradient(int i) const {
  return static_cast<const float*>(
      state_->address(state_->plan->state().input_gradients.at(static_cast<size_t>(i))));
}

std::byte* PlanRun::gradients() const { return state_->gradients.as<std::byte>(); }

void PlanRun::forward(const kernels::StepInfo& step) {
  const auto end = static_cast<size_t>(state_->plan->state().forward_steps);
  for (size_t i = 0; i < end; ++i) state_->steps[i](step);
}

void PlanRun::backward(const kernels::StepInfo& step) {
  for (size_t i = static_cast<size_t>(state_->plan->state().forward_steps);
       i < state_->steps.size(); ++i) {
    state_->steps[i](step);
  }
}

}  // namespace lockstep
