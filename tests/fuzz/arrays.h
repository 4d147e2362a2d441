// Arrays as datastores must give them, and files of NumPy as numpy.save() and numpy.savez() write
// them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "lockstep/base/crc.h"
#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastore.h"

namespace lockstep::fuzz {

// Throws InternalError, a defect, unless the values are finite and as many as the shape has.
inline void check_array(const Array& array) {
  if (static_cast<int64_t>(array.values.size()) != array.shape.elements()) {
    throw InternalError("[fuzz] another number of values than the shape has");
  }
  for (const float value : array.values) {
    if (!std::isfinite(value)) throw InternalError("[fuzz] a number that is not finite");
  }
}

template <class T>
std::string raw_bytes(const std::vector<T>& values) {
  std::string text(values.size() * sizeof(T), '\0');
  std::memcpy(text.data(), values.data(), text.size());
  return text;
}

// `shape` in Python's notation: "(2, 3)".
inline std::string npy_file(const std::string& type, const std::string& shape,
                            const std::string& elements,
                            const std::string& columns_first = "False") {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': " + columns_first + ", 'shape': " + shape + ", }";
  while ((header.size() + 11) % 64 != 0) header += ' ';
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  return std::string("\x93NUMPY\x01\x00", 8) + raw_bytes<uint16_t>({length}) + header + elements;
}

// One array in an archive without compression.
inline std::string npz_file(const std::string& name, const std::string& array) {
  constexpr Crc<uint32_t> checksum(0xEDB88320u);
  const auto size = static_cast<uint32_t>(array.size());
  const std::string sums = raw_bytes<uint32_t>({checksum.of(array), size, size});
  const auto length = static_cast<uint16_t>(name.size());
  const std::string local =
      "PK\x03\x04" + std::string(10, '\0') + sums + raw_bytes<uint16_t>({length, 0}) + name + array;
  const std::string member = "PK\x01\x02" + std::string(12, '\0') + sums +
                             raw_bytes<uint16_t>({length}) + std::string(16, '\0') + name;
  return local + member + "PK\x05\x06" + std::string(4, '\0') + raw_bytes<uint16_t>({1, 1}) +
         raw_bytes<uint32_t>(
             {static_cast<uint32_t>(member.size()), static_cast<uint32_t>(local.size())}) +
         std::string(2, '\0');
}

}  // namespace lockstep::fuzz
