#include "lockstep/train/iteration/update_of_all.h"

#include <cstring>

#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/engine/kernels/loading.h"
#include "lockstep/engine/kernels/solvers/solver.h"
#include "lockstep/train/programs/devices/chunk_list.h"

namespace lockstep {

bool UpdateOfAll::possible(const Network& network, const Solver& solver) {
  return !network.parameters().empty() &&
         solver.updates_all(kernels::functions_for(network.device()));
}

size_t UpdateOfAll::bytes_to_send(const Network& network, const Solver& solver) {
  if (!possible(network, solver)) return 0;
  return network.parameters().size() * solver.numbers(0, {}).size();
}

std::unique_ptr<UpdateOfAll> UpdateOfAll::make(Network& network, Solver& solver,
                                               const std::vector<float*>& gradient_sums,
                                               const std::vector<bool>& frozen,
                                               const DeviceIteration& iteration) {
  if (!possible(network, solver)) return nullptr;
  return std::unique_ptr<UpdateOfAll>(
      new UpdateOfAll(network, solver, gradient_sums, frozen, iteration));
}

UpdateOfAll::UpdateOfAll(Network& network, Solver& solver, const std::vector<float*>& gradient_sums,
                         const std::vector<bool>& frozen, const DeviceIteration& iteration)
    : solver_(solver), functions_(kernels::functions_for(network.device())), iteration_(iteration) {
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
  arrays_ = sent_to(network.device(), arrays);
  blocks_ = sent_to(network.device(), blocks);
}

void UpdateOfAll::note(size_t slot, size_t parameter, const UpdateScalars& scalars) {
  const UpdateNumbers numbers = solver_.numbers(parameter, scalars);
  std::memcpy(iteration_.to_send(slot) + parameter * number_bytes_, numbers.data(), numbers.size());
}

void UpdateOfAll::add() const {
  solver_.update_all(
      functions_,
      {static_cast<const kernels::ParameterArrays*>(arrays_.data()), iteration_.there(),
       static_cast<const kernels::UpdateBlock*>(blocks_.data()), blocks_count_},
      iteration_.stream());
}

}  // namespace lockstep
