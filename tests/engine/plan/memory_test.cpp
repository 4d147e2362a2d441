#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/engine/plan/compile.h"
#include "tests/engine/ops/harness.h"

namespace lockstep {
namespace {

TEST(PlaceBuffers, BuffersThatLiveTogetherNeverShareMemory) {
  std::mt19937 random(1);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 200; ++round) {
    const int steps = 1 + below(60), count = 1 + below(80);
    PlanBuffers buffers(static_cast<size_t>(count));
    size_t sum = 0;
    for (auto& b : buffers) {
      b.spec = {Shape{1 + below(5000)}, below(2) ? DType::f32 : DType::u8, nullptr};
      const int kind = below(12);
      b.first = below(steps);
      b.last = std::min(steps - 1, b.first + below(8));
      if (kind == 0) b.first = -1;                                  // inputs
      if (kind == 1) b.last = std::numeric_limits<int>::max() - 1;  // outputs
      if (kind == 2) b.storage = PlanBuffer::Storage::parameter;
      if (kind == 3) {  // not used
        b.first = std::numeric_limits<int>::max();
        b.last = std::numeric_limits<int>::min();
      }
      if (kind != 2 && kind != 3) sum += (b.spec.bytes() + 63) / 64 * 64 + 64;
    }
    const size_t total = place_buffers(buffers);
    EXPECT_LE(total, sum);
    for (size_t i = 0; i < buffers.size(); ++i) {
      const auto& a = buffers[i];
      if (a.storage != PlanBuffer::Storage::arena || a.first > a.last) continue;
      EXPECT_EQ(a.offset % 64, 0u);
      EXPECT_LE(a.offset + a.spec.bytes(), total);
      for (size_t j = 0; j < i; ++j) {
        const auto& b = buffers[j];
        if (b.storage != PlanBuffer::Storage::arena || b.first > b.last) continue;
        if (a.last < b.first || b.last < a.first) continue;
        const bool apart =
            a.offset + a.spec.bytes() <= b.offset || b.offset + b.spec.bytes() <= a.offset;
        EXPECT_TRUE(apart) << "round " << round << ", buffers " << j << " and " << i;
      }
    }
  }
}

TEST(PlaceBuffers, MemoryIsUsedAgain) {
  // A chain: each buffer lives for two steps, so at most two exist at a time.
  PlanBuffers buffers(100);
  for (int i = 0; i < 100; ++i) {
    auto& b = buffers[static_cast<size_t>(i)];
    b.spec = {Shape{1024}, DType::f32, nullptr};
    b.first = i;
    b.last = i + 1;
  }
  EXPECT_EQ(place_buffers(buffers), 2u * (4096 + 64));
}

TEST(PackedParameters, RowMajorIsTheParameterItselfAndOtherLayoutsAreCopies) {
  const auto values = optest::random_array({4, 16, 6, 5}, 1);
  const Tensor tensor = optest::tensor_of(values);
  const TensorSpec blocked = optest::image_layout({}, tensor.shape());
  ASSERT_FALSE(blocked.row_major());
  PackedParameters packed({optest::tensor_of(optest::random_array({3}, 2)), tensor});
  EXPECT_EQ(packed.count(), 2);
  EXPECT_EQ(packed.address(1, tensor.spec()), tensor.raw());
  void* const copy = packed.address(1, blocked);
  EXPECT_NE(copy, tensor.raw());
  EXPECT_EQ(packed.address(1, blocked), copy) << "one copy for each layout";
  const auto elements = [&] {
    return Tensor::view(copy, blocked, nullptr).to_row_major().to_vector();
  };
  EXPECT_EQ(elements(), tensor.to_vector());
  for (int i = 0; i < 100; ++i) tensor.data<float>()[7 * i] = static_cast<float>(i);
  EXPECT_NE(elements(), tensor.to_vector()) << "copies follow when they are told to";
  packed.pack(0);
  EXPECT_NE(elements(), tensor.to_vector());
  packed.pack(1);
  EXPECT_EQ(elements(), tensor.to_vector());
  tensor.data<float>()[3] = 77;
  packed.pack_all();
  EXPECT_EQ(elements(), tensor.to_vector());
}

TEST(PackedParameters, TheSameElementsMayBeSeenAsAnotherShape) {
  const Tensor tensor = optest::tensor_of(optest::random_array({8, 16 * 3 * 3}, 1));
  const TensorSpec blocked = optest::image_layout({}, {8, 16, 3, 3});
  PackedParameters packed({tensor});
  EXPECT_EQ(packed.address(0, {Shape{8, 16, 3, 3}, DType::f32, nullptr}), tensor.raw());
  void* const copy = packed.address(0, blocked);
  EXPECT_EQ(Tensor::view(copy, blocked, nullptr).to_row_major().to_vector(), tensor.to_vector());
}

TEST(Memory, SizesThatWouldWrapAreRefused) {
  const size_t most = std::numeric_limits<size_t>::max();
  for (size_t bytes : {most, most - 100, most / 2 + 1}) {
    EXPECT_THROW(allocate(bytes), Error) << bytes;
  }
  EXPECT_THROW(Tensor(Shape{int64_t{1} << 59}, DType::i64), Error);
  PlanBuffers buffers(4);
  for (auto& b : buffers) {
    b.spec = {Shape{int64_t{1} << 59}, DType::i64, nullptr};
    b.first = 0;
    b.last = 1;
  }
  EXPECT_THROW(place_buffers(buffers), Error);
}

}  // namespace
}  // namespace lockstep
