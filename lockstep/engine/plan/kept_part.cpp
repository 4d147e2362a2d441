#include "lockstep/engine/plan/kept_part.h"

#include <algorithm>

#include "lockstep/engine/plan/compile.h"

namespace lockstep {
namespace {

using Storage = PlanBuffer::Storage;

// What a buffer depends on: nothing that changes and no observation; an observation alone; or
// something that changes, or several observations.
enum class Change : uint8_t { constant, row, changing };

class Division {
 public:
  Division(const Plan::State& plan, const Unchanging& unchanging)
      : plan_(plan), unchanging_(unchanging), forced_(plan.steps.size(), false) {}

  KeptPart part() {
    do classify();
    while (!choose());
    for (const KeptPart::Array& array : part_.arrays) need_first(array.buffer);
    mark_first();
    name_first_change();
    return std::move(part_);
  }

 private:
  const PlanBuffer& buffer(int b) const { return plan_.buffers[static_cast<size_t>(b)]; }
  Change& kind(int b) { return kinds_[static_cast<size_t>(b)]; }
  size_t forward_steps() const { return static_cast<size_t>(plan_.forward_steps); }

  void classify() {
    kinds_.assign(plan_.buffers.size(), Change::changing);
    for (size_t b = 0; b < plan_.buffers.size(); ++b) {
      const PlanBuffer& of = plan_.buffers[b];
      const auto slot = static_cast<size_t>(of.slot);
      const bool constant = (of.storage == Storage::parameter && unchanging_.parameters.at(slot)) ||
                            (of.storage == Storage::state && unchanging_.states.at(slot));
      if (constant) kinds_[b] = Change::constant;
    }
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      if (i < unchanging_.inputs.size() && unchanging_.inputs[i])
        kind(plan_.inputs[i]) = Change::row;
    }
    for (size_t i = 0; i < forward_steps(); ++i) {
      const Change result = kind_of(i);
      for (const int b : plan_.steps[i].writes) kind(b) = result;
    }
  }

  Change kind_of(size_t i) {
    const PlanStep& step = plan_.steps[i];
    if (forced_[i] || step.draws) return Change::changing;
    Change most = Change::constant;
    for (const int b : step.reads) most = std::max(most, kind(b));
    const bool apart = most != Change::row || std::ranges::all_of(step.writes, [&](int b) {
                         return has_rows(b) && !is_over_rows(b);
                       });
    return apart ? most : Change::changing;
  }

  // Whether the first dimension of a result may be that of the observations. A workspace has bytes.
  bool has_rows(int b) const {
    const Shape& shape = buffer(b).spec.shape;
    return buffer(b).spec.dtype == DType::u8 ||
           (shape.rank() > 0 && shape[0] % unchanging_.rows == 0);
  }
  bool is_over_rows(int b) const {
    return std::ranges::any_of(unchanging_.over_rows, [&](int output) {
      return plan_.outputs[static_cast<size_t>(output)] == b;
    });
  }

  // What the rest needs, from its results to its operands. Returns false if a result that it needs
  // cannot be kept: its step then belongs to the rest.
  bool choose() {
    part_ = {};
    part_.uses.resize(plan_.steps.size());
    std::vector<bool> needed(plan_.buffers.size(), false);
    for (const int b : plan_.outputs) needed[static_cast<size_t>(b)] = true;
    for (size_t b = 0; b < plan_.buffers.size(); ++b) {
      const PlanBuffer& of = plan_.buffers[b];
      if (of.storage != Storage::gradient) continue;
      const auto slot = static_cast<size_t>(of.slot);
      if (!unchanging_.parameters.at(slot)) needed[b] = true;
    }
    for (size_t i = plan_.steps.size(); i-- > 0;) {
      const PlanStep& step = plan_.steps[i];
      std::vector<int> wanted;
      for (const int b : step.writes) {
        if (needed[static_cast<size_t>(b)]) wanted.push_back(b);
      }
      if (wanted.empty()) continue;
      const bool keeps = i < forward_steps() && kind(wanted.front()) == Change::row;
      // Conversions are made again from what is kept, so that no value is kept twice.
      if (keeps && !step.conversion) {
        for (const int b : wanted) {
          if (!can_be_kept(b)) {
            forced_[i] = true;
            return false;
          }
          part_.arrays.push_back({b, i, bytes_of_row(b)});
        }
        continue;
      }
      part_.uses[i].rest = true;
      for (const int b : step.reads) needed[static_cast<size_t>(b)] = true;
    }
    std::ranges::reverse(part_.arrays);
    for (const int b : plan_.inputs) {
      part_.rest_inputs.push_back(needed[static_cast<size_t>(b)]);
    }
    return true;
  }

  bool can_be_kept(int b) const {
    return buffer(b).spec.dtype != DType::u8 && buffer(b).storage == Storage::arena && has_rows(b);
  }
  size_t bytes_of_row(int b) const {
    return buffer(b).spec.plain().bytes() / static_cast<size_t>(unchanging_.rows);
  }

  void need_first(int b) {
    first_.resize(plan_.buffers.size(), false);
    first_[static_cast<size_t>(b)] = true;
  }

  void mark_first() {
    if (part_.arrays.empty()) return;
    for (size_t i = forward_steps(); i-- > 0;) {
      const PlanStep& step = plan_.steps[i];
      if (std::ranges::none_of(step.writes,
                               [&](int b) { return first_[static_cast<size_t>(b)]; })) {
        continue;
      }
      part_.uses[i].first = true;
      for (const int b : step.reads) {
        need_first(b);
        part_.has_parameters |= buffer(b).storage == Storage::parameter;
      }
    }
  }

  void name_first_change() {
    for (size_t i = 0; i < forward_steps(); ++i) {
      const PlanStep& step = plan_.steps[i];
      if (step.writes.empty() || kind(step.writes.front()) != Change::changing) continue;
      part_.changing = step.name;
      part_.why = step.draws ? "draws random numbers" : "computes with all observations of a shard";
      for (const int b : step.reads) {
        if (buffer(b).storage == Storage::parameter && kind(b) == Change::changing) {
          part_.why = "is not frozen";
        }
      }
      return;
    }
  }

  const Plan::State& plan_;
  const Unchanging& unchanging_;
  std::vector<bool> forced_;   // by step: belongs to the rest
  std::vector<Change> kinds_;  // by buffer
  std::vector<bool> first_;    // by buffer: the first part needs it
  KeptPart part_;
};

}  // namespace

KeptPart kept_part_of(const Plan::State& plan, const Unchanging& unchanging) {
  return Division(plan, unchanging).part();
}

}  // namespace lockstep
