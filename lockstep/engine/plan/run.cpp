#include <algorithm>
#include <cstring>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/device/eager_stream.h"
#include "lockstep/engine/device/poison.h"
#include "lockstep/engine/device/recording.h"
#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/engine/plan/compile.h"
#include "lockstep/engine/plan/device_step.h"
#include "lockstep/engine/plan/runs_in_turn.h"

namespace lockstep {
namespace {

// Steps [first, end) of a plan.
struct Phase {
  size_t first = 0, end = 0;
  std::optional<Recording> recording;  // only on a device other than the CPU
};

// Which steps of a phase run: all, or those of a part of a divided plan.
enum class Part : uint8_t { all, first, rest };

// Row-major memory of an array of a divided plan, and the conversions between it and the buffer.
struct KeptArray {
  Memory values, scratch;
  kernels::BoundPass take, fill;
};

}  // namespace

struct PlanRun::State {
  std::shared_ptr<const Plan> plan;
  DeviceMemory* device = nullptr;  // null: the CPU
  std::shared_ptr<PlanMemory> memory;
  std::unique_ptr<DeviceStream> stream;
  std::unique_ptr<DeviceStep> device_step;
  Phase forward, backward;
  std::vector<void*> addresses;  // by buffer
  std::vector<bool> read;        // by buffer: by a pass, or as a result
  std::vector<kernels::BoundPass> steps;
  std::vector<KeptArray> kept;  // by array of the plan's kept part

  ~State() {
    if (!stream) return;
    try {
      device->synchronize(stream->get());
    } catch (const std::exception&) {
      // The device is lost. The next call that uses it reports the error.
    }
  }

  void* address(int buffer) const {
    return buffer < 0 ? nullptr : addresses[static_cast<size_t>(buffer)];
  }

  // Returns the buffer that is copied to or from the host. Throws InvalidArgument if `bytes` is not
  // its size.
  int copied(const char* what, const std::vector<int>& buffers, int i, size_t bytes) const {
    const int buffer = buffers.at(static_cast<size_t>(i));
    const size_t wanted =
        buffer < 0 ? 0 : plan->state().buffers[static_cast<size_t>(buffer)].spec.bytes();
    if (buffer < 0 || bytes != wanted) {
      throw InvalidArgument("[plan] " + std::string(what) + " " + std::to_string(i) + " has " +
                            std::to_string(wanted) + " bytes, received " + std::to_string(bytes));
    }
    return buffer;
  }
  void fill(int buffer, const void* host, size_t bytes) const {
    if (device) {
      device->copy_from_host(address(buffer), host, bytes, stream->get());
    } else {
      std::memcpy(address(buffer), host, bytes);
    }
  }
  void fetch(int buffer, void* host, size_t bytes) const {
    if (device) {
      device->copy_to_host(host, address(buffer), bytes, stream->get());
    } else {
      std::memcpy(host, address(buffer), bytes);
    }
  }

  // Runs a phase with poisoned memory; see poison.h.
  void run_poisoned(const Phase& phase, const RandomContext& step, PassWatch* watch,
                    const BackwardResults& results, Part part) {
    const Plan::State& p = plan->state();
    if (phase.first > 0) fill_with_poison(memory->gradients.data(), p.gradient_layout.bytes);
    for (size_t i = phase.first; i < phase.end; ++i) {
      const bool runs = serves(i, results) && belongs(i, part);
      if (!runs && part == Part::all) continue;
      for (size_t b = 0; b < p.buffers.size(); ++b) {
        const PlanBuffer& buffer = p.buffers[b];
        // A result that is written over an operand starts with the operand's elements.
        if (buffer.storage == PlanBuffer::Storage::arena && buffer.over < 0 &&
            buffer.first == static_cast<int>(i)) {
          fill_with_poison(addresses[b], buffer.spec.bytes());
        }
      }
      if (runs) {
        fill_with_poison(memory->scratch.data(), p.scratch_bytes);
        const std::vector<std::byte> before = all_bytes();
        steps[i](step);
        require_only_writes_changed(i, before);
        if (watch) watch->passed(i);
      }
      exchange_kept(i, part);
    }
  }

  // Returns the bytes of the arena and of the gradients, concatenated.
  std::vector<std::byte> all_bytes() const {
    const Plan::State& p = plan->state();
    std::vector<std::byte> bytes(p.arena_bytes + p.gradient_layout.bytes);
    if (p.arena_bytes > 0) std::memcpy(bytes.data(), memory->arena.data(), p.arena_bytes);
    if (p.gradient_layout.bytes > 0) {
      std::memcpy(bytes.data() + p.arena_bytes, memory->gradients.data(), p.gradient_layout.bytes);
    }
    return bytes;
  }

  // Throws Error, naming pass `i`, if it has written outside its operands.
  void require_only_writes_changed(size_t i, std::vector<std::byte> before) const {
    const Plan::State& p = plan->state();
    std::vector<std::byte> after = all_bytes();
    for (const int b : p.steps[i].writes) {
      if (b < 0) continue;
      const PlanBuffer& buffer = p.buffers[static_cast<size_t>(b)];
      size_t offset = 0;
      if (buffer.storage == PlanBuffer::Storage::arena) {
        offset = buffer.offset;
      } else if (buffer.storage == PlanBuffer::Storage::gradient) {
        offset = p.arena_bytes + p.gradient_layout.entries[static_cast<size_t>(buffer.slot)].offset;
      } else {
        continue;
      }
      std::memset(before.data() + offset, 0, buffer.spec.bytes());
      std::memset(after.data() + offset, 0, buffer.spec.bytes());
    }
    if (before == after) return;
    const auto at = std::mismatch(before.begin(), before.end(), after.begin()).first;
    throw Error("[plan] pass " + p.steps[i].name + " has written beyond its operands, at byte " +
                std::to_string(at - before.begin()) + " of " + std::to_string(p.arena_bytes) +
                " of results and " + std::to_string(p.gradient_layout.bytes) + " of gradients");
  }

  bool serves(size_t step, const BackwardResults& results) const {
    const Plan::State& p = plan->state();
    if (device || step < static_cast<size_t>(p.forward_steps)) return true;
    const BackwardResults& of = p.steps[step].serves;
    return (of.parameters && results.parameters) || (of.zeros && results.zeros) ||
           (of.values && results.values);
  }

  bool belongs(size_t step, Part part) const {
    if (part == Part::all) return true;
    const KeptPart::Use& use = plan->state().kept->uses[step];
    return part == Part::first ? use.first : use.rest;
  }

  // Takes the arrays that the step has computed, or puts them where it would have left them.
  void exchange_kept(size_t step, Part part) {
    if (part == Part::all) return;
    const std::vector<KeptPart::Array>& arrays = plan->state().kept->arrays;
    for (size_t k = 0; k < arrays.size(); ++k) {
      if (arrays[k].step == step) (part == Part::first ? kept[k].take : kept[k].fill)({});
    }
  }

  void run(const Phase& phase, const RandomContext& step, PassWatch* watch = nullptr,
           const BackwardResults& results = {}, Part part = Part::all) {
    if (!device && poison() != Poison::none) {
      return run_poisoned(phase, step, watch, results, part);
    }
    for (size_t i = phase.first; i < phase.end; ++i) {
      if (serves(i, results) && belongs(i, part)) {
        steps[i](step);
        if (watch) watch->passed(i);
      }
      exchange_kept(i, part);
    }
  }

  // Makes the memory of the arrays of a divided plan.
  void make_kept() {
    const Plan::State& p = plan->state();
    if (!p.kept) return;
    const auto& functions = kernels::functions_for({});
    for (const KeptPart::Array& array : p.kept->arrays) {
      const TensorSpec& spec = p.buffers[static_cast<size_t>(array.buffer)].spec;
      KeptArray& to = kept.emplace_back();
      to.values = allocate(spec.plain().bytes());
      void* const there = address(array.buffer);
      void* const here = to.values.data();
      if (spec.row_major()) {
        to.take = [=, bytes = spec.bytes()](const RandomContext&) {
          std::memcpy(here, there, bytes);
        };
        to.fill = [=, bytes = spec.bytes()](const RandomContext&) {
          std::memcpy(there, here, bytes);
        };
        continue;
      }
      const kernels::Pass take = functions.reorder(spec, spec.plain());
      const kernels::Pass fill = functions.reorder(spec.plain(), spec);
      to.scratch = allocate(std::max(take.scratch_bytes, fill.scratch_bytes));
      const auto bound = [&](const kernels::Pass& pass, void* from, void* into) {
        return pass.bind({std::span<void* const>(&from, 1), std::span<void* const>(&into, 1),
                          to.scratch.data()});
      };
      to.take = bound(take, there, here);
      to.fill = bound(fill, here, there);
    }
  }

  void run_on_device(Phase& phase, const RandomContext& step) {
    void* const q = stream->get();
    device->activate();
    // Packing uses the default stream; inputs come through the stream of eager work.
    device->follow(q, device->default_stream());
    void* const own = EagerStream::of_thread(plan->state().device);
    if (own != nullptr) device->follow(q, own);
    device_step->set(step);
    if (phase.first == phase.end) return;
    phase.recording->run([&] { run(phase, step); });
  }
};

PlanRun::PlanRun(std::shared_ptr<const Plan> plan, PackedParameters& parameters,
                 const std::vector<const float*>& states, std::shared_ptr<PlanMemory> memory)
    : state_(std::make_unique<State>()) {
  const Plan::State& p = plan->state();
  // Other streams may use the packed parameters too, so their memory comes from the default stream.
  void* const own = EagerStream::of_thread(p.device);
  const EagerStream by_default(p.device, nullptr);
  State& s = *state_;
  s.plan = std::move(plan);
  if (parameters.count() > 0 && parameters.device() != p.device) {
    throw InvalidArgument("[plan] the parameters are on " + to_string(parameters.device()) +
                              ", but the plan runs on " + to_string(p.device),
                          "move them, or compile the plan for " + to_string(parameters.device()));
  }
  s.memory = memory ? std::move(memory) : std::make_shared<PlanMemory>(sizes_of(*s.plan), p.device);
  if (!p.device.is_cpu()) {
    s.device = &memory_of(p.device);
    s.device->activate();
    s.stream = std::make_unique<DeviceStream>(p.device);
    // Waits for work of the memory's former users and for the zeros.
    s.device->follow(s.stream->get(), s.device->default_stream());
    if (own != nullptr) s.device->follow(own, s.device->default_stream());
    s.device_step = std::make_unique<DeviceStep>(p.device, s.stream->get());
    for (Phase* phase : {&s.forward, &s.backward}) {
      phase->recording.emplace(*s.device, s.stream->get());
    }
  }
  for (const auto& b : p.buffers) {
    switch (b.storage) {
      case PlanBuffer::Storage::arena:
        s.addresses.push_back(s.memory->arena.as<std::byte>() + b.offset);
        break;
      case PlanBuffer::Storage::parameter:
        s.addresses.push_back(parameters.address(b.slot, b.spec));
        break;
      case PlanBuffer::Storage::state:
        s.addresses.push_back(const_cast<float*>(states.at(static_cast<size_t>(b.slot))));
        break;
      case PlanBuffer::Storage::gradient: {
        const auto& entry = p.gradient_layout.entries[static_cast<size_t>(b.slot)];
        s.addresses.push_back(s.memory->gradients.as<std::byte>() + entry.offset);
        break;
      }
    }
  }
  s.read.assign(p.buffers.size(), false);
  const auto mark_read = [&s](const std::vector<int>& buffers) {
    for (const int b : buffers) {
      if (b >= 0) s.read[static_cast<size_t>(b)] = true;
    }
  };
  for (const auto& step : p.steps) mark_read(step.reads);
  for (const auto& reads : p.shard_sum_reads) mark_read(reads);
  mark_read(p.outputs);
  for (const auto& step : p.steps) {
    std::vector<void*> reads, writes;
    for (int b : step.reads) reads.push_back(s.address(b));
    for (int b : step.writes) writes.push_back(s.address(b));
    kernels::PassMemory where{reads, writes, s.memory->scratch.data()};
    if (s.device) {
      where.stream = s.stream->get();
      where.device_step = s.device_step->address();
    }
    s.steps.push_back(step.pass.bind(where));
  }
  s.forward.end = s.backward.first = static_cast<size_t>(p.forward_steps);
  s.backward.end = s.steps.size();
  s.make_kept();
}

PlanRun::~PlanRun() = default;
PlanRun::PlanRun(PlanRun&&) noexcept = default;

void* PlanRun::input(int i) const {
  return state_->address(state_->plan->state().inputs.at(static_cast<size_t>(i)));
}

bool PlanRun::reads_input(int i) const {
  const int buffer = state_->plan->state().inputs.at(static_cast<size_t>(i));
  return state_->read[static_cast<size_t>(buffer)];
}

int PlanRun::inputs() const { return static_cast<int>(state_->plan->state().inputs.size()); }

size_t PlanRun::input_bytes(int i) const {
  const Plan::State& plan = state_->plan->state();
  const int buffer = plan.inputs.at(static_cast<size_t>(i));
  return plan.buffers[static_cast<size_t>(buffer)].spec.bytes();
}

const float* PlanRun::output(int i) const {
  return static_cast<const float*>(
      state_->address(state_->plan->state().outputs.at(static_cast<size_t>(i))));
}

const Plan& PlanRun::plan() const { return *state_->plan; }

float* PlanRun::output_gradient(int i) const {
  return static_cast<float*>(
      state_->address(state_->plan->state().output_gradients.at(static_cast<size_t>(i))));
}

const float* PlanRun::input_gradient(int i) const {
  return static_cast<const float*>(
      state_->address(state_->plan->state().input_gradients.at(static_cast<size_t>(i))));
}

const float* PlanRun::total_output_gradient(int i) const {
  return static_cast<const float*>(
      state_->address(state_->plan->state().total_output_gradients.at(static_cast<size_t>(i))));
}

std::byte* PlanRun::gradients() const { return state_->memory->gradients.as<std::byte>(); }

void PlanRun::keep(size_t sum, int64_t first, std::span<const kernels::ShardLeaf> leaves,
                   void* kept) const {
  const Plan::State& plan = state_->plan->state();
  const std::vector<int>& buffers = plan.shard_sum_reads.at(sum);
  std::vector<void*> reads;
  for (const int b : buffers) reads.push_back(state_->address(b));
  const int64_t rows = plan.buffers[static_cast<size_t>(buffers.front())].spec.shape[0];
  plan.shard_sums[sum].sum.keep(reads, {first, rows}, leaves, kept);
}

void PlanRun::set_input(int i, const void* host, size_t bytes) {
  state_->fill(state_->copied("input", state_->plan->state().inputs, i, bytes), host, bytes);
}

void PlanRun::get_output(int i, void* host, size_t bytes) const {
  state_->fetch(state_->copied("output", state_->plan->state().outputs, i, bytes), host, bytes);
}

void PlanRun::set_output_gradient(int i, const void* host, size_t bytes) {
  state_->fill(state_->copied("output gradient", state_->plan->state().output_gradients, i, bytes),
               host, bytes);
}

void PlanRun::get_input_gradient(int i, void* host, size_t bytes) const {
  const auto& gradients = state_->plan->state().input_gradients;
  state_->fetch(state_->copied("input gradient", gradients, i, bytes), host, bytes);
}

void PlanRun::forward(const RandomContext& step, PassWatch* watch) {
  if (state_->device) {
    state_->run_on_device(state_->forward, step);
  } else {
    state_->run(state_->forward, step, watch);
  }
}

void PlanRun::backward(const RandomContext& step, PassWatch* watch,
                       const BackwardResults& results) {
  if (state_->device) {
    state_->run_on_device(state_->backward, step);
  } else {
    state_->run(state_->backward, step, watch, results);
  }
}

void PlanRun::forward_first(const RandomContext& step, PassWatch* watch) {
  state_->run(state_->forward, step, watch, {}, Part::first);
}

void PlanRun::forward_rest(const RandomContext& step, PassWatch* watch) {
  state_->run(state_->forward, step, watch, {}, Part::rest);
}

void PlanRun::backward_rest(const RandomContext& step, PassWatch* watch) {
  state_->run(state_->backward, step, watch, {}, Part::rest);
}

std::byte* PlanRun::kept(size_t k) const { return state_->kept.at(k).values.as<std::byte>(); }

void PlanRun::add_forward() { state_->run(state_->forward, {}); }

void PlanRun::add_backward() { state_->run(state_->backward, {}); }

RandomContext* PlanRun::step() const { return state_->device_step->address(); }

void* PlanRun::stream() const { return state_->stream ? state_->stream->get() : nullptr; }

void PlanRun::synchronize() const {
  if (state_->device) state_->device->synchronize(state_->stream->get());
}

void PlanRun::join() const {
  const State& s = *state_;
  if (s.device) s.device->follow(eager_stream_of(s.plan->state().device), stream());
}

}  // namespace lockstep
