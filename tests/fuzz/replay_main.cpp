// Runs a target without libFuzzer:
//
//   replay_X N [FIRST]     the seeds, and N mutations of them, from number FIRST on (0)
//   replay_X FILE...       files, such as those on which the fuzzer found a defect
//   replay_X --seeds DIR   writes the seeds, for the fuzzer to begin with
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>

#include "lockstep/base/os/file.h"
#include "tests/fuzz/target.h"

namespace {

using namespace lockstep;
using fuzz::Bytes;

// A few changes of bytes, ranges and numbers, and chunks of other seeds.
Bytes mutated(const std::vector<Bytes>& seeds, std::mt19937_64& random) {
  Bytes bytes = seeds[random() % seeds.size()];
  const auto place = [&](size_t room) { return room == 0 ? 0 : random() % room; };
  const auto at = [](Bytes& b, size_t i) { return b.begin() + static_cast<std::ptrdiff_t>(i); };
  for (size_t changes = 1 + random() % 4; changes > 0; --changes) {
    const size_t first = place(bytes.size()), count = place(bytes.size() - first) % 64;
    switch (random() % 7) {
      case 0:  // one bit
        if (!bytes.empty()) bytes[first] ^= std::byte{1} << random() % 8;
        break;
      case 1:  // a byte with a meaning for parsers
        if (!bytes.empty())
          bytes[first] = std::byte("\0\xff\x7f\x80{}[]\",:-09ez\n"[random() % 18]);
        break;
      case 2:  // truncated
        bytes.resize(first);
        break;
      case 3:  // a part removed
        bytes.erase(at(bytes, first), at(bytes, first + count));
        break;
      case 4: {  // a part repeated
        const Bytes chunk(at(bytes, first), at(bytes, first + count));
        bytes.insert(at(bytes, first), chunk.begin(), chunk.end());
        break;
      }
      case 5: {  // a part from another seed
        Bytes other = seeds[random() % seeds.size()];
        const size_t from = place(other.size());
        bytes.insert(at(bytes, first), at(other, from), other.end());
        break;
      }
      default:  // a large or negative number
        for (size_t i = first; i < bytes.size() && i < first + 4; ++i) {
          bytes[i] = std::byte(random() % 2 ? 0xff : 0x00);
        }
    }
  }
  return bytes;
}

// Each mutation is a function of the seeds and its number.
void replay(int64_t mutations, int64_t first) {
  const std::vector<Bytes> seeds = fuzz::seeds();
  for (const Bytes& seed : seeds) fuzz::parse(seed);  // the seeds are valid, so this must not throw
  for (int64_t i = first; i < first + mutations; ++i) {
    std::mt19937_64 random(static_cast<uint64_t>(i));
    const Bytes bytes = mutated(seeds, random);
    try {
      fuzz::run_target(bytes);
    } catch (...) {
      write_atomically(local_files(), "replay-failure", bytes);
      std::fprintf(stderr, "mutation %lld, kept as replay-failure:\n", static_cast<long long>(i));
      throw;
    }
  }
  std::printf("%zu seeds and %lld mutations of them: no defect\n", seeds.size(),
              static_cast<long long>(mutations));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string first = argc > 1 ? argv[1] : "";
    char* end = nullptr;
    const long long mutations = std::strtoll(first.c_str(), &end, 10);
    if ((argc == 2 || argc == 3) && *end == '\0' && !first.empty()) {
      replay(mutations, argc == 3 ? std::strtoll(argv[2], nullptr, 10) : 0);
    } else if (argc == 3 && first == "--seeds") {
      make_folders(local_files(), argv[2]);
      int number = 0;
      for (const Bytes& seed : fuzz::seeds()) {
        write_atomically(local_files(), join_path(argv[2], std::to_string(number++)), seed);
      }
    } else {
      for (int i = 1; i < argc; ++i) fuzz::run_target(local_files().read(argv[i]));
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
