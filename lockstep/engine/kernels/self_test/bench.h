// Runs work on a device in every way in which trainings run it: on two streams, again, recorded,
// and repeated from the recording with other values.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/kernels/backends/tables.h"

namespace lockstep::kernels::selftest {

using HostBytes = std::vector<std::byte>;

// The device has too little free memory for a case. Says nothing about its kernels.
class NoRoom : public Error {
 public:
  using Error::Error;
};

// An array that work uses, in the device's memory.
struct Array {
  enum class Role : uint8_t {
    operand,  // read; must stay unchanged
    result,   // written, and compared
    updated,  // read, written and compared
    scratch,  // contents are of no interest
  };
  std::string name;  // "input 0"
  Role role = Role::operand;
  size_t bytes = 0;
  // Contents of operands and updated arrays: before the first runs, and before the repetition of a
  // recording. Both have `bytes` bytes.
  HostBytes first = {}, second = {};
  // Makes contents that depend on the addresses of all arrays, in place of the above.
  std::function<HostBytes(const std::vector<void*>& arrays)> make = {};
  // Returns what is wrong with a result for the first contents; "" if nothing is.
  std::function<std::string(const std::byte* result)> judge = {};
};

// Work that reads and writes arrays.
struct Work {
  std::vector<Array> arrays;
  // Binds the work to memory. Each call of the result adds the work to the stream.
  std::function<std::function<void()>(const std::vector<void*>& arrays, void* stream,
                                      const RandomContext* step)>
      bind;
};

// The values of RandomContext before the first runs, and before the repetition of a recording.
inline constexpr RandomContext kFirstStep{.seed = 5, .iteration = 7, .first_row = 100};
inline constexpr RandomContext kSecondStep{.seed = 5, .iteration = 8, .first_row = 132};

// Two streams with memory. One thread at a time.
class Bench {
 public:
  Bench(const Table& table, DeviceMemory& memory);
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  const Table& table() const { return table_; }
  DeviceMemory& memory() { return memory_; }

  // Runs the work on both streams at once, in memory with two fillings, and compares the results
  // with the judges' and with each other, bit by bit; then records it, and repeats the recording
  // with other contents. Also finds results that are not written and writes beyond arrays. Returns
  // what is wrong, or "". `kept`: receives the contents of all arrays after the first run. Throws
  // NoRoom, and what the device throws.
  std::string check(const Work& work, std::vector<HostBytes>* kept = nullptr);

 private:
  struct Side {
    void* stream = nullptr;
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  struct Offsets;

  void make_room(Side& side, size_t bytes);
  void upload(const Side& side, const Work& work, const Offsets& offsets, bool second,
              std::byte filling);
  HostBytes download(const Side& side, size_t bytes);

  const Table& table_;
  DeviceMemory& memory_;
  Side sides_[2];
};

}  // namespace lockstep::kernels::selftest
