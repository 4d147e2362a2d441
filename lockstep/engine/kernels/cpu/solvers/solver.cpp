#include "lockstep/engine/kernels/solvers/solver.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels::cpu {

namespace {

LOCKSTEP_CLONES void sgdm_nesterov(float* __restrict w, float* __restrict v,
                                   const float* __restrict gradient_sum, size_t count,
                                   const SgdmUpdate& u) {
  const float observations = u.observations, rate = u.rate, momentum = u.momentum, l2 = u.l2;
  for (size_t i = 0; i < count; ++i) {
    const float step = rate * (gradient_sum[i] / observations + l2 * w[i]);
    v[i] = momentum * v[i] - step;
    w[i] = w[i] + (momentum * v[i] - step);
  }
}

LOCKSTEP_CLONES void sgdm_plain(float* __restrict w, float* __restrict v,
                                const float* __restrict gradient_sum, size_t count,
                                const SgdmUpdate& u) {
  const float observations = u.observations, rate = u.rate, momentum = u.momentum, l2 = u.l2;
  for (size_t i = 0; i < count; ++i) {
    const float g = gradient_sum[i] / observations + l2 * w[i];
    v[i] = momentum * v[i] - rate * g;
    w[i] = w[i] + v[i];
  }
}

}  // namespace

void sgdm(float* w, float* v, const float* gradient_sum, size_t count, const SgdmUpdate& u,
          void* /*stream*/) {
  (u.nesterov != 0 ? sgdm_nesterov : sgdm_plain)(w, v, gradient_sum, count, u);
}

LOCKSTEP_CLONES void adam(float* __restrict w, float* __restrict m, float* __restrict s,
                          const float* __restrict gradient_sum, size_t count, const AdamUpdate& u,
                          void* /*stream*/) {
  const float observations = u.observations, rate = u.rate, root = u.root_correction,
              epsilon = u.epsilon, l2 = u.l2, decay = u.decay;
  const auto beta1 = static_cast<float>(u.beta1), beta2 = static_cast<float>(u.beta2);
  const auto rest1 = static_cast<float>(1 - u.beta1), rest2 = static_cast<float>(1 - u.beta2);
  for (size_t i = 0; i < count; ++i) {
    const float g = gradient_sum[i] / observations + l2 * w[i];
    m[i] = beta1 * m[i] + rest1 * g;
    s[i] = beta2 * s[i] + rest2 * (g * g);
    w[i] = w[i] - rate * m[i] / (std::sqrt(s[i]) * root + epsilon) - decay * w[i];
  }
}

LOCKSTEP_CLONES void rmsprop(float* __restrict w, float* __restrict s,
                             const float* __restrict gradient_sum, size_t count,
                             const RmspropUpdate& u, void* /*stream*/) {
  const float observations = u.observations, rate = u.rate, epsilon = u.epsilon, l2 = u.l2;
  const auto decay = static_cast<float>(u.decay), rest = static_cast<float>(1 - u.decay);
  for (size_t i = 0; i < count; ++i) {
    const float g = gradient_sum[i] / observations + l2 * w[i];
    s[i] = decay * s[i] + rest * (g * g);
    w[i] = w[i] - rate * g / (std::sqrt(s[i]) + epsilon);
  }
}

void add(const float* a, const float* b, float* sum, size_t count, void* /*stream*/) {
  add(a, b, sum, count);
}

void sum_leaves(const float* const* leaves, int64_t leaf_count, float* sum, size_t count,
                void* /*stream*/) {
  constexpr size_t kPart = 4096;  // elements of all sums that stay in the cache
  std::vector<float> sums(static_cast<size_t>(kTreeSums) * std::min(count, kPart));
  for (size_t first = 0; first < count; first += kPart) {
    const size_t n = std::min(kPart, count - first);
    const auto sum_of = [&](int level) { return sums.data() + static_cast<size_t>(level) * n; };
    for (int64_t j = 0; j < leaf_count; ++j) {
      int level = 0;
      while ((j >> level & 1) != 0) ++level;
      std::memcpy(sum_of(level), leaves[j] + first, n * sizeof(float));
      for (int k = 0; k < level; ++k) add(sum_of(k), sum_of(level), sum_of(level), n);
    }
    const float* all = nullptr;
    for (int level = 0; leaf_count >> level != 0; ++level) {
      if ((leaf_count >> level & 1) == 0) continue;
      if (all) add(sum_of(level), all, sum_of(level), n);
      all = sum_of(level);
    }
    if (all) std::memcpy(sum + first, all, n * sizeof(float));
  }
}

}  // namespace lockstep::kernels::cpu
