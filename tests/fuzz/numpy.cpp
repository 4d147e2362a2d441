#include "lockstep/base/error.h"
#include "lockstep/data/datastores/sequences/numpy_file.h"
#include "tests/fuzz/arrays.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {

// An array of an .npy or .npz file, and where its integers would lie.
void parse(std::span<const std::byte> bytes) {
  try {
    const NumpyIntegers integers = numpy_integers(bytes, "tokens.npy");
    if (integers.offset > bytes.size() || integers.width == 0) {
      throw InternalError("[fuzz] integers outside of the file");
    }
  } catch (const DataError&) {
  }
  check_array(read_numpy(bytes, "array.npy"));
}

std::vector<Bytes> seeds() {
  const std::string floats = npy_file("<f4", "(2, 3)", raw_bytes<float>({1, 2, 3, 4, 5, 6}));
  return {bytes_of(floats),
          bytes_of(npy_file("<f8", "(3, 2)", raw_bytes<double>({1, 2, 3, 4, 5, 6}), "True")),
          bytes_of(npy_file(">i2", "(2,)", std::string("\x00\x01\x00\x02", 4))),
          bytes_of(npy_file("<u8", "(1,)", raw_bytes<uint64_t>({5}))),
          bytes_of(npy_file("<f2", "()", raw_bytes<uint16_t>({0x3c00}))),
          bytes_of(npy_file("|b1", "(0, 4)", "")),
          bytes_of(npz_file("x.npy", floats))};
}

}  // namespace lockstep::fuzz
