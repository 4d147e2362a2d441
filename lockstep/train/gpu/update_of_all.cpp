#include "lockstep/train/gpu/update_of_all.h"

#include <cstring>

#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/devices.h"
#include "lockstep/engine/kernels/solvers/solver.h"

namespace lockstep {

std::unique_ptr<UpdateOfAll> UpdateOfAll::make(Network& network, Solver& solver,
                                               const std::vector<float*>& gradient_sums,
                                               const std::vector<bool>& frozen) {
  if (network.parameters().empty()) return nullptr;
  if (!solver.updates_all(kernels::table_for(network.device()))) return nullptr;
  return std::unique_ptr<UpdateOfAll>(new UpdateOfAll(network, solver, gradient_sums, frozen));
}

UpdateOfAll::UpdateOfAll(Network& network, Solver& solver, const std::vector<float*>& gradient_sums,
                         const std::vector<bool>& frozen)
    : solver_(solver),
      memory_(memory_of(network.device())),
      table_(kernels::table_for(network.device())),
      device_(network.device()) {
  std::vector<kernels::ParameterArrays> arrays;
  std::vector<kernels::UpdateBlock> blocks;
  for (size_t p = 0; p < network.parameters().size(); ++p) {
    const Tensor& value = network.parameters()[p].value;
    const std::vector<Tensor> state = solver.state(p);
    const auto array = [&](size_t i) {
      return i < state.size() ? static_cast<float*>(state[i].raw()) : nullptr;
    };
    arrays.push_back({static_cast<float*>(value.raw()), array(0), array(1), gradient_sums[p],
                      value.shape().elements()});
    if (frozen[p]) continue;
    for (int64_t i = 0; i < arrays[p].count; i += kernels::kUpdateBlock) {
      blocks.push_back({static_cast<int64_t>(p), i});
    }
  }
  number_bytes_ = solver.numbers(0, {}).size();
  blocks_count_ = static_cast<int64_t>(blocks.size());
  arrays_ = bring(arrays);
  blocks_ = bring(blocks);
  const size_t bytes = arrays.size() * number_bytes_;
  numbers_ = allocate(bytes, device_);
  numbers_here_ = std::make_unique<Pinned>(memory_, DeviceMirror::kSlots * bytes);
  std::memset(numbers_here_->data(), 0, DeviceMirror::kSlots * bytes);
}

template <class Entry>
Memory UpdateOfAll::bring(const std::vector<Entry>& entries) {
  const size_t bytes = entries.size() * sizeof(Entry);
  Memory there = allocate(bytes, device_);
  copy_bytes(there.data(), device_, entries.data(), {}, bytes);
  return there;
}

void UpdateOfAll::note(size_t slot, size_t parameter, const UpdateScalars& scalars) {
  const UpdateNumbers numbers = solver_.numbers(parameter, scalars);
  std::memcpy(here(slot) + parameter * number_bytes_, numbers.data(), numbers.size());
}

std::byte* UpdateOfAll::here(size_t slot) const {
  return numbers_here_->data() + slot * numbers_.bytes();
}

void UpdateOfAll::add(size_t slot) const {
  void* const stream = memory_.default_stream();
  memory_.copy_from_host(numbers_.data(), here(slot), numbers_.bytes(), stream);
  solver_.update_all(table_,
                     {static_cast<const kernels::ParameterArrays*>(arrays_.data()), numbers_.data(),
                      static_cast<const kernels::UpdateBlock*>(blocks_.data()), blocks_count_},
                     stream);
}

}  // namespace lockstep
