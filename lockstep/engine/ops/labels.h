// Labels that do not count.
#pragma once

#include <cstdint>

namespace lockstep {

// The label of a pixel that does not count: PyTorch's default of ignore_index, and that of
// ops::CrossEntropyParams.
inline constexpr int32_t kIgnoredLabel = -100;

}  // namespace lockstep
