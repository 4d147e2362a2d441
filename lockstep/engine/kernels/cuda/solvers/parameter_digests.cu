#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/solvers/parameter_digests.h"

namespace lockstep::kernels::cuda {
namespace {

// XXH3 has eight sums. A thread computes one of them.
constexpr int kSums = 8;

// Threads that finish a digest: one warp, of which kSums compute, and others that fetch a tile of
// sums of blocks for them while they compute the tile before.
constexpr int kWarp = 32, kFinishing = kBlock, kFetching = kFinishing - kWarp;
constexpr int kTileBlocks = 64, kTile = kTileBlocks * kSums;
// Blocks whose sums a thread reads before it uses the first.
constexpr int kReadAhead = 8;

__device__ const uint64_t kSecret[] = {LOCKSTEP_XXH3_SECRET};
__device__ const uint64_t kStart[] = {LOCKSTEP_XXH3_START};

// The number that begins at a byte of the secret.
__device__ uint64_t secret(int first) {
  const int shift = first % 8 * 8;
  const uint64_t low = kSecret[first / 8];
  return shift == 0 ? low : low >> shift | kSecret[first / 8 + 1] << (64 - shift);
}

// Four bytes of a parameter's arrays one after the other. `at`: a multiple of four bytes.
__device__ uint64_t half(const ParameterArrays& a, int64_t at) {
  int64_t i = at / static_cast<int64_t>(sizeof(float));
  const float* array = a.w;
  if (i >= a.count) {
    i -= a.count;
    array = a.first;
    if (i >= a.count) {
      i -= a.count;
      array = a.second;
    }
  }
  return reinterpret_cast<const uint32_t*>(array)[i];
}

__device__ uint64_t number(const ParameterArrays& a, int64_t at) {
  return half(a, at) | half(a, at + 4) << 32;
}

// What a stripe adds to sum number `lane`.
__device__ uint64_t of_stripe(const ParameterArrays& a, int64_t at, int lane, uint64_t key) {
  const uint64_t mixed = number(a, at + 8 * lane) ^ key;
  return (mixed & 0xffffffff) * (mixed >> 32) + number(a, at + 8 * (lane ^ 1));
}

__device__ uint64_t of_stripes(const ParameterArrays& a, int64_t at, int64_t stripes, int lane) {
  uint64_t sum = 0;
  for (int s = 0; s < stripes; ++s) {
    sum += of_stripe(a, at + int64_t{s} * xxh3::kStripe, lane, kSecret[s + lane]);
  }
  return sum;
}

struct SumsOfBlocks {
  ParameterDigests all;
  __device__ void operator()(int64_t i) const {
    const UpdateBlock block = all.blocks[i / kSums];
    all.sums[i] = of_stripes(all.arrays[block.parameter], block.first, xxh3::kBlock / xxh3::kStripe,
                             static_cast<int>(i % kSums));
  }
};

__device__ uint64_t folded_product(uint64_t a, uint64_t b) {
#ifdef __CUDACC__
  return a * b ^ __umul64hi(a, b);
#else
  __extension__ using Wide = unsigned __int128;
  return a * b ^ static_cast<uint64_t>(static_cast<Wide>(a) * b >> 64);
#endif
}

__device__ uint64_t merge(const uint64_t* sums, int secret_first, uint64_t start) {
  uint64_t h = start;
  for (int i = 0; i < kSums; i += 2) {
    h += folded_product(sums[i] ^ secret(secret_first + 8 * i),
                        sums[i + 1] ^ secret(secret_first + 8 * i + 8));
  }
  h ^= h >> 37;
  h *= xxh3::kAvalanche;
  return h ^ h >> 32;
}

// The sum after a block: XXH3's scrambling. Each step needs the result of the one before, and no
// formula joins two of them, so one thread does all of a sum.
__device__ uint64_t scrambled(uint64_t sum, uint64_t key) {
  return (sum ^ sum >> 47 ^ key) * xxh3::kSmall1;
}

__device__ uint64_t after_blocks(uint64_t sum, const uint64_t* tile, int blocks, int lane,
                                 uint64_t key) {
  int b = 0;
  for (; b + kReadAhead <= blocks; b += kReadAhead) {
    uint64_t added[kReadAhead];
    for (int k = 0; k < kReadAhead; ++k) added[k] = tile[(b + k) * kSums + lane];
    for (int k = 0; k < kReadAhead; ++k) sum = scrambled(sum + added[k], key);
  }
  for (; b < blocks; ++b) sum = scrambled(sum + tile[b * kSums + lane], key);
  return sum;
}

// Copies the tile of sums that begins with block `first`, of `blocks`. By the fetching threads.
__device__ void fetch(const uint64_t* sums, int64_t first, int64_t blocks, uint64_t* tile) {
  const int64_t left = (blocks - first) * kSums;
  const int count = static_cast<int>(left < kTile ? left : kTile);
  for (int i = static_cast<int>(threadIdx.x) - kWarp; i < count; i += kFetching) {
    tile[i] = sums[first * kSums + i];
  }
}

// A thread block per parameter combines the sums of its blocks in order. To read a sum takes much
// longer than a step, so other threads read the sums ahead, in tiles.
__global__ void finish_digests(ParameterDigests all) {
  auto* const shared = shared_memory<uint64_t>();  // two tiles, then the sums at the end
  const int lane = static_cast<int>(threadIdx.x);
  const bool computes = lane < kSums, fetches = lane >= kWarp;
  const ParameterArrays a = all.arrays[blockIdx.x];
  const DigestedParameter own = all.parameters[blockIdx.x];
  const int64_t bytes = digested_bytes(a);
  if (bytes <= xxh3::kShort) {
    auto* const result = reinterpret_cast<uint32_t*>(all.results + own.result);
    for (int64_t i = lane; i * 4 < bytes; i += kFinishing) {
      result[i] = static_cast<uint32_t>(half(a, i * 4));
    }
    return;
  }
  const int64_t blocks = digested_blocks(bytes);
  const uint64_t* const sums = all.sums + own.first_block * kSums;
  uint64_t key = 0, sum = 0;
  if (computes) {
    key = kSecret[xxh3::kScrambleSecret / 8 + lane];
    sum = kStart[lane];
  }
  if (fetches) fetch(sums, 0, blocks, shared);
  __syncthreads();
  int tile = 0;
  for (int64_t first = 0; first < blocks; first += kTileBlocks) {
    const int64_t next = first + kTileBlocks;
    if (fetches && next < blocks) fetch(sums, next, blocks, shared + (1 - tile) * kTile);
    if (computes) {
      const int count = static_cast<int>(next < blocks ? kTileBlocks : blocks - first);
      sum = after_blocks(sum, shared + tile * kTile, count, lane, key);
    }
    __syncthreads();
    tile = 1 - tile;
  }
  uint64_t* const ends = shared + 2 * kTile;
  if (computes) {
    // The last block, and the last stripe, which may begin in the block before.
    const int64_t first = blocks * xxh3::kBlock;
    sum += of_stripes(a, first, (bytes - first - 1) / xxh3::kStripe, lane);
    sum += of_stripe(a, bytes - xxh3::kStripe, lane, secret(xxh3::kLastSecret + 8 * lane));
    ends[lane] = sum;
  }
  __syncthreads();
  auto* const result = reinterpret_cast<uint64_t*>(all.results + own.result);
  const auto size = static_cast<uint64_t>(bytes);
  if (lane == 0) result[0] = merge(ends, xxh3::kHighSecret, ~(size * xxh3::kPrime2));
  if (lane == 1) result[1] = merge(ends, xxh3::kLowSecret, size * xxh3::kPrime1);
}

}  // namespace

void parameter_digests(const ParameterDigests& all, void* stream) {
  if (all.parameter_count == 0) return;
  launch_each("sums of digests", all.block_count * kSums, stream, SumsOfBlocks{all});
  launch("digests", finish_digests,
         {.blocks = all.parameter_count,
          .threads = kFinishing,
          .shared_bytes = (2 * kTile + kSums) * sizeof(uint64_t)},
         stream, all);
}

}  // namespace lockstep::kernels::cuda
