#include "lockstep/engine/ops/applied.h"

#include <string>

#include "lockstep/engine/ops/outside_index.h"

namespace lockstep {

void refuse_as(std::string_view function, const InvalidArgument& error) {
  // "[place] [op] problem", often without a place.
  const std::string_view text = error.what();
  size_t begin = 0, end = 0;
  while (text.substr(end).starts_with("[") && text.find("] ", end) != std::string_view::npos) {
    begin = end;
    end = text.find("] ", end) + 2;
  }
  const std::string message = std::string(text.substr(0, begin)) + "[" + std::string(function) +
                              "] " + std::string(text.substr(end));
  if (const auto* const outside = dynamic_cast<const ops::OutsideIndex*>(&error)) {
    throw ops::OutsideIndex(message, error.hint(), outside->row(), outside->rows());
  }
  throw InvalidArgument(message, error.hint());
}

}  // namespace lockstep
