// Layout changes between all kinds of blocks write their destination and nothing behind it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>

#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/cpu/onednn.h"
#include "tests/engine/ops/harness.h"

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

// Expects that `x`, row-major, survives a conversion to `to` and back, with no writes behind it.
void expect_sound(const Array& x, const TensorSpec& from, const TensorSpec& to) {
  const auto run = [](const kernels::Pass& pass, const void* source, void* destination) {
    std::vector<std::byte> scratch(pass.scratch_bytes + 64);
    void* const read = const_cast<void*>(source);
    auto* const aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64);
    pass.bind({std::span(&read, 1), std::span(&destination, 1), aligned})({});
  };
  const auto& table = kernels::table_for({});
  const Tensor source = convert(tensor_of(x), from);
  const size_t count = to.bytes() / sizeof(float);
  std::vector<float> there(count + kGuard, 7.0f);
  run(table.reorder(from, to), source.raw(), there.data());
  const auto behind = there.begin() + static_cast<std::ptrdiff_t>(count);
  EXPECT_TRUE(std::all_of(behind, there.end(), [](float v) { return v == 7.0f; }));
  Tensor back{TensorSpec{from.shape, DType::f32, nullptr}};
  run(table.reorder(to, back.spec()), there.data(), back.raw());
  EXPECT_EQ(array_of(back).values, x.values);
}

TEST(Reorder, WritesItsDestinationAndNothingBeyond) {
  const std::vector<std::string> names{
      "abcd",     "bcda",     "acdb",      "aBcd16b",   "aBcd8b",     "ABcd16b16a", "ABcd16a16b",
      "ABcd8b8a", "ABcd8a8b", "Abcd16a",   "Acdb16a",   "Acdb8a",     "BcdA16b2a",  "BcdA16b16a",
      "BcdA8b8a", "BcdA8b4a", "BcdA16b4a", "BcdA16b8a", "BcdA16b32a", "BcdA16b64a", "AcdB16b16a"};
  for (const Dims& dims : {Dims{2, 8, 1, 1}, Dims{2, 8, 3, 3}, Dims{1, 1, 1, 1}, Dims{17, 5, 2, 3},
                           Dims{3, 33, 1, 2}, Dims{33, 3, 2, 2}, Dims{16, 2, 1, 1}}) {
    const Array x = random_array({dims.begin(), dims.end()}, 3);
    for (const auto& a : names) {
      for (const auto& b : names) {
        if (a == b) continue;
        SCOPED_TRACE(Shape({dims.begin(), dims.end()}).to_string() + " from " + a + " to " + b);
        expect_sound(x, blocked(dims, a), blocked(dims, b));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::optest

#endif
