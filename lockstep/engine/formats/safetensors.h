// Safetensors: an eight-byte length, a JSON header, raw little-endian tensors.
// Format: https://github.com/huggingface/safetensors (README, "Format").
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

struct SafetensorsFile {
  std::vector<NamedTensor> tensors;  // in the order of their offsets
  std::map<std::string, std::string> metadata;

  // Throws DataError naming `file` for a tensor that is not there.
  const Tensor& at(const std::string& name, const std::string& file) const;
};

// The bytes of a file. Tensors may be in any layout; they are written row-major. Data begins at a
// multiple of 64 bytes. Throws InvalidArgument for a name twice or "__metadata__".
std::vector<std::byte> write_safetensors(const std::vector<NamedTensor>& tensors,
                                         const std::map<std::string, std::string>& metadata);

// Reads and checks everything: lengths, offsets (in bounds, no overlap, no gap), shapes against
// bytes, types (F32, I32, I64, U8), the header's size (at most 100 MB). Throws DataError naming
// `file` and the place.
SafetensorsFile read_safetensors(std::span<const std::byte> bytes, const std::string& file);

}  // namespace lockstep
