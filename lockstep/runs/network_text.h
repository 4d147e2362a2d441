// Networks as people write them in job files.
#pragma once

#include <string>

#include "lockstep/engine/nn/network.h"

namespace lockstep {

// The table [network] of a job file, one layer a line: fields, names and inputs only where they are
// not what is taken without them, and runs of layers that repeat as groups. Reading it gives the
// same network (Network::to_json). Throws InvalidArgument for a network that is not sound.
std::string network_text(const Network& network);

}  // namespace lockstep
