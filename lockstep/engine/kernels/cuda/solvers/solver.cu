#include <cmath>

#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/solvers/solver.h"

namespace lockstep::kernels::cuda {
namespace {

__device__ void update_element(float* w, float* v, const float* gradient_sum, int64_t i,
                               const SgdmUpdate& u) {
  const float step = u.rate * (gradient_sum[i] / u.observations + u.l2 * w[i]);
  v[i] = u.momentum * v[i] - step;
  w[i] = w[i] + (u.nesterov != 0 ? u.momentum * v[i] - step : v[i]);
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

__device__ void update_element(const ParameterArrays& a, int64_t i, const SgdmUpdate& u) {
  update_element(a.w, a.first, a.gradient_sum, i, u);
}
__device__ void update_element(const ParameterArrays& a, int64_t i, const AdamUpdate& u) {
  update_element(a.w, a.first, a.second, a.gradient_sum, i, u);
}
__device__ void update_element(const ParameterArrays& a, int64_t i, const RmspropUpdate& u) {
  update_element(a.w, a.first, a.gradient_sum, i, u);
}

// A thread adds up one element of all leaves. As long as there are few leaves, the compiler keeps
// the sums in registers.
template <int most>
struct SumOfLeaves {
  const float* const* leaves;
  int64_t leaf_count;
  float* sum;
  __device__ void operator()(int64_t i) const {
    float sums[most];
    for (int64_t j = 0; j < leaf_count; ++j) {
      float x = leaves[j][i];
      bool carries = true;
      for (int level = 0; level < most; ++level) {
        if (!carries) continue;
        carries = (j >> level & 1) != 0;
        if (carries) {
          x = sums[level] + x;
        } else {
          sums[level] = x;
        }
      }
    }
    float all = 0;
    bool begun = false;
    for (int level = 0; level < most; ++level) {
      if ((leaf_count >> level & 1) == 0) continue;
      all = begun ? sums[level] + all : sums[level];
      begun = true;
    }
    sum[i] = all;
  }
};

// One thread block per UpdateBlock.
template <class Update>
__global__ void update_blocks(Updates<Update> all) {
  const UpdateBlock block = all.blocks[blockIdx.x];
  const ParameterArrays arrays = all.arrays[block.parameter];
  const Update update = all.updates[block.parameter];
  const int64_t rest = arrays.count - block.first;
  const int64_t count = rest < kUpdateBlock ? rest : kUpdateBlock;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    update_element(arrays, block.first + i, update);
  }
}

template <class Update>
void launch_updates(const char* name, const Updates<Update>& all, void* stream) {
  if (all.block_count == 0) return;
  launch(name, update_blocks<Update>, {.blocks = all.block_count}, stream, all);
}

}  // namespace

void sum_leaves(const float* const* leaves, int64_t leaf_count, float* sum, size_t count,
                void* stream) {
  if (leaf_count == 0) return;
  constexpr int few = 6;
  const auto n = static_cast<int64_t>(count);
  if (leaf_count < int64_t{1} << few) {
    launch_each("sum of leaves", n, stream, SumOfLeaves<few>{leaves, leaf_count, sum});
  } else {
    launch_each("sum of leaves", n, stream, SumOfLeaves<kTreeSums>{leaves, leaf_count, sum});
  }
}

void sgdm(float* w, float* v, const float* gradient_sum, size_t count, const SgdmUpdate& u,
          void* stream) {
  launch_each("sgdm", static_cast<int64_t>(count), stream, Sgdm{w, v, gradient_sum, u});
}

void adam(float* w, float* m, float* s, const float* gradient_sum, size_t count,
          const AdamUpdate& u, void* stream) {
  launch_each("adam", static_cast<int64_t>(count), stream, Adam{w, m, s, gradient_sum, u});
}

void rmsprop(float* w, float* s, const float* gradient_sum, size_t count, const RmspropUpdate& u,
             void* stream) {
  launch_each("rmsprop", static_cast<int64_t>(count), stream, Rmsprop{w, s, gradient_sum, u});
}

void sgdm_of_all(const Updates<SgdmUpdate>& all, void* stream) {
  launch_updates("sgdm of all parameters", all, stream);
}

void adam_of_all(const Updates<AdamUpdate>& all, void* stream) {
  launch_updates("adam of all parameters", all, stream);
}

void rmsprop_of_all(const Updates<RmspropUpdate>& all, void* stream) {
  launch_updates("rmsprop of all parameters", all, stream);
}

}  // namespace lockstep::kernels::cuda
