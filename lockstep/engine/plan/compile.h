// Internals of a plan: steps, the buffers that they read and write, and the memory of the buffers.
#pragma once

#include <deque>
#include <limits>
#include <optional>

#include "lockstep/engine/plan/kept_part.h"
#include "lockstep/engine/plan/plan.h"

namespace lockstep {

struct PlanBuffer {
  enum class Storage : uint8_t { arena, parameter, state, gradient };
  Storage storage = Storage::arena;
  TensorSpec spec;
  int slot = 0;  // parameter or state number; for gradients the parameter
  // First and last step that use the buffer. Arena buffers whose spans overlap do not share memory.
  int first = std::numeric_limits<int>::max();
  int last = std::numeric_limits<int>::min();
  int over = -1;      // buffer whose memory this one reuses; -1: it has its own memory
  size_t offset = 0;  // in the arena
};

// A deque, so that references to buffers stay valid while buffers are added.
using PlanBuffers = std::deque<PlanBuffer>;

struct PlanStep {
  kernels::Pass pass;
  std::vector<int> reads, writes;  // buffers
  std::string name;
  bool conversion = false;
  bool draws = false;                              // random numbers
  BackwardResults serves = {false, false, false};  // a step of the backward run
};

struct Plan::State {
  Device device;
  PlanBuffers buffers;
  std::vector<PlanStep> steps;  // forward, then backward
  int forward_steps = 0;
  // Buffers; -1: none.
  std::vector<int> inputs, outputs, output_gradients, input_gradients, total_output_gradients;
  GradientLayout gradient_layout;
  std::vector<bool> reached_parameters;
  bool shards_together = false;
  std::vector<PlanShardSum> shard_sums;
  std::vector<std::vector<int>> shard_sum_reads;  // buffers, by sum
  size_t arena_bytes = 0;                         // without the scratch memory
  size_t scratch_bytes = 0;
  std::optional<KeptPart> kept;  // with PlanOptions::unchanging
};

// Divides a plan whose steps are complete. Reads no offsets of buffers.
KeptPart kept_part_of(const Plan::State& plan, const Unchanging& unchanging);

// Sets what each step of the backward run serves.
void mark_backward_results(Plan::State& plan);

// Lets a pass write its result over an operand that no later step reads, if the pass allows that.
// This saves memory, and the operand was just read and is still in a cache.
void write_in_place(PlanBuffers& buffers, const std::vector<PlanStep>& steps);

// Sets the offset of every arena buffer. Large buffers are placed first, each at the lowest offset
// that is free throughout its lifetime. Returns the arena's size in bytes.
size_t place_buffers(PlanBuffers& buffers);

}  // namespace lockstep
