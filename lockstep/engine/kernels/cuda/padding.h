// Explicit padding, for windows that cuDNN cannot pad by itself.
#pragma once

#include <cstdint>

namespace lockstep::kernels::cuda {

// `images` of rows x columns x depth elements: with channels last observations and channels,
// row-major observations x channels and 1.
struct Images {
  int64_t images = 0, rows = 0, columns = 0, depth = 1;
};

// Zeros around each image.
struct Frame {
  int64_t top = 0, left = 0, bottom = 0, right = 0;
  bool any() const { return top + left + bottom + right > 0; }
  Images around(const Images& inner) const {
    return {inner.images, inner.rows + top + bottom, inner.columns + left + right, inner.depth};
  }
};

// framed = inner with zeros around it.
void launch_pad(const Images& inner, const Frame& frame, const float* from, float* framed,
                void* queue);
// inner = framed without its frame.
void launch_crop(const Images& inner, const Frame& frame, const float* framed, float* to,
                 void* queue);

}  // namespace lockstep::kernels::cuda
