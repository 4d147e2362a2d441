// Runs of several plans on the CPU that compute in turn and share memory: only what the run that
// was used last has computed is valid. So plans of many shapes need the memory of the largest one.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/plan/packed_parameters.h"
#include "lockstep/engine/plan/plan.h"

namespace lockstep {

// Bytes that a run computes in.
struct PlanSizes {
  size_t arena = 0, scratch = 0, gradients = 0;

  size_t all() const { return arena + scratch + gradients; }
  // The larger of each.
  PlanSizes with(const PlanSizes& other) const;
  bool operator==(const PlanSizes&) const = default;
};
PlanSizes sizes_of(const Plan& plan);

// The memory of one run, or of runs that compute in turn; filled with zeros at first, so that
// padding that kernels never write is defined. Throws OutOfMemory.
struct PlanMemory {
  PlanMemory(const PlanSizes& sizes, Device device);
  Memory arena, scratch, gradients;
};

// Not thread-safe: one for each thread.
class RunsInTurn {
 public:
  // The parameters and the states must outlive it (see PlanRun).
  RunsInTurn(PackedParameters& parameters, std::vector<const float*> states)
      : parameters_(&parameters), states_(std::move(states)) {}

  // Makes a run of the plan, unless there is one. Makes all runs again if the memory has to grow,
  // so references to them become invalid. Throws OutOfMemory; then there are no runs.
  void add(const std::shared_ptr<const Plan>& plan);
  // The run of a plan that was added. find(): null if it was not.
  PlanRun& of(const Plan& plan);
  PlanRun* find(const Plan& plan);
  // Of the memory that the runs share.
  size_t bytes() const { return sizes_.all(); }

 private:
  void make_again(const PlanSizes& sizes);

  PackedParameters* parameters_;
  std::vector<const float*> states_;
  std::vector<std::shared_ptr<const Plan>> plans_;  // in the order in which they were added
  std::vector<PlanRun> runs_;                       // of these plans
  PlanSizes sizes_;
  std::shared_ptr<PlanMemory> memory_;
};

}  // namespace lockstep
