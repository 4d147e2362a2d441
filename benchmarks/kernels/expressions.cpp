// The time of expressions and reductions beside loops written for the purpose, which the compiler
// vectorizes for this processor. One thread; the ways run in turns. Prints gigabytes a second of
// the loop (each array once) and the loop's time divided by the kernel's. From memory, from the
// second cache and from the first one.
//
// usage: expressions [--turns N]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "benchmarks/kernels/turns.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/numeric/clones.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/elementwise/expression.h"
#include "lockstep/engine/kernels/reductions/reduce.h"

namespace {

using namespace lockstep;
using namespace lockstep::kernels;

// ---- Loops ----

LOCKSTEP_CLONES void affine_relu_add(const float* x, const float* z, const float* m, const float* g,
                                     const float* b, float* y, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r, x += columns, z += columns, y += columns) {
#pragma GCC ivdep
    for (int64_t c = 0; c < columns; ++c) {
      const float t = (x[c] - m[c]) * g[c] + b[c];
      y[c] = (t > 0 ? t : 0) + z[c];
    }
  }
}

LOCKSTEP_CLONES void add_arrays(const float* x, const float* z, float* y, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] + z[i];
}

// In 16 lanes of double, as the kernel. `columns` is a multiple of 16.
template <class Term>
LOCKSTEP_INLINE float sum_of(int64_t columns, const Term& term) {
  double lanes[16] = {};
  for (int64_t c = 0; c < columns; c += 16) {
#pragma GCC unroll 16
    for (int64_t l = 0; l < 16; ++l) lanes[l] += static_cast<double>(term(c + l));
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return static_cast<float>(sum);
}

LOCKSTEP_CLONES void weighted_squares(const float* x, const float* z, const float* w, float* y,
                                      int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r, x += columns, z += columns) {
    y[r] = sum_of(columns, [=](int64_t c) {
      const float d = x[c] - z[c];
      return d * d * w[c];
    });
  }
}

LOCKSTEP_CLONES void weighted_squares_of_columns(const float* x, const float* z, const float* w,
                                                 double* sums, float* y, int64_t rows,
                                                 int64_t columns) {
  std::fill_n(sums, columns, 0.0);
  for (int64_t r = 0; r < rows; ++r, x += columns, z += columns) {
#pragma GCC ivdep
    for (int64_t c = 0; c < columns; ++c) {
      const float d = x[c] - z[c];
      sums[c] += static_cast<double>(d * d * w[c]);
    }
  }
  for (int64_t c = 0; c < columns; ++c) y[c] = static_cast<float>(sums[c]);
}

LOCKSTEP_CLONES void sum_rows(const float* x, float* y, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r, x += columns) {
    y[r] = sum_of(columns, [=](int64_t c) { return x[c]; });
  }
}

LOCKSTEP_CLONES void sum_columns(const float* x, double* sums, float* y, int64_t rows,
                                 int64_t columns) {
  std::fill_n(sums, columns, 0.0);
  for (int64_t r = 0; r < rows; ++r, x += columns) {
#pragma GCC ivdep
    for (int64_t c = 0; c < columns; ++c) sums[c] += static_cast<double>(x[c]);
  }
  for (int64_t c = 0; c < columns; ++c) y[c] = static_cast<float>(sums[c]);
}

// Over the first and the last axis of blocks x channels x columns.
LOCKSTEP_CLONES void sum_channels(const float* x, float* y, int64_t blocks, int64_t channels,
                                  int64_t columns) {
  for (int64_t k = 0; k < channels; ++k) {
    double lanes[16] = {};
    for (int64_t n = 0; n < blocks; ++n) {
      const float* const from = x + (n * channels + k) * columns;
      for (int64_t c = 0; c < columns; c += 16) {
#pragma GCC unroll 16
        for (int64_t l = 0; l < 16; ++l) lanes[l] += static_cast<double>(from[c + l]);
      }
    }
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    y[k] = static_cast<float>(sum);
  }
}

// ---- Times ----

using Array = std::shared_ptr<float>;

Array array_of(int64_t count, float least = -1) {
  const size_t bytes = (static_cast<size_t>(count) * sizeof(float) + 63) / 64 * 64;
  auto* const data = static_cast<float*>(std::aligned_alloc(64, std::max<size_t>(bytes, 64)));
  if (!data) throw std::bad_alloc();
  for (int64_t i = 0; i < count; ++i) data[i] = least + 2 * static_cast<float>(i % 997) / 997;
  return {data, std::free};
}

using Work = std::function<void()>;

Work bound(const Kernel& kernel, const std::vector<Array>& reads, const Array& write) {
  std::vector<void*> in;
  for (const Array& a : reads) in.push_back(a.get());
  void* const out[] = {write.get()};
  const auto floats = static_cast<int64_t>(kernel.forward.scratch_bytes / sizeof(float));
  const Array scratch = array_of(floats);
  return [reads, write, scratch,
          run = kernel.forward.bind({.reads = in, .writes = out, .scratch = scratch.get()})] {
    run({});
  };
}

TensorSpec spec(const Shape& shape) { return {shape, DType::f32, nullptr}; }

double seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Size {
  const char* name;
  int64_t rows, columns, repeats;
};

// Each turn runs both ways `repeats` times.
void compare(const char* what, const Size& size, int turns, double bytes, const Work& loop,
             const Work& kernel) {
  std::vector<double> times[2];
  for (int turn = 0; turn <= turns; ++turn) {
    for (int way = 0; way < 2; ++way) {
      const double begin = seconds();
      for (int64_t i = 0; i < size.repeats; ++i) (way == 0 ? loop : kernel)();
      const double each = (seconds() - begin) / static_cast<double>(size.repeats);
      if (turn > 0) times[way].push_back(each);  // the first turn finds cold caches
    }
  }
  const double by_loop = median(times[0]), by_kernel = median(times[1]);
  std::printf("%-34s%-14s%6lld x %-6lld%9.1f GB/s %6.2f\n", what, size.name,
              static_cast<long long>(size.rows), static_cast<long long>(size.columns),
              bytes / by_loop * 1e-9, by_loop / by_kernel);
}

void run(int turns) {
  const ArithmeticMode mode;
  const auto& table = table_for({});
  using enum Opcode;
  for (const Size& size : {Size{"memory", 16384, 1024, 1}, Size{"second cache", 64, 1024, 40},
                           Size{"second cache", 256, 256, 40}, Size{"second cache", 2048, 32, 40},
                           Size{"first cache", 8, 256, 4000}}) {
    const int64_t rows = size.rows, columns = size.columns, count = rows * columns;
    const Array x = array_of(count), z = array_of(count, -0.7f), y = array_of(count),
                m = array_of(columns), g = array_of(columns), b = array_of(columns),
                sums = array_of(2 * columns), of_columns = array_of(columns),
                of_rows = array_of(rows);
    const TensorSpec whole = spec({rows, columns}), row = spec({columns});
    const auto bytes = static_cast<double>(count) * sizeof(float);
    compare(
        "x + z", size, turns, 3 * bytes, [=] { add_arrays(x.get(), z.get(), y.get(), count); },
        bound(table.expression({{whole, whole}, whole.shape, {{add, 0, 1}}}), {x, z}, y));
    compare(
        "max(0, (x - m) * g + b) + z", size, turns, 3 * bytes,
        [=] {
          affine_relu_add(x.get(), z.get(), m.get(), g.get(), b.get(), y.get(), rows, columns);
        },
        bound(table.expression({{whole, row, row, row, whole},
                                whole.shape,
                                {{subtract, 0, 1},
                                 {multiply_add, 5, 2, 3},
                                 {constant},
                                 {maximum, 6, 7},
                                 {add, 8, 4}}}),
              {x, m, g, b, z}, y));
    const ExpressionProblem squares{
        {whole, whole, row}, whole.shape, {{subtract, 0, 1}, {square, 3}, {multiply, 4, 2}}};
    compare(
        "sum of (x - z)^2 * w by rows", size, turns, 2 * bytes,
        [=] { weighted_squares(x.get(), z.get(), g.get(), of_rows.get(), rows, columns); },
        bound(table.reduce({whole, {1}, Reduction::sum, 1, squares}), {x, z, g}, of_rows));
    compare(
        "sum of (x - z)^2 * w by columns", size, turns, 2 * bytes,
        [=] {
          weighted_squares_of_columns(x.get(), z.get(), g.get(),
                                      reinterpret_cast<double*>(sums.get()), of_columns.get(), rows,
                                      columns);
        },
        bound(table.reduce({whole, {0}, Reduction::sum, 1, squares}), {x, z, g}, of_columns));
    compare(
        "sum of rows", size, turns, bytes, [=] { sum_rows(x.get(), of_rows.get(), rows, columns); },
        bound(table.reduce({whole, {1}}), {x}, of_rows));
    compare(
        "sum of columns", size, turns, bytes,
        [=] {
          sum_columns(x.get(), reinterpret_cast<double*>(sums.get()), of_columns.get(), rows,
                      columns);
        },
        bound(table.reduce({whole, {0}}), {x}, of_columns));
    constexpr int64_t channels = 8;
    compare(
        "sum of 8 channels of images", size, turns, bytes,
        [=] { sum_channels(x.get(), of_rows.get(), rows / channels, channels, columns); },
        bound(table.reduce({spec({rows / channels, channels, columns}), {0, 2}}), {x}, of_rows));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_with_turns(argc, argv, "expressions", 15, run);
}
