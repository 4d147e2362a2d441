// Attention of one head of one observation, in blocks for the caches; no matrix of queries by keys
// is in memory. The order of additions is that of kernels/attention/attention.h on every
// instruction set. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/numeric/random.h"

namespace lockstep::kernels::cpu {

struct AttentionHead {
  int64_t queries = 0, keys = 0;         // valid steps, 1 or more of each
  int64_t size = 0, value_size = 0;      // elements of a query and key, and of a value
  int64_t stride = 0, value_stride = 0;  // elements from a step to the next one
  bool causal = false;
  int64_t first_query = 0;  // if causal: query i sees keys 0 to first_query + i
  float scale = 1;
  // Without dropout, `random` is null.
  const RandomStream* random = nullptr;
  int64_t number = 0, first_number = 0;  // of the head and query 0, for random numbers
  uint32_t least = 0;                    // a smaller random word drops its element
  float kept_factor = 1;
};

// What is kept of a query: with these p[j] = exp(s[j] - largest) * factor.
struct KeptOfQuery {
  float largest, factor;
};

// Writes y and `kept` of the valid queries. `scratch`: attention_scratch() bytes for as many keys,
// or more.
void attention_forward(const AttentionHead& head, const float* q, const float* k, const float* v,
                       float* y, KeptOfQuery* kept, void* scratch);
size_t attention_scratch(int64_t keys, int64_t size, int64_t value_size);

// Operands of the backward pass: those of the forward pass, its results, and gradients.
struct AttentionGradients {
  const float *q, *k, *v, *y, *dy;
  const KeptOfQuery* kept;
  float *dq, *dk, *dv;
};
// Writes gradients of the valid steps.
void attention_backward(const AttentionHead& head, const AttentionGradients& at, void* scratch);
size_t attention_backward_scratch(int64_t keys, int64_t size, int64_t value_size);

}  // namespace lockstep::kernels::cpu
