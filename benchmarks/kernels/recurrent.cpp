// The time of recurrent layers on sequences of different lengths, in microseconds of a processor:
// the forward pass, and the backward pass to inputs, weights and states. One thread. The rate is
// that of the products alone, in Gflop/s. benchmarks/peers/recurrent.py runs it beside PyTorch.
//
// usage: recurrent [--turns N]
#include "lockstep/engine/kernels/recurrent/recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/kernels/turns.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/kernels/backends/table.h"

namespace {

using namespace lockstep;
using namespace lockstep::kernels;

// Lengths go evenly from the shortest to the longest.
struct Layer {
  RecurrentCell cell;
  const char* name;
  int64_t rows, shortest, longest, channels, hidden;

  int64_t length(int64_t row) const {
    return rows == 1 ? longest : shortest + row * (longest - shortest) / (rows - 1);
  }
  int64_t valid() const {
    int64_t all = 0;
    for (int64_t i = 0; i < rows; ++i) all += length(i);
    return all;
  }
};

// A kernel with memory for its operands. Numbers are of the size of a new network's.
class Bound {
 public:
  explicit Bound(const Layer& layer)
      : layer_(layer),
        kernel_(table_for({}).recurrent(
            {.x = {Shape{layer.rows, layer.longest, layer.channels}, DType::f32, nullptr},
             .hidden = layer.hidden,
             .cell = layer.cell})),
        scratch_(std::max(kernel_.forward.scratch_bytes, kernel_.backward[0].scratch_bytes) /
                     sizeof(float) +
                 32) {
    forward_ = bind(kernel_.forward);
    backward_ = bind(kernel_.backward[0]);
  }

  void forward() const { forward_({}); }
  void backward() const { backward_({}); }

 private:
  void* operand(const Operand& o) {
    const auto [at, made] = memory_.try_emplace({o.kind, o.index});
    std::vector<float>& values = at->second;
    if (!made) return values.data();
    values.resize(o.spec.bytes() / sizeof(float) + 1);
    const auto size = static_cast<float>(1 / std::sqrt(static_cast<double>(layer_.hidden)));
    for (float& v : values) {
      state_ = state_ * 6364136223846793005 + 1442695040888963407;
      v = size * static_cast<float>(static_cast<int32_t>(state_ >> 32)) * 0x1p-31f;
    }
    if (o.spec.dtype == DType::i32) {
      for (int64_t i = 0; i < layer_.rows; ++i) {
        values[static_cast<size_t>(i)] =
            __builtin_bit_cast(float, static_cast<int32_t>(layer_.length(i)));
      }
    }
    return values.data();
  }
  BoundPass bind(const Pass& pass) {
    std::vector<void*> reads, writes;
    for (const Operand& o : pass.reads) reads.push_back(operand(o));
    for (const Operand& o : pass.writes) writes.push_back(operand(o));
    return pass.bind({.reads = reads, .writes = writes, .scratch = scratch_.data()});
  }

  const Layer& layer_;
  Kernel kernel_;
  std::vector<float> scratch_;
  std::map<std::pair<Operand::Kind, int>, std::vector<float>> memory_;
  uint64_t state_ = 1;
  BoundPass forward_, backward_;
};

// Of the thread's processor, because other programs on the machine change that less.
double seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run(int turns) {
  using enum RecurrentCell;
  const ArithmeticMode mode;
  const Layer layers[] = {{lstm, "LSTM", 14, 7, 29, 12, 100},   {lstm, "LSTM", 27, 7, 29, 12, 100},
                          {gru, "GRU", 27, 7, 29, 12, 100},     {rnn, "RNN", 27, 7, 29, 12, 100},
                          {lstm, "LSTM", 1, 50, 50, 12, 100},   {lstm, "LSTM", 128, 5, 5, 256, 256},
                          {lstm, "LSTM", 128, 5, 50, 256, 256}, {gru, "GRU", 128, 5, 50, 256, 256},
                          {lstm, "LSTM", 16, 50, 500, 256, 256}};
  std::printf("%-6s%5s %9s %9s %7s %9s %7s %10s %7s\n", "layer", "rows", "lengths", "channels",
              "hidden", "forward", "Gflop/s", "backward", "Gflop/s");
  for (const Layer& layer : layers) {
    const Bound bound(layer);
    std::vector<double> forward, backward;
    for (int turn = 0; turn <= turns; ++turn) {
      const double begin = seconds();
      bound.forward();
      const double middle = seconds();
      bound.backward();
      if (turn == 0) continue;  // finds cold caches
      forward.push_back(middle - begin);
      backward.push_back(seconds() - middle);
    }
    const double f = median(forward), b = median(backward);
    const double flops = 2e-9 * static_cast<double>(layer.valid() * gates_of(layer.cell) *
                                                    layer.hidden * (layer.channels + layer.hidden));
    std::printf("%-6s%5ld %9s %9ld %7ld %9.1f %7.1f %10.1f %7.1f\n", layer.name, layer.rows,
                (std::to_string(layer.shortest) + "-" + std::to_string(layer.longest)).c_str(),
                layer.channels, layer.hidden, 1e6 * f, flops / f, 1e6 * b, 2 * flops / b);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_with_turns(argc, argv, "recurrent", 15, run);
}
