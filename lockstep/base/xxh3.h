// The numbers of XXH3 (Collet, xxHash, specification of XXH3), for code that computes parts of a
// digest by itself: on several threads (block_digest.cpp), and on a GPU.
#pragma once

#include <cstdint>

// The secret of 192 bytes as 24 numbers, least significant byte first. A macro, because code of a
// GPU needs an array in the GPU's memory.
// clang-format off
#define LOCKSTEP_XXH3_SECRET                                                             \
  0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,        \
  0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,        \
  0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,        \
  0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,        \
  0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,        \
  0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af
// The first eight sums.
#define LOCKSTEP_XXH3_START                                                              \
  0xc2b2ae3d, 0x9e3779b185ebca87, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9,                \
  0x85ebca77c2b2ae63, 0x85ebca77, 0x27d4eb2f165667c5, 0x9e3779b1
// clang-format on

namespace lockstep::xxh3 {

inline constexpr uint64_t kSmall1 = 0x9e3779b1;
inline constexpr uint64_t kPrime1 = 0x9e3779b185ebca87, kPrime2 = 0xc2b2ae3d27d4eb4f;
inline constexpr uint64_t kAvalanche = 0x165667919e3779f9;
// Bytes of a block, of a stripe, and of the secret, and where parts of the secret begin.
inline constexpr int kBlock = 1024, kStripe = 64, kSecretBytes = 192;
inline constexpr int kScrambleSecret = kSecretBytes - kStripe;
inline constexpr int kLastSecret = kSecretBytes - kStripe - 7;
inline constexpr int kLowSecret = 11, kHighSecret = kSecretBytes - kStripe - 11;
// Sequences up to this length are hashed in another way.
inline constexpr int kShort = 240;

}  // namespace lockstep::xxh3
