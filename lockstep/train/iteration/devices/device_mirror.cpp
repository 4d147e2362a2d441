#include "lockstep/train/iteration/devices/device_mirror.h"

#include <cstring>

#include "lockstep/base/numeric/alignment.h"
#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/engine/kernels/solvers/parameter_digests.h"
#include "lockstep/train/state/state_digest.h"

namespace lockstep {

DeviceMirror::DeviceMirror(Network& network, Solver& solver, DeviceIteration& iteration)
    : network_(network),
      solver_(solver),
      iteration_(iteration),
      memory_(memory_of(network.device())),
      functions_(kernels::functions_for(network.device())) {
  size_t bytes = 0;
  for (const auto& s : network.state()) {
    state_offsets_.push_back(bytes);
    bytes += round_up(s.value.bytes());
  }
  states_ = std::make_unique<Pinned>(memory_, bytes);
  make_digests();
}

void DeviceMirror::fetch_states() {
  for (size_t k = 0; k < network_.state().size(); ++k) {
    const Tensor host = network_.state()[k].value.to({});
    std::memcpy(state_memory(k), host.raw(), host.bytes());
  }
}

void DeviceMirror::send_state(int k) {
  const Tensor& state = network_.state()[static_cast<size_t>(k)].value;
  memory_.copy_from_host(state.raw(), this->state(k), state.bytes(), memory_.default_stream());
}

void DeviceMirror::send_states() {
  for (size_t k = 0; k < network_.state().size(); ++k) send_state(static_cast<int>(k));
}

void DeviceMirror::make_copies() {
  std::vector<Tensor> values;
  for (size_t p = 0; p < network_.parameters().size(); ++p) {
    values.push_back(network_.parameters()[p].value);
    for (const Tensor& array : solver_.state(p)) values.push_back(array);
  }
  size_t bytes = 0;
  for (const Tensor& tensor : values) bytes += round_up(tensor.bytes());
  for (Copy& copy : copies_) {
    copy.memory = allocate(bytes, network_.device());
    std::vector<kernels::CopyChunk> to, back;
    auto* at = copy.memory.as<std::byte>();
    for (const Tensor& tensor : values) {
      const auto size = static_cast<int64_t>(tensor.bytes());
      to.push_back({tensor.raw(), at, size});
      back.push_back({at, tensor.raw(), size});
      at += round_up(tensor.bytes());
    }
    copy.to = ChunkList(network_.device(), to);
    copy.back = ChunkList(network_.device(), back);
  }
}

void DeviceMirror::keep(size_t slot) {
  if (copies_[0].memory.data() == nullptr) make_copies();
  Copy& copy = copies_[next_];
  next_ ^= 1;
  copy.slot = slot;
  if (copies_[next_].slot == slot) copies_[next_].slot.reset();  // of an iteration long ago
  iteration_.add_to_stream([&] { copy.to.add(functions_, iteration_.stream()); });
}

void DeviceMirror::bring_back(size_t slot) {
  for (const Copy& copy : copies_) {
    if (copy.slot != slot) continue;
    iteration_.add_to_stream([&] { copy.back.add(functions_, iteration_.stream()); });
    return;
  }
  throw InternalError("[training] the values of an earlier iteration were not kept");
}

void DeviceMirror::make_digests() {
  std::vector<kernels::ParameterArrays> arrays;
  std::vector<kernels::DigestedParameter> parameters;
  std::vector<kernels::UpdateBlock> blocks;
  int64_t offset = 0;
  for (size_t p = 0; p < network_.parameters().size(); ++p) {
    const Tensor& value = network_.parameters()[p].value;
    const std::vector<Tensor> state = solver_.state(p);
    const auto array = [&](size_t i) {
      return i < state.size() ? static_cast<float*>(state[i].raw()) : nullptr;
    };
    arrays.push_back(
        {static_cast<float*>(value.raw()), array(0), array(1), nullptr, value.shape().elements()});
    parameters.push_back({static_cast<int64_t>(blocks.size()), offset});
    const int64_t bytes = kernels::digested_bytes(arrays.back());
    for (int64_t b = 0; b < kernels::digested_blocks(bytes); ++b) {
      blocks.push_back({static_cast<int64_t>(p), b * xxh3::kBlock});
    }
    bytes_.push_back(bytes);
    results_.push_back(offset);
    offset += kernels::digest_result_bytes(bytes);
  }
  arrays_ = sent_to(network_.device(), arrays);
  parameters_ = sent_to(network_.device(), parameters);
  blocks_ = sent_to(network_.device(), blocks);
  block_count_ = static_cast<int64_t>(blocks.size());
  sums_ = allocate(8 * sizeof(uint64_t) * blocks.size(), network_.device());
  digest_bytes_ = static_cast<size_t>(offset);
}

void DeviceMirror::add_digests() const {
  functions_.parameter_digests({.arrays = arrays_.as<const kernels::ParameterArrays>(),
                                .parameters = parameters_.as<const kernels::DigestedParameter>(),
                                .parameter_count = static_cast<int64_t>(bytes_.size()),
                                .blocks = blocks_.as<const kernels::UpdateBlock>(),
                                .block_count = block_count_,
                                .sums = sums_.as<uint64_t>(),
                                .results = iteration_.to_return()},
                               iteration_.stream());
}

Digest DeviceMirror::digest(int64_t iteration, size_t slot) const {
  std::vector<Digest> digests;
  for (size_t p = 0; p < bytes_.size(); ++p) {
    const std::byte* const result = iteration_.returned(slot) + results_[p];
    if (bytes_[p] <= xxh3::kShort) {
      // The values themselves.
      digests.push_back(digest_of(result, static_cast<size_t>(bytes_[p])));
      continue;
    }
    uint64_t halves[2];
    std::memcpy(halves, result, sizeof halves);
    digests.push_back({.high = halves[0], .low = halves[1]});
  }
  return state_digest(network_, digests, iteration, [&](size_t k) { return state_memory(k); });
}

}  // namespace lockstep
