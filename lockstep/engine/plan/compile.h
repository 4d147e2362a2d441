// How a plan looks inside: steps over buffers, and where the buffers lie.
#pragma once

#include <deque>
#include <limits>

#include "lockstep/engine/plan/plan.h"

namespace lockstep {

struct PlanBuffer {
  enum class Place : uint8_t { arena, parameter, state, gradient };
  Place place = Place::arena;
  TensorSpec spec;
  int slot = 0;  // parameter or state number; for gradients the parameter
  // First and last step that touches it; arena buffers whose spans overlap do not share memory.
  int first = std::numeric_limits<int>::max();
  int last = std::numeric_limits<int>::min();
  int over = -1;      // the buffer whose memory it takes, or its own
  size_t offset = 0;  // in the arena
};

// Grows without moving what is there: references to buffers stay good while buffers are added.
using PlanBuffers = std::deque<PlanBuffer>;

struct PlanStep {
  kernels::Pass pass;
  std::vector<int> reads, writes;  // buffers
  std::string name;
  bool conversion = false;
};

struct Plan::State {
  Device device;
  PlanBuffers buffers;
  std::vector<PlanStep> steps;  // forward, then backward
  int forward_steps = 0;
  // Buffers; -1: none.
  std::vector<int> inputs, outputs, seeds, input_gradients, output_gradients;
  GradientLayout gradient_layout;
  size_t arena_bytes = 0;  // without scratch
  size_t scratch_bytes = 0;
};

// Lets results be written over operands that nobody reads afterwards, where passes do that: what
// both need is memory for one, and what was just read is in a cache.
void write_in_place(PlanBuffers& buffers, const std::vector<PlanStep>& steps);

// Gives every arena buffer its offset: large ones first, each at the lowest place that is free for
// all of its life. Returns the bytes needed.
size_t place_buffers(PlanBuffers& buffers);

}  // namespace lockstep
