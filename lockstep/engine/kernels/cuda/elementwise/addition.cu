#include "lockstep/engine/kernels/cuda/elements.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/elementwise/addition.h"

namespace lockstep::kernels::cuda {
namespace {

struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};

// Adds up to kMost terms in one launch.
template <class T>
struct Terms {
  static constexpr int kMost = 8;
  const T* term[kMost];
  int count;
  T* sum;
  __device__ void operator()(int64_t i) const {
    float total = value_of(term[0][i]);
    for (int t = 1; t < kMost; ++t) {  // unrolled: addresses stay in registers
      if (t < count) total += value_of(term[t][i]);
    }
    sum[i] = rounded<T>(total);
  }
};

}  // namespace

// All operands have the first one's layout. Adds from the first to the last.
Kernel addition(const AdditionProblem& p) {
  const TensorSpec spec = p.src.front();
  const int64_t count = spec.shape.elements();
  const int terms = static_cast<int>(p.src.size());
  Kernel kernel;
  std::vector<Operand> reads;
  for (int i = 0; i < terms; ++i) reads.push_back(input(i, spec));
  kernel.forward = for_elements(spec.dtype, [&]<class T>(T) {
    return own_pass(reads, {output(0, spec)}, [=](const Bound& b) {
      if (terms == 2) {
        launch_map("addition", count, b.stream, Add(), b.out<T>(0), b.in<T>(0), b.in<T>(1));
        return;
      }
      // Each launch adds as many terms as possible to the previous launch's result.
      int next = 0;
      do {
        Terms<T> some{{}, 0, b.out<T>(0)};
        if (next > 0) some.term[some.count++] = b.out<T>(0);
        while (some.count < Terms<T>::kMost && next < terms) {
          some.term[some.count++] = b.in<T>(next++);
        }
        launch_each("addition", count, b.stream, some);
      } while (next < terms);
    });
  });
  for (int i = 0; i < terms; ++i) {
    kernel.backward.push_back(
        own_pass({diff_output(0, spec)}, {diff_input(i, spec)}, [spec](const Bound& b) {
          launch_copy("addition, backward", b.out(0), b.in(0), spec.bytes(), b.stream);
        }));
    kernel.backward.back().copies = true;
  }
  return kernel;
}

}  // namespace lockstep::kernels::cuda
