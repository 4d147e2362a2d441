#include "lockstep/engine/kernels/self_test/bench.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/numeric/alignment.h"
#include "lockstep/engine/device/recording.h"

namespace lockstep::kernels::selftest {
namespace {

// Fillings of memory that work must write. As floats, the first one is NaN.
constexpr std::byte kFillings[] = {std::byte{0xFF}, std::byte{0xA5}};
// Bytes after each array that must stay as they are.
constexpr size_t kGuard = 256;

size_t padded(size_t bytes) { return round_up(bytes, 256); }

bool written(const Array& a) { return a.role == Array::Role::result; }
bool compared(const Array& a) { return written(a) || a.role == Array::Role::updated; }

size_t first_difference(const std::byte* a, const std::byte* b, size_t bytes) {
  return static_cast<size_t>(std::mismatch(a, a + bytes, b).first - a);
}

std::string at_byte(size_t at, size_t bytes) {
  return "byte " + std::to_string(at) + " of " + std::to_string(bytes);
}

}  // namespace

// Offsets of the step and the arrays in the memory of a side.
struct Bench::Offsets {
  std::vector<size_t> arrays;
  size_t bytes = padded(sizeof(RandomContext));

  explicit Offsets(const Work& work) {
    for (const Array& a : work.arrays) {
      arrays.push_back(bytes);
      bytes += padded(a.bytes) + kGuard;
    }
  }
  std::vector<void*> in(std::byte* data) const {
    std::vector<void*> addresses;
    for (const size_t offset : arrays) addresses.push_back(data + offset);
    return addresses;
  }
};

Bench::Bench(const Table& table, DeviceMemory& memory) : table_(table), memory_(memory) {
  memory_.activate();
  for (Side& side : sides_) side.stream = memory_.make_stream();
}

Bench::~Bench() {
  try {
    memory_.synchronize(nullptr);
  } catch (const std::exception&) {
    return;  // the device has failed, and its objects with it
  }
  for (Side& side : sides_) {
    if (side.data) memory_.release(side.data);
    memory_.release_stream(side.stream);
  }
}

void Bench::make_room(Side& side, size_t bytes) {
  if (side.bytes >= bytes) return;
  if (side.data) memory_.release(side.data);
  side.data = nullptr;
  side.bytes = 0;
  side.data = static_cast<std::byte*>(memory_.allocate(bytes));
  if (!side.data) {
    throw NoRoom("not enough free memory for " + std::to_string((bytes >> 20) + 1) + " MiB");
  }
  side.bytes = bytes;
}

void Bench::upload(const Side& side, const Work& work, const Offsets& offsets, bool second,
                   std::byte filling) {
  HostBytes image(offsets.bytes, filling);
  const RandomContext step = second ? kSecondStep : kFirstStep;
  std::memcpy(image.data(), &step, sizeof step);
  for (size_t i = 0; i < work.arrays.size(); ++i) {
    const Array& a = work.arrays[i];
    const HostBytes from = a.make ? a.make(offsets.in(side.data)) : second ? a.second : a.first;
    if (!from.empty()) std::memcpy(image.data() + offsets.arrays[i], from.data(), a.bytes);
  }
  memory_.copy_from_host(side.data, image.data(), image.size(), side.stream);
}

HostBytes Bench::download(const Side& side, size_t bytes) {
  HostBytes image(bytes);
  memory_.copy_to_host(image.data(), side.data, bytes, side.stream);
  memory_.synchronize(side.stream);
  return image;
}

std::string Bench::check(const Work& work, std::vector<HostBytes>* kept) {
  memory_.activate();
  const Offsets offsets(work);
  std::function<void()> add[2];
  for (int k = 0; k < 2; ++k) {
    Side& side = sides_[k];
    make_room(side, offsets.bytes);
    upload(side, work, offsets, false, kFillings[k]);
    add[k] = work.bind(offsets.in(side.data), side.stream,
                       reinterpret_cast<const RandomContext*>(side.data));
  }
  add[0]();
  add[1]();
  const HostBytes results[2] = {download(sides_[0], offsets.bytes),
                                download(sides_[1], offsets.bytes)};
  // Whether an image has the results of another one; else what differs.
  const auto differs = [&](const HostBytes& a, const HostBytes& b) -> std::string {
    for (size_t i = 0; i < work.arrays.size(); ++i) {
      const Array& array = work.arrays[i];
      if (!compared(array)) continue;
      const size_t from = offsets.arrays[i];
      const size_t at = first_difference(&a[from], &b[from], array.bytes);
      if (at < array.bytes) return array.name + " at " + at_byte(at, array.bytes);
    }
    return "";
  };
  for (size_t i = 0; i < work.arrays.size(); ++i) {
    const Array& a = work.arrays[i];
    const size_t from = offsets.arrays[i];
    for (int k = 0; k < 2; ++k) {
      for (size_t at = from + a.bytes; at < from + padded(a.bytes) + kGuard; ++at) {
        if (results[k][at] != kFillings[k]) {
          return a.name + ": " + std::to_string(at - from - a.bytes) +
                 " bytes past its end something was written";
        }
      }
      if (a.role != Array::Role::operand || a.make) continue;
      const size_t at = first_difference(&results[k][from], a.first.data(), a.bytes);
      if (at < a.bytes) return a.name + " was changed at " + at_byte(at, a.bytes);
    }
    if (!written(a)) continue;
    for (size_t at = 0; at < a.bytes; ++at) {
      if (results[0][from + at] == kFillings[0] && results[1][from + at] == kFillings[1]) {
        return a.name + ": " + at_byte(at, a.bytes) + " was not written";
      }
    }
  }
  for (size_t i = 0; i < work.arrays.size(); ++i) {
    const Array& a = work.arrays[i];
    if (!a.judge) continue;
    std::string wrong = a.judge(&results[0][offsets.arrays[i]]);
    if (!wrong.empty()) return a.name + ": " + wrong;
  }
  if (const std::string what = differs(results[0], results[1]); !what.empty()) {
    return "two runs on two streams differ: " + what;
  }
  if (kept) {
    kept->clear();
    for (size_t i = 0; i < work.arrays.size(); ++i) {
      const auto* const from = &results[0][offsets.arrays[i]];
      kept->emplace_back(from, from + work.arrays[i].bytes);
    }
  }
  if (!memory_.records()) return "";
  Recording recording(memory_, sides_[0].stream);
  // The first run adds the work directly, the second one records it and runs the recording.
  for (int k = 0; k < 2; ++k) {
    upload(sides_[0], work, offsets, false, kFillings[k]);
    recording.run(add[0]);
    const std::string what = differs(results[0], download(sides_[0], offsets.bytes));
    if (!what.empty()) {
      return (k == 0 ? "two runs on one stream differ: " : "a recording differs: ") + what;
    }
  }
  // Other values, compared with the work itself on the other stream.
  for (int k = 0; k < 2; ++k) upload(sides_[k], work, offsets, true, kFillings[k]);
  recording.run(add[0]);
  add[1]();
  const HostBytes repeated = download(sides_[0], offsets.bytes);
  const std::string what = differs(repeated, download(sides_[1], offsets.bytes));
  return what.empty() ? "" : "a recording that is repeated with other values differs: " + what;
}

}  // namespace lockstep::kernels::selftest
