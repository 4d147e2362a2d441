// The basis of the law: an op gives the same bits in every thread.
#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <barrier>
#include <cstring>
#include <thread>

#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/windows/convolution.h"
#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {
namespace {

using Bytes = std::vector<char>;

void append(Bytes& bytes, const Tensor& tensor) {
  const Tensor plain = tensor.to_row_major();
  const char* data = static_cast<const char*>(plain.raw());
  bytes.insert(bytes.end(), data, data + plain.bytes());
}

// All outputs and gradients of a case.
Bytes results_of(const Case& c) {
  std::vector<Tensor> inputs;
  for (const Input& input : c.inputs) inputs.push_back(tensor_of(input.value, input.dtype));
  Tape tape;
  tape.watch(inputs);
  const std::vector<Tensor> outputs = apply_op(c.op, inputs, c.step);
  Bytes bytes;
  for (const Tensor& t : outputs) append(bytes, t);
  if (!c.backward) return bytes;
  const Array dy = random_array(outputs[0].shape().dims(), 5);
  const Tensor scalar = apply_op(make_weighted_sum(dy), {outputs[0]})[0];
  std::vector<Tensor> asked;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (c.inputs[i].gradient) asked.push_back(inputs[i]);
  }
  for (const Tensor& t : tape.gradient(scalar, asked)) append(bytes, t);
  return bytes;
}

// Large enough that a library may divide the work among its threads.
std::vector<Case> cases() {
  std::vector<Case> all = offered_cases({});
  all.push_back(convolution("large", {16, 16, 16, 16}, {32, 16, 3, 3}, {.padding = padding(1)}));
  all.push_back(
      convolution("large_11_to_22", {8, 11, 17, 15}, {22, 11, 3, 3}, {.padding = padding(1)}));
  all.push_back(convolution("large_1x1", {16, 32, 16, 16}, {64, 32, 1, 1}, {.stride = {2, 2}}));
  for (const bool bias : {true, false}) {
    all.push_back(convolution("large_pointwise", {16, 40, 16, 16}, {64, 40, 1, 1}, {}, bias));
    all.push_back(
        convolution("large_pointwise_of_few", {16, 20, 16, 16}, {64, 20, 1, 1}, {}, bias));
  }
  all.push_back(convolution("large_groups", {16, 44, 16, 16}, {44, 11, 3, 3},
                            {.padding = padding(1), .groups = 4}));
  all.push_back(convolution("large_depthwise", {16, 32, 16, 16}, {32, 1, 3, 3},
                            {.padding = padding(1), .groups = 32}));
  all.push_back(fully_connected("large", {64, 16, 8, 8}, 100));
  all.push_back(fully_connected("large_odd", {33, 11, 9, 9}, 101));
  all.push_back(batch_normalization("large", random_array({16, 32, 16, 16}, 6), {.relu = true}));
  all.push_back(batch_normalization("large_11", random_array({16, 11, 17, 15}, 7), {}));
  all.push_back(pooling("large", random_array({16, 32, 17, 17}, 8), reference::Pooling::max,
                        {.pool = {3, 3}, .stride = {2, 2}, .padding = padding(1)}));
  return all;
}

TEST(Determinism, TheNumberOfThreadsOfOpenMpChangesNoBit) {
  const int before = omp_get_max_threads();
  for (const Case& c : cases()) {
    omp_set_num_threads(1);
    const Bytes one = results_of(c);
    for (int threads = 2; threads <= 4; ++threads) {
      omp_set_num_threads(threads);
      EXPECT_EQ(results_of(c), one) << c << " on " << threads << " threads";
      EXPECT_EQ(omp_get_max_threads(), threads) << c << " changed the caller's setting";
    }
  }
  omp_set_num_threads(before);
}

TEST(Determinism, FourThreadsAtOnceGiveTheBitsOfOne) {
  const std::vector<Case> all = cases();
  std::vector<Bytes> expected;
  for (const Case& c : all) expected.push_back(results_of(c));
  std::array<std::vector<std::string>, 4> wrong;
  std::array<int, 4> done{};
  std::barrier start(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < all.size(); ++i) {
        start.arrive_and_wait();  // all threads run the same op
        omp_set_num_threads(static_cast<int>(t + i) % 4 + 1);
        try {
          if (results_of(all[i]) != expected[i]) wrong[t].push_back(all[i].name + ": other bits");
        } catch (const std::exception& e) {
          wrong[t].push_back(all[i].name + ": " + e.what());
        }
        ++done[t];
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (size_t t = 0; t < 4; ++t) {
    EXPECT_EQ(done[t], static_cast<int>(all.size())) << "thread " << t;
    EXPECT_EQ(wrong[t], std::vector<std::string>{}) << "thread " << t;
  }
}

// Plans share kernels: each thread binds a pass to its own memory.
TEST(Determinism, OneKernelSharedByFourThreadsGivesTheBitsOfOne) {
  const Shape x{8, 11, 12, 12}, w{22, 11, 3, 3}, y{8, 22, 12, 12};
  kernels::ConvolutionProblem p;
  p.src = {x, DType::f32, nullptr};
  p.weights = w;
  p.dst = y;
  p.window = {.kernel = {3, 3}, .pad_begin = {1, 1}, .pad_end = {1, 1}};
  const kernels::Kernel kernel = kernels::table_for({}).convolution(p);
  std::vector<const kernels::Pass*> passes{&kernel.forward};
  for (const auto& pass : kernel.backward) passes.push_back(&pass);

  const auto compute = [&] {
    Bytes bytes;
    for (const kernels::Pass* pass : passes) {
      std::vector<Tensor> tensors;
      std::vector<void*> reads, writes;
      for (const auto& o : pass->reads) {
        const Array values = random_array(o.spec.shape.dims(), 10 + static_cast<uint64_t>(o.index));
        tensors.push_back(convert(tensor_of(values), o.spec));
        reads.push_back(tensors.back().raw());
      }
      const size_t first = tensors.size();
      for (const auto& o : pass->writes) {
        tensors.emplace_back(o.spec);
        writes.push_back(tensors.back().raw());
      }
      const Memory scratch = allocate(pass->scratch_bytes);
      const kernels::BoundPass bound = pass->bind({reads, writes, scratch.data()});
      for (int again = 0; again < 3; ++again) {
        for (size_t i = first; i < tensors.size(); ++i) {
          std::memset(tensors[i].raw(), 0xff, tensors[i].bytes());
        }
        bound({});
        for (size_t i = first; i < tensors.size(); ++i) append(bytes, tensors[i]);
      }
    }
    return bytes;
  };
  const Bytes expected = compute();
  std::array<Bytes, 4> got;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) threads.emplace_back([&, t] { got[t] = compute(); });
  for (auto& thread : threads) thread.join();
  for (const Bytes& bytes : got) EXPECT_EQ(bytes, expected);
}

// If an op works row by row, a row's result must not depend on other rows of the shard.
TEST(Determinism, RowsOfElementwiseOpsDoNotDependOnTheBatch) {
  const Array whole = random_array({5, 11, 4, 3}, 11);
  Array last({1, 11, 4, 3});
  std::copy(whole.values.end() - last.count(), whole.values.end(), last.values.begin());
  const std::vector<OpPtr> all{ops::make_relu(),
                               ops::make_clipped_relu(0.5),
                               ops::make_leaky_relu(0.1),
                               ops::make_elu(1),
                               ops::make_gelu(ops::GeluApproximation::none),
                               ops::make_gelu(ops::GeluApproximation::tanh),
                               ops::make_swish(),
                               ops::make_tanh(),
                               ops::make_sigmoid(),
                               ops::make_softplus(),
                               ops::make_reshape({4, 33}),
                               ops::make_softmax(),
                               ops::make_flatten(),
                               ops::make_max_pooling2d({}),
                               ops::make_average_pooling2d({}),
                               ops::make_global_average_pooling2d()};
  const auto expect_row = [&](const OpPtr& op, const std::vector<Tensor>& more) {
    std::vector<Tensor> five{tensor_of(whole)}, one{tensor_of(last)};
    for (auto* inputs : {&five, &one}) inputs->insert(inputs->end(), more.begin(), more.end());
    const std::vector<float> rows = apply_op(op, five)[0].to_vector();
    const std::vector<float> row = apply_op(op, one)[0].to_vector();
    EXPECT_EQ(std::vector<float>(rows.end() - static_cast<std::ptrdiff_t>(row.size()), rows.end()),
              row)
        << op->type();
  };
  for (const OpPtr& op : all) expect_row(op, {});
  const Tensor scale = tensor_of(random_array({11}, 12)), shift = tensor_of(random_array({11}, 13));
  for (const int64_t groups : {int64_t{1}, int64_t{11}}) {
    expect_row(ops::make_group_normalization(groups, 1e-5), {scale, shift});
  }
}

}  // namespace
}  // namespace lockstep::optest
