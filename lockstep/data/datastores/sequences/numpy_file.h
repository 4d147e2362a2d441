// Arrays in files of NumPy: .npy, and .npz without compression.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/data/datastores/datastore.h"

namespace lockstep {

// Returns the array of a file, row-major, with its numbers rounded to f32: floats of 2, 4 or 8
// bytes, integers and Booleans, in either byte order, rows or columns first. `member`: the name of
// an array in an .npz file, which may be "" if there is only one. Throws DataError, naming `path`,
// for other contents, damaged files, and an element that is not finite or beyond f32, with its
// index. Thread-safe.
Array read_numpy(std::span<const std::byte> bytes, const std::string& path,
                 const std::string& member = {});

// Where the integers of a one-dimensional array lie in an .npy file, little-endian.
struct NumpyIntegers {
  size_t offset = 0, width = 0;  // bytes
  size_t count = 0;
  bool is_signed = false;
};
// `begin` has the file's header, which is shorter than 64 KiB. Throws DataError, naming `path`, for
// other contents. Thread-safe.
NumpyIntegers numpy_integers(std::span<const std::byte> begin, const std::string& path);

// Whether a file is one of NumPy by its name: .npy and .npz, in upper or lower case.
bool is_numpy_name(std::string_view name);

}  // namespace lockstep
