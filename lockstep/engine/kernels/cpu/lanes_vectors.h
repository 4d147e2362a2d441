// Vectors of images in lanes, for files that Highway compiles once for each instruction set.
#include "lockstep/engine/kernels/cpu/lanes_layout.h"

// Once for each instruction set, too.
#if defined(LOCKSTEP_LANES_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_LANES_VECTORS
#undef LOCKSTEP_LANES_VECTORS
#else
#define LOCKSTEP_LANES_VECTORS
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, kLanes>;
using V = hn::Vec<D>;

// Results of products that registers hold at once, of four vectors each. Fewer registers take tiles
// of weights (lanes_weights.h) in pieces.
#if HWY_TARGET <= HWY_AVX3
constexpr int kMostFilters = 6;
#else
constexpr int kMostFilters = 2;
#endif

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
