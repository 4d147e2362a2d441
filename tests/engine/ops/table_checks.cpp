#include "tests/engine/ops/table_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/solvers/gradient_threshold.h"
#include "lockstep/engine/kernels/solvers/parameter_digests.h"
#include "lockstep/engine/kernels/solvers/solver.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {

void note_support(Device device, std::string kernel) {
  kernel.resize(26, ' ');
  if (!testing::Test::HasFailure()) ++support()[kernel + name_of_device(device) + "  f32"].forward;
}

namespace {

// Parameter updates compared with their formulas in double precision. Updates in parts give the
// same bits.
template <class Update, class Formula>
void check_update(Device device, const char* name, int arrays, Update update, Formula formula) {
  for (int64_t count : {1, 7, 16, 1000, 1027}) {
    std::vector<Array> before;
    for (int k = 0; k < arrays; ++k) {
      before.push_back(random_array({count}, 110 + static_cast<uint64_t>(k), 0.1, 2));
    }
    std::vector<Array> expected = before;
    for (int64_t i = 0; i < count; ++i) {
      std::vector<double*> at;
      for (Array& array : expected) at.push_back(&array[i]);
      formula(at);
    }
    const auto run = [&](std::vector<int64_t> cuts) {
      std::vector<Tensor> tensors;
      for (const Array& array : before) tensors.push_back(tensor_of(array).to(device));
      cuts.push_back(count);
      int64_t from = 0;
      for (int64_t to : cuts) {
        std::vector<float*> at;
        for (Tensor& t : tensors) at.push_back(static_cast<float*>(t.raw()) + from);
        update(at, static_cast<size_t>(to - from));
        from = to;
      }
      return tensors;
    };
    const std::vector<Tensor> whole = run({}), parts = run({count / 3, count / 3 + count / 2});
    for (size_t k = 0; k < whole.size(); ++k) {
      SCOPED_TRACE(std::string(name) + ", array " + std::to_string(k));
      EXPECT_LE(relative_error(array_of(whole[k]), expected[k]), 1e-6);
      EXPECT_EQ(parts[k].to_vector(), whole[k].to_vector());
    }
  }
  note_support(device, name);
}

// The law fixes the order of norms: sums of blocks have the same bits on every device.
void check_block_squares(Device device) {
  void* const stream = device.is_cpu() ? nullptr : memory_of(device).default_stream();
  for (int64_t count : {1, 7, 1023, 1024, 1025, 70000}) {
    SCOPED_TRACE(count);
    const auto n = static_cast<size_t>(count);
    const Tensor x = tensor_of(random_array({count}, 115, -2, 2)), there = x.to(device);
    std::vector<double> expected(kernels::norm_blocks(n));
    for (size_t i = 0; i < n; ++i) {
      const auto value = static_cast<double>(x.data<float>()[i]);
      expected[i / kernels::kNormBlock] += value * value;
    }
    // Tensors have no f64 type, so two f32 elements hold one f64.
    const Tensor sums = Tensor::zeros({static_cast<int64_t>(2 * expected.size())}).to(device);
    kernels::table_for(device).block_squares(static_cast<const float*>(there.raw()), n,
                                             static_cast<double*>(sums.raw()), stream);
    const Tensor back = sums.to({});
    EXPECT_EQ(0, std::memcmp(back.raw(), expected.data(), back.bytes()));
  }
  note_support(device, "block_squares");
}

}  // namespace

void check_updates(Device device) {
  const auto& table = kernels::table_for(device);
  void* const stream = device.is_cpu() ? nullptr : memory_of(device).default_stream();
  const kernels::SgdmUpdate sgdm{
      .observations = 12, .rate = 0.25f, .momentum = 0.75f, .l2 = 0.125f};
  check_update(
      device, "sgdm", 3,
      [&](const auto& a, size_t n) { table.sgdm(a[0], a[1], a[2], n, sgdm, stream); },
      [](const auto& a) {
        const double g = *a[2] / 12 + 0.125 * *a[0];
        *a[1] = 0.75 * *a[1] - 0.25 * g;
        *a[0] += *a[1];
      });
  const kernels::AdamUpdate adam{.observations = 3,
                                 .rate = 0.0625f,
                                 .beta1 = 0.75f,
                                 .beta2 = 0.875f,
                                 .root_correction = 1.5f,
                                 .epsilon = 0.03125f,
                                 .l2 = 0.5f,
                                 .decay = 0.25f};
  check_update(
      device, "adam", 4,
      [&](const auto& a, size_t n) { table.adam(a[0], a[1], a[2], a[3], n, adam, stream); },
      [](const auto& a) {
        const double g = *a[3] / 3 + 0.5 * *a[0];
        *a[1] = 0.75 * *a[1] + 0.25 * g;
        *a[2] = 0.875 * *a[2] + 0.125 * g * g;
        *a[0] -= 0.0625 * *a[1] / (std::sqrt(*a[2]) * 1.5 + 0.03125) + 0.25 * *a[0];
      });
  const kernels::RmspropUpdate rmsprop{
      .observations = 3, .rate = 0.0625f, .decay = 0.875, .epsilon = 0.03125f, .l2 = 0.5f};
  check_update(
      device, "rmsprop", 3,
      [&](const auto& a, size_t n) { table.rmsprop(a[0], a[1], a[2], n, rmsprop, stream); },
      [](const auto& a) {
        const double g = *a[2] / 3 + 0.5 * *a[0];
        *a[1] = 0.875 * *a[1] + 0.125 * g * g;
        *a[0] -= 0.0625 * g / (std::sqrt(*a[1]) + 0.03125);
      });
  check_update(
      device, "add", 2, [&](const auto& a, size_t n) { table.add(a[0], a[1], a[0], n, stream); },
      [](const auto& a) { *a[0] += *a[1]; });
  check_update(
      device, "limit", 1, [&](const auto& a, size_t n) { table.limit(a[0], n, 0.75f, stream); },
      [](const auto& a) { *a[0] = std::clamp(*a[0], -0.75, 0.75); });
  check_update(
      device, "divide", 1, [&](const auto& a, size_t n) { table.divide(a[0], n, 3, stream); },
      [](const auto& a) { *a[0] /= 3; });
  check_block_squares(device);
}

// Updates of all parameters at once, on back ends with such a kernel, have the bits of single
// updates.
void check_updates_of_all(Device device) {
  const auto& table = kernels::table_for(device);
  if (!table.sgdm_of_all) return;
  void* const stream = memory_of(device).default_stream();
  const auto there = [&](const auto& entries) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(entries.data());
    const size_t count = entries.size() * sizeof entries[0];
    return Tensor::from(std::vector<uint8_t>(bytes, bytes + count), {static_cast<int64_t>(count)})
        .to(device);
  };
  const std::vector<kernels::AdamUpdate> updates{{12, 0.25f, 0.75, 0.875, 1.5f, 0.03125f, 0.5f, 0},
                                                 {12, 0.5f, 0.75, 0.875, 1.5f, 0.03125f, 0, 0.25f}};
  const int64_t sizes[] = {2500, 3};
  std::vector<Tensor> one, all;
  std::vector<kernels::ParameterArrays> arrays;
  std::vector<kernels::UpdateBlock> blocks;
  for (int64_t p = 0; p < 2; ++p) {
    for (int k = 0; k < 4; ++k) {
      Array values = random_array({sizes[p]}, static_cast<uint64_t>(4 * p + k));
      for (double& x : values.values) x = k == 2 ? std::abs(x) : x;
      one.push_back(tensor_of(values).to(device));
      all.push_back(tensor_of(values).to(device));
    }
    const auto data = [&](std::vector<Tensor>& of, size_t k) {
      return static_cast<float*>(of[static_cast<size_t>(4 * p) + k].raw());
    };
    table.adam(data(one, 0), data(one, 1), data(one, 2), data(one, 3),
               static_cast<size_t>(sizes[p]), updates[static_cast<size_t>(p)], stream);
    arrays.push_back({data(all, 0), data(all, 1), data(all, 2), data(all, 3), sizes[p]});
    for (int64_t i = 0; i < sizes[p]; i += kernels::kUpdateBlock) blocks.push_back({p, i});
  }
  const Tensor a = there(arrays), u = there(updates), b = there(blocks);
  table.adam_of_all(
      {static_cast<const kernels::ParameterArrays*>(a.raw()),
       static_cast<const kernels::AdamUpdate*>(u.raw()),
       static_cast<const kernels::UpdateBlock*>(b.raw()), static_cast<int64_t>(blocks.size())},
      stream);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(relative_error(array_of(all[i]), array_of(one[i])), 0) << i;
  }
}

}  // namespace lockstep::optest
