// Elementary functions of floats beside the C library's in double, over all 2^32 floats or every
// N-th. It needs the library's headers alone, so that it can be compiled for any processor.
//
// usage: all_floats [--every N] [FUNCTION...]   the largest error of each, in units in the last
//                                               place; exit code 1 if one is above its bound
//        all_floats --digest [--every N]        a digest of the bits of the results of each
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/functions/cases.h"

namespace {

using namespace lockstep::kernels;

namespace loops {
#define LOCKSTEP_LOOP(name, expression, ...)                          \
  LOCKSTEP_FMA_CLONES void name(const float* x, float* y, size_t n) { \
    _Pragma("GCC ivdep") for (size_t i = 0; i < n; ++i) {             \
      const float at = x[i];                                          \
      y[i] = expression;                                              \
    }                                                                 \
  }
LOCKSTEP_FUNCTION_CASES(LOCKSTEP_LOOP)
LOCKSTEP_MORE_FUNCTION_CASES(LOCKSTEP_LOOP)
}  // namespace loops

struct Case {
  const char* name;
  void (*loop)(const float* x, float* y, size_t n);
  double (*exact)(double x);  // null: only the bits are of interest
  double most;
};

#define LOCKSTEP_ENTRY(name, expression, exact, most) \
  {#name, loops::name, [](double x) -> double { return exact; }, most},
#define LOCKSTEP_ENTRY_OF_BITS(name, expression) {#name, loops::name, nullptr, 0},
const Case kCases[] = {LOCKSTEP_FUNCTION_CASES(LOCKSTEP_ENTRY)
                           LOCKSTEP_MORE_FUNCTION_CASES(LOCKSTEP_ENTRY_OF_BITS)};

constexpr uint64_t kAll = uint64_t{1} << 32;

// Calls visit(x, y, n) for blocks of floats and their results, from part `part` of `parts`.
template <class Visit>
void for_floats(const Case& c, uint64_t every, uint64_t part, uint64_t parts, const Visit& visit) {
  std::vector<float> x(4096), y(4096);
  for (uint64_t block = part; block * every * x.size() < kAll; block += parts) {
    size_t n = 0;
    for (uint64_t bits = block * every * x.size(); n < x.size() && bits < kAll; bits += every) {
      x[n++] = number_of(static_cast<uint32_t>(bits));
    }
    c.loop(x.data(), y.data(), n);
    visit(x.data(), y.data(), n);
  }
}

struct Error {
  double worst = 0;
  float at = 0;
  uint64_t others = 0, all = 0;  // results that are not the nearest float
};

Error error_of(const Case& c, uint64_t every) {
  std::vector<Error> found(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::thread> threads;
  for (size_t part = 0; part < found.size(); ++part) {
    threads.emplace_back([&, part] {
      Error own;
      for_floats(c, every, part, found.size(), [&](const float* x, const float* y, size_t n) {
        for (size_t i = 0; i < n; ++i) {
          const double exact = c.exact(x[i]);
          // The nearest float is at most half a unit away, which takes longer to know exactly.
          const bool nearest = y[i] == static_cast<float>(exact);
          if (nearest && own.worst >= 0.5) continue;
          const double error = ulps(y[i], exact);
          own.others += error > 0 && !nearest;
          if (!(error > own.worst)) continue;
          own.worst = error;
          own.at = x[i];
        }
        own.all += n;
      });
      found[part] = own;
    });
  }
  for (std::thread& thread : threads) thread.join();
  Error whole;
  for (const Error& own : found) {
    if (own.worst > whole.worst) {
      whole.worst = own.worst;
      whole.at = own.at;
    }
    whole.others += own.others;
    whole.all += own.all;
  }
  return whole;
}

// FNV-1a. Which NaN a function returns is not promised.
uint64_t digest_of(const Case& c, uint64_t every) {
  uint64_t digest = 0xcbf29ce484222325;
  for_floats(c, every, 0, 1, [&](const float*, const float* y, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      digest = (digest ^ (y[i] == y[i] ? bits_of(y[i]) : 0x7fc00000u)) * 0x100000001b3;
    }
  });
  return digest;
}

}  // namespace

int main(int count, char** arguments) {
  uint64_t every = 1;
  bool digests = false, fails = false;
  std::vector<std::string> wanted;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--digest") {
      digests = true;
    } else if (argument == "--every" && i + 1 < count) {
      every = std::max<uint64_t>(std::strtoull(arguments[++i], nullptr, 10), 1);
    } else if (argument.starts_with("-")) {
      std::fprintf(stderr, "usage: all_floats [--digest] [--every N] [FUNCTION...]\n");
      return 2;
    } else {
      wanted.push_back(argument);
    }
  }
  for (const Case& c : kCases) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), c.name) == wanted.end())
      continue;
    if (digests) {
      std::printf("%s %016llx\n", c.name, static_cast<unsigned long long>(digest_of(c, every)));
    } else if (c.exact != nullptr) {
      const Error e = error_of(c, every);
      const bool bad = e.worst > c.most;
      std::printf("%-18s %.4f at %.9g, %.4f %% are not the nearest float%s\n", c.name, e.worst,
                  static_cast<double>(e.at),
                  100 * static_cast<double>(e.others) / static_cast<double>(e.all),
                  bad ? ": above its bound" : "");
      fails |= bad;
    }
    std::fflush(stdout);
  }
  return fails ? 1 : 0;
}
