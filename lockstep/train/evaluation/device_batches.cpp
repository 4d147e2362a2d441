#include "lockstep/train/evaluation/device_batches.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/alignment.h"
#include "lockstep/base/os/memory_room.h"

namespace lockstep {

struct DeviceBatches::Slot {
  explicit Slot(const DeviceBatches& of)
      : run(of.plan_, of.network_.packed(), of.network_.state_pointers()),
        sent(of.memory_, of.filled_),
        returned(of.memory_, of.returned_),
        sent_there(allocate(of.sent_, of.network_.device())),
        returned_there(allocate(of.returned_, of.network_.device())),
        recording(of.memory_, run.stream()),
        done(of.memory_) {
    std::vector<kernels::CopyChunk> to_plan, from_plan;
    const auto input = [&](const Part& part, size_t i) {
      to_plan.push_back({sent_there.as<std::byte>() + part.offset, run.input(static_cast<int>(i)),
                         static_cast<int64_t>(part.bytes)});
    };
    const auto output = [&](int i, const Part& part) {
      from_plan.push_back({run.output(i), returned_there.as<std::byte>() + part.offset,
                           static_cast<int64_t>(part.bytes)});
    };
    for (size_t k = 0; k < of.inputs_.size(); ++k) input(of.inputs_[k], k);
    output(0, of.scores_);
    if (of.has_losses_) {
      input(of.wanted_, of.inputs_.size());
      output(1, of.losses_);
    }
    inputs = ChunkList(of.network_.device(), to_plan);
    results = ChunkList(of.network_.device(), from_plan);
    // Prediction uses no random numbers, but passes may read the step.
    const RandomContext step;
    of.memory_.copy_from_host(run.step(), &step, sizeof step, run.stream());
  }

  PlanRun run;
  const Pinned sent, returned;              // memory of the host
  const Memory sent_there, returned_there;  // of the device
  ChunkList inputs, results;
  Recording recording;
  DeviceMark done;
};

int64_t DeviceBatches::rows_for(const Graph& graph, int64_t rows) {
  size_t most = 1;  // bytes of the operands of an op
  for (const Graph::Node& node : graph.nodes()) {
    size_t bytes = 0;
    for (const std::vector<int>* operands : {&node.inputs, &node.outputs}) {
      for (const int v : *operands) {
        const Graph::Value& value = graph.values()[static_cast<size_t>(v)];
        if (value.source != Graph::Source::computed && value.source != Graph::Source::input) {
          continue;
        }
        bytes += static_cast<size_t>(value.shape.elements()) * size_of(value.dtype);
      }
    }
    most = std::max(most, bytes);
  }
  int64_t larger = rows;
  while (2 * larger <= kMostRows && 2 * most <= kMostBytes) {
    larger *= 2;
    most *= 2;
  }
  return larger;
}

DeviceBatches::DeviceBatches(Network& network, std::shared_ptr<const Plan> plan, int64_t rows,
                             const BatchRow& row)
    : network_(network),
      plan_(std::move(plan)),
      memory_(memory_of(network.device())),
      functions_(kernels::functions_for(network.device())),
      has_losses_(row.losses) {
  const auto place = [&](size_t& block, size_t bytes) {
    const Part part{block, static_cast<size_t>(rows) * bytes};
    block += round_up(part.bytes);
    return part;
  };
  for (const size_t bytes : row.inputs) inputs_.push_back(place(filled_, bytes));
  sent_ = filled_;
  wanted_ = place(filled_, row.wanted);
  if (has_losses_) sent_ = filled_;
  scores_ = place(returned_, row.scores);
  if (has_losses_) losses_ = place(returned_, sizeof(float));
  slots_.push_back(std::make_unique<Slot>(*this));
}

void DeviceBatches::make_slots(int64_t batches) {
  constexpr size_t much = 4;  // times the memory of a slot
  const size_t each = plan_->arena_bytes() + sent_ + returned_;
  while (slots_.size() < kMostSlots && static_cast<int64_t>(slots_.size()) < batches &&
         memory_.figures().free / much >= each) {
    try {
      slots_.push_back(std::make_unique<Slot>(*this));
    } catch (const OutOfMemory&) {
      return;  // other processes have taken it
    }
  }
}

// The memory returns to the cache when nothing uses it any more.
DeviceBatches::~DeviceBatches() {
  for (const auto& slot : slots_) {
    try {
      slot->run.synchronize();
    } catch (const std::exception&) {
      // The device is lost. The next call that uses it reports the error.
    }
  }
}

std::vector<uint8_t*> DeviceBatches::inputs(size_t slot) const {
  std::vector<uint8_t*> all;
  for (const Part& part : inputs_) {
    all.push_back(reinterpret_cast<uint8_t*>(slots_[slot]->sent.data() + part.offset));
  }
  return all;
}

void* DeviceBatches::wanted(size_t slot) const {
  return slots_[slot]->sent.data() + wanted_.offset;
}

const float* DeviceBatches::scores(size_t slot) const {
  return reinterpret_cast<const float*>(slots_[slot]->returned.data() + scores_.offset);
}

const float* DeviceBatches::losses(size_t slot) const {
  return reinterpret_cast<const float*>(slots_[slot]->returned.data() + losses_.offset);
}

void DeviceBatches::begin(size_t slot) {
  Slot& p = *slots_[slot];
  void* const stream = p.run.stream();
  memory_.activate();
  memory_.follow(stream, memory_.default_stream());
  memory_.copy_from_host(p.sent_there.data(), p.sent.data(), sent_, stream);
  p.recording.run([&] {
    p.inputs.add(functions_, stream);
    p.run.add_forward();
    p.results.add(functions_, stream);
  });
  memory_.copy_to_host(p.returned.data(), p.returned_there.data(), returned_, stream);
  p.done.set(stream);
}

void DeviceBatches::wait(size_t slot) const { slots_[slot]->done.wait(); }

}  // namespace lockstep
