#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/padding.h"

namespace lockstep::kernels::cuda {
namespace {

struct Place {
  int64_t volume, plane, row, column, channel;
};
__device__ Place place_of(int64_t i, const Volumes& v) {
  const Division pixel = divide(i, v.channels);
  const Division line = divide(pixel.quotient, v.columns);
  const Division plane = divide(line.quotient, v.rows);
  const Division volume = divide(plane.quotient, v.planes);
  return {volume.quotient, volume.remainder, plane.remainder, line.remainder, pixel.remainder};
}
__device__ int64_t index_of(const Place& p, const Volumes& v) {
  const int64_t line = (p.volume * v.planes + p.plane) * v.rows + p.row;
  return (line * v.columns + p.column) * v.channels + p.channel;
}
__device__ bool holds(const Volumes& v, const Place& p) {
  return p.plane >= 0 && p.plane < v.planes && p.row >= 0 && p.row < v.rows && p.column >= 0 &&
         p.column < v.columns;
}

struct Pad {
  Volumes inner, outer;
  Frame frame;
  const float* from;
  float* framed;
  __device__ void operator()(int64_t i) const {
    Place at = place_of(i, outer);
    at.plane -= frame.front;
    at.row -= frame.top;
    at.column -= frame.left;
    framed[i] = holds(inner, at) ? from[index_of(at, inner)] : 0.0f;
  }
};

struct Crop {
  Volumes inner, outer;
  Frame frame;
  const float* framed;
  float* to;
  __device__ void operator()(int64_t i) const {
    Place at = place_of(i, inner);
    at.plane += frame.front;
    at.row += frame.top;
    at.column += frame.left;
    to[i] = framed[index_of(at, outer)];
  }
};

}  // namespace

void launch_pad(const Volumes& inner, const Frame& frame, const float* from, float* framed,
                void* queue) {
  const Volumes outer = frame.around(inner);
  launch_each("padding", outer.elements(), queue, Pad{inner, outer, frame, from, framed});
}

void launch_crop(const Volumes& inner, const Frame& frame, const float* framed, float* to,
                 void* queue) {
  launch_each("cropping", inner.elements(), queue,
              Crop{inner, frame.around(inner), frame, framed, to});
}

}  // namespace lockstep::kernels::cuda
