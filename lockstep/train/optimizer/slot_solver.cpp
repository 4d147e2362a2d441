#include "lockstep/train/optimizer/slot_solver.h"

#include "lockstep/train/options/options.h"

namespace lockstep {

std::vector<UpdateSlot> update_slots(Network& network, size_t arrays,
                                     const TrainingOptions& options) {
  check_frozen(network, options.freeze);
  check_unfreezing(network, options);
  std::vector<UpdateSlot> slots;
  for (const auto& l : network.parameters()) {
    UpdateSlot slot{{l.value, l.spec.learning_rate_factor, l.spec.l2_factor},
                    {},
                    first_learning_epoch(l.name, options)};
    for (size_t i = 0; i < arrays; ++i)
      slot.state.push_back(Tensor::zeros(l.value.shape(), DType::f32, l.value.device()));
    slots.push_back(std::move(slot));
  }
  return slots;
}

}  // namespace lockstep
