// Channels last: a x b x space stored as a x space x b. For activations that is NHWC; for weights
// (o x c x kh x kw) it is cuDNN's KRSC.
#pragma once

#include "lockstep/engine/tensor/spec.h"

namespace lockstep::kernels::cuda {

class NhwcLayout final : public OpaqueLayout {
 public:
  // `shape` has rank 3 or more.
  NhwcLayout(const Shape& shape, DType dtype);

  size_t bytes() const override;
  bool equals(const OpaqueLayout& other) const override;
  std::string to_string() const override { return "nhwc"; }
  // In the host's memory.
  void to_row_major(const void* source, void* destination) const override;
  void from_row_major(const void* source, void* destination) const override;

 private:
  int64_t outer_, channels_, space_;
  size_t element_;
};

// `shape` with channels last where it has space (rank 3 and above). Where that is the same memory
// as row-major (one channel, or one pixel) the spec is row-major, so that nothing is converted.
TensorSpec channels_last(const Shape& shape, DType dtype = DType::f32);

// Row-major a x b x s, seen as memory: `channels` of `space` elements `outer` times. Shapes of rank
// below 3 have space 1, those below 2 channels 1.
struct Extents {
  int64_t outer = 1, channels = 1, space = 1;
};
Extents extents_of(const Shape& shape);

}  // namespace lockstep::kernels::cuda
