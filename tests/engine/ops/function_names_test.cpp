// Each function of ops.h that refuses something names itself, however it is computed.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <regex>
#include <set>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/graph.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/ops/harness.h"

namespace lockstep::function_names {
namespace {

using namespace ops;
using optest::refusal_of;

struct Function {
  std::string name;
  std::function<void(const Tensor&)> of_tensor;
  std::function<void(const Value&)> of_value;
  bool takes_bf16 = false;
};

// Calls with one bad operand, x.
std::vector<Function> functions() {
  std::vector<Function> made;
#define LOCKSTEP_CALL(name, ...) \
  made.push_back(                \
      {#name, [](const Tensor& x) { __VA_ARGS__; }, [](const Value& x) { __VA_ARGS__; }});
#define LOCKSTEP_OF_BF16(name, ...) \
  made.push_back(                   \
      {#name, [](const Tensor& x) { __VA_ARGS__; }, [](const Value& x) { __VA_ARGS__; }, true});
#define LOCKSTEP_UNARY(name, text) LOCKSTEP_CALL(name, name(x))
  LOCKSTEP_UNARY_OPS(LOCKSTEP_UNARY)
#undef LOCKSTEP_UNARY
#define LOCKSTEP_BINARY(name, text) \
  LOCKSTEP_CALL(name, name(x, x)) LOCKSTEP_CALL(name, name(x, 2)) LOCKSTEP_CALL(name, name(2, x))
  LOCKSTEP_BINARY_OPS(LOCKSTEP_BINARY)
#undef LOCKSTEP_BINARY
#define LOCKSTEP_COMPARISON(name) LOCKSTEP_CALL(name, name(x, x)) LOCKSTEP_CALL(name, name(x, 2))
  LOCKSTEP_COMPARISON(greater)
  LOCKSTEP_COMPARISON(greater_equal)
  LOCKSTEP_COMPARISON(not_equal)
#undef LOCKSTEP_COMPARISON
#define LOCKSTEP_ALONE(name) LOCKSTEP_CALL(name, name(x))
#define LOCKSTEP_PAIR(name) LOCKSTEP_CALL(name, name(x, x))
#define LOCKSTEP_ALONG(name) LOCKSTEP_CALL(name, name(x, {1}))
  LOCKSTEP_PAIR(logical_and)
  LOCKSTEP_PAIR(logical_or)
  LOCKSTEP_PAIR(logical_xor)
  LOCKSTEP_ALONE(logical_not)
  LOCKSTEP_ALONE(isnan)
  LOCKSTEP_ALONE(isfinite)
  LOCKSTEP_CALL(where, where(x, x, x))
  LOCKSTEP_CALL(where, where(x, x, 1))
  LOCKSTEP_CALL(where, where(x, 1, x))
  LOCKSTEP_CALL(clip, clip(x, 0, 1))
  LOCKSTEP_ALONG(sum)
  LOCKSTEP_ALONE(sum)
  LOCKSTEP_ALONG(mean)
  LOCKSTEP_ALONE(mean)
  LOCKSTEP_ALONG(prod)
  LOCKSTEP_ALONG(max)
  LOCKSTEP_ALONG(min)
  LOCKSTEP_ALONG(var)
  LOCKSTEP_ALONG(std)
  LOCKSTEP_ALONG(norm)
  LOCKSTEP_ALONG(logsumexp)
  LOCKSTEP_ALONG(all)
  LOCKSTEP_ALONG(any)
  LOCKSTEP_CALL(argmax, argmax(x, 1))
  LOCKSTEP_CALL(argmin, argmin(x, 1))
  LOCKSTEP_CALL(cumsum, cumsum(x, 1))
  LOCKSTEP_CALL(softmax, softmax(x, 1))
  LOCKSTEP_ALONE(softmax)
  LOCKSTEP_CALL(log_softmax, log_softmax(x, 1))
  LOCKSTEP_CALL(broadcast_to, broadcast_to(x, {5, 2, 3}))
  LOCKSTEP_CALL(permute_dims, permute_dims(x, {1, 0}))
  LOCKSTEP_CALL(slice, slice(x, {{0, 1}}))
  LOCKSTEP_CALL(take, take(x, x, 0))
  LOCKSTEP_CALL(gather, gather(x, x, 0))
  LOCKSTEP_CALL(scatter_add, scatter_add(x, x, {4, 3}, 0))
  LOCKSTEP_PAIR(embedding)
  LOCKSTEP_CALL(one_hot, one_hot(x, 3))
  LOCKSTEP_CALL(astype, astype(x, DType::i32))
  LOCKSTEP_CALL(full_like, full_like(x, {2}, 1))
  LOCKSTEP_CALL(arange, arange(x, 0, 5))
  LOCKSTEP_CALL(linspace, linspace(x, 0, 5, 2))
  LOCKSTEP_CALL(tril, tril(x))
  LOCKSTEP_CALL(triu, triu(x))
  LOCKSTEP_CALL(expand_dims, expand_dims(x, 7))
  LOCKSTEP_CALL(squeeze, squeeze(x, {7}))
  LOCKSTEP_OF_BF16(stack, stack({x, x}))
  LOCKSTEP_CALL(stack, stack({x, x}, 9))
  LOCKSTEP_CALL(split, split(x, 3, 1))
  LOCKSTEP_CALL(flip, flip(x, {0}))
  LOCKSTEP_CALL(roll, roll(x, 1, 1))
  LOCKSTEP_CALL(tile, tile(x, {2, 2}))
  LOCKSTEP_CALL(pad, pad(x, {{1, 1}}))
  LOCKSTEP_CALL(pad, pad(x, {{1, 1}}, PadMode::edge))
  LOCKSTEP_CALL(diagonal, diagonal(x))
  LOCKSTEP_CALL(concat, concat({x, x}, 7))
  LOCKSTEP_OF_BF16(flatten, flatten(x))
  LOCKSTEP_CALL(reshape, reshape(x, {7}))
  LOCKSTEP_OF_BF16(relu, relu(x))
  LOCKSTEP_CALL(clipped_relu, clipped_relu(x, 1))
  LOCKSTEP_ALONE(leaky_relu)
  LOCKSTEP_ALONE(elu)
  LOCKSTEP_ALONE(gelu)
  LOCKSTEP_ALONE(swish)
  LOCKSTEP_ALONE(tanh)
  LOCKSTEP_ALONE(sigmoid)
  LOCKSTEP_ALONE(softplus)
  LOCKSTEP_OF_BF16(add, add({x}))
  LOCKSTEP_CALL(multiply, multiply({x}))
  LOCKSTEP_CALL(fully_connected, fully_connected(x, x, {}))
  LOCKSTEP_PAIR(matmul)
  LOCKSTEP_PAIR(dot)
  LOCKSTEP_PAIR(outer)
  LOCKSTEP_ALONE(matrix_transpose)
  LOCKSTEP_CALL(convolution1d, convolution1d(x, x, {}))
  LOCKSTEP_CALL(convolution2d, convolution2d(x, x, {}))
  LOCKSTEP_CALL(convolution3d, convolution3d(x, x, {}))
  LOCKSTEP_CALL(transposed_convolution2d, transposed_convolution2d(x, x, {}))
  LOCKSTEP_ALONE(max_pooling1d)
  LOCKSTEP_ALONE(max_pooling2d)
  LOCKSTEP_ALONE(max_pooling3d)
  LOCKSTEP_ALONE(average_pooling1d)
  LOCKSTEP_ALONE(average_pooling2d)
  LOCKSTEP_ALONE(average_pooling3d)
  LOCKSTEP_ALONE(global_average_pooling1d)
  LOCKSTEP_ALONE(global_average_pooling2d)
  LOCKSTEP_ALONE(global_average_pooling3d)
  LOCKSTEP_CALL(lstm, lstm(x, x, x, x, x, x, x))
  LOCKSTEP_CALL(gru, gru(x, x, x, x, x, x, x))
  LOCKSTEP_CALL(rnn, rnn(x, x, x, x, x, x))
  LOCKSTEP_CALL(batch_normalization_training, batch_normalization_training(x, x, x))
  LOCKSTEP_CALL(batch_normalization, batch_normalization(x, x, x, x, x))
  LOCKSTEP_CALL(group_normalization, group_normalization(x, x, x, 1))
  LOCKSTEP_CALL(normalize_images, normalize_images(x, x, x))
  LOCKSTEP_PAIR(cross_entropy)
  LOCKSTEP_CALL(cross_entropy, cross_entropy(x, x, {}))
  LOCKSTEP_PAIR(softmax_cross_entropy)
  LOCKSTEP_CALL(softmax_cross_entropy, softmax_cross_entropy(x, x, {}))
  LOCKSTEP_PAIR(nll)
  LOCKSTEP_PAIR(dice_loss)
  LOCKSTEP_PAIR(mean_squared_error)
  LOCKSTEP_PAIR(l1)
  LOCKSTEP_PAIR(huber)
  LOCKSTEP_PAIR(smooth_l1)
  LOCKSTEP_CALL(smooth_l1, smooth_l1(x, x, 0))
  LOCKSTEP_PAIR(hinge)
  LOCKSTEP_PAIR(cosine_similarity)
  LOCKSTEP_CALL(triplet_margin, triplet_margin(x, x, x))
  LOCKSTEP_PAIR(binary_cross_entropy)
  LOCKSTEP_PAIR(binary_cross_entropy_with_logits)
  LOCKSTEP_PAIR(kl_div)
  LOCKSTEP_CALL(ctc_loss, ctc_loss(x, x, x, x))
  LOCKSTEP_CALL(attention, attention(x, x, x))
  LOCKSTEP_CALL(rotary, rotary(x, {}))
  LOCKSTEP_CALL(sinusoidal_positions, sinusoidal_positions(x, 3, 4))
  LOCKSTEP_PAIR(rms_norm)
  LOCKSTEP_CALL(step_mask, step_mask(x, 3))
  LOCKSTEP_PAIR(last_step)
  LOCKSTEP_PAIR(mean_over_steps)
#undef LOCKSTEP_CALL
#undef LOCKSTEP_ALONE
#undef LOCKSTEP_PAIR
#undef LOCKSTEP_ALONG
  made.push_back({"dropout", [](const Tensor& x) { dropout(x, 0.5, 1, {}); },
                  [](const Value& x) { dropout(x, 0.5, 1); }});
  made.push_back({"random_uniform", [](const Tensor& x) { random_uniform(x, 1, {}); },
                  [](const Value& x) { random_uniform(x, 1); }});
  made.push_back({"random_normal", [](const Tensor& x) { random_normal(x, 1, {}); },
                  [](const Value& x) { random_normal(x, 1); }});
  made.push_back({"random_bernoulli", [](const Tensor& x) { random_bernoulli(x, 1, {}); },
                  [](const Value& x) { random_bernoulli(x, 1); }});
  return made;
}

TEST(FunctionNames, AreInWhatTheFunctionsRefuse) {
  Graph graph;
  GraphBuilder builder(graph, "test");
  // Most functions refuse bf16.
  const Tensor narrow(Shape{2, 3}, DType::bf16), none;
  const Value value(&builder, graph.add_input({2, 3}, DType::bf16));
  for (const Function& f : functions()) {
    const std::string name = "[" + f.name + "] ";
    const auto of_function = [&](const std::string& refusal) {
      EXPECT_EQ(refusal.substr(0, name.size()), name) << refusal;
    };
    of_function(refusal_of([&] { f.of_tensor(none); }));
    of_function(refusal_of([&] { f.of_value({}); }));
    if (f.takes_bf16) continue;
    try {
      of_function(refusal_of([&] { f.of_tensor(narrow); }));
    } catch (const Unsupported& error) {  // by functions that move elements first
      EXPECT_FALSE(kernels::table_for({}).bf16) << name;
      of_function(error.what());
    }
    // Graphs put the place in front.
    const std::string place = "[test] ", refusal = refusal_of([&] { f.of_value(value); });
    of_function(refusal.starts_with(place) ? refusal.substr(place.size()) : refusal);
  }
}

// Axes that a value does not have, and reductions of nothing that have no identity.
TEST(FunctionNames, AreInWhatReductionsRefuse) {
  using Axes = std::vector<int>;
  using Reduce = std::function<Tensor(const Tensor&, const Axes&)>;
  struct Row {
    const char* name;
    Reduce reduce;
    bool has_identity;
  };
  const Row rows[] = {
      {"sum", [](const Tensor& x, const Axes& a) { return sum(x, a); }, true},
      {"prod", [](const Tensor& x, const Axes& a) { return prod(x, a); }, true},
      {"norm", [](const Tensor& x, const Axes& a) { return norm(x, a); }, true},
      {"all", [](const Tensor& x, const Axes& a) { return all(x, a); }, true},
      {"any", [](const Tensor& x, const Axes& a) { return any(x, a); }, true},
      {"mean", [](const Tensor& x, const Axes& a) { return mean(x, a); }, false},
      {"max", [](const Tensor& x, const Axes& a) { return max(x, a); }, false},
      {"min", [](const Tensor& x, const Axes& a) { return min(x, a); }, false},
      {"var", [](const Tensor& x, const Axes& a) { return var(x, a); }, false},
      {"std", [](const Tensor& x, const Axes& a) { return ops::std(x, a); }, false},
      {"logsumexp", [](const Tensor& x, const Axes& a) { return logsumexp(x, a); }, false},
      {"argmax", [](const Tensor& x, const Axes& a) { return argmax(x, a[0]); }, false},
      {"argmin", [](const Tensor& x, const Axes& a) { return argmin(x, a[0]); }, false}};
  const Tensor x = Tensor::zeros({2, 3}), empty = Tensor::zeros({2, 0});
  for (const Row& row : rows) {
    const std::string name = "[" + std::string(row.name) + "] ";
    for (const int axis : {2, -3}) {
      EXPECT_EQ(refusal_of([&] { row.reduce(x, {axis}); }),
                name + "2x3 has no axis " + std::to_string(axis));
    }
    const std::string refusal =
        refusal_of([&] { EXPECT_EQ(row.reduce(empty, {1}).shape(), Shape{2}); });
    const std::string expected = row.has_identity ? "nothing was thrown" : name;
    EXPECT_EQ(refusal.substr(0, expected.size()), expected);
    EXPECT_EQ(row.reduce(Tensor::zeros({0, 3}), {1}).shape(), Shape{0}) << row.name;
  }
}

TEST(FunctionNames, AreThoseOfAllFunctionsInTheHeader) {
  std::ifstream file(LOCKSTEP_SOURCE_FOLDER "/lockstep/engine/ops/ops.h");
  std::stringstream text;
  text << file.rdbuf();
  const std::string header = text.str();
  std::set<std::string> known, declared;
  for (const Function& f : functions()) known.insert(f.name);
  const std::regex function(R"(\n *(?:T|Tensor|Value|std::vector<T>|\w+Result<T>) (\w+)\()");
  for (std::sregex_iterator at(header.begin(), header.end(), function), end; at != end; ++at) {
    declared.insert((*at)[1]);
  }
  declared.erase("name");  // of macros
  EXPECT_GT(declared.size(), 90u);
  for (const std::string& name : declared) EXPECT_TRUE(known.count(name)) << name;
}

}  // namespace
}  // namespace lockstep::function_names
