#include "lockstep/engine/kernels/cuda/elements.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/shapes/concatenation.h"

namespace lockstep::kernels::cuda {
namespace {

// An input consists of runs of `run` elements. Its runs start at `before` in the output and are
// `whole` elements apart.
struct Runs {
  int64_t run, whole, before;
  __device__ int64_t index(int64_t i) const {
    const Division at = divide(i, run);
    return at.quotient * whole + before + at.remainder;
  }
};

template <class T>
struct Put {
  Runs runs;
  const T* part;
  T* joined;
  __device__ void operator()(int64_t i) const { joined[runs.index(i)] = part[i]; }
};

template <class T>
struct Take {
  Runs runs;
  const T* joined;
  T* part;
  __device__ void operator()(int64_t i) const { part[i] = joined[runs.index(i)]; }
};

// Distance in memory, in elements, of one step along `axis`.
int64_t inner_of(const Shape& shape, int axis) {
  int64_t inner = 1;
  const bool last_is_channels = shape.rank() >= 3;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool after = !last_is_channels ? i > axis : axis != 1 && (i == 1 || i > axis);
    if (after && i != axis) inner *= shape[i];
  }
  return inner;
}

template <class T>
Kernel joined(const ConcatenationProblem& p) {
  const int axis = p.axis;
  const int64_t inner = inner_of(p.src.front().shape, axis);
  const DType dtype = p.src.front().dtype;  // the other inputs are converted to it
  std::vector<Operand> reads;
  std::vector<Runs> runs;
  std::vector<int64_t> dims = p.src.front().shape.dims();
  dims[static_cast<size_t>(axis)] = 0;
  int64_t whole = 0;
  for (size_t i = 0; i < p.src.size(); ++i) {
    const Shape& shape = p.src[i].shape;
    reads.push_back(input(static_cast<int>(i), channels_last(shape, dtype)));
    dims[static_cast<size_t>(axis)] += shape[axis];
    runs.push_back({shape[axis] * inner, 0, whole});
    whole += runs.back().run;
  }
  for (Runs& r : runs) r.whole = whole;
  const TensorSpec dst = channels_last(Shape(dims), dtype);
  std::vector<int64_t> counts;
  for (const TensorSpec& s : p.src) counts.push_back(s.shape.elements());
  Kernel kernel;
  kernel.forward = own_pass(reads, {output(0, dst)}, [=](const Bound& b) {
    for (size_t i = 0; i < runs.size(); ++i) {
      launch_each("concatenation", counts[i], b.stream,
                  Put<T>{runs[i], b.in<T>(static_cast<int>(i)), b.out<T>(0)});
    }
  });
  for (size_t i = 0; i < runs.size(); ++i) {
    kernel.backward.push_back(own_pass({diff_output(0, dst)},
                                       {diff_input(static_cast<int>(i), reads[i].spec)},
                                       [run = runs[i], count = counts[i]](const Bound& b) {
                                         launch_each("concatenation, backward", count, b.stream,
                                                     Take<T>{run, b.in<T>(0), b.out<T>(0)});
                                       }));
  }
  return kernel;
}

}  // namespace

Kernel concatenation(const ConcatenationProblem& p) {
  return for_elements(p.src.front().dtype, [&]<class T>(T) { return joined<T>(p); });
}

}  // namespace lockstep::kernels::cuda
