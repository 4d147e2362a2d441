// Layout changes between all kinds of blocks write all of their destination and nothing behind it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>

#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/cpu/onednn.h"

#if DNNL_VERSION_MAJOR < 3

namespace lockstep::optest {
namespace {

using Dims = std::array<int64_t, 4>;

// As oneDNN's primitives choose it: dimensions from the outermost on, then blocks ("BcdA16b2a").
TensorSpec blocked(const Dims& dims, const std::string& name) {
  dnnl::memory::desc desc({dims[0], dims[1], dims[2], dims[3]}, dnnl::memory::data_type::f32,
                          dnnl::memory::format_tag::abcd);
  auto& blocking = desc.data.format_desc.blocking;
  const size_t outer = std::min(name.find_first_of("0123456789"), name.size());
  std::array<int64_t, 4> block{1, 1, 1, 1};
  int64_t stride = 1;
  blocking.inner_nblks = 0;
  for (size_t i = outer; i < name.size();) {
    size_t digits = 0;
    const int64_t size = std::stoll(name.substr(i), &digits);
    const auto dim = static_cast<size_t>(name[i + digits] - 'a');
    blocking.inner_blks[blocking.inner_nblks] = size;
    blocking.inner_idxs[blocking.inner_nblks++] = static_cast<int64_t>(dim);
    block[dim] *= size;
    stride *= size;
    i += digits + 1;
  }
  for (size_t k = outer; k-- > 0;) {
    const auto dim = static_cast<size_t>(std::tolower(name[k]) - 'a');
    const int64_t blocks = (dims[dim] + block[dim] - 1) / block[dim];
    desc.data.padded_dims[dim] = blocks * block[dim];
    // oneDNN's own descriptors have stride 1 for dimensions in which the stride has no effect.
    blocking.strides[dim] = blocks == 1 && block[dim] > 1 ? 1 : stride;
    stride *= blocks;
  }
  return kernels::cpu::spec_of(desc);
}

constexpr size_t kGuard = 4096;  // floats

// Index of an element, by the definition of the layout.
size_t offset_of(const dnnl::memory::desc& desc, Dims at) {
  const auto& blocking = desc.data.format_desc.blocking;
  int64_t offset = 0, stride = 1;
  for (int i = blocking.inner_nblks; i-- > 0;) {
    int64_t& index = at[static_cast<size_t>(blocking.inner_idxs[i])];
    offset += index % blocking.inner_blks[i] * stride;
    index /= blocking.inner_blks[i];
    stride *= blocking.inner_blks[i];
  }
  for (size_t axis = 0; axis < at.size(); ++axis) offset += at[axis] * blocking.strides[axis];
  return static_cast<size_t>(offset);
}

// Different numbers in that layout, with zeros in the padding.
std::vector<float> laid_out(const Dims& dims, const TensorSpec& spec) {
  const dnnl::memory::desc desc = kernels::cpu::desc_of(spec);
  std::vector<float> memory(spec.bytes() / sizeof(float), 0.0f);
  float value = 0;
  Dims at{};
  for (at[0] = 0; at[0] < dims[0]; ++at[0]) {
    for (at[1] = 0; at[1] < dims[1]; ++at[1]) {
      for (at[2] = 0; at[2] < dims[2]; ++at[2]) {
        for (at[3] = 0; at[3] < dims[3]; ++at[3]) {
          value = value < 8e6f ? value + 1 : 1;
          memory[offset_of(desc, at)] = value;
        }
      }
    }
  }
  return memory;
}

// Expects that the change writes every element, zeros into all padding, and nothing behind it,
// whatever the destination held.
void expect_sound(const Dims& dims, const TensorSpec& from, const TensorSpec& to) {
  SCOPED_TRACE(Shape({dims.begin(), dims.end()}).to_string());
  const std::vector<float> source = laid_out(dims, from), expected = laid_out(dims, to);
  const kernels::Pass pass = kernels::table_for({}).reorder(from, to);
  const float nothing = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::byte> scratch(pass.scratch_bytes + 64);
  std::fill(scratch.begin(), scratch.end(), std::byte{0xff});
  auto* const aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64);
  std::vector<float> made(expected.size() + kGuard, nothing);
  void* const read = const_cast<float*>(source.data());
  void* const write = made.data();
  pass.bind({std::span(&read, 1), std::span(&write, 1), aligned})({});
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), made.begin()));
  EXPECT_TRUE(std::all_of(made.begin() + static_cast<std::ptrdiff_t>(expected.size()), made.end(),
                          [](float v) { return std::isnan(v); }));
  if (!to.row_major() || from.row_major()) return;
  // The conversion of a tensor, which is not a pass.
  std::fill(made.begin(), made.end(), nothing);
  from.layout->to_row_major(source.data(), made.data());
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), made.begin()));
}

TEST(Reorder, WritesItsDestinationAndNothingBeyond) {
  const std::vector<std::string> names{
      "abcd",     "bcda",     "acdb",      "aBcd16b",   "aBcd8b",     "ABcd16b16a", "ABcd16a16b",
      "ABcd8b8a", "ABcd8a8b", "Abcd16a",   "Acdb16a",   "Acdb8a",     "BcdA16b2a",  "BcdA16b16a",
      "BcdA8b8a", "BcdA8b4a", "BcdA16b4a", "BcdA16b8a", "BcdA16b32a", "BcdA16b64a", "AcdB16b16a"};
  for (const Dims& dims : {Dims{2, 8, 1, 1}, Dims{2, 8, 3, 3}, Dims{1, 1, 1, 1}, Dims{17, 5, 2, 3},
                           Dims{3, 33, 1, 2}, Dims{33, 3, 2, 2}, Dims{16, 2, 1, 1}}) {
    for (const auto& a : names) {
      for (const auto& b : names) {
        if (a == b) continue;
        SCOPED_TRACE("from " + a + " to " + b);
        expect_sound(dims, blocked(dims, a), blocked(dims, b));
      }
    }
  }
}

// From the layouts that an inner product chooses for the gradients of its weights, and from those
// of images and weights of convolutions, at sizes whose rows exceed a first cache.
TEST(Reorder, WritesAllOfLargeDestinations) {
  const std::vector<std::string> names{"aBcd8b",     "aBcd16b",   "BcdA8b10a", "BcdA16b10a",
                                       "BcdA8b8a",   "BcdA16b4a", "BacD8b",    "ABcd16a16b",
                                       "ABcd16b16a", "bcdA8a",    "acdb"};
  for (const Dims& dims : {Dims{10, 20, 112, 112}, Dims{3, 9, 224, 224}, Dims{10, 31, 56, 81},
                           Dims{4, 17, 1, 12'000}, Dims{7, 1, 100, 152}, Dims{23, 16, 104, 100}}) {
    for (const auto& name : names) {
      const TensorSpec plain = blocked(dims, "abcd"), other = blocked(dims, name);
      SCOPED_TRACE(name);
      expect_sound(dims, other, plain);
      expect_sound(dims, plain, other);
    }
  }
}

// With so many units the runs of the packed weights are long.
TEST(Reorder, WritesAllOfWeightsOfManyUnits) {
  const Dims dims{5000, 20, 3, 4};
  for (const std::string name : {"BcdA8b5000a", "BcdA16b5000a", "bcdA8a", "BcdA8b64a"}) {
    const TensorSpec plain = blocked(dims, "abcd"), other = blocked(dims, name);
    SCOPED_TRACE(name);
    expect_sound(dims, other, plain);
    expect_sound(dims, plain, other);
  }
}

}  // namespace
}  // namespace lockstep::optest

#endif
