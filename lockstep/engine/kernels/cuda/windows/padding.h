// Explicit padding for windows that cuDNN cannot pad.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels::cuda {

// `count` volumes of planes x rows x columns x `channels` elements. With channels last, `count` is
// the number of observations. In row-major memory it is observations x channels, and `channels` is
// 1. An image has one plane.
struct Volumes {
  int64_t count = 0, planes = 1, rows = 0, columns = 0, channels = 1;
  int64_t elements() const { return count * planes * rows * columns * channels; }
};

// Widths of the zeros around each volume.
struct Frame {
  int64_t front = 0, top = 0, left = 0, back = 0, bottom = 0, right = 0;
  bool any() const { return front + top + left + back + bottom + right > 0; }
  Volumes around(const Volumes& inner) const {
    return {inner.count, inner.planes + front + back, inner.rows + top + bottom,
            inner.columns + left + right, inner.channels};
  }
};

// framed = inner with zeros around it. Elements have `bytes` bytes, 2 or 4; zero is all bits 0.
void launch_pad(const Volumes& inner, const Frame& frame, size_t bytes, const void* from,
                void* framed, void* stream);
// inner = framed without its frame.
void launch_crop(const Volumes& inner, const Frame& frame, size_t bytes, const void* framed,
                 void* to, void* stream);

}  // namespace lockstep::kernels::cuda
