#include "lockstep/engine/tensor/spec.h"

namespace lockstep {

std::string TensorSpec::to_string() const {
  std::string text = shape.to_string() + " " + std::string(name_of(dtype));
  if (layout) text += " " + layout->to_string();
  return text;
}

bool operator==(const TensorSpec& a, const TensorSpec& b) {
  if (!(a.shape == b.shape) || a.dtype != b.dtype) return false;
  if (!a.layout || !b.layout) return !a.layout && !b.layout;
  return a.layout == b.layout || a.layout->equals(*b.layout);
}

}  // namespace lockstep
