// Networks in the form in which users write them in job files.
#pragma once

#include <string>

#include "lockstep/engine/nn/network.h"

namespace lockstep {

// The table [network] of a job file, with one layer on each line. Fields, names and inputs are
// written only if they differ from the defaults. Repeated layers are written as groups. Reading the
// text gives the same network (Network::to_json). Throws InvalidArgument if the network is not
// valid.
std::string network_text(const Network& network);

}  // namespace lockstep
