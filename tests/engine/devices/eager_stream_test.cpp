// Eager work on streams besides the default stream, and the memory that it uses.
#include "lockstep/engine/device/eager_stream.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/devices/fake_device.h"

namespace lockstep {
namespace {

using devicetest::FakeDevice;

TEST(EagerStream, IsThatOfTheNewestObjectForTheDevice) {
  const FakeDevice fake, other(1);
  const StreamForEager own(fake);
  void* const usual = memory_of(fake).default_stream();
  EXPECT_EQ(eager_stream_of(fake), usual);
  {
    const EagerStream on_own(fake, own.get());
    EXPECT_EQ(eager_stream_of(fake), own.get());
    EXPECT_EQ(eager_stream_of(other), memory_of(other).default_stream());
    const EagerStream back(fake, nullptr);
    EXPECT_EQ(eager_stream_of(fake), usual);
  }
  EXPECT_EQ(eager_stream_of(fake), usual);
}

// Work of a stream on the stand-in begins only when it is waited for, so an order that is missing
// gives other values.
TEST(EagerStream, OpsCopiesAndNetworksUseIt) {
  const FakeDevice fake;
  Network network{feature_input({.features = 4, .normalization = "none"}),
                  fully_connected({.units = 3}), softmax()};
  network.initialize(1);
  const std::vector<float> values{1, -2, 3, -4, 5, -6, 7, 8};
  const Tensor here = Tensor::from(std::span(values), {2, 4});
  const std::vector<float> wanted = network.predict(ops::relu(here)).to_vector();
  network.to(fake);
  {
    const StreamForEager streams[] = {StreamForEager(fake), StreamForEager(fake)};
    DeviceMemory& memory = memory_of(fake);
    const Tensor there = ops::relu(here.to(fake));  // on the default stream
    std::vector<Tensor> results;
    for (int round = 0; round < 3; ++round) {
      for (const StreamForEager& stream : streams) {
        memory.follow(stream.get(), memory.default_stream());
        const EagerStream on(fake, stream.get());
        results.push_back(
            network.predict(ops::add({there, Tensor::zeros({2, 4}, DType::f32, fake)})));
        EXPECT_EQ(there.to_vector(), ops::relu(here).to_vector());
      }
    }
    for (const StreamForEager& stream : streams) {
      memory.follow(memory.default_stream(), stream.get());
    }
    for (const Tensor& result : results) EXPECT_EQ(result.to_vector(), wanted);
  }
  network.to({});
}

TEST(EagerStream, ItsMemoryReturnsToItsCache) {
  const FakeDevice fake;
  auto own = std::make_unique<StreamForEager>(fake);
  constexpr size_t bytes = 12345;
  const void* first = nullptr;
  std::optional<Memory> kept;
  {
    const EagerStream on_own(fake, own->get());
    first = allocate(bytes, fake).data();
    kept = allocate(bytes, fake);
    EXPECT_EQ(kept->data(), first) << "was not reused";
  }
  const Memory usual = allocate(bytes, fake);
  EXPECT_NE(usual.data(), first);
  kept.reset();  // also outside of the stream's time
  const Memory more = allocate(bytes, fake);
  EXPECT_NE(more.data(), first);
  {
    const EagerStream on_own(fake, own->get());
    kept = allocate(bytes, fake);
    EXPECT_EQ(kept->data(), first);
  }
  own.reset();
  kept.reset();
  EXPECT_EQ(allocate(bytes, fake).data(), first) << "memory of a stream that has ended";
  const AllocatorStatistics before = allocator_statistics(fake);
  EXPECT_GT(before.cached, 0u);
  release_cached_memory(fake);
  EXPECT_EQ(allocator_statistics(fake).cached, 0u);
}

}  // namespace
}  // namespace lockstep
