// Values of a network from a file, to start another training from them.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/engine/formats/safetensors.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

// Learnables and state of a network, named "<layer>.<parameter>".
struct NetworkValues {
  std::vector<NamedTensor> tensors;
  bool checked = true;  // whether the file carries a digest or checksum of its contents
};

// Of a model file or a checkpoint. Thread-safe. Throws FileError, DataError.
NetworkValues network_values(FileSystem& files, const std::string& path);

// Throws DataError naming `path` and the first tensor (f32) with an infinite value or NaN.
void require_finite(const std::vector<NamedTensor>& values, const std::string& path);

// A network (initialized, or its sizes alone) must have the same names and shapes, all of them.
// Throws InvalidArgument naming `path` and the first that does not fit.
void check_values(const Network& network, const std::vector<NamedTensor>& values,
                  const std::string& path);

// Checks them, and gives them to an initialized network.
void set_values(Network& network, const std::vector<NamedTensor>& values, const std::string& path);

}  // namespace lockstep
