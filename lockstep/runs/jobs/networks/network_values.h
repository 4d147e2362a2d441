// Values of a network from a file, as initial values of another training.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/os/file.h"
#include "lockstep/engine/formats/safetensors.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

// The parameters and the state of a network, named "<layer>.<parameter>".
struct NetworkValues {
  std::vector<NamedTensor> tensors;
  bool checked = true;        // whether the file contains a digest or checksum of its contents
  TableColumns columns = {};  // of the tables that the network learned from
  int64_t widened = 0;        // SafetensorsFile::widened
  // Whether the parameters are the moving averages of a checkpoint that has them (average_decay).
  bool averaged = false;
  std::vector<std::string> classes = {};  // of a model file
};

// Reads a model file or a checkpoint. `any`: also the tensors of another safetensors file.
// Thread-safe. Throws FileError, DataError.
NetworkValues network_values(FileSystem& files, const std::string& path, bool any = false);

// Throws DataError naming `path` and the first tensor (f32) with an infinite value or NaN.
void require_finite(const std::vector<NamedTensor>& values, const std::string& path);

// Throws InvalidArgument unless the values have exactly the names and shapes of the network. The
// network must be initialized, or have its sizes alone. The error names `path` and the first value
// that does not fit.
void check_values(const Network& network, const std::vector<NamedTensor>& values,
                  const std::string& path);

// Checks the values like check_values() and copies them to an initialized network.
void set_values(Network& network, const std::vector<NamedTensor>& values, const std::string& path);

}  // namespace lockstep
