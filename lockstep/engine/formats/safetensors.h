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
  int64_t widened = 0;  // tensors of F16 or BF16, which are f32 here, with the same values

  // Throws DataError, naming `file`, if the tensor does not exist.
  const Tensor& at(const std::string& name, const std::string& file) const;
};

// Returns the bytes of a file. Tensors may have any layout; they are written row-major. The data
// begins at a multiple of 64 bytes. Throws InvalidArgument for a duplicate name, the name
// "__metadata__", an undefined tensor, text that is not UTF-8 or a header above 100 MB.
std::vector<std::byte> write_safetensors(const std::vector<NamedTensor>& tensors,
                                         const std::map<std::string, std::string>& metadata);

// Reads a file and checks everything: lengths, offsets (in bounds, no overlap, no gap), shapes
// against bytes, types (F32, F16, BF16, I32, I64, U8) and the header's size (at most 100 MB).
// Throws DataError, naming `file` and the tensor.
SafetensorsFile read_safetensors(std::span<const std::byte> bytes, const std::string& file);

}  // namespace lockstep
