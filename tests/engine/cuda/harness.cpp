#include "tests/engine/cuda/harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lockstep/engine/kernels/self_test/reference.h"
#include "tests/engine/cuda/emulation.h"

namespace lockstep::kernels::cudatest {
namespace {

constexpr RandomContext kStep{.seed = 5, .iteration = 7, .first_row = 100};

void compare(const Kernel& cpu, const Kernel& cuda, double tolerance, const Given& given,
             DType numbers) {
  emulation::set_order(emulation::Order::backwards);
  const auto backwards = run(cuda, given, numbers);
  emulation::set_order(emulation::Order::forwards);
  const auto results = run(cuda, given, numbers);
  EXPECT_TRUE(backwards == results) << "the order of a block's threads changes the result";
  const auto expected = run(cpu, given, numbers);
  ASSERT_EQ(results.size(), expected.size());
  for (const auto& [key, bytes] : expected) {
    ASSERT_TRUE(results.contains(key));
    EXPECT_LE(difference(values_of(results.at(key)), values_of(bytes)), tolerance)
        << (key.first == Kind::output ? "output " : "gradient ") << key.second;
  }
}

}  // namespace

std::vector<float> narrowed(std::vector<float> values, DType type) {
  return values_of(selftest::widened(selftest::narrowed(bytes_of(values), type), type));
}

std::vector<float> normal(size_t count, uint64_t key) {
  const RandomStream stream({.seed = 11, .a = key});
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(stream.normal(i));
  return values;
}

Given with_special_values(const Shape& shape) {
  std::vector<float> x = normal(static_cast<size_t>(shape.elements()), 1);
  const float special[] = {0.0f, -0.0f, kNaN, INFINITY, -INFINITY, 0.75f};
  for (size_t i = 0; i < x.size() && i < std::size(special); ++i) x[i] = special[i];
  return {{{Kind::input, 0}, bytes_of(x)}};
}

std::map<Key, Bytes> run(const Kernel& kernel, const Given& given, DType numbers) {
  std::map<Key, Bytes> known = given, results;
  Bytes kept;  // the workspace
  const auto run_pass = [&](const Pass& pass) {
    std::vector<Bytes> reads, writes;
    std::vector<void*> in, out;
    for (const Operand& o : pass.reads) {
      if (o.kind == Kind::workspace) {
        reads.push_back(kept);
        continue;
      }
      const Key key{o.kind, o.index};
      if (!known.contains(key)) {
        const auto elements = static_cast<size_t>(o.spec.shape.elements());
        const auto which = static_cast<uint64_t>(o.kind) * 10 + static_cast<uint64_t>(o.index);
        known[key] = bytes_of(narrowed(normal(elements, which), numbers));
      }
      const Bytes plain = selftest::narrowed(known.at(key), o.spec.dtype);
      EXPECT_EQ(plain.size(), o.spec.plain().bytes());
      reads.emplace_back(o.spec.bytes());
      if (o.spec.layout) {
        o.spec.layout->from_row_major(plain.data(), reads.back().data());
      } else {
        reads.back() = plain;
      }
    }
    for (const Operand& o : pass.writes) writes.emplace_back(o.spec.bytes(), std::byte{0xFF});
    for (Bytes& b : reads) in.push_back(b.data());
    for (Bytes& b : writes) out.push_back(b.data());
    Bytes scratch(pass.scratch_bytes, std::byte{0xFF});
    pass.bind({.reads = in, .writes = out, .scratch = scratch.data(), .device_step = &kStep})(
        kStep);
    for (size_t i = 0; i < pass.writes.size(); ++i) {
      const Operand& o = pass.writes[i];
      if (o.kind == Kind::workspace) {
        kept = writes[i];
        continue;
      }
      Bytes plain = writes[i];
      if (o.spec.layout) {
        plain.resize(o.spec.plain().bytes());
        o.spec.layout->to_row_major(writes[i].data(), plain.data());
      }
      plain = selftest::widened(plain, o.spec.dtype);
      results[{o.kind, o.index}] = plain;
      known[{o.kind, o.index}] = plain;
    }
  };
  run_pass(kernel.forward);
  for (const Pass& pass : kernel.backward) run_pass(pass);
  return results;
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0, size = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return INFINITY;
    if (std::isnan(a[i]) || a[i] == b[i]) continue;
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    size = std::max(size, std::abs(static_cast<double>(b[i])));
  }
  return most / size;
}

void compare(const Kernel& cpu, const Kernel& cuda, double tolerance, const Given& given) {
  compare(cpu, cuda, tolerance, given, DType::f32);
}

void compare_narrow(const Kernel& cpu, const Kernel& cuda, DType numbers, double tolerance,
                    const Given& given) {
  compare(cpu, cuda, tolerance, given, numbers);
}

}  // namespace lockstep::kernels::cudatest
