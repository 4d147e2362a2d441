// Row-major sums of gradients for the solvers, by parameter.
#pragma once

#include <vector>

#include "lockstep/engine/plan/plan.h"

namespace lockstep {

// The sums are stored one after another in the layouts that kernels chose. Sums that are not
// row-major are converted into separate memory. Several threads may use different parameters at the
// same time.
class GradientSums {
 public:
  // `sums` is host memory of layout.summed_bytes, which must outlive this object. Sums of
  // parameters that lie after them are not there: they may be neither converted nor read.
  GradientSums(const GradientLayout& layout, float* sums);

  size_t size() const { return copies_.size(); }
  // Parameters in descending order of size, the best order for sharing them among threads.
  const std::vector<size_t>& by_size() const { return by_size_; }
  // Whether convert() has work to do.
  bool converts(size_t parameter) const { return static_cast<bool>(copies_[parameter].convert); }
  // Converts the current sum of a parameter to its row-major memory.
  void convert(size_t parameter) const;
  // The row-major memory. Other processes may read it at the same time.
  const float* values(size_t parameter) const { return copies_[parameter].values; }
  size_t count(size_t parameter) const { return copies_[parameter].count; }

 private:
  struct Copy {
    Memory memory, scratch;
    kernels::BoundPass convert;  // empty if the sum is already row-major
    float* values = nullptr;
    size_t count = 0;
  };
  std::vector<Copy> copies_;
  std::vector<size_t> by_size_;
};

}  // namespace lockstep
