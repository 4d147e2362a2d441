#include "lockstep/engine/ops/applied.h"

#include <string>

#include "lockstep/engine/ops/outside_index.h"

namespace lockstep {

namespace {

// "[place] [op] problem", often without a place, with the function in place of the op.
std::string renamed(std::string_view function, std::string_view text) {
  size_t begin = 0, end = 0;
  while (text.substr(end).starts_with("[") && text.find("] ", end) != std::string_view::npos) {
    begin = end;
    end = text.find("] ", end) + 2;
  }
  return std::string(text.substr(0, begin)) + "[" + std::string(function) + "] " +
         std::string(text.substr(end));
}

}  // namespace

void refuse_as(std::string_view function, const InvalidArgument& error) {
  const std::string message = renamed(function, error.what());
  if (const auto* const outside = dynamic_cast<const ops::OutsideIndex*>(&error)) {
    throw ops::OutsideIndex(message, error.hint(), outside->row(), outside->rows());
  }
  throw InvalidArgument(message, error.hint());
}

void refuse_as(std::string_view function, const Unsupported& error) {
  throw Unsupported(renamed(function, error.what()), error.hint());
}

}  // namespace lockstep
