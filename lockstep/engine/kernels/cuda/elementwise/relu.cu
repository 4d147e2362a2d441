#include "lockstep/engine/kernels/cuda/elements.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/elementwise/relu.h"

namespace lockstep::kernels::cuda {
namespace {

struct Forward {
  __device__ float operator()(float x) const {
    return x > 0 ? x : (x != x ? x : 0.0f);  // keeps NaN
  }
};

struct Backward {
  __device__ float operator()(float y, float dy) const { return y > 0 ? dy : 0.0f; }
};

}  // namespace

// Works on memory in any order.
Kernel relu(const ReluProblem& p) {
  const int64_t count = p.src.shape.elements();
  return for_elements(p.src.dtype, [&]<class T>(T) {
    Kernel kernel;
    kernel.forward = own_pass({input(0, p.src)}, {output(0, p.src)}, [count](const Bound& b) {
      launch_map("relu", count, b.stream, Forward(), b.out<T>(0), b.in<T>(0));
    });
    kernel.backward.push_back(own_pass({output(0, p.src), diff_output(0, p.src)},
                                       {diff_input(0, p.src)}, [count](const Bound& b) {
                                         launch_map("relu, backward", count, b.stream, Backward(),
                                                    b.out<T>(0), b.in<T>(0), b.in<T>(1));
                                       }));
    return kernel;
  });
}

}  // namespace lockstep::kernels::cuda
