// What a Shard refers to while its loss is computed, for function_program.cpp and shard.cpp.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/autograd/tape.h"
#include "lockstep/engine/nn/recorded_run.h"
#include "lockstep/train/programs/function_program.h"

namespace lockstep {

struct Shard::State {
  Network& network;
  // Null if a loss is evaluated without recording; the following members are then unused.
  FunctionProgram* program = nullptr;
  FunctionProgram::Worker* worker = nullptr;
  ThreadTimer* charge = nullptr;
  FunctionSummary* summary = nullptr;
  DeviceReadings* readings = nullptr;  // on a device
  IndexRange range;
  StepInfo step;
  std::vector<Tensor> rows;
  // Represents all parameters on the tape. Its gradient has the layout of the plans' gradients.
  Tensor parameters;
  std::map<const FunctionProgram::ShardPlan*, size_t> used;  // runs of this shard so far
  // The gradient of `parameters` so far: the memory of the run that the backward pass has reached
  // first, to which other runs add theirs. Null: none.
  std::byte* gradients = nullptr;
  std::vector<bool> reached = {};  // parameters whose gradients are there
  // Runs whose gradients of parameters the sweep has computed, and their plans.
  std::vector<std::pair<ForwardStatistics::Key, const FunctionProgram::ShardPlan*>> swept = {};
  // In a bundle: gradients of parameters are left to sums over shards, which have the operands of
  // these branches.
  bool in_bundle = false;
  std::vector<ForwardStatistics::Key> kept = {};
  bool is_trial = false;     // its results do not count: see refuse_coupled()
  bool has_carried = false;  // a run has read states by row

  // What a run on `n` observations reads of the states by row that it carries.
  std::vector<RecordedRun::RowsRead> read_rows(const std::vector<Carry>& carries, int64_t n);
};

namespace shards {

[[noreturn]] inline void refuse(const std::string& what, const std::string& hint = {}) {
  throw InvalidArgument("[sharded_value_and_gradient] " + what, hint);
}

inline Tensor row_major(const Tensor& tensor) { return convert(tensor, tensor.spec().plain()); }

}  // namespace shards
}  // namespace lockstep
