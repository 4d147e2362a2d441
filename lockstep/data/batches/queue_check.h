// The errors of the mini-batch queue.
#pragma once

#include <string>

#include "lockstep/base/error.h"

namespace lockstep {

// Throws InvalidArgument with the message unless the condition holds.
inline void require_in_queue(bool holds, const std::string& message, const std::string& hint = {}) {
  if (!holds) throw InvalidArgument("[mini-batch queue] " + message, hint);
}

}  // namespace lockstep
