// Tensors and memory on a stand-in for a device.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/engine/autograd/tape.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/device/device_memory.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/engine/ops/harness.h"

namespace lockstep {
namespace {

using devicetest::FakeDevice;
using Numbers = std::vector<float>;

Tensor from(const Numbers& values, const Shape& shape) { return Tensor::from(values, shape); }

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
  return "no error";
}

TEST(DeviceTensor, MovesThereAndBack) {
  const FakeDevice fake;
  const Tensor here = from({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor there = here.to(fake);
  EXPECT_EQ(here.device(), Device{});
  EXPECT_EQ(there.device(), fake.device());
  EXPECT_EQ(there.shape(), here.shape());
  EXPECT_EQ(there.to_vector(), here.to_vector());
  EXPECT_EQ(there.to({}).to_vector(), here.to_vector());
  EXPECT_EQ(there.to(fake).raw(), there.raw());
  EXPECT_EQ(here.to({}).raw(), here.raw());
  EXPECT_FALSE(Tensor().to(fake).defined());
}

TEST(DeviceTensor, MovesBetweenTwoDevices) {
  const FakeDevice first(0), second(1);
  const Tensor a = from({1, 2, 3}, {3}).to(first);
  const Tensor b = a.to(second);
  EXPECT_EQ(b.device(), second.device());
  EXPECT_EQ(b.to_vector(), (Numbers{1, 2, 3}));
}

TEST(DeviceTensor, IsMadeThere) {
  const FakeDevice fake;
  EXPECT_EQ(Tensor::zeros({3}, DType::f32, fake).to_vector(), (Numbers{0, 0, 0}));
  EXPECT_EQ(Tensor::full({2}, 1.5f, fake).to_vector(), (Numbers{1.5f, 1.5f}));
  EXPECT_EQ(Tensor::full({}, 2.5f, fake).item(), 2.5f);
  EXPECT_EQ(Tensor::zeros({0}, DType::f32, fake).to_vector(), Numbers{});
}

TEST(DeviceTensor, ElementsAreOutOfTheHostsReach) {
  const FakeDevice fake;
  const Tensor there = Tensor::full({2, 3}, 1, fake);
  EXPECT_EQ(
      message_of([&] { there.data<float>(); }),
      "[tensor] the elements of 2x3 f32 are on cuda:0, which the host cannot access | copy them "
      "first: tensor.to({}), or to_vector()");
}

TEST(DeviceTensor, CopiesAreIndependent) {
  const FakeDevice fake;
  const Tensor there = from({1, 2}, {2}).to(fake);
  const Tensor copy = there.clone();
  EXPECT_EQ(copy.device(), fake.device());
  copy.copy_from(from({7, 8}, {2}));
  EXPECT_EQ(there.to_vector(), (Numbers{1, 2}));
  EXPECT_EQ(copy.to_vector(), (Numbers{7, 8}));
  const Tensor here = Tensor::zeros({2});
  here.copy_from(copy);
  EXPECT_EQ(here.to_vector(), (Numbers{7, 8}));
  EXPECT_EQ(message_of([&] { here.copy_from(Tensor::zeros({3})); }),
            "[tensor] elements of 3 f32 cannot be copied into 2 f32 | ");
}

TEST(DeviceTensor, IsSeenAsAnotherShape) {
  const FakeDevice fake;
  const Tensor seen = from({1, 2, 3, 4}, {2, 2}).to(fake).reshaped({4});
  EXPECT_EQ(seen.device(), fake.device());
  EXPECT_EQ(seen.shape(), Shape({4}));
  EXPECT_EQ(seen.to_vector(), (Numbers{1, 2, 3, 4}));
}

TEST(DeviceTensor, OtherLayoutsBecomeRowMajor) {
  const FakeDevice fake;
  const auto values = optest::random_array({2, 16, 5, 3}, 1);
  const Tensor here = optest::tensor_of(values);
  const TensorSpec blocked = optest::image_layout(fake, here.shape());
  ASSERT_FALSE(blocked.row_major());
  const Tensor there = convert(here.to(fake), blocked);
  EXPECT_EQ(there.device(), fake.device());
  EXPECT_EQ(there.spec(), blocked);
  for (const Tensor& t :
       {there, there.clone(), there.to_row_major(), there.to({}), there.reshaped({2, 240}),
        convert(there, here.spec()), convert(there, {Shape{480}, DType::f32, nullptr})}) {
    EXPECT_EQ(t.to_vector(), here.to_vector());
  }
  EXPECT_EQ(convert(here, optest::image_layout({}, here.shape())).to(fake).to_vector(),
            here.to_vector());
}

TEST(DeviceMemory, OfTheProcessorIsCountedWhenAnotherThreadReleasesIt) {
  release_cached_memory();
  const AllocatorStatistics before = allocator_statistics();
  std::vector<Memory> blocks;
  for (const size_t bytes : {size_t{100}, size_t{5000}, size_t{1} << 20}) {
    blocks.push_back(allocate(bytes));
  }
  EXPECT_GE(allocator_statistics().in_use, before.in_use + (size_t{1} << 20) + 5100);
  std::thread([&] { blocks.clear(); }).join();
  EXPECT_EQ(allocator_statistics().in_use, before.in_use);
  EXPECT_GE(allocator_statistics().cached, (size_t{1} << 20) + 5100);
  release_cached_memory();
  EXPECT_EQ(allocator_statistics().cached, 0u);
}

// Neighboring threads have different shares for small blocks, so that they do not wait for each
// other (16 shares).
TEST(DeviceMemory, ThreadsKeepSmallBlocksForThemselves) {
  release_cached_memory();
  std::set<const void*> there;
  for (int i = 0; i < 2; ++i) std::thread([&] { there.insert(allocate(1000).data()); }).join();
  const Memory first = allocate(1000), second = allocate(1000);
  EXPECT_EQ(there.size(), 2u);
  EXPECT_LE(there.count(first.data()) + there.count(second.data()), 1u);
  release_cached_memory();
}

TEST(DeviceMemory, IsKeptForReuseByDeviceAndGivenBack) {
  const FakeDevice fake;
  const auto before = allocator_statistics();
  void* first;
  {
    const Memory memory = allocate(1000, fake);
    first = memory.data();
    EXPECT_EQ(memory.device(), fake.device());
    EXPECT_GE(allocator_statistics(fake).in_use, 1000u);
  }
  EXPECT_GE(allocator_statistics(fake).cached, 1000u);
  EXPECT_GT(fake.used(), 0u);
  {
    const Memory again = allocate(900, fake);
    EXPECT_EQ(again.data(), first);
  }
  EXPECT_EQ(allocator_statistics().in_use, before.in_use);
  release_cached_memory(fake);
  EXPECT_EQ(allocator_statistics(fake).cached, 0u);
  EXPECT_EQ(fake.used(), 0u);
}

TEST(DeviceMemory, LargeBlocksAreNotRoundedUpFar) {
  const FakeDevice fake;
  constexpr size_t bytes = (size_t{70} << 20) + 1;
  const Memory memory = allocate(bytes, fake);
  EXPECT_LE(allocator_statistics(fake).in_use, bytes + (size_t{2} << 20));
}

TEST(DeviceMemory, CachedMemoryServesBeforeADeviceIsFull) {
  const FakeDevice fake(0, {.bytes = size_t{16} << 20});
  { const Memory memory = allocate(size_t{3} << 20, fake); }
  { const Memory memory = allocate(size_t{5} << 20, fake); }
  { const Memory again = allocate(size_t{3} << 20, fake); }
  EXPECT_GE(allocator_statistics(fake).cached, size_t{8} << 20);
  const Memory kept = allocate(size_t{5} << 20, fake);
  EXPECT_EQ(
      message_of([&] { allocate(size_t{12} << 20, fake); }),
      "[memory] cuda:0 does not have 12 MiB left: 5 MiB are in use by this process, 11 MiB of its "
      "16 MiB are "
      "free | a smaller shard_size or mini_batch_size needs less; other programs may use "
      "the device too");
  EXPECT_EQ(allocator_statistics(fake).cached, 0u);
}

}  // namespace
}  // namespace lockstep
