// The channels-last layout: a x b x space is stored as a x space x b. For activations this is NHWC;
// for weights (o x c x kh x kw) it is cuDNN's KRSC.
#pragma once

#include "lockstep/engine/tensor/spec.h"

namespace lockstep::kernels::cuda {

class NhwcLayout final : public OpaqueLayout {
 public:
  // `shape` must have rank 3 or more.
  NhwcLayout(const Shape& shape, DType dtype);

  size_t bytes() const override;
  bool equals(const OpaqueLayout& other) const override;
  std::string to_string() const override { return "nhwc"; }
  // Both must be in host memory.
  void to_row_major(const void* source, void* destination) const override;
  void from_row_major(const void* source, void* destination) const override;

 private:
  int64_t outer_, channels_, space_;
  size_t element_;
};

// The spec of `shape` with channels last if it has spatial axes (rank 3 and above). The spec is
// row-major if both layouts have the same memory order (one channel, or one pixel), so that no
// conversion is needed.
TensorSpec channels_last(const Shape& shape, DType dtype = DType::f32);

// Memory order of a row-major a x b x s: `outer` times `channels` times `space` elements. `space`
// is 1 below rank 3, and `channels` is 1 below rank 2.
struct Extents {
  int64_t outer = 1, channels = 1, space = 1;
};
Extents extents_of(const Shape& shape);

}  // namespace lockstep::kernels::cuda
