// A forward run of a network's plan, and the backward runs that tapes start later.
#pragma once

#include <functional>
#include <vector>

#include "lockstep/engine/plan/plan.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// A copy of an output.
Tensor output_of(const PlanRun& run, int output, const Shape& shape);

// Not thread-safe. The run must outlive it, and nothing else may use the run meanwhile.
class RecordedRun {
 public:
  // What another input of the plan reads: states by row, say, which are not differentiated.
  struct RowsRead {
    int input = 0;
    Tensor values;  // on any device
  };
  struct Settings {
    PlanRun* run = nullptr;
    std::vector<Tensor> inputs;
    std::vector<RowsRead> rows = {};
    std::vector<Shape> outputs;  // those that are differentiated, which are the plan's first ones
    RandomContext step;
    // Called when the inputs (the output gradients) are in the run's memory, before the passes;
    // returns the watch of the passes, or null. An empty function: no watch.
    std::function<PassWatch*()> begin = nullptr;
    bool zeros = true;  // BackwardResults::zeros, if gradients of parameters are wanted
  };
  explicit RecordedRun(Settings settings) : of_(std::move(settings)) {}

  void forward();
  // The values of Settings::rows, on the run's device.
  std::vector<Tensor> rows() const;
  // Copies of the outputs.
  std::vector<Tensor> outputs() const;
  // The derivatives with respect to tracked tensors, then the total ones with respect to the
  // outputs, where they are wanted and exist. `wanted` has the same order (Tape::Outputs::linked).
  // The inputs are the first tensors; the others belong to parameters, and the caller adds their
  // derivatives from the run. `diffs`: with respect to the outputs; undefined: 0.
  std::vector<Tensor> backward(const std::vector<Tensor>& diffs, const std::vector<bool>& wanted);

 private:
  PassWatch* begin() const { return of_.begin ? of_.begin() : nullptr; }

  Settings of_;
  // The backward passes have overwritten memory that they read, so another backward run repeats the
  // forward run first.
  bool overwritten_ = false;
};

}  // namespace lockstep
