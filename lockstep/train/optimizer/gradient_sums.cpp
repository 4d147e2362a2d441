#include "lockstep/train/optimizer/gradient_sums.h"

#include <algorithm>

#include "lockstep/engine/device/poison.h"
#include "lockstep/engine/kernels/backends/functions.h"

namespace lockstep {

GradientSums::GradientSums(const GradientLayout& layout, float* sums) {
  const auto& functions = kernels::functions_for({});
  for (size_t p = 0; p < layout.entries.size(); ++p) {
    const auto& entry = layout.entries[p];
    std::byte* const sum = reinterpret_cast<std::byte*>(sums) + entry.offset;
    Copy copy;
    copy.count = static_cast<size_t>(entry.spec.shape.elements());
    if (entry.spec.row_major()) {
      copy.values = reinterpret_cast<float*>(sum);
    } else {
      copy.memory = allocate_zeros(entry.spec.plain().bytes());
      fill_with_poison(copy.memory.data(), entry.spec.plain().bytes());
      const auto pass = functions.reorder(entry.spec, entry.spec.plain());
      copy.scratch = allocate(pass.scratch_bytes);
      void* const from = sum;
      void* const to = copy.memory.data();
      copy.convert = pass.bind(
          {std::span<void* const>(&from, 1), std::span<void* const>(&to, 1), copy.scratch.data()});
      copy.values = copy.memory.as<float>();
    }
    copies_.push_back(std::move(copy));
    by_size_.push_back(p);
  }
  std::stable_sort(by_size_.begin(), by_size_.end(), [&](size_t a, size_t b) {
    return layout.entries[a].spec.bytes() > layout.entries[b].spec.bytes();
  });
}

void GradientSums::convert(size_t parameter) const {
  if (copies_[parameter].convert) copies_[parameter].convert({});
}

}  // namespace lockstep
