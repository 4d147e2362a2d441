// The keyed random numbers of base/numeric/random.h on a device, with the same bits (tested).
#pragma once

#include <cstdint>

#include "lockstep/base/numeric/random.h"
#include "lockstep/engine/kernels/cuda/launch.h"

namespace lockstep::kernels::cuda {

struct Words4 {
  uint32_t word[4];
};

// Ten rounds of Philox 4x32.
__host__ __device__ inline Words4 philox4x32(Words4 counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter.word[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter.word[2];
    counter = {{static_cast<uint32_t>(p1 >> 32) ^ counter.word[1] ^ key0, static_cast<uint32_t>(p1),
                static_cast<uint32_t>(p0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<uint32_t>(p0)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// The device's version of RandomStream: construction from a key, and block().
class DeviceRandomStream {
 public:
  __host__ __device__ explicit DeviceRandomStream(const RandomKey& key) {
    const Words4 x =
        philox4x32({{static_cast<uint32_t>(key.use), 0x4C4F434Bu, low(key.a), high(key.a)}},
                   low(key.seed), high(key.seed));
    const Words4 y =
        philox4x32({{low(key.b) ^ x.word[2], high(key.b) ^ x.word[3], low(key.c), high(key.c)}},
                   x.word[0], x.word[1]);
    key0_ = y.word[0];
    key1_ = y.word[1];
    counter2_ = y.word[2];
    counter3_ = y.word[3];
  }

  // Block number `block` of the random stream: four independent words.
  __host__ __device__ Words4 block(uint64_t block) const {
    return philox4x32({{low(block), high(block), counter2_, counter3_}}, key0_, key1_);
  }

 private:
  __host__ __device__ static uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
  __host__ __device__ static uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }
  uint32_t key0_, key1_, counter2_, counter3_;
};

}  // namespace lockstep::kernels::cuda
