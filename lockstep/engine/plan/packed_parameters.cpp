#include "lockstep/engine/plan/packed_parameters.h"

#include "lockstep/engine/kernels/table.h"

namespace lockstep {

PackedParameters::PackedParameters(std::vector<Tensor> parameters)
    : parameters_(std::move(parameters)), copies_(parameters_.size()) {}

PackedParameters::~PackedParameters() = default;

void* PackedParameters::address(int parameter, const TensorSpec& spec) {
  const auto p = static_cast<size_t>(parameter);
  const Tensor& tensor = parameters_[p];
  if (spec.row_major()) return tensor.raw();
  for (const auto& copy : copies_[p]) {
    if (copy.spec == spec) return copy.memory.data();
  }
  Copy copy;
  copy.spec = spec;
  copy.memory = allocate_zeros(spec.bytes());
  const auto pass = kernels::table_for(tensor.device()).reorder(spec.plain(), spec);
  copy.scratch = allocate(pass.scratch_bytes);
  void* const from = tensor.raw();
  void* const to = copy.memory.data();
  copy.make = pass.bind(
      {std::span<void* const>(&from, 1), std::span<void* const>(&to, 1), copy.scratch.data()});
  copy.make({});
  copies_[p].push_back(std::move(copy));
  return to;
}

void PackedParameters::pack(int parameter) const {
  for (const auto& copy : copies_[static_cast<size_t>(parameter)]) copy.make({});
}

void PackedParameters::pack_all() const {
  for (int p = 0; p < count(); ++p) pack(p);
}

}  // namespace lockstep
