// The time of elementary functions, in nanoseconds for each float, of one thread: this project's
// with AVX2 and with AVX-512, the C library's, and SLEEF's of 1 unit in the last place, where it
// was found when this was built. 4,096 numbers between -8 and 8, the least of the turns. Also
// softmax, of 20,000 numbers, for several numbers of classes.
//
// usage: functions [--turns N]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/elementwise/activation_functions.h"
#include "lockstep/engine/kernels/losses/softmax.h"

#if defined(LOCKSTEP_HAS_SLEEF) && defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

using namespace lockstep;
using namespace lockstep::kernels;

using Loop = void (*)(const float* x, float* y, size_t n);

#if defined(LOCKSTEP_HAS_CLONES)
#define LOCKSTEP_FOR_V3 __attribute__((target("arch=x86-64-v3")))
#define LOCKSTEP_FOR_V4 __attribute__((target("arch=x86-64-v4")))
bool has_v3() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_v4() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"); }
#else
#define LOCKSTEP_FOR_V3
#define LOCKSTEP_FOR_V4
bool has_v3() { return true; }
bool has_v4() { return false; }
#endif

// FUNCTION(name, this project's of `at`, the C library's, SLEEF's name or none)
#define TIMED_FUNCTIONS(FUNCTION)                                                        \
  FUNCTION(exp, exponential(at), std::exp(at))                                           \
  FUNCTION(exp2, exponential_of_2(at), std::exp2(at))                                    \
  FUNCTION(expm1, exponential_minus_1(at), std::expm1(at))                               \
  FUNCTION(log, logarithm(magnitude(at)), std::log(std::fabs(at)))                       \
  FUNCTION(log1p, logarithm_of_1_plus(magnitude(at)), std::log1p(std::fabs(at)))         \
  FUNCTION(tanh, hyperbolic_tangent(at), std::tanh(at))                                  \
  FUNCTION(erf, error_function(at), std::erf(at))                                        \
  FUNCTION(erfc, complementary_error(at), std::erfc(at))                                 \
  FUNCTION(sin, sine(at), std::sin(at))                                                  \
  FUNCTION(cos, cosine(at), std::cos(at))                                                \
  FUNCTION(tan, tangent(at), std::tan(at))                                               \
  FUNCTION(log2, logarithm_of_base_2(magnitude(at)), std::log2(std::fabs(at)))           \
  FUNCTION(pow, power(magnitude(at), 1.7f), std::pow(std::fabs(at), 1.7f))               \
  FUNCTION(sigmoid, logistic(at), 1 / (1 + std::exp(-at)))                               \
  FUNCTION(softplus, lockstep::kernels::softplus(at), std::log1p(std::exp(at)))          \
  FUNCTION(swish, Swish{}.value(at), at / (1 + std::exp(-at)))                           \
  FUNCTION(gelu, Gelu{}.value(at), 0.5f * at * std::erfc(at * -0.70710678f))             \
  FUNCTION(gelu_by_tanh, GeluTanh{}.value(at),                                           \
           0.5f * at * (1 + std::tanh(0.79788456f * (at + 0.044715f * at * at * at))))   \
  FUNCTION(slope_of_tanh, Tanh{}.slope(at), 1 - std::tanh(at) * std::tanh(at))           \
  FUNCTION(slope_of_swish, Swish{}.slope(at),                                            \
           (1 + std::exp(-at) * (1 + at)) / ((1 + std::exp(-at)) * (1 + std::exp(-at)))) \
  FUNCTION(slope_of_gelu, Gelu{}.slope(at),                                              \
           0.5f * std::erfc(at * -0.70710678f) + at * 0.3989423f * std::exp(-0.5f * at * at))

#define LOCKSTEP_LOOP(name, expression)                   \
  void name(const float* x, float* y, size_t n) {         \
    _Pragma("GCC ivdep") for (size_t i = 0; i < n; ++i) { \
      const float at = x[i];                              \
      y[i] = expression;                                  \
    }                                                     \
  }
#define LOCKSTEP_LOOPS(name, own, library)      \
  LOCKSTEP_FOR_V3 LOCKSTEP_LOOP(name##_v3, own) \
  LOCKSTEP_FOR_V4 LOCKSTEP_LOOP(name##_v4, own) LOCKSTEP_LOOP(name##_c, library)

namespace loops {
TIMED_FUNCTIONS(LOCKSTEP_LOOPS)
}

struct Sleef {
  const char* name;
  Loop v3, v4;
};

#if defined(LOCKSTEP_HAS_SLEEF) && defined(__x86_64__)
#define LOCKSTEP_SLEEF_LOOPS(name, function, accuracy, before)                                    \
  LOCKSTEP_FOR_V3 void name##_v3(const float* x, float* y, size_t n) {                            \
    for (size_t i = 0; i < n; i += 8)                                                             \
      _mm256_storeu_ps(y + i,                                                                     \
                       Sleef_##function##8_##accuracy##avx2(before(_mm256_loadu_ps(x + i))));     \
  }                                                                                               \
  LOCKSTEP_FOR_V4 void name##_v4(const float* x, float* y, size_t n) {                            \
    for (size_t i = 0; i < n; i += 16)                                                            \
      _mm512_storeu_ps(y + i,                                                                     \
                       Sleef_##function##16_##accuracy##avx512f(before(_mm512_loadu_ps(x + i)))); \
  }
#define LOCKSTEP_SAME(x) x
LOCKSTEP_FOR_V3 inline __m256 positive(__m256 x) {
  return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}
LOCKSTEP_FOR_V4 inline __m512 positive(__m512 x) { return _mm512_abs_ps(x); }
#define LOCKSTEP_SLEEF_FUNCTIONS(FUNCTION)    \
  FUNCTION(exp, expf, u10, LOCKSTEP_SAME)     \
  FUNCTION(exp2, exp2f, u10, LOCKSTEP_SAME)   \
  FUNCTION(expm1, expm1f, u10, LOCKSTEP_SAME) \
  FUNCTION(log, logf, u10, positive)          \
  FUNCTION(log1p, log1pf, u10, positive)      \
  FUNCTION(tanh, tanhf, u10, LOCKSTEP_SAME)   \
  FUNCTION(erf, erff, u10, LOCKSTEP_SAME)     \
  FUNCTION(erfc, erfcf, u15, LOCKSTEP_SAME)   \
  FUNCTION(sin, sinf, u10, LOCKSTEP_SAME)     \
  FUNCTION(cos, cosf, u10, LOCKSTEP_SAME)
// SLEEF's header declares only what the whole file is compiled for.
#define LOCKSTEP_SLEEF_DECLARATION(name, function, accuracy, before) \
  __m256 Sleef_##function##8_##accuracy##avx2(__m256);               \
  __m512 Sleef_##function##16_##accuracy##avx512f(__m512);
extern "C" {
LOCKSTEP_SLEEF_FUNCTIONS(LOCKSTEP_SLEEF_DECLARATION)
__m256 Sleef_powf8_u10avx2(__m256, __m256);
__m512 Sleef_powf16_u10avx512f(__m512, __m512);
}
namespace sleef {
LOCKSTEP_SLEEF_FUNCTIONS(LOCKSTEP_SLEEF_LOOPS)
LOCKSTEP_FOR_V3 void pow_v3(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; i += 8)
    _mm256_storeu_ps(y + i,
                     Sleef_powf8_u10avx2(positive(_mm256_loadu_ps(x + i)), _mm256_set1_ps(1.7f)));
}
LOCKSTEP_FOR_V4 void pow_v4(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; i += 16)
    _mm512_storeu_ps(
        y + i, Sleef_powf16_u10avx512f(positive(_mm512_loadu_ps(x + i)), _mm512_set1_ps(1.7f)));
}
}  // namespace sleef
#define LOCKSTEP_SLEEF_ENTRY(name, ...) {#name, sleef::name##_v3, sleef::name##_v4},
const std::vector<Sleef> kSleef{
    LOCKSTEP_SLEEF_FUNCTIONS(LOCKSTEP_SLEEF_ENTRY){"pow", sleef::pow_v3, sleef::pow_v4}};
#else
const std::vector<Sleef> kSleef;
#endif

struct Entry {
  const char* name;
  Loop v3, v4, library;
};
#define LOCKSTEP_ENTRY(name, ...) {#name, loops::name##_v3, loops::name##_v4, loops::name##_c},
const Entry kEntries[] = {TIMED_FUNCTIONS(LOCKSTEP_ENTRY)};

// Nanoseconds for each of `count` numbers.
double time_of(int turns, size_t count, const std::function<void()>& work) {
  double least = INFINITY;
  for (int turn = 0; turn < turns; ++turn) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 10; ++i) work();
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
    least = std::min(least, taken.count() / 10 / static_cast<double>(count));
  }
  return least;
}

std::vector<float> numbers(size_t count) {
  std::vector<float> x(count);
  uint32_t state = 1;
  for (float& value : x) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) * 0x1p-20f - 8;
  }
  return x;
}

void functions(int turns) {
  const std::vector<float> x = numbers(4096);
  std::vector<float> y(x.size());
  const auto print = [&](Loop loop, bool runs) {
    if (loop == nullptr || !runs) {
      std::printf(" %9s", "");
      return;
    }
    std::printf(" %9.2f", time_of(turns, x.size(), [&] { loop(x.data(), y.data(), x.size()); }));
  };
  std::printf("%-16s %9s %9s %9s %9s %9s\n", "ns an element", "AVX2", "AVX-512", "C library",
              "SLEEF 256", "SLEEF 512");
  for (const Entry& entry : kEntries) {
    const auto other = std::find_if(kSleef.begin(), kSleef.end(), [&](const Sleef& s) {
      return std::strcmp(s.name, entry.name) == 0;
    });
    std::printf("%-16s", entry.name);
    print(entry.v3, has_v3());
    print(entry.v4, has_v4());
    print(entry.library, true);
    print(other == kSleef.end() ? nullptr : other->v3, has_v3());
    print(other == kSleef.end() ? nullptr : other->v4, has_v4());
    std::printf("\n");
  }
}

void softmax_of_classes(int turns) {
  std::printf("\n%-16s %9s %9s\n", "softmax", "forward", "backward");
  for (const int64_t classes : {2, 10, 100, 1000, 50000}) {
    const int64_t rows = std::max<int64_t>(20000 / classes, 1);
    const Kernel kernel = table_for({}).softmax({{Shape{rows, classes}, DType::f32, nullptr}});
    const auto count = static_cast<size_t>(rows * classes);
    std::vector<float> x = numbers(count), y(count), dy = numbers(count), dx(count);
    const auto bind = [](const Pass& pass, std::vector<void*> reads, std::vector<void*> writes) {
      PassMemory memory;
      memory.reads = reads;
      memory.writes = writes;
      return pass.bind(memory);
    };
    const BoundPass forward = bind(kernel.forward, {x.data()}, {y.data()});
    const BoundPass backward = bind(kernel.backward[0], {y.data(), dy.data()}, {dx.data()});
    std::printf("%-16lld %9.2f %9.2f\n", static_cast<long long>(classes),
                time_of(turns, count, [&] { forward(RandomContext{}); }),
                time_of(turns, count, [&] { backward(RandomContext{}); }));
  }
}

}  // namespace

int main(int count, char** arguments) {
  int turns = 40;
  if (count == 3 && std::strcmp(arguments[1], "--turns") == 0) {
    turns = std::max(std::atoi(arguments[2]), 1);
  } else if (count != 1) {
    std::fprintf(stderr, "usage: functions [--turns N]\n");
    return 2;
  }
  functions(turns);
  softmax_of_classes(turns);
}
