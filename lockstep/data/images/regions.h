// Rectangles of images that are drawn: what random erasing and random resized crops share.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/base/fields.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/data/images/augmentation.h"

namespace lockstep::detail {

inline constexpr NumberRangeRule area_rule{.min = 0, .max = 1};
inline constexpr NumberRangeRule ratio_rule{.min = 0.01, .max = 100};

// Throws InvalidArgument, naming the range by `name`, unless low <= high and both are in bounds.
void check_draw_range(const NumberRange& range, const NumberRangeRule& rule,
                      const std::string& name);

// Each try has a block of the stream: words for area, ratio, row and column. Thread-safe.
RegionDraw draw_region(const RandomStream& stream, uint64_t first_block, const NumberRange& area,
                       const NumberRange& ratio);

}  // namespace lockstep::detail
