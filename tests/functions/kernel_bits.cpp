// A digest of the bits that each of some kernels gives for fixed problems, for comparisons of
// processors. It needs the kernels' sources alone, so that it can be compiled for any of them.
//
// usage: kernel_bits
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/engine/kernels/cpu/cpu.h"
#include "lockstep/engine/kernels/elementwise/expression.h"
#include "lockstep/engine/kernels/matrices/matrix_product.h"
#include "lockstep/engine/kernels/recurrent/recurrent.h"
#include "lockstep/engine/kernels/reductions/cumulative_sum.h"
#include "lockstep/engine/kernels/reductions/products_of_others.h"
#include "lockstep/engine/kernels/reductions/reduce.h"
#include "lockstep/engine/kernels/shapes/arange.h"
#include "lockstep/engine/kernels/shapes/scatter_add.h"
#include "lockstep/engine/kernels/shapes/take.h"

namespace {

using namespace lockstep;
using namespace lockstep::kernels;

uint64_t state = 1;
uint32_t bits() {
  return static_cast<uint32_t>((state = state * 6364136223846793005 + 1442695040888963407) >> 32);
}

struct Digest {
  uint64_t value = 14695981039346656037u;
  void add(const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      value = (value ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211u;
    }
  }
};

// Runs a pass on random numbers; indices are from 0 to before `below`.
void run(Digest& digest, const Pass& pass, uint32_t below) {
  std::vector<std::vector<float>> memory;
  std::vector<void*> reads, writes;
  for (const Operand& read : pass.reads) {
    std::vector<float>& x = memory.emplace_back(read.spec.bytes() / sizeof(float) + 16);
    for (float& v : x) {
      if (read.spec.dtype == DType::i32) {
        const auto index = static_cast<int32_t>(bits() % below);
        v = __builtin_bit_cast(float, index);
      } else {
        v = static_cast<float>(static_cast<int32_t>(bits())) * 0x1p-31f;
      }
    }
    reads.push_back(x.data());
  }
  for (const Operand& write : pass.writes) {
    writes.push_back(memory.emplace_back(write.spec.bytes() / sizeof(float) + 16).data());
  }
  std::vector<double> scratch(pass.scratch_bytes / sizeof(double) + 16);
  pass.bind({.reads = reads, .writes = writes, .scratch = scratch.data()})({});
  for (size_t i = 0; i < writes.size(); ++i) {
    auto* const y = static_cast<uint32_t*>(writes[i]);
    const size_t count = pass.writes[i].spec.bytes() / sizeof(uint32_t);
    for (size_t k = 0; k < count; ++k) {
      if ((y[k] & 0x7fffffff) > 0x7f800000) y[k] = 0x7fc00000;  // which NaN is not promised
    }
    digest.add(y, count * sizeof(uint32_t));
  }
}

void run(Digest& digest, const Kernel& kernel, uint32_t below = 1) {
  run(digest, kernel.forward, below);
}

TensorSpec plain(const Shape& shape, DType dtype = DType::f32) { return {shape, dtype, nullptr}; }

void expressions(Digest& d) {
  for (int i = 0; i < kOpcodes; ++i) {
    const auto opcode = static_cast<Opcode>(i);
    const Shape shape{7, 1013};
    const std::vector<TensorSpec> src(static_cast<size_t>(arity_of(opcode)), plain(shape));
    run(d, cpu::expression({src, shape, {{opcode, 0, 1, 2, 0.75f}}}));
  }
  using enum Opcode;
  const std::vector<Instruction> program{{subtract, 0, 1}, {multiply, 4, 2},        {constant},
                                         {maximum, 5, 6},  {multiply_add, 7, 3, 0}, {tanh, 8}};
  for (const Shape& s : {Shape{2, 3, 5, 7}, Shape{3, 33, 9, 4}, Shape{64, 16, 32, 32}}) {
    run(d,
        cpu::expression(
            {{plain(s), plain({s[1], 1, 1}), plain({s[3]}), plain({s[0], 1, 1, 1})}, s, program}));
  }
}

void reductions(Digest& d) {
  const std::pair<Shape, std::vector<int>> rows[] = {
      {{1}, {0}},       {{300, 3}, {0}}, {{5, 300}, {1}},    {{3, 33, 9, 4}, {0, 2, 3}},
      {{2, 9001}, {1}}, {{300001}, {0}}, {{16, 32, 32}, {1}}};
  for (const auto& [shape, axes] : rows) {
    for (const Reduction kind : {Reduction::sum, Reduction::product, Reduction::maximum}) {
      run(d, cpu::reduce({plain(shape), axes, kind, 0.1}));
    }
    const std::vector<Instruction> program{{Opcode::exp, 0}, {Opcode::subtract, 1, 0}};
    run(d,
        cpu::reduce({plain(shape), axes, Reduction::sum, 0.1, {{plain(shape)}, shape, program}}));
    run(d, cpu::cumulative_sum({plain(shape), shape.rank() - 1, true}));
    run(d, cpu::products_of_others({plain(shape)}));
  }
  run(d, cpu::arange({10007, 5004, -0.1, 0.3, 0.4 / 10006}));
}

void indexing(Digest& d) {
  const Shape table{500, 65};
  run(d, cpu::take({plain(table), plain({2048}, DType::i32), 0}), 500);
  run(d, cpu::take({plain(table), plain({500, 9}, DType::i32), 1, true}), 65);
  run(d, cpu::scatter_add({table, plain({2048, 65}), plain({2048}, DType::i32), 0}), 500);
  run(d, cpu::scatter_add({table, plain({500, 99}), plain({500, 99}, DType::i32), 1, true}), 65);
}

void products(Digest& d) {
  for (const auto& [m, k, n] : {std::tuple{1, 7, 1},
                                {3, 5, 300},
                                {65, 100, 33},
                                {128, 513, 96},
                                {17, 1, 16},
                                {200, 64, 200}}) {
    for (const bool turned_a : {false, true}) {
      for (const bool turned_b : {false, true}) {
        run(d,
            cpu::matrix_product({plain(turned_a ? Shape{2, k, m} : Shape{2, m, k}),
                                 plain(turned_b ? Shape{n, k} : Shape{k, n}), turned_a, turned_b}));
      }
    }
  }
}

void recurrence(Digest& d) {
  const std::tuple<int64_t, int64_t, int64_t, int64_t> sizes[] = {
      {1, 1, 1, 1}, {9, 7, 12, 100}, {40, 11, 33, 20}};
  for (const auto& [rows, steps, channels, hidden] : sizes) {
    for (const auto cell : {RecurrentCell::lstm, RecurrentCell::gru, RecurrentCell::rnn}) {
      for (const bool option : {false, true}) {
        const Kernel kernel = cpu::recurrent({.x = plain({rows, steps, channels}),
                                              .hidden = hidden,
                                              .cell = cell,
                                              .reverse = option,
                                              .reset_after = option,
                                              .relu = option});
        const auto below = static_cast<uint32_t>(steps + 1);
        run(d, kernel.forward, below);
        run(d, kernel.backward[0], below);
      }
    }
  }
}

}  // namespace

int main() {
  const std::pair<const char*, void (*)(Digest&)> all[] = {{"expressions", expressions},
                                                           {"reductions", reductions},
                                                           {"indexing", indexing},
                                                           {"products", products},
                                                           {"recurrence", recurrence}};
  for (const auto& [name, add] : all) {
    state = 1;
    Digest digest;
    add(digest);
    std::printf("%s %016llx\n", name, static_cast<unsigned long long>(digest.value));
  }
}
