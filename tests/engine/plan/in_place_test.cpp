// Results that overwrite operands: the plans that do so, and kernels that give the same bits.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "lockstep/base/numeric/bfloat16.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"
#include "lockstep/engine/kernels/elementwise/activation.h"
#include "lockstep/engine/kernels/elementwise/addition.h"
#include "lockstep/engine/kernels/elementwise/clipped_relu.h"
#include "lockstep/engine/kernels/elementwise/relu.h"
#include "lockstep/engine/kernels/normalization/batch_normalization.h"
#include "lockstep/engine/plan/compile.h"

namespace lockstep {
namespace {

using kernels::Kernel;
using kernels::Operand;
using kernels::Pass;

// The contents of operands, by kind and index.
using Contents = std::map<std::pair<Operand::Kind, int>, std::vector<std::byte>>;

std::vector<std::byte> between_half_and_one_and_a_half(const TensorSpec& spec, uint64_t salt) {
  std::vector<std::byte> bytes(spec.bytes());
  const RandomStream stream({.seed = 5, .use = RandomUse::noise, .a = salt, .b = 0, .c = 0});
  for (size_t i = 0; i < bytes.size() / size_of(spec.dtype); ++i) {
    const float value = 0.5f + static_cast<float>(stream.block(i)[0]) * 0x1p-32f;
    if (spec.dtype == DType::f32) {
      std::memcpy(&bytes[4 * i], &value, 4);
    } else {
      const BFloat16 rounded = to_bfloat16(value);
      std::memcpy(&bytes[2 * i], &rounded, 2);
    }
  }
  return bytes;
}

// Runs a pass whose first result overwrites operand `over` (-1: none). Returns the results.
Contents run(const Pass& pass, Contents contents, int over) {
  std::vector<void*> reads, writes;
  Contents results;
  for (const Operand& o : pass.reads) reads.push_back(contents.at({o.kind, o.index}).data());
  for (const Operand& o : pass.writes) {
    auto& result = results[{o.kind, o.index}];
    result.resize(o.spec.bytes());
    const bool in_place = over >= 0 && writes.empty();
    writes.push_back(in_place ? reads[static_cast<size_t>(over)] : result.data());
  }
  std::vector<std::byte> scratch(pass.scratch_bytes + 64);
  pass.bind({reads, writes, scratch.data()})({});
  const Operand& first = pass.writes.front();
  auto& result = results[{first.kind, first.index}];
  std::memcpy(result.data(), writes.front(), result.size());
  return results;
}

// Tests all overwrites that the kernel's passes offer. Returns their number.
int check(const Kernel& kernel) {
  Contents contents;
  int ways = 0;
  const auto check_pass = [&](const Pass& pass) {
    for (const Operand& o : pass.reads) {
      auto& held = contents[{o.kind, o.index}];
      if (held.empty()) held = between_half_and_one_and_a_half(o.spec, contents.size());
    }
    const Contents apart = run(pass, contents, -1);
    for (const int operand : pass.in_place) {
      const auto& from = pass.reads[static_cast<size_t>(operand)];
      if (from.spec.bytes() != pass.writes.front().spec.bytes()) continue;
      EXPECT_TRUE(run(pass, contents, operand) == apart) << "over operand " << operand;
      ++ways;
    }
    for (const auto& [key, bytes] : apart) contents[key] = bytes;
  };
  check_pass(kernel.forward);
  for (const Pass& pass : kernel.backward) check_pass(pass);
  return ways;
}

TEST(InPlace, KernelsGiveTheSameBits) {
  const kernels::Table& table = kernels::table_for({});
  std::vector<DType> types{DType::f32};
  if (table.bf16) types.push_back(DType::bf16);
  for (const DType type : types) {
    const TensorSpec spec{{16, 5, 7, 6}, type, nullptr};
    EXPECT_EQ(check(table.relu({spec})), 3);
    EXPECT_EQ(check(table.addition({{spec, spec}})), 2);
    EXPECT_EQ(check(table.addition({{spec, spec, spec}})), 2);
    EXPECT_EQ(check(table.addition({{spec}})), 0);
    const Pass sum = table.accumulate(spec);
    EXPECT_EQ(check({sum, {}}), 2);
    const TensorSpec lanes = kernels::cpu::lanes_spec(spec.shape, type);
    for (const bool relu : {false, true}) {
      EXPECT_EQ(check(table.batch_normalization({.src = lanes, .relu = relu})), 2);
      EXPECT_EQ(check(table.batch_normalization({.src = lanes, .relu = relu, .training = false})),
                3);
      const Size2d window{2, 3};  // larger than a row
      EXPECT_EQ(check(table.batch_normalization({.src = lanes, .relu = relu, .max_pool = window})),
                1);
    }
  }
  const TensorSpec spec{{3, 5, 7, 6}, DType::f32, nullptr};
  EXPECT_EQ(check(table.clipped_relu({spec, 1.0})), 3);
  EXPECT_EQ(check(table.activation({spec, kernels::ActivationKind::tanh})), 3);
}

struct Chain {
  PlanBuffers buffers;
  std::vector<PlanStep> steps;

  int add(PlanBuffer::Storage storage = PlanBuffer::Storage::arena, int64_t elements = 8) {
    PlanBuffer b;
    b.storage = storage;
    b.spec = {Shape{elements}, DType::f32, nullptr};
    buffers.push_back(b);
    return static_cast<int>(buffers.size()) - 1;
  }
  void step(const std::vector<int>& reads, int write, const std::vector<int>& in_place) {
    PlanStep s;
    s.reads = reads;
    s.writes = {write};
    s.pass.in_place = in_place;
    const auto at = static_cast<int>(steps.size());
    for (int b : reads) touch(b, at);
    touch(write, at);
    steps.push_back(s);
  }
  void touch(int b, int at) {
    auto& buffer = buffers[static_cast<size_t>(b)];
    buffer.first = std::min(buffer.first, at);
    buffer.last = std::max(buffer.last, at);
  }
  std::vector<int> over() {
    write_in_place(buffers, steps);
    place_buffers(buffers);
    std::vector<int> result;
    for (const auto& b : buffers) result.push_back(b.over);
    return result;
  }
};

TEST(InPlace, ChainsShareOnePlace) {
  Chain chain;
  for (int i = 0; i < 4; ++i) chain.add();
  chain.touch(0, -1);
  for (int i = 0; i < 3; ++i) chain.step({i}, i + 1, {0});
  EXPECT_EQ(chain.over(), (std::vector<int>{-1, 0, 0, 0}));
  EXPECT_EQ(chain.buffers[0].last, 2) << "for as long as the last of them";
  EXPECT_EQ(chain.buffers[3].offset, chain.buffers[0].offset);
}

TEST(InPlace, OnlyOverValuesWithoutLaterReads) {
  Chain chain;
  for (int i = 0; i < 4; ++i) chain.add();
  chain.touch(0, -1);
  chain.step({0}, 1, {0});     // 0 is read again
  chain.step({0, 1}, 2, {0});  // the last read
  chain.step({2, 2}, 3, {0});  // twice
  EXPECT_EQ(chain.over(), (std::vector<int>{-1, -1, 0, -1}));
}

TEST(InPlace, OnlyInTheArenaAndOfOneSizeAndTheFirstThatWillDo) {
  Chain chain;
  const int parameter = chain.add(PlanBuffer::Storage::parameter), large = chain.add({}, 16);
  const int a = chain.add(), result = chain.add(),
            gradient = chain.add(PlanBuffer::Storage::gradient);
  for (const int b : {large, a}) chain.touch(b, -1);
  chain.step({parameter, large, a}, result, {0, 1, 2});
  chain.step({result}, gradient, {0});
  EXPECT_EQ(chain.over(), (std::vector<int>{-1, -1, -1, a, -1}));
}

}  // namespace
}  // namespace lockstep
