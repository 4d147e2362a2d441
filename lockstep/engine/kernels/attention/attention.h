// Attention (Vaswani et al. 2017) of sequences of different lengths.
#pragma once

#include <cstdint>

#include "lockstep/engine/kernels/interface/host_device.h"
#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// For head h of observation n and query i: s[j] = scale * (query i . key j), p = softmax of s over
// the valid keys, y[i] = sum over j of p[j] * value j. With dropout, p[j] is divided by 1 -
// probability or becomes 0 before it weighs a value.
//
// Inputs: queries (n x tq x heads * size), keys (n x tk x heads * size), values (n x tk x heads *
// value_size), and i32 lengths of n elements: of keys if `key_lengths`, then of queries if
// `query_lengths`. Lengths outside of 0 to the number of steps are moved to the nearest of these.
// Steps from the length on are not read. Output: n x tq x heads * value_size: 0 for queries
// that are not valid, and where there are no valid keys. `causal`: query i sees keys 0 to i; with
// `from_end` the last valid query sees all valid keys, the one before it one less, and so on, and a
// query that sees none has the result 0. One backward pass gives the gradients of queries, keys and
// values, 0 at steps that are not valid.
//
// The bits of a result depend on the valid steps alone, not on tq and tk, and with `from_end` not
// on how many queries there are. On the CPU a product of a query and a key is one sum from the
// first element to the last, by fma. Keys are taken in blocks of kKeyBlock; a sum over keys is a
// sum from the first to the last key of a block by fma, and the sums of blocks are added in order.
// Sums over queries have the same order with blocks of kQueryBlock, counted from the query that
// sees the first key alone.
struct AttentionProblem {
  TensorSpec queries, keys, values;
  int64_t heads = 1;
  bool causal = false, from_end = false;  // the latter with the former
  double scale = 1;
  double dropout = 0;  // the probability
  uint64_t layer = 0;  // key_from_text(the layer's name)
  bool key_lengths = false, query_lengths = false;

  int64_t size() const { return queries.shape[2] / heads; }
  int64_t value_size() const { return values.shape[2] / heads; }
};

// Steps of a block.
inline constexpr int64_t kQueryBlock = 48, kKeyBlock = 96;

// Most steps and heads, so that random numbers have positions that do not depend on these numbers.
inline constexpr int64_t kMostSteps = int64_t{1} << 24, kMostHeads = int64_t{1} << 16;

// The block of the random stream with the key (seed, dropout, layer, iteration, row) whose words
// decide on keys `key` to `key` + 3, for a multiple of 4.
LOCKSTEP_HOST_DEVICE inline uint64_t block_of_dropped(int64_t head, int64_t query, int64_t key) {
  return (static_cast<uint64_t>(head) << 46) + (static_cast<uint64_t>(query) << 22) +
         static_cast<uint64_t>(key / 4);
}

}  // namespace lockstep::kernels
