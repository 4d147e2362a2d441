// Ops that eager calls apply again, and their kernels.
#include "lockstep/engine/graph/kept_op.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/engine/autograd/id_map.h"
#include "lockstep/engine/autograd/tape.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/pointwise.h"

namespace lockstep {
namespace {

using Numbers = std::vector<float>;

Tensor from(const Numbers& values, const Shape& shape) {
  return Tensor::from(std::span<const float>(values), shape);
}

// Counts the kernels that are made for it.
class Counting final : public FloatOp {
 public:
  std::string_view type() const override { return "counting"; }
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override { return {in[0]}; }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    ++compiled;
    return ops::make_relu()->compile(table, in);
  }
  mutable std::atomic<int> compiled{0};
};

Numbers values_of(const OpPtr& op, const Shape& shape, float value) {
  return apply_op(op, {Tensor::full(shape, value)}).front().to_vector();
}

TEST(KeptOps, KernelsAreMadeOnceForEachShapeAndThread) {
  const auto op = std::make_shared<Counting>();
  op->keep();
  EXPECT_EQ(values_of(op, {2, 3}, 1), Numbers(6, 1));
  EXPECT_EQ(values_of(op, {2, 3}, 2), Numbers(6, 2));
  EXPECT_EQ(op->compiled, 1);
  EXPECT_EQ(values_of(op, {3, 2}, 3), Numbers(6, 3));
  EXPECT_EQ(values_of(op, {6}, 4), Numbers(6, 4));
  EXPECT_EQ(values_of(op, {2, 3}, -1), Numbers(6, 0));
  EXPECT_EQ(op->compiled, 3);
  std::thread([&] { EXPECT_EQ(values_of(op, {2, 3}, 5), Numbers(6, 5)); }).join();
  EXPECT_EQ(op->compiled, 4);
  const auto once = std::make_shared<Counting>();
  for (const float value : {1.0f, 2.0f}) EXPECT_EQ(values_of(once, {2}, value), Numbers(2, value));
  EXPECT_EQ(once->compiled, 2);
}

TEST(KeptOps, AreTheSameForEqualSettings) {
  const auto all = [] {
    return std::vector<OpPtr>{ops::make_pointwise(kernels::Opcode::exp),
                              ops::make_concat(0),
                              ops::make_concat(1),
                              ops::make_astype(DType::f32),
                              ops::make_tanh(),
                              ops::make_sum()};
  };
  const std::vector<OpPtr> ops = all();
  EXPECT_EQ(ops, all());
  for (const OpPtr& op : ops) EXPECT_TRUE(op->is_kept()) << op->type();
  EXPECT_NE(ops[1], ops[2]);
  EXPECT_NE(ops::make_sum(0.5), ops::make_sum(0.5));  // a number
}

// Settings that are never the same neither pile up nor get the kernels of others.
TEST(KeptOps, SettingsMayChangeWithEveryCall) {
  const Tensor x = from({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2});
  for (int64_t i = 0; i < 3000; ++i) {
    const int64_t row = i % 4, n = 1 + i % 700;
    const float first = static_cast<float>(2 * row + 1);
    ASSERT_EQ(ops::slice(x, {{row, row + 1}}).to_vector(), (Numbers{first, first + 1}));
    ASSERT_EQ(ops::broadcast_to(Tensor::scalar(first), {n}).to_vector(),
              Numbers(static_cast<size_t>(n), first));
  }
}

TEST(KeptOps, RefuseWhatDoesNotFitEveryTime) {
  const Tensor a = Tensor::zeros({2, 3}), b = Tensor::zeros({2, 4});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ops::add(a, a).shape(), a.shape());
    EXPECT_THROW(ops::add(a, b), InvalidArgument);
    EXPECT_THROW(ops::add(a, Tensor()), InvalidArgument);
    EXPECT_THROW(ops::add(a, Tensor::from(std::span<const int32_t>(), {0, 3})), InvalidArgument);
  }
}

TEST(IdMap, KeepsTheFirstNumberOfEachId) {
  IdMap map;
  EXPECT_TRUE(map.empty());
  EXPECT_FALSE(map.contains(1));
  for (int i = 0; i < 1000; ++i) {
    const uint64_t id = 1 + static_cast<uint64_t>(i) * 1024;  // of one remainder
    EXPECT_EQ(map.add(id, i), std::pair(i, true));
    EXPECT_EQ(map.add(id, -1), std::pair(i, false));
    EXPECT_FALSE(map.contains(id + 1));
  }
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(map.contains(1 + static_cast<uint64_t>(i) * 1024));
}

}  // namespace
}  // namespace lockstep
