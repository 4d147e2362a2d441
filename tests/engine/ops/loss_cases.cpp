#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {

Case softmax(std::string name, Array x) {
  Case c;
  c.name = std::move(name);
  c.op = ops::make_softmax();
  c.inputs = {{std::move(x)}};
  c.forward = [](const std::vector<Array>& in) {
    return std::vector<Array>{reference::softmax(in[0])};
  };
  c.backward = [](const std::vector<Array>& in, const Array& dy) {
    return std::vector<Array>{reference::softmax_diff(in[0], dy)};
  };
  return c;
}

namespace {

Array labels_for(int64_t rows, int64_t classes) {
  Array labels({rows});
  for (int64_t n = 0; n < rows; ++n)
    labels[n] = static_cast<double>((n * 5 + classes - 1) % classes);
  return labels;
}

}  // namespace

Case cross_entropy(std::string name, Array scores, bool from_logits) {
  const Array labels = labels_for(scores.dim(0), scores.dim(1));
  Case c;
  c.name = std::move(name);
  c.op = from_logits ? ops::make_softmax_cross_entropy() : ops::make_cross_entropy();
  c.inputs = {{std::move(scores)}, {.value = labels, .dtype = DType::i32, .gradient = false}};
  c.forward = [=](const std::vector<Array>& in) {
    if (!from_logits) return std::vector<Array>{reference::cross_entropy(in[0], in[1])};
    return std::vector<Array>{reference::softmax_cross_entropy(in[0], in[1]),
                              reference::softmax(in[0])};
  };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    return std::vector<Array>{from_logits ? reference::softmax_cross_entropy_diff(in[0], in[1], dy)
                                          : reference::cross_entropy_diff(in[0], in[1], dy),
                              {}};
  };
  return c;
}

namespace {

// Class shares instead of labels, some of them 0.
Case shared_cross_entropy(std::string name, Array scores, bool from_logits) {
  Array shares = random_array(scores.dims, 99, 0, 1);
  for (int64_t i = 0; i < shares.count(); i += 3) shares[i] = 0;
  Case c;
  c.name = std::move(name);
  c.op = from_logits ? ops::make_softmax_cross_entropy() : ops::make_cross_entropy();
  c.inputs = {{std::move(scores)}, {std::move(shares)}};
  const auto probabilities = [=](const Array& in) {
    return from_logits ? reference::softmax(in) : in;
  };
  c.forward = [=](const std::vector<Array>& in) {
    std::vector<Array> outputs{reference::shared_cross_entropy(probabilities(in[0]), in[1])};
    if (from_logits) outputs.push_back(reference::softmax(in[0]));
    return outputs;
  };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    const Array p = probabilities(in[0]);
    const Array dp = reference::shared_cross_entropy_diff(p, in[1], dy);
    return std::vector<Array>{from_logits ? reference::softmax_diff(in[0], dp) : dp,
                              reference::shared_cross_entropy_diff_shares(p, dy)};
  };
  return c;
}

Case mean_squared_error(std::string name, const std::vector<int64_t>& dims) {
  Case c;
  c.name = std::move(name);
  c.op = ops::make_mean_squared_error();
  c.inputs = {{random_array(dims, 70)}, {random_array(dims, 71)}};
  c.forward = [](const std::vector<Array>& in) {
    return std::vector<Array>{reference::mean_squared_error(in[0], in[1])};
  };
  c.backward = [](const std::vector<Array>& in, const Array& dy) {
    return std::vector<Array>{reference::mean_squared_error_diff(in[0], in[1], dy),
                              reference::mean_squared_error_diff(in[1], in[0], dy)};
  };
  return c;
}

Case sum(std::string name, Array x, double factor) {
  Case c;
  c.name = std::move(name);
  c.op = ops::make_sum(factor);
  c.inputs = {{std::move(x)}};
  c.forward = [=](const std::vector<Array>& in) {
    return std::vector<Array>{reference::sum(in[0], factor)};
  };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    return std::vector<Array>{Array(in[0].dims, factor * dy[0])};
  };
  return c;
}

}  // namespace

std::vector<Case> loss_cases() {
  std::vector<Case> cases;
  cases.push_back(softmax("rank_2", random_array({5, 7}, 80, -3, 3)));
  cases.push_back(softmax("rank_2_batch_1_of_33", random_array({1, 33}, 81, -3, 3)));
  cases.push_back(softmax("image_of_11_channels", random_array({2, 11, 3, 5}, 82, -3, 3)));
  cases.push_back(softmax("image_of_16_channels", random_array({3, 16, 2, 2}, 83, -3, 3)));
  // One class: the probability is always 1.
  cases.push_back(softmax("one_class", random_array({4, 1}, 84)));
  cases.back().cancelling = 1;
  // Differences of hundreds: one probability is 1, all gradients vanish.
  cases.push_back(softmax("huge", random_array({5, 7}, 85, -5e4, 5e4)));
  cases.back().cancelling = 1;
  cases.back().smooth = false;
  // Large scores that are close to each other.
  cases.push_back(softmax("huge_image", random_array({2, 17, 2, 3}, 86, 9999, 10001)));
  cases.back().smooth = false;

  cases.push_back(cross_entropy("odd", random_array({5, 7}, 87, 0.1, 1), false));
  cases.push_back(cross_entropy("batch_1_of_33", random_array({1, 33}, 88, 0.1, 1), false));
  cases.push_back(cross_entropy("one_class", random_array({3, 1}, 89, 0.1, 1), false));
  cases.push_back(cross_entropy("odd", random_array({5, 7}, 90, -3, 3), true));
  cases.push_back(cross_entropy("batch_1_of_33", random_array({1, 33}, 91, -3, 3), true));
  cases.push_back(cross_entropy("batch_17_of_11", random_array({17, 11}, 92, -3, 3), true));
  cases.push_back(cross_entropy("one_class", Array({3, 1}, 0.5), true));
  cases.back().cancelling = 1;
  cases.push_back(cross_entropy("huge", random_array({6, 7}, 93, -5e4, 5e4), true));
  cases.back().cancelling = 1;
  cases.back().smooth = false;
  {
    // softmax followed by cross-entropy is one op.
    Case c = cross_entropy("fused_from_softmax", random_array({9, 11}, 94, -5, 5), true);
    c.op = ops::make_softmax()->fuse(*ops::make_cross_entropy()).value().op;
    cases.push_back(c);
  }

  cases.push_back(shared_cross_entropy("shares", random_array({5, 7}, 101, 0.1, 1), false));
  cases.push_back(
      shared_cross_entropy("shares_batch_1_of_33", random_array({1, 33}, 102, 0.1, 1), false));
  cases.push_back(shared_cross_entropy("shares", random_array({5, 7}, 103, -3, 3), true));
  cases.push_back(shared_cross_entropy("shares_of_300", random_array({3, 300}, 104, -3, 3), true));

  cases.push_back(mean_squared_error("rank_1", {7}));
  cases.push_back(mean_squared_error("rank_2", {5, 11}));
  cases.push_back(mean_squared_error("image_of_17_channels", {2, 17, 3, 5}));
  cases.push_back(mean_squared_error("image_of_16_channels_batch_1", {1, 16, 4, 4}));
  cases.push_back(mean_squared_error("one_of_everything", {1, 1}));

  cases.push_back(sum("scalar", random_array({}, 95), 1));
  cases.push_back(sum("one_element", random_array({1}, 95), 3));
  cases.push_back(sum("odd", random_array({3, 7, 11}, 96), 1));
  cases.push_back(sum("image", random_array({2, 11, 5, 3}, 97), -0.25));
  cases.push_back(sum("mean_of_1000", random_array({1000}, 98, 0, 1), 1e-3));
  return cases;
}

}  // namespace lockstep::optest
