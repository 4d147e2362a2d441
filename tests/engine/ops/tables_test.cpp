// The tables of kernels of every device: what they support, and the functions that are not op's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/kernels/backends/kernel_info.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/elementwise/cast.h"
#include "lockstep/engine/kernels/elementwise/expression.h"
#include "lockstep/engine/kernels/elementwise/random_uniform.h"
#include "lockstep/engine/kernels/images/augment_images.h"
#include "lockstep/engine/kernels/loading.h"
#include "lockstep/engine/kernels/losses/one_hot.h"
#include "lockstep/engine/kernels/reductions/arg_reduce.h"
#include "lockstep/engine/kernels/reductions/cumulative_sum.h"
#include "lockstep/engine/kernels/reductions/products_of_others.h"
#include "lockstep/engine/kernels/reductions/reduce.h"
#include "lockstep/engine/kernels/shapes/arange.h"
#include "lockstep/engine/kernels/shapes/copy_chunks.h"
#include "lockstep/engine/kernels/shapes/scatter_add.h"
#include "lockstep/engine/kernels/shapes/strided_copy.h"
#include "lockstep/engine/kernels/shapes/take.h"
#include "lockstep/engine/kernels/solvers/gradient_threshold.h"
#include "lockstep/engine/kernels/solvers/parameter_digests.h"
#include "lockstep/engine/kernels/solvers/solver.h"
#include "lockstep/engine/kernels/windows/pooled_at_maximum.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/ops/cases.h"
#include "tests/engine/ops/table_checks.h"

namespace lockstep::optest {
namespace {

class Tables : public testing::TestWithParam<Device> {};

void check_reorder(Device device) {
  const auto& table = kernels::table_for(device);
  for (const auto& dims : std::vector<std::vector<int64_t>>{
           {1, 1, 1, 1}, {2, 11, 5, 3}, {3, 16, 4, 4}, {1, 33, 3, 7}, {2, 3, 6, 5}}) {
    const Array values = random_array(dims, 100);
    const TensorSpec plain{shape_of(values), DType::f32, nullptr};
    const TensorSpec blocked = image_layout(device, plain.shape);
    const Tensor from = tensor_of(values).to(device), there(blocked, device), back(plain, device);
    run_pass(table.reorder(plain, blocked), {from}, {there});
    run_pass(table.reorder(blocked, plain), {there}, {back});
    EXPECT_EQ(back.to_vector(), from.to_vector()) << blocked.to_string();
    EXPECT_EQ(there.to_vector(), from.to_vector()) << blocked.to_string();
  }
  if (!testing::Test::HasFailure()) {
    ++support()["reorder                   " + name_of_device(device) + "  f32"].forward;
  }
}

void check_accumulate(Device device) {
  for (const auto& dims : std::vector<std::vector<int64_t>>{{1}, {1000}, {2, 11, 5, 3}}) {
    const Array a = random_array(dims, 101), b = random_array(dims, 102);
    const Tensor x = tensor_of(a).to(device), y = tensor_of(b).to(device);
    run_pass(kernels::table_for(device).accumulate(x.spec()), {x, y}, {x});  // in place
    EXPECT_LE(relative_error(array_of(x), reference::addition({a, b})), 1e-7);
    EXPECT_EQ(relative_error(array_of(y), b), 0);
    if (!kernels::table_for(device).bf16) continue;
    const Tensor u = tensor_of(a, DType::bf16).to(device), v = tensor_of(b, DType::bf16).to(device);
    const Array expected = reference::addition({array_of(u), array_of(v)});
    run_pass(kernels::table_for(device).accumulate(u.spec()), {u, v}, {u});
    EXPECT_LE(relative_error(array_of(u), expected), 0x1p-8);
  }
  if (!testing::Test::HasFailure()) {
    ++support()["accumulate                " + name_of_device(device) + "  f32"].forward;
  }
}

void check_zero(Device device) {
  const Shape shape{2, 11, 5, 3};
  for (const TensorSpec& spec :
       {TensorSpec{shape, DType::f32, nullptr}, image_layout(device, shape),
        TensorSpec{shape, DType::u8, nullptr}}) {
    const size_t bytes = spec.bytes();
    const Tensor ones = Tensor::from(std::vector<uint8_t>(bytes, 1), {static_cast<int64_t>(bytes)});
    const Tensor there = ones.to(device);
    const Tensor seen = Tensor::view(there.raw(), spec, nullptr, device);
    run_pass(kernels::table_for(device).zero(spec), {}, {seen});
    const Tensor back = there.to({});
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(back.data<uint8_t>()[i], 0) << "byte " << i;
  }
  note_support(device, "zero");
}

// A tensor of bytes on a device.
template <class Entry>
Tensor bytes_on(Device device, const std::vector<Entry>& entries) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(entries.data());
  const size_t count = entries.size() * sizeof(Entry);
  return Tensor::from(std::vector<uint8_t>(bytes, bytes + count), {static_cast<int64_t>(count)})
      .to(device);
}

// What an iteration does besides: sums of 5 leaves, ((0 + 1) + (2 + 3)) + 4; copies; digests.
void check_iteration(Device device) {
  const auto& table = kernels::table_for(device);
  void* const stream = device.is_cpu() ? nullptr : memory_of(device).default_stream();
  std::vector<Tensor> leaves, there;
  std::vector<const float*> addresses;
  constexpr int64_t count = 1000;
  for (uint64_t j = 0; j < 5; ++j) {
    const Array values = random_array({count}, 130 + j);
    leaves.push_back(tensor_of(values));
    there.push_back(tensor_of(values).to(device));
    addresses.push_back(static_cast<const float*>(there.back().raw()));
  }
  const Tensor list = bytes_on(device, addresses);
  auto* const first = static_cast<float*>(there[0].raw());
  table.sum_leaves(static_cast<const float* const*>(list.raw()), 5, first, count, stream);
  const Tensor sum = there[0].to({});
  for (int64_t i = 0; i < count; ++i) {
    const auto leaf = [&](size_t j) { return leaves[j].data<float>()[i]; };
    ASSERT_EQ(sum.data<float>()[i], ((leaf(0) + leaf(1)) + (leaf(2) + leaf(3))) + leaf(4));
  }
  note_support(device, "sum_leaves");

  const std::vector<kernels::CopyChunk> chunks{{there[1].raw(), there[2].raw(), 4 * count - 3}};
  const Tensor chunk_list = bytes_on(device, chunks);
  table.copy_chunks(static_cast<const kernels::CopyChunk*>(chunk_list.raw()), 1, stream);
  const Tensor copied = there[2].to({});
  EXPECT_EQ(0, std::memcmp(copied.raw(), leaves[1].raw(), 4 * count - 3));
  EXPECT_EQ(copied.data<float>()[count - 1] == leaves[1].data<float>()[count - 1], false);
  note_support(device, "copy_chunks");

  const auto at = [&](size_t j) { return static_cast<float*>(there[j].raw()); };
  const std::vector<kernels::ParameterArrays> arrays{{at(3), at(4), nullptr, nullptr, count},
                                                     {at(1), nullptr, nullptr, nullptr, 5}};
  const std::vector<kernels::DigestedParameter> parameters{{0, 0}, {7, 16}};
  std::vector<kernels::UpdateBlock> blocks;
  for (int64_t b = 0; b < kernels::digested_blocks(8 * count); ++b) blocks.push_back({0, 1024 * b});
  ASSERT_EQ(blocks.size(), 7u);
  const Tensor a = bytes_on(device, arrays), p = bytes_on(device, parameters),
               b = bytes_on(device, blocks);
  const Tensor sums = Tensor::zeros({7 * 16}).to(device), results = Tensor::zeros({10}).to(device);
  table.parameter_digests(
      {static_cast<const kernels::ParameterArrays*>(a.raw()),
       static_cast<const kernels::DigestedParameter*>(p.raw()), 2,
       static_cast<const kernels::UpdateBlock*>(b.raw()), 7, static_cast<uint64_t*>(sums.raw()),
       static_cast<std::byte*>(results.raw())},
      stream);
  Digester digester;
  digester.bytes(leaves[3].raw(), 4 * count);
  digester.bytes(leaves[4].raw(), 4 * count);
  const Digest digest = digester.finish();
  const Tensor back = results.to({});
  const auto* const bytes = static_cast<const std::byte*>(back.raw());
  EXPECT_EQ(0, std::memcmp(bytes, &digest.high, 8));
  EXPECT_EQ(0, std::memcmp(bytes + 8, &digest.low, 8));
  EXPECT_EQ(0, std::memcmp(bytes + 16, leaves[1].raw(), 20)) << "short arrays are returned";
  note_support(device, "parameter_digests");
}

// (x - row) * column, broadcast. No case of an op covers the kernels below alone.
void check_expression(Device device, const kernels::Table& table) {
  const Array x = random_array({7, 33}, 140), row = random_array({33}, 141),
              column = random_array({7, 1}, 142);
  Array expected = x;
  for (int64_t i = 0; i < x.count(); ++i) expected[i] = (x[i] - row[i % 33]) * column[i / 33];
  std::vector<Tensor> reads;
  kernels::ExpressionProblem p{
      {}, shape_of(x), {{kernels::Opcode::subtract, 0, 1}, {kernels::Opcode::multiply, 3, 2}}};
  for (const Array& array : {x, row, column}) {
    reads.push_back(tensor_of(array).to(device));
    p.src.push_back(reads.back().spec());
  }
  const Tensor y(reads[0].spec(), device);
  run_pass(table.expression(p).forward, reads, {y});
  EXPECT_LE(relative_error(array_of(y), expected), 1e-7);
  note_support(device, "expression");
}

// Sums over the first and the last axis.
void check_reduce(Device device, const kernels::Table& table) {
  const Array x = random_array({4, 5, 33}, 143);
  Array expected({5});
  for (int64_t i = 0; i < x.count(); ++i) expected[i / 33 % 5] += 0.5 * x[i];
  const Tensor there = tensor_of(x).to(device), y(Shape{5}, DType::f32, device);
  const kernels::ReduceProblem p{there.spec(), {0, 2}, kernels::Reduction::sum, 0.5};
  run_pass(table.reduce(p).forward, {there}, {y});
  EXPECT_LE(relative_error(array_of(y), expected), 1e-7);
  note_support(device, "reduce");
}

void check_one_hot(Device device, const kernels::Table& table) {
  const std::vector<int32_t> labels{2, 0, -1, 3, 1};
  const Tensor there = Tensor::from(labels, {5}).to(device), y(Shape{5, 3}, DType::f32, device);
  run_pass(table.one_hot({there.spec(), 3}).forward, {there}, {y});
  const std::vector<float> rows = y.to_vector();
  for (size_t i = 0; i < rows.size(); ++i) {
    const int32_t label = labels[i / 3];
    if (label < 0 || label > 2) {
      EXPECT_NE(rows[i], rows[i]) << "a label without a class";
    } else {
      EXPECT_EQ(rows[i], label == static_cast<int32_t>(i % 3) ? 1 : 0);
    }
  }
  note_support(device, "one_hot");
}

// The words of the stream of each row, without their lowest 8 bits.
void check_random_uniform(Device device, const kernels::Table& table) {
  const RandomContext step{.seed = 3, .iteration = 7, .first_row = 2};
  const Tensor y = ops::random_uniform(Tensor::zeros({3, 5}).to(device), 11, step);
  const std::vector<float> drawn = y.to_vector();
  for (int64_t row = 0; row < 3; ++row) {
    const RandomStream stream({step.seed, RandomUse::draw, 11, step.iteration,
                               static_cast<uint64_t>(step.first_row + row)});
    for (int64_t i = 0; i < 5; ++i) {
      EXPECT_EQ(drawn[static_cast<size_t>(row * 5 + i)],
                static_cast<float>(stream.bits(static_cast<uint64_t>(i)) >> 8) * 0x1p-24f);
    }
  }
  EXPECT_EQ(table.random_uniform(kernels::RandomUniformProblem{Shape{0, 5}, 11})
                .forward.writes[0]
                .spec.shape,
            (Shape{0, 5}));
  note_support(device, "random_uniform");
}

// Every second column from the last one backward, and back into zeros.
void check_strided_copy(Device device, const kernels::Table& table) {
  const Array x = random_array({3, 5}, 144);
  const Tensor there = tensor_of(x).to(device), y(Shape{3, 3}, DType::f32, device);
  run_pass(table.strided_copy({there.spec(), Shape{3, 3}, 4, {5, -2}}).forward, {there}, {y});
  const std::vector<float> taken = y.to_vector();
  for (int64_t i = 0; i < 9; ++i) {
    EXPECT_EQ(taken[static_cast<size_t>(i)], static_cast<float>(x[i / 3 * 5 + 4 - i % 3 * 2]));
  }
  run_pass(table.strided_copy({y.spec(), Shape{3, 5}, 4, {5, -2}, true}).forward, {y}, {there});
  const std::vector<float> back = there.to_vector();
  for (int64_t i = 0; i < 15; ++i) {
    EXPECT_EQ(back[static_cast<size_t>(i)], i % 5 % 2 == 0 ? static_cast<float>(x[i]) : 0);
  }
  note_support(device, "strided_copy");
}

// Ops that read or write by indices, along one axis, or of other types.
void check_indexing(Device device, const kernels::Table& table) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2.5f, -3, 4, 4, 0}, {2, 3}).to(device);
  const Tensor indices = Tensor::from(std::vector<int32_t>{2, 0, 2}, {3}).to(device);
  const Tensor y(Shape{2, 3}, DType::f32, device), places(Shape{2}, DType::i64, device),
      whole(Shape{2, 3}, DType::i32, device);
  run_pass(table.take({x.spec(), indices.spec(), 1}).forward, {x, indices}, {y});
  EXPECT_EQ(y.to_vector(), (std::vector<float>{-3, 1, -3, 0, 4, 0}));
  run_pass(table.scatter_add({Shape{2, 3}, x.spec(), indices.spec(), 1}).forward, {x, indices},
           {y});
  EXPECT_EQ(y.to_vector(), (std::vector<float>{2.5f, 0, -2, 4, 0, 4}));
  run_pass(table.cumulative_sum({x.spec(), 1, true}).forward, {x}, {y});
  EXPECT_EQ(y.to_vector(), (std::vector<float>{0.5f, -0.5f, -3, 8, 4, 0}));
  run_pass(table.arg_reduce({x.spec(), 1}).forward, {x}, {places});
  const Tensor found = places.to({});
  EXPECT_EQ(found.data<int64_t>()[0], 1);
  EXPECT_EQ(found.data<int64_t>()[1], 0);
  run_pass(table.cast({x.spec(), DType::i32}).forward, {x}, {whole});
  const Tensor cut = whole.to({});
  EXPECT_EQ(std::vector<int32_t>(cut.data<int32_t>(), cut.data<int32_t>() + 6),
            (std::vector<int32_t>{1, 2, -3, 4, 4, 0}));
  for (const char* name : {"take", "scatter_add", "cumulative_sum", "arg_reduce", "cast"}) {
    note_support(device, name);
  }
}

void check_arange(Device device, const kernels::Table& table) {
  const Tensor y(Shape{5}, DType::f32, device);
  run_pass(table.arange({5, 3, 1, 10, 0.5}).forward, {}, {y});
  EXPECT_EQ(y.to_vector(), (std::vector<float>{1, 1.5f, 2, 9.5f, 10}));
  note_support(device, "arange");
}

// Products between are beyond the range of f32; one row has a 0.
void check_products_of_others(Device device, const kernels::Table& table) {
  const std::vector<float> x{1e30f, 1e30f, 1e-30f, 1e-30f, 2, 0, 3, 4};
  const Tensor there = Tensor::from(x, {2, 4}).to(device), y(Shape{2, 4}, DType::f32, device);
  run_pass(table.products_of_others({there.spec()}).forward, {there}, {y});
  const std::vector<float> others = y.to_vector();
  EXPECT_FLOAT_EQ(others[0], 1e-30f);
  EXPECT_FLOAT_EQ(others[3], 1e30f);
  EXPECT_EQ((std::vector<float>(others.begin() + 4, others.end())),
            (std::vector<float>{0, 24, 0, 0}));
  note_support(device, "products_of_others");
}

// The first of equal elements; padding does not count.
void check_pooled_at_maximum(Device device, const kernels::Table& table) {
  const std::vector<float> x{-1, -2, 5, 5, -3, -4, 5, 1};
  const std::vector<float> values{10, 20, 30, 40, 50, 60, 70, 80};
  const Tensor there = Tensor::from(x, {1, 1, 2, 4}).to(device);
  const Tensor of = Tensor::from(values, {1, 1, 2, 4}).to(device);
  const Tensor y(Shape{1, 1, 2, 2}, DType::f32, device);
  const kernels::Window window{.kernel = {2, 2}, .stride = {1, 2}, .pad_begin = {1, 0}};
  run_pass(table.pooled_at_maximum({there.spec(), y.shape(), window}).forward, {there, of}, {y});
  EXPECT_EQ(y.to_vector(), (std::vector<float>{10, 30, 10, 30}));
  note_support(device, "pooled_at_maximum");
}

// Images reflected in x, shifted down by one pixel, and unchanged: whole pixels are exact.
TEST_P(Tables, ImagesAreChangedByTheirMaps) {
  const Device device = GetParam();
  const auto& table = kernels::table_for(device);
  ASSERT_TRUE(table.augment_images) << "refused, or missing";
  constexpr int64_t channels = 2, height = 3, width = 5, plane = height * width;
  constexpr int64_t one = ImageMap::kOne;
  const std::vector<ImageMap> maps{{.xx = -one}, {.shift_y = 1}, {}};
  std::vector<uint8_t> pixels(static_cast<size_t>(3 * channels * plane)), expected;
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i + 1);
  for (int64_t i = 0; i < 3 * channels * plane; ++i) {
    const int64_t image = i / (channels * plane), x = i % width, y = i / width % height;
    const int64_t from = image == 0 ? i + width - 1 - 2 * x : image == 1 ? i - width : i;
    expected.push_back(image == 1 && y == 0 ? 0 : pixels[static_cast<size_t>(from)]);
  }
  const auto there = [&](const void* data, size_t count) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    return Tensor::from(std::vector<uint8_t>(bytes, bytes + count), {static_cast<int64_t>(count)})
        .to(device);
  };
  const Tensor source = there(pixels.data(), pixels.size());
  const Tensor result = there(pixels.data(), pixels.size());
  const Tensor map_bytes = there(maps.data(), maps.size() * sizeof maps[0]);
  table.augment_images(
      {static_cast<const uint8_t*>(source.raw()), static_cast<const ImageMap*>(map_bytes.raw()),
       static_cast<uint8_t*>(result.raw()), 3, kernels::planar(channels, height, width)},
      device.is_cpu() ? nullptr : memory_of(device).default_stream());
  const Tensor back = result.to({});
  EXPECT_EQ(0, std::memcmp(back.raw(), expected.data(), expected.size()));
  if (!HasFailure())
    ++support()["augment_images            " + name_of_device(device) + "  u8"].forward;
}

TEST_P(Tables, UpdatesMatchTheirFormulasWholeAndInParts) {
  check_updates(GetParam());
  check_updates_of_all(GetParam());
}

TEST_P(Tables, TheRestOfAnIterationIsExact) { check_iteration(GetParam()); }

TEST_P(Tables, ReorderKeepsEveryElement) { check_reorder(GetParam()); }

TEST_P(Tables, AccumulateAddsInPlace) { check_accumulate(GetParam()); }

TEST_P(Tables, ZeroFillsEveryByte) { check_zero(GetParam()); }

// A table that counts calls of the ops' kernels and forwards them.
int calls[std::size(kernels::kKernels)];
const kernels::Table* counted;

template <kernels::KernelId id, auto entry, class Problem>
kernels::Kernel count(const Problem& problem) {
  ++calls[static_cast<size_t>(id)];
  return (counted->*entry)(problem);
}

template <kernels::KernelId id, auto entry, class Problem>
void count_calls(kernels::Kernel (*&kernel)(const Problem&)) {
  kernel = count<id, entry, Problem>;
}

kernels::Table counting_table(Device device) {
  counted = &kernels::table_for(device);
  std::memset(calls, 0, sizeof calls);
  kernels::Table t = *counted;
  kernels::for_each_kernel([&]<kernels::KernelId id, auto entry>() {
    if constexpr (kernels::info_of(id).op) count_calls<id, entry>(t.*entry);
  });
  return t;
}

// The functions of a table that are not an op's kernel, each with a test in this file.
constexpr const char* functions[] = {
    "reorder",    "accumulate",        "zero",        "sgdm",           "adam",
    "rmsprop",    "sgdm_of_all",       "adam_of_all", "rmsprop_of_all", "add",
    "sum_leaves", "parameter_digests", "copy_chunks", "block_squares",  "limit",
    "divide",     "augment_images"};

TEST_P(Tables, EveryKernelIsExercisedAndSupported) {
  const Device device = GetParam();
  support().clear();
  if (!device.is_cpu()) memory_of(device).activate();
  const kernels::Table table = counting_table(device);
  for (const Case& c : offered_cases(device)) {
    SCOPED_TRACE(c);
    std::vector<TensorSpec> specs;
    for (const Input& input : c.inputs) {
      specs.push_back({shape_of(input.value), input.dtype, nullptr});
    }
    c.op->compile(table, specs);
    check_forward(device, c);
    check_gradients(device, c);
    if (!takes_narrow(c)) continue;
    for (const DType dtype : narrow_types(table)) {
      check_forward(device, in_narrow(dtype, c));
      check_gradients(device, in_narrow(dtype, c));
    }
  }
  check_reorder(device);
  check_accumulate(device);
  check_zero(device);
  check_updates(device);
  check_iteration(device);
  check_expression(device, table);
  check_reduce(device, table);
  check_one_hot(device, table);
  check_random_uniform(device, table);
  check_strided_copy(device, table);
  check_indexing(device, table);
  check_arange(device, table);
  check_products_of_others(device, table);
  check_pooled_at_maximum(device, table);
  for (size_t i = 0; i < std::size(calls); ++i) {
    const kernels::KernelInfo& kernel = kernels::kKernels[i];
    if (kernel.op) {
      EXPECT_GT(calls[i], 0) << "no case uses " << kernel.name << " of kernels::Table";
    } else {
      EXPECT_EQ(std::count(std::begin(functions), std::end(functions), kernel.name), 1)
          << "no test of " << kernel.name;
    }
  }
  std::printf("%-26s%-5s%-7s%-9s%s\n", "op", "on", "dtype", "forward", "gradient");
  for (const auto& [row, checks] : support()) {
    std::printf("%s  %7d %9d\n", row.c_str(), checks.forward, checks.gradient);
    EXPECT_GT(checks.forward, 0) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Tables, testing::ValuesIn(devices()),
                         [](const auto& device) { return name_of_device(device.param); });

}  // namespace
}  // namespace lockstep::optest
