#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/padding.h"

namespace lockstep::kernels::cuda {
namespace {

struct Place {
  int64_t image, row, column, depth;
};
__device__ Place place_of(int64_t i, const Images& m) {
  const Division pixel = divide(i, m.depth);
  const Division line = divide(pixel.quotient, m.columns);
  const Division image = divide(line.quotient, m.rows);
  return {image.quotient, image.remainder, line.remainder, pixel.remainder};
}
__device__ int64_t index_of(const Place& p, const Images& m) {
  return ((p.image * m.rows + p.row) * m.columns + p.column) * m.depth + p.depth;
}

struct Pad {
  Images inner, outer;
  int64_t top, left;
  const float* from;
  float* framed;
  __device__ void operator()(int64_t i) const {
    Place at = place_of(i, outer);
    at.row -= top;
    at.column -= left;
    const bool inside =
        at.row >= 0 && at.row < inner.rows && at.column >= 0 && at.column < inner.columns;
    framed[i] = inside ? from[index_of(at, inner)] : 0.0f;
  }
};

struct Crop {
  Images inner, outer;
  int64_t top, left;
  const float* framed;
  float* to;
  __device__ void operator()(int64_t i) const {
    Place at = place_of(i, inner);
    at.row += top;
    at.column += left;
    to[i] = framed[index_of(at, outer)];
  }
};

int64_t elements(const Images& m) { return m.images * m.rows * m.columns * m.depth; }

}  // namespace

void launch_pad(const Images& inner, const Frame& frame, const float* from, float* framed,
                void* queue) {
  const Images outer = frame.around(inner);
  launch_each("padding", elements(outer), queue,
              Pad{inner, outer, frame.top, frame.left, from, framed});
}

void launch_crop(const Images& inner, const Frame& frame, const float* framed, float* to,
                 void* queue) {
  launch_each("cropping", elements(inner), queue,
              Crop{inner, frame.around(inner), frame.top, frame.left, framed, to});
}

}  // namespace lockstep::kernels::cuda
