#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/windows/padding.h"

namespace lockstep::kernels::cuda {
namespace {

struct Coordinates {
  int64_t volume, plane, row, column, channel;
};
__device__ Coordinates coordinates_of(int64_t i, const Volumes& v) {
  const Division pixel = divide(i, v.channels);
  const Division line = divide(pixel.quotient, v.columns);
  const Division plane = divide(line.quotient, v.rows);
  const Division volume = divide(plane.quotient, v.planes);
  return {volume.quotient, volume.remainder, plane.remainder, line.remainder, pixel.remainder};
}
__device__ int64_t index_of(const Coordinates& p, const Volumes& v) {
  const int64_t line = (p.volume * v.planes + p.plane) * v.rows + p.row;
  return (line * v.columns + p.column) * v.channels + p.channel;
}
__device__ bool holds(const Volumes& v, const Coordinates& p) {
  return p.plane >= 0 && p.plane < v.planes && p.row >= 0 && p.row < v.rows && p.column >= 0 &&
         p.column < v.columns;
}

template <class T>
struct Pad {
  Volumes inner, outer;
  Frame frame;
  const T* from;
  T* framed;
  __device__ void operator()(int64_t i) const {
    Coordinates at = coordinates_of(i, outer);
    at.plane -= frame.front;
    at.row -= frame.top;
    at.column -= frame.left;
    framed[i] = holds(inner, at) ? from[index_of(at, inner)] : T(0);
  }
};

template <class T>
struct Crop {
  Volumes inner, outer;
  Frame frame;
  const T* framed;
  T* to;
  __device__ void operator()(int64_t i) const {
    Coordinates at = coordinates_of(i, inner);
    at.plane += frame.front;
    at.row += frame.top;
    at.column += frame.left;
    to[i] = framed[index_of(at, outer)];
  }
};

template <class T>
void pad(const Volumes& inner, const Frame& frame, const void* from, void* framed, void* stream) {
  const Volumes outer = frame.around(inner);
  launch_each("padding", outer.elements(), stream,
              Pad<T>{inner, outer, frame, static_cast<const T*>(from), static_cast<T*>(framed)});
}

template <class T>
void crop(const Volumes& inner, const Frame& frame, const void* framed, void* to, void* stream) {
  launch_each("cropping", inner.elements(), stream,
              Crop<T>{inner, frame.around(inner), frame, static_cast<const T*>(framed),
                      static_cast<T*>(to)});
}

}  // namespace

void launch_pad(const Volumes& inner, const Frame& frame, size_t bytes, const void* from,
                void* framed, void* stream) {
  (bytes == 2 ? pad<uint16_t> : pad<uint32_t>)(inner, frame, from, framed, stream);
}

void launch_crop(const Volumes& inner, const Frame& frame, size_t bytes, const void* framed,
                 void* to, void* stream) {
  (bytes == 2 ? crop<uint16_t> : crop<uint32_t>)(inner, frame, framed, to, stream);
}

}  // namespace lockstep::kernels::cuda
