// Sums of gradients as solvers read them: row-major, learnable by learnable.
#pragma once

#include <vector>

#include "lockstep/engine/plan/plan.h"

namespace lockstep {

// Sums lie one behind the other in the layouts that kernels chose; those that are not row-major are
// converted into memory of their own. Different learnables may be used by several threads at once.
class GradientSums {
 public:
  // `sums`: layout.bytes of host memory that stay.
  GradientSums(const GradientLayout& layout, float* sums);

  size_t size() const { return copies_.size(); }
  // Learnables, the largest first: the order in which threads share them best.
  const std::vector<size_t>& by_size() const { return by_size_; }
  // Brings the present sum of a learnable into its row-major memory.
  void convert(size_t learnable) const;
  // That memory, which may be changed until the next convert() or sum.
  float* values(size_t learnable) const { return copies_[learnable].values; }
  size_t count(size_t learnable) const { return copies_[learnable].count; }

 private:
  struct Copy {
    Memory memory, scratch;
    kernels::BoundPass convert;  // empty where the sum is row-major already
    float* values = nullptr;
    size_t count = 0;
  };
  std::vector<Copy> copies_;
  std::vector<size_t> by_size_;
};

}  // namespace lockstep
