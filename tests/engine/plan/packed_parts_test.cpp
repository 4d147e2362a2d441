#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "lockstep/engine/kernels/cpu/matrices/panels.h"
#include "lockstep/engine/plan/packed_parameters.h"

namespace lockstep {
namespace {

// 37 vectors: two whole panels and one of 5.
Tensor numbers() {
  Tensor tensor(Shape{37, 50}, DType::f32);
  std::iota(tensor.data<float>(), tensor.data<float>() + 37 * 50, 1.0f);
  return tensor;
}

std::vector<std::byte> bytes_at(const void* from, size_t count) {
  std::vector<std::byte> bytes(count);
  std::memcpy(bytes.data(), from, count);
  return bytes;
}

TEST(PackedParts, PartsMakeTheWhole) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const Tensor tensor = numbers();
    PackedParameters packed({tensor});
    EXPECT_EQ(packed.part(0), 1) << "without copies";
    const TensorSpec spec = kernels::cpu::panels_spec(tensor.shape(), type);
    void* const copy = packed.address(0, spec);
    const int64_t part = packed.part(0);
    EXPECT_EQ(part, kernels::cpu::kPanel * 50);
    for (int64_t i = 0; i < 37 * 50; ++i) tensor.data<float>()[i] *= -2;
    packed.pack(0);
    const auto expected = bytes_at(copy, spec.bytes());
    std::memset(copy, 7, spec.bytes());
    packed.pack(0, {2 * part, 37 * 50 - 2 * part});
    EXPECT_NE(bytes_at(copy, spec.bytes()), expected);
    packed.pack(0, {0, part});
    packed.pack(0, {part, part});
    EXPECT_EQ(bytes_at(copy, spec.bytes()), expected);
  }
}

TEST(PackedParts, OtherLayoutsAreMadeAsAWhole) {
  const Tensor tensor = numbers();
  PackedParameters packed({tensor});
  packed.address(0, kernels::cpu::panels_spec(tensor.shape()));
  packed.address(0, {tensor.shape(), DType::bf16, nullptr});
  EXPECT_EQ(packed.part(0), 0);
}

// Digests of earlier elements must not hide that copies are out of date.
TEST(PackedParts, ARefreshAfterPartsMakesCopies) {
  const Tensor tensor = numbers();
  PackedParameters packed({tensor});
  const TensorSpec spec = kernels::cpu::panels_spec(tensor.shape());
  const void* const copy = packed.address(0, spec);
  packed.refresh(0);
  const auto first = bytes_at(copy, spec.bytes());
  const std::vector<float> kept = tensor.to_vector();
  for (int64_t i = 0; i < 37 * 50; ++i) tensor.data<float>()[i] += 1;
  packed.pack(0, {0, 37 * 50});
  EXPECT_NE(bytes_at(copy, spec.bytes()), first);
  std::copy(kept.begin(), kept.end(), tensor.data<float>());
  packed.refresh(0);
  EXPECT_EQ(bytes_at(copy, spec.bytes()), first);
}

}  // namespace
}  // namespace lockstep
