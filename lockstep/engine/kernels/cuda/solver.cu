#include <cmath>

#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/solver.h"

namespace lockstep::kernels::cuda {
namespace {

__device__ void update_element(float* w, float* v, const float* gradient_sum, int64_t i,
                               const SgdmUpdate& u) {
  const float g = gradient_sum[i] / u.observations + u.l2 * w[i];
  v[i] = u.momentum * v[i] - u.rate * g;
  w[i] = w[i] + v[i];
}

__device__ void update_element(float* w, float* m, float* s, const float* gradient_sum, int64_t i,
                               const AdamUpdate& u) {
  const auto beta1 = static_cast<float>(u.beta1), beta2 = static_cast<float>(u.beta2);
  const auto rest1 = static_cast<float>(1 - u.beta1), rest2 = static_cast<float>(1 - u.beta2);
  const float g = gradient_sum[i] / u.observations + u.l2 * w[i];
  m[i] = beta1 * m[i] + rest1 * g;
  s[i] = beta2 * s[i] + rest2 * (g * g);
  w[i] = w[i] - u.rate * m[i] / (std::sqrt(s[i]) * u.root_correction + u.epsilon) - u.decay * w[i];
}

__device__ void update_element(float* w, float* s, const float* gradient_sum, int64_t i,
                               const RmspropUpdate& u) {
  const auto decay = static_cast<float>(u.decay), rest = static_cast<float>(1 - u.decay);
  const float g = gradient_sum[i] / u.observations + u.l2 * w[i];
  s[i] = decay * s[i] + rest * (g * g);
  w[i] = w[i] - u.rate * g / (std::sqrt(s[i]) + u.epsilon);
}

struct Sgdm {
  float *w, *v;
  const float* gradient_sum;
  SgdmUpdate u;
  __device__ void operator()(int64_t i) const { update_element(w, v, gradient_sum, i, u); }
};

struct Adam {
  float *w, *m, *s;
  const float* gradient_sum;
  AdamUpdate u;
  __device__ void operator()(int64_t i) const { update_element(w, m, s, gradient_sum, i, u); }
};

struct Rmsprop {
  float *w, *s;
  const float* gradient_sum;
  RmspropUpdate u;
  __device__ void operator()(int64_t i) const { update_element(w, s, gradient_sum, i, u); }
};

// A block of threads for each block of kSolverBlock elements, which share their factors. What the
// host computes for a learnable (train/solver.cpp) is computed here, in double, for a block.
__global__ void flat_sgdm(float* w, float* v, const float* gradient_sum, int64_t count,
                          const BlockFactors* factors, const FlatSgdmUpdate* update) {
  const BlockFactors f = factors[blockIdx.x];
  const SgdmUpdate u{update->observations, static_cast<float>(update->rate * f.rate),
                     update->momentum, static_cast<float>(update->l2 * f.l2)};
  const int64_t first = int64_t{blockIdx.x} * int64_t{kSolverBlock};
  for (int64_t i = first + threadIdx.x; i < first + int64_t{kSolverBlock} && i < count;
       i += blockDim.x) {
    update_element(w, v, gradient_sum, i, u);
  }
}

__global__ void flat_adam(float* w, float* m, float* s, const float* gradient_sum, int64_t count,
                          const BlockFactors* factors, const FlatAdamUpdate* update) {
  const BlockFactors f = factors[blockIdx.x];
  const AdamUpdate u{update->observations,
                     static_cast<float>(update->rate * f.rate / update->first_correction),
                     update->beta1,
                     update->beta2,
                     update->root_correction,
                     update->epsilon,
                     static_cast<float>(update->l2 * f.l2),
                     0};
  const int64_t first = int64_t{blockIdx.x} * int64_t{kSolverBlock};
  for (int64_t i = first + threadIdx.x; i < first + int64_t{kSolverBlock} && i < count;
       i += blockDim.x) {
    update_element(w, m, s, gradient_sum, i, u);
  }
}

Grid grid_of(size_t count) {
  return {.blocks = static_cast<int64_t>((count + kSolverBlock - 1) / kSolverBlock)};
}

}  // namespace

void sgdm(float* w, float* v, const float* gradient_sum, size_t count, const SgdmUpdate& u,
          void* queue) {
  launch_each("sgdm", static_cast<int64_t>(count), queue, Sgdm{w, v, gradient_sum, u});
}

void adam(float* w, float* m, float* s, const float* gradient_sum, size_t count,
          const AdamUpdate& u, void* queue) {
  launch_each("adam", static_cast<int64_t>(count), queue, Adam{w, m, s, gradient_sum, u});
}

void rmsprop(float* w, float* s, const float* gradient_sum, size_t count, const RmspropUpdate& u,
             void* queue) {
  launch_each("rmsprop", static_cast<int64_t>(count), queue, Rmsprop{w, s, gradient_sum, u});
}

void solver_flat(float* w, float* v, const float* gradient_sum, size_t count,
                 const BlockFactors* factors, const FlatSgdmUpdate* update, void* queue) {
  launch("sgdm of all learnables", flat_sgdm, grid_of(count), queue, w, v, gradient_sum,
         static_cast<int64_t>(count), factors, update);
}

void solver_flat(float* w, float* m, float* s, const float* gradient_sum, size_t count,
                 const BlockFactors* factors, const FlatAdamUpdate* update, void* queue) {
  launch("adam of all learnables", flat_adam, grid_of(count), queue, w, m, s, gradient_sum,
         static_cast<int64_t>(count), factors, update);
}

}  // namespace lockstep::kernels::cuda
