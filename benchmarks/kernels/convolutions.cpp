// The speed of convolutions for several numbers of channels and window sizes. Shards of 32
// observations, whose images the kernels process in vector lanes where that pays, are compared with
// shards of 31, which always run in oneDNN. Operations are counted for the direct algorithm, so
// Winograd's can exceed the processor's peak. One thread. The passes run in turns, so that each
// finds little of its data in the caches. Reports the median of the turns.
//
// usage: convolutions [--turns N]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "benchmarks/kernels/turns.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/windows/convolution.h"

namespace {

using namespace lockstep;

// Memory of one pass, aligned as in plans and filled with numbers that are neither 0 nor denormal.
class Memory {
 public:
  explicit Memory(size_t bytes)
      : data_(std::aligned_alloc(64, (std::max<size_t>(bytes, 1) + 63) / 64 * 64), std::free) {
    if (!data_) throw std::bad_alloc();
    auto* const values = static_cast<float*>(data_.get());
    for (size_t i = 0; i < bytes / sizeof(float); ++i) {
      values[i] = static_cast<float>(static_cast<double>(i % 61) / 61 - 0.5);
    }
  }
  void* data() const { return data_.get(); }

 private:
  std::unique_ptr<void, void (*)(void*)> data_;
};

// A pass with its own memory.
class Bound {
 public:
  explicit Bound(const kernels::Pass& pass) : scratch_(pass.scratch_bytes) {
    std::vector<void*> reads, writes;
    const auto provide = [&](const std::vector<kernels::Operand>& operands,
                             std::vector<void*>& addresses) {
      for (const kernels::Operand& operand : operands) {
        memory_.emplace_back(operand.spec.bytes());
        addresses.push_back(memory_.back().data());
      }
    };
    provide(pass.reads, reads);
    provide(pass.writes, writes);
    run_ = pass.bind({reads, writes, scratch_.data()});
  }
  double seconds() const {
    const auto begin = std::chrono::steady_clock::now();
    run_({});
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  std::vector<Memory> memory_;
  Memory scratch_;
  kernels::BoundPass run_;
};

struct Convolution {
  int64_t channels, filters, side, kernel = 3, stride = 1, groups = 1;
  int64_t results() const { return (side + stride - 1) / stride; }
  double operations(int64_t n) const {
    return 2.0 * static_cast<double>(kernel * kernel * n * channels / groups * filters * results() *
                                     results());
  }
  kernels::Kernel compiled(int64_t n) const {
    const int64_t before = kernel / 2, behind = (results() - 1) * stride + kernel - side - before;
    kernels::ConvolutionProblem problem;
    problem.src = {Shape{n, channels, side, side}, DType::f32, nullptr};
    problem.weights = Shape{filters, channels / groups, kernel, kernel};
    problem.groups = groups;
    problem.dst = Shape{n, filters, results(), results()};
    problem.window = {.kernel = {kernel, kernel},
                      .stride = {stride, stride},
                      .dilation = {1, 1},
                      .pad_begin = {before, before},
                      .pad_end = {std::max<int64_t>(behind, 0), std::max<int64_t>(behind, 0)}};
    problem.bias = false;
    return kernels::table_for({}).convolution(problem);
  }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run(int turns) {
  const ArithmeticMode mode;
  constexpr int64_t kInLanes = 32, kInBlocks = 31;
  const std::vector<Convolution> all{{3, 16, 32},
                                     {11, 11, 32},
                                     {16, 16, 32},
                                     {22, 22, 16},
                                     {32, 32, 16},
                                     {33, 33, 8},
                                     {44, 44, 8},
                                     {64, 64, 8},
                                     {64, 64, 4},
                                     {128, 128, 8},
                                     // Other windows and strides.
                                     {1, 20, 28, 5},
                                     {6, 16, 14, 5},
                                     {20, 20, 16, 5},
                                     {3, 64, 64, 7, 2},
                                     {16, 32, 32, 3, 2},
                                     {32, 64, 16, 3, 2},
                                     {64, 128, 8, 3, 2},
                                     {16, 32, 32, 1, 2},
                                     {33, 17, 16, 1},
                                     {64, 64, 16, 1},
                                     {64, 256, 16, 1},
                                     {256, 64, 16, 1},
                                     {128, 256, 8, 1, 2},
                                     // Groups, and depthwise convolutions ("dw").
                                     {64, 64, 32, 3, 1, 64},
                                     {128, 128, 16, 3, 1, 128},
                                     {128, 128, 16, 3, 2, 128},
                                     {256, 256, 8, 3, 1, 256},
                                     {128, 128, 16, 3, 1, 32},
                                     {64, 64, 16, 3, 1, 4}};
  std::printf("GFLOP/s of a thread%20s32 observations%11s31 observations%18sratio\n", "", "", "");
  std::printf("%-27s", "channels   image  window");
  for (int k = 0; k < 3; ++k) std::printf("  %7s %7s %7s", "forward", "data", "weights");
  std::printf("\n");
  for (const Convolution& c : all) {
    const kernels::Kernel lanes = c.compiled(kInLanes), blocks = c.compiled(kInBlocks);
    std::vector<Bound> passes;
    for (const kernels::Kernel* kernel : {&lanes, &blocks}) {
      passes.emplace_back(kernel->forward);
      for (const kernels::Pass& pass : kernel->backward) passes.emplace_back(pass);
    }
    std::vector<std::vector<double>> seconds(passes.size());
    for (int turn = 0; turn <= turns; ++turn) {
      for (size_t i = 0; i < passes.size(); ++i) {
        const double s = passes[i].seconds();
        if (turn > 0) seconds[i].push_back(s);  // the first turn finds cold caches
      }
    }
    const std::string name = std::to_string(c.channels) + " to " + std::to_string(c.filters);
    const std::string size = std::to_string(c.kernel), step = std::to_string(c.stride),
                      groups = " g" + std::to_string(c.groups),
                      window = size + "x" + size + (c.stride > 1 ? "/" + step : "") +
                               (c.groups == c.channels && c.groups > 1 ? " dw"
                                : c.groups > 1                         ? groups
                                                                       : "");
    std::printf("%-11s%2lldx%-3lld %-9s", name.c_str(), static_cast<long long>(c.side),
                static_cast<long long>(c.side), window.c_str());
    std::vector<double> rates;
    for (size_t i = 0; i < passes.size(); ++i) {
      const int64_t n = i < passes.size() / 2 ? kInLanes : kInBlocks;
      rates.push_back(c.operations(n) / median(seconds[i]) * 1e-9);
    }
    for (size_t i = 0; i < 6; ++i) {
      std::printf("%s%8.0f", i % 3 == 0 ? " " : "", rates[i]);
    }
    for (size_t i = 0; i < 3; ++i) {
      std::printf("%s%8.2f", i == 0 ? " " : "", rates[i] / rates[i + 3]);
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_with_turns(argc, argv, "convolutions", 25, run);
}
