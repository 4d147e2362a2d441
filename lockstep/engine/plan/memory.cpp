#include <algorithm>
#include <numeric>

#include "lockstep/engine/plan/compile.h"

namespace lockstep {

namespace {

// Marks the steps that compute these buffers.
void mark_steps(Plan::State& plan, std::vector<bool> needed, bool BackwardResults::*result) {
  for (size_t i = plan.steps.size(); i-- > static_cast<size_t>(plan.forward_steps);) {
    PlanStep& step = plan.steps[i];
    if (std::none_of(step.writes.begin(), step.writes.end(),
                     [&](int b) { return b >= 0 && needed[static_cast<size_t>(b)]; })) {
      continue;
    }
    step.serves.*result = true;
    for (const int b : step.reads) needed[static_cast<size_t>(b)] = true;
  }
}

}  // namespace

void mark_backward_results(Plan::State& plan) {
  std::vector<bool> parameters(plan.buffers.size()), zeros = parameters, values = parameters;
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    if (plan.buffers[b].storage != PlanBuffer::Storage::gradient) continue;
    const bool reached = plan.reached_parameters[static_cast<size_t>(plan.buffers[b].slot)];
    (reached ? parameters : zeros)[b] = true;
  }
  for (const std::vector<int>& reads : plan.shard_sum_reads) {
    for (const int b : reads) parameters[static_cast<size_t>(b)] = true;
  }
  for (const auto* const list : {&plan.input_gradients, &plan.total_output_gradients}) {
    for (const int b : *list) {
      if (b >= 0) values[static_cast<size_t>(b)] = true;
    }
  }
  mark_steps(plan, std::move(parameters), &BackwardResults::parameters);
  mark_steps(plan, std::move(zeros), &BackwardResults::zeros);
  mark_steps(plan, std::move(values), &BackwardResults::values);
}

void write_in_place(PlanBuffers& buffers, const std::vector<PlanStep>& steps) {
  const auto buffer = [&](int b) -> PlanBuffer& { return buffers[static_cast<size_t>(b)]; };
  for (size_t i = 0; i < steps.size(); ++i) {
    const PlanStep& step = steps[i];
    const auto at = static_cast<int>(i);
    const auto possible = [&](int operand) {
      const int from = step.reads[static_cast<size_t>(operand)];
      const PlanBuffer &old = buffer(from), &result = buffer(step.writes.front());
      return old.storage == PlanBuffer::Storage::arena && result.storage == old.storage &&
             old.last == at && result.first == at && old.spec.bytes() == result.spec.bytes() &&
             std::count(step.reads.begin(), step.reads.end(), from) == 1;
    };
    const std::vector<int>& operands = step.pass.in_place;
    const auto operand = std::find_if(operands.begin(), operands.end(), possible);
    if (operand == operands.end()) continue;
    const int from = step.reads[static_cast<size_t>(*operand)];
    PlanBuffer& result = buffer(step.writes.front());
    result.over = buffer(from).over < 0 ? from : buffer(from).over;
    PlanBuffer& whole = buffer(result.over);
    whole.last = std::max(whole.last, result.last);
  }
}

size_t place_buffers(PlanBuffers& buffers) {
  constexpr size_t kAlignment = 64;
  // Leaves one cache line between buffers, so that rows of two buffers do not always map to the
  // same cache set.
  const auto size_of_buffer = [](const PlanBuffer& b) {
    return (b.spec.bytes() + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
  };
  std::vector<size_t> order;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].storage == PlanBuffer::Storage::arena && buffers[i].over < 0 &&
        buffers[i].first <= buffers[i].last) {
      order.push_back(i);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return size_of_buffer(buffers[a]) > size_of_buffer(buffers[b]);
  });
  std::vector<size_t> placed;  // by offset
  size_t total = 0;
  for (size_t i : order) {
    PlanBuffer& buffer = buffers[i];
    const size_t size = size_of_buffer(buffer);
    size_t offset = 0;
    for (size_t j : placed) {
      const PlanBuffer& other = buffers[j];
      if (other.last < buffer.first || buffer.last < other.first) continue;
      if (offset + size <= other.offset) break;
      offset = std::max(offset, other.offset + size_of_buffer(other));
    }
    buffer.offset = offset;
    total = std::max(total, offset + size);
    check_allocatable(total);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [&](size_t at, size_t j) { return at < buffers[j].offset; }),
                  i);
  }
  for (PlanBuffer& b : buffers) {
    if (b.over >= 0) b.offset = buffers[static_cast<size_t>(b.over)].offset;
  }
  return total;
}

}  // namespace lockstep
