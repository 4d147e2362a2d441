// Channels in the lanes of vectors, for files that Highway compiles once per instruction set: which
// elements of a blocked array a vector holds.
#include "lockstep/engine/kernels/cpu/normalization/blocked_normalization.h"

// The include guard allows one inclusion per instruction set.
#if defined(LOCKSTEP_CHANNEL_LANES) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_CHANNEL_LANES
#undef LOCKSTEP_CHANNEL_LANES
#else
#define LOCKSTEP_CHANNEL_LANES
#endif

#include <algorithm>

#include "lockstep/engine/kernels/cpu/vector_elements.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {

// Meaning of a vector's lanes: channels (a block is a multiple of the lanes), or images of one
// channel.
template <class D>
struct Lanes {
  using V = hn::Vec<D>;
  D d;
  bool images;
  hn::Rebind<int32_t, D> whole;
  hn::Rebind<uint8_t, D> bytes;

  // One value per channel, from `first` on. Lanes beyond the last channel get `filling`.
  V load(const float* values, int64_t first, int64_t channels, float filling = 0) const {
    if (images) return hn::Set(d, values[first]);
    HWY_ALIGN float some[16];
    std::fill_n(some, 16, filling);
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t i = 0; i < lanes && first + i < channels; ++i) some[i] = values[first + i];
    return hn::Load(d, some);
  }
  void store(V v, float* values, int64_t first, int64_t channels) const {
    HWY_ALIGN float some[16];
    hn::Store(v, d, some);
    if (images) {
      values[first] = some[0];  // all lanes are equal
      return;
    }
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t i = 0; i < lanes && first + i < channels; ++i) values[first + i] = some[i];
  }
};

// Position in the arrays of the channels that fill a vector's lanes. With images in lanes: of one
// channel.
struct Group {
  int64_t block;  // index of the block
  int64_t lane;   // first lane within it
};

inline int64_t first_channel(const BlockedNormalization& p, const Group& g) {
  return p.images_in_lanes ? g.block : g.block * p.block + g.lane;
}

// Number of planes over which a group's statistics are taken: one per image, or with images in
// lanes one per vector of images.
template <class D>
int64_t planes_of(const BlockedNormalization& p, D d) {
  return p.images_in_lanes ? p.n / static_cast<int64_t>(hn::Lanes(d)) : p.n;
}

template <class D, class Body>
void for_each_group(const BlockedNormalization& p, D d, const Body& body) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t b = 0; b < p.blocks(); ++b) {
    const int64_t end = p.images_in_lanes ? 1 : p.block;
    for (int64_t lane = 0; lane < end; lane += lanes) body(Group{b, lane});
  }
}

template <class D>
int64_t plane_offset(const BlockedNormalization& p, D d, int64_t n, const Group& g) {
  if (p.images_in_lanes) {
    return g.block * p.rows * p.columns * p.block + n * static_cast<int64_t>(hn::Lanes(d));
  }
  return (n * p.blocks() + g.block) * p.rows * p.columns * p.block + g.lane;
}

template <class D>
int64_t result_offset(const BlockedNormalization& p, D d, int64_t n, const Group& g) {
  if (p.images_in_lanes) {
    return g.block * p.result_rows() * p.result_columns() * p.block +
           n * static_cast<int64_t>(hn::Lanes(d));
  }
  return (n * p.blocks() + g.block) * p.result_rows() * p.result_columns() * p.block + g.lane;
}

// Calls body(lanes, group) with vectors of 8 or 16 lanes, or fewer if the processor has only
// shorter ones.
template <class Body>
void with_lanes(const BlockedNormalization& p, const Body& body) {
  const auto run = [&](auto d) {
    const Lanes<decltype(d)> lanes{d, p.images_in_lanes, {}, {}};
    for_each_group(p, d, [&](const Group& g) { body(lanes, g); });
  };
  if (p.block >= 16) {
    run(hn::CappedTag<float, 16>());
  } else {
    run(hn::CappedTag<float, 8>());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
