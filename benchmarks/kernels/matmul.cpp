// The time of products of matrices: this project's beside oneDNN's, in microseconds of a processor.
// One thread. The ways run in turns. Reports the median of the turns, and the median of oneDNN's
// time divided by this project's of the same turn.
//
// usage: matmul [--turns N]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <tuple>
#include <vector>

#include "benchmarks/kernels/turns.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/cpu/onednn.h"
#include "lockstep/engine/kernels/matrices/matrix_product.h"

namespace {

using namespace lockstep;
using namespace lockstep::kernels;

using Work = std::function<void()>;
using Memory = std::unique_ptr<float, void (*)(void*)>;

Memory numbers(size_t bytes) {
  Memory memory(static_cast<float*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64)), std::free);
  if (!memory) throw std::bad_alloc();
  for (size_t i = 0; i < bytes / sizeof(float); ++i) {
    memory.get()[i] = static_cast<float>(i % 61) / 61 - 0.5f;
  }
  return memory;
}

// The pass with its own memory.
Work bound(const Pass& pass) {
  auto memory = std::make_shared<std::vector<Memory>>();
  std::vector<void*> reads, writes;
  for (const Operand& o : pass.reads)
    reads.push_back(memory->emplace_back(numbers(o.spec.bytes())).get());
  for (const Operand& o : pass.writes)
    writes.push_back(memory->emplace_back(numbers(o.spec.bytes())).get());
  void* const scratch = memory->emplace_back(numbers(pass.scratch_bytes)).get();
  return [memory, run = pass.bind({reads, writes, scratch})] { run({}); };
}

struct Sizes {
  int64_t products, rows, terms, columns;
  bool transpose_a = false, transpose_b = false;
};

Work own(const Sizes& s) {
  const auto spec = [&](int64_t rows, int64_t columns, bool transposed) {
    if (transposed) std::swap(rows, columns);
    const Shape shape = s.products == 1 ? Shape{rows, columns} : Shape{s.products, rows, columns};
    return TensorSpec{shape, DType::f32, nullptr};
  };
  return bound(
      table_for({})
          .matrix_product({spec(s.rows, s.terms, s.transpose_a),
                           spec(s.terms, s.columns, s.transpose_b), s.transpose_a, s.transpose_b})
          .forward);
}

Work by_onednn(const Sizes& s) {
  using namespace lockstep::kernels::cpu;
  const SingleThread one;
  const auto desc = [&](int64_t rows, int64_t columns, bool transposed) {
    using Desc = dnnl::memory::desc;
    using Tag = dnnl::memory::format_tag;
    if (s.products == 1) {
      return Desc({rows, columns}, data_type(DType::f32), transposed ? Tag::ba : Tag::ab);
    }
    return Desc({s.products, rows, columns}, data_type(DType::f32),
                transposed ? Tag::acb : Tag::abc);
  };
  const auto a = desc(s.rows, s.terms, s.transpose_a), b = desc(s.terms, s.columns, s.transpose_b),
             dst = desc(s.rows, s.columns, false);
  const auto product = describe<dnnl::matmul>(a, b, dst);
  const auto flat = [](int64_t count) { return TensorSpec{Shape{count}, DType::f32, nullptr}; };
  return bound(
      primitive_pass(dnnl::matmul(product), scratch_of(product),
                     {{DNNL_ARG_SRC, input(0, flat(s.products * s.rows * s.terms)), a},
                      {DNNL_ARG_WEIGHTS, input(1, flat(s.products * s.terms * s.columns)), b}},
                     {{DNNL_ARG_DST, output(0, flat(s.products * s.rows * s.columns)), dst}}));
}

// Of the thread's processor, because other programs on the machine change that less.
double seconds_of(const Work& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  work();
  return now() - begin;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run(int turns) {
  const ArithmeticMode mode;
  std::vector<Sizes> all;
  for (const int64_t n : {64, 100, 128, 200, 256, 512, 1000, 1024}) {
    for (const bool a : {false, true}) {
      for (const bool b : {false, true}) all.push_back({1, n, n, n, a, b});
    }
  }
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) all.push_back({32, 64, 64, 64, a, b});
  }
  for (const bool transposed : {false, true}) {
    all.push_back({1, 1024, 1024, 1, transposed, false});
    all.push_back({1, 1, 1024, 1024, false, transposed});
    all.push_back({1, 4, 1024, 1024, false, transposed});
  }
  all.push_back({1, 1024, 1, 1024});
  all.push_back({64, 16, 32, 16});
  all.push_back({1000, 3, 3, 3});
  // Convolutions with windows of one pixel: results, gradients of images, of weights.
  for (const auto& [channels, filters, pixels] :
       {std::tuple{96, 384, 4096}, {384, 96, 4096}, {384, 1536, 256}, {64, 256, 8192}}) {
    all.push_back({1, filters, channels, pixels});
    all.push_back({1, channels, filters, pixels, true, false});
    all.push_back({1, filters, pixels, channels, false, true});
  }
  std::printf("%-36s%10s %10s %7s\n", "products rows terms columns", "own", "oneDNN", "ratio");
  for (const Sizes& s : all) {
    const Work ours = own(s), theirs = by_onednn(s);
    std::vector<double> own_times, other_times, ratios;
    for (int turn = 0; turn <= turns; ++turn) {
      // Small products are repeated, so that a turn is longer than the clock's steps.
      const double operations =
          2.0 * static_cast<double>(s.products * s.rows * s.terms * s.columns);
      const int repetitions = static_cast<int>(std::max(1.0, 2e6 / operations));
      const auto timed = [&](const Work& work) {
        return seconds_of([&] {
                 for (int i = 0; i < repetitions; ++i) work();
               }) /
               repetitions;
      };
      const double a = timed(ours), b = timed(theirs);
      if (turn == 0) continue;  // the first turn finds cold caches
      own_times.push_back(a);
      other_times.push_back(b);
      ratios.push_back(b / a);
    }
    const std::string name = std::to_string(s.products) + " x " + std::to_string(s.rows) + " x " +
                             std::to_string(s.terms) + " x " + std::to_string(s.columns) +
                             (s.transpose_a ? " a^T" : "") + (s.transpose_b ? " b^T" : "");
    std::printf("%-36s%10.1f %10.1f %7.2f\n", name.c_str(), 1e6 * median(own_times),
                1e6 * median(other_times), median(ratios));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_with_turns(argc, argv, "matmul", 25, run);
}
