#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/random_expressions/statements.h"
#include "tests/random_networks/dice.h"

namespace lockstep::random_expressions {
namespace {

using random_networks::Dice;
using Dims = std::vector<int64_t>;

constexpr int64_t kMostElements = 3000;

// Values stay below this, so that fp32 does not overflow.
constexpr double kLarge = 30;

class Generator {
 public:
  Generator(uint64_t seed, uint64_t number) : dice_(seed, number, 7) {}

  Program program() {
    for (int64_t i = dice_.between(1, 3); i > 0; --i) {
      Dims dims;
      for (int64_t a = dice_.between(0, 4); a > 0; --a) {
        dims.push_back(dice_.pick(Dims{1, 2, 3, 3, 5, 7, 17}));
      }
      program_.inputs.emplace_back(dims);
      add_value(Shape(dims), 1);
    }
    for (int64_t i = dice_.between(3, 14); i > 0; --i) add_any();
    // Some more of what was computed counts, so that values have several readers.
    int total = reduce_all(static_cast<int>(values_.size()) - 1);
    for (int v = static_cast<int>(values_.size()) - 3; v >= 0; v -= 3) {
      total = statement({"add", {total, reduce_all(v)}}, Shape{}, bound(total) + 1);
    }
    return std::move(program_);
  }

 private:
  struct Known {
    Shape shape;
    double bound;  // of absolute values
  };
  // A copy, because statements that are added move the values.
  Shape shape(int v) const { return values_[static_cast<size_t>(v)].shape; }
  double bound(int v) const { return values_[static_cast<size_t>(v)].bound; }
  int add_value(const Shape& shape, double bound) {
    values_.push_back({shape, bound});
    return static_cast<int>(values_.size()) - 1;
  }
  int statement(Statement s, const Shape& shape, double bound) {
    program_.statements.push_back(std::move(s));
    return add_value(shape, bound);
  }

  int any() { return static_cast<int>(dice_.between(0, static_cast<int64_t>(values_.size()) - 1)); }
  // A value whose elements are small enough to be squared.
  int small(int v) { return bound(v) <= kLarge ? v : statement({"tanh", {v}}, shape(v), 1); }
  // A positive value, not near 0.
  int positive(int v) {
    const int size = statement({"abs", {v}}, shape(v), bound(v));
    return statement({"add", {size}, {}, false, {0.5}}, shape(v), bound(v) + 0.5);
  }
  int reduce_all(int v) {
    if (shape(v).rank() == 0) return v;
    std::vector<int> axes(static_cast<size_t>(shape(v).rank()));
    std::iota(axes.begin(), axes.end(), 0);
    return statement({"mean", {v}, axes}, Shape{}, bound(v));
  }
  int random_axis(int v, int more = 0) {
    const int rank = shape(v).rank() + more;
    const auto axis = static_cast<int>(dice_.between(0, rank - 1));
    return dice_.chance(50) ? axis : axis - rank;
  }
  static size_t place(int axis, int rank) {
    return static_cast<size_t>(axis < 0 ? axis + rank : axis);
  }

  // A second operand whose shape broadcasts with v's.
  int partner(int v) {
    for (int tries = 0; tries < 6; ++tries) {
      const int other = any();
      if (broadcast(shape(v), shape(other)).second) return other;
    }
    return v;
  }
  static std::pair<Shape, bool> broadcast(const Shape& a, const Shape& b) {
    Dims dims(static_cast<size_t>(std::max(a.rank(), b.rank())), 1);
    int64_t elements = 1;
    for (int k = 1; k <= static_cast<int>(dims.size()); ++k) {
      const int64_t x = k <= a.rank() ? a[-k] : 1, y = k <= b.rank() ? b[-k] : 1;
      if (x != y && x != 1 && y != 1) return {{}, false};
      dims[dims.size() - static_cast<size_t>(k)] = x == 1 ? y : x;
      elements *= x == 1 ? y : x;
    }
    return {Shape(dims), elements <= kMostElements};
  }

  void add_any() {
    switch (dice_.between(0, 5)) {
      case 0:
        return add_function();
      case 1:
      case 2:
        return add_arithmetic();
      case 3:
        return add_reduction();
      default:
        return add_move();
    }
  }

  void add_function() {
    int v = any();
    static const std::vector<std::string> bounded{"sin", "cos", "erf", "erfc", "tanh", "sigmoid"};
    static const std::vector<std::string> linear{"negate", "abs",   "relu",     "leaky_relu", "elu",
                                                 "gelu",   "swish", "softplus", "clip"};
    static const std::vector<std::string> of_positive{"log",  "log2",  "log1p",
                                                      "sqrt", "rsqrt", "reciprocal"};
    static const std::vector<std::string> growing{"exp", "expm1", "square", "tan"};
    static const std::vector<std::string> steps{"sign", "floor", "ceil", "round"};
    switch (dice_.between(0, 8)) {
      case 0:
      case 1:
        v = small(v);
        statement({dice_.pick(bounded), {v}}, shape(v), 2);
        return;
      case 2:
      case 3:
      case 4: {
        Statement s{dice_.pick(linear), {v}};
        if (s.op == "leaky_relu" || s.op == "elu") s.numbers = {dice_.uniform(0.1, 1.5)};
        if (s.op == "clip") s.numbers = {dice_.uniform(-1, 0), dice_.uniform(0, 1)};
        const Shape result = shape(v);
        statement(s, result, 1.6 * bound(v) + 1);
        return;
      }
      case 5:
      case 6: {
        v = positive(small(v));
        const Shape result = shape(v);
        statement({dice_.pick(of_positive), {v}}, result, std::max(2.0, bound(v)));
        return;
      }
      case 7: {
        const std::string op = dice_.pick(growing);
        if (bound(v) > (op == "tan" ? 1 : 4)) v = statement({"tanh", {v}}, shape(v), 1);
        statement({op, {v}}, shape(v), std::exp(bound(v)));
        return;
      }
      default: {
        // Its derivative is 0, so it is added to what has one.
        const Shape result = shape(v);
        const int jumps = statement({dice_.pick(steps), {v}}, result, bound(v) + 1);
        statement({"add", {v, jumps}}, result, 2 * bound(v) + 1);
      }
    }
  }

  void add_arithmetic() {
    int a = any();
    if (dice_.chance(25)) {
      static const std::vector<std::string> with_number{"add",    "subtract", "multiply",
                                                        "divide", "maximum",  "minimum"};
      Statement s{dice_.pick(with_number), {a}, {}, false, {dice_.uniform(0.5, 2)}};
      const Shape result = shape(a);
      statement(s, result, 2 * bound(a) + 2);
      return;
    }
    int b = partner(a);
    static const std::vector<std::string> all{"add",    "subtract", "multiply", "multiply",
                                              "divide", "maximum",  "minimum",  "pow",
                                              "where",  "less"};
    const std::string op = dice_.pick(all);
    if (op == "multiply") a = small(a), b = small(b);
    if (op == "divide") b = positive(small(b));
    if (op == "pow") {
      a = positive(statement({"sin", {small(a)}}, shape(a), 1));
      b = statement({"tanh", {b}}, shape(b), 1);
    }
    const Shape result = broadcast(shape(a), shape(b)).first;
    const double both = op == "multiply" ? bound(a) * bound(b) : bound(a) + bound(b);
    if (op == "where" || op == "less") {
      static const std::vector<std::string> tests{
          "less", "less_equal", "equal", "greater", "not_equal", "logical_and", "logical_or"};
      const int test = statement({dice_.pick(tests), {a, b}}, result, 1);
      statement({"where", {test, a, b}}, result, both);
      return;
    }
    statement({op, {a, b}}, result, op == "divide" ? 2 * bound(a) : op == "pow" ? 4 : both);
  }

  void add_reduction() {
    int v = any();
    const int rank = shape(v).rank();
    if (rank == 0) return add_arithmetic();
    static const std::vector<std::string> all{"sum",       "mean",    "max",        "min",
                                              "prod",      "var",     "std",        "norm",
                                              "logsumexp", "softmax", "log_softmax"};
    Statement s{dice_.pick(all), {}};
    if (s.op == "softmax" || s.op == "log_softmax") {
      s.in = {v = small(v)};
      s.axes = {random_axis(v)};
      const Shape result = shape(v);
      statement(s, result, 2 * bound(v) + 8);
      return;
    }
    int64_t count = 1;
    Dims kept;
    s.keep_dims = dice_.chance(40);
    for (int a = 0; a < rank; ++a) {
      if (dice_.chance(50)) {
        s.axes.push_back(dice_.chance(50) ? a : a - rank);
        count *= shape(v)[a];
        if (s.keep_dims) kept.push_back(1);
      } else {
        kept.push_back(shape(v)[a]);
      }
    }
    const auto n = static_cast<double>(count);
    double most = bound(v);
    if (s.op == "sum") most *= n;
    if (s.op == "norm") most *= std::sqrt(n);
    if (s.op == "logsumexp") most += std::log(n);
    if (s.op == "prod") {
      v = statement({"tanh", {v}}, shape(v), 1);
      most = 1;
    }
    if (s.op == "var" || s.op == "std" || s.op == "norm") {
      if ((s.op != "norm" && count < 2) || bound(v) > kLarge) return add_function();
      s.numbers = {dice_.chance(50) ? 0.0 : 1.0};
      most = most * most + 1;
    }
    s.in = {v};
    statement(s, Shape(kept), most);
  }

  // A loss of a value and of others of its shape.
  void add_loss(int v) {
    const Shape x = shape(v);
    static const std::vector<std::string> all{"triplet_margin", "nll", "softmax_cross_entropy"};
    Statement s{dice_.pick(all), {v}};
    if (s.op == "triplet_margin" || x.rank() < 2) {
      const int other = small(v);
      s = {"triplet_margin", {v}, {}, false, {dice_.uniform(0, 2)}};
      s.in.push_back(statement({"cos", {other}}, x, 1));
      s.in.push_back(statement({"sigmoid", {other}}, x, 1));
      statement(s, Shape{x[0]}, (2 * bound(v) + 2) * 60 + 2);
      return;
    }
    s.in[0] = v = small(v);
    s.in.push_back(statement({"sin", {v}}, x, 1));
    s.numbers = {static_cast<double>(dice_.between(-1, 2)), dice_.pick(std::vector{0.0, 0.1})};
    Dims dims = x.dims();
    dims.erase(dims.begin() + 1);
    statement(s, Shape(dims), 4 * bound(v) + 16);
  }

  // A function of sequences, n x t x c, whose lengths are t, t - 1 and so on.
  void add_sequence(int v) {
    Shape x = shape(v);
    static const std::vector<std::string> all{"attention", "attention", "rotary",
                                              "rms_norm",  "last_step", "mean_over_steps"};
    Statement s{dice_.pick(all), {v}};
    if (s.op == "rotary" && x[2] % 2 != 0) {  // it needs pairs of channels
      x = Shape{x[0], x[1], 2 * x[2]};
      s.in = {statement({"concat", {v, v}, {2}}, x, bound(v))};
    }
    Dims dims = x.dims();
    if (s.op == "attention") {
      const int other = small(v);
      s.in = {statement({"sin", {other}}, x, 1), statement({"tanh", {other}}, x, 1), v};
      s.sizes = {dice_.chance(50) ? x[2] : 1, dice_.chance(50) ? 1 : 0};
    } else if (s.op == "rms_norm") {
      s.in = {small(v)};
    } else if (s.op == "rotary") {
      s.sizes = {dice_.chance(50) ? x[2] / 2 : 1, dice_.between(0, 9), dice_.chance(50) ? 1 : 0};
    } else {
      dims.erase(dims.begin() + 1);
    }
    statement(s, Shape(dims), 2 * bound(v) + (s.op == "rms_norm" ? 5 : 0));
  }

  void add_move() {
    int v = any();
    if (shape(v).rank() == 3 && dice_.chance(20)) return add_sequence(v);
    if (shape(v).rank() > 0 && dice_.chance(10)) return add_loss(v);
    const int rank = shape(v).rank();
    Dims dims = shape(v).dims();
    static const std::vector<std::string> all{
        "broadcast_to",   "permute_dims",   "slice",
        "expand_dims",    "squeeze",        "flip",
        "roll",           "tile",           "diagonal",
        "split",          "stack",          "concat",
        "pad_constant",   "pad_reflect",    "pad_edge",
        "matmul",         "matmul",         "matrix_transpose",
        "cumsum",         "take_by_argmax", "gather_by_argmin",
        "tril",           "triu",           "add_linspace",
        "multiply_arange"};
    Statement s{dice_.pick(all), {v}};
    if (s.op == "broadcast_to") {
      for (int64_t& d : dims) {
        if (d == 1) d = dice_.between(1, 4);
      }
      if (dice_.chance(50)) dims.insert(dims.begin(), dice_.between(1, 3));
      s.sizes = dims;
    } else if (s.op == "permute_dims") {
      std::vector<int> order(dims.size());
      std::iota(order.begin(), order.end(), 0);
      for (size_t a = dims.size(); a > 1; --a) {
        std::swap(order[a - 1],
                  order[static_cast<size_t>(dice_.between(0, static_cast<int64_t>(a) - 1))]);
      }
      for (size_t a = 0; a < dims.size(); ++a) dims[a] = shape(v)[order[a]];
      s.axes = order;
    } else if (s.op == "expand_dims") {
      if (rank > 4) return;
      s.axes = {random_axis(v, 1)};
      dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(place(s.axes[0], rank + 1)), 1);
    } else if (s.op == "tile") {
      for (int64_t i = dice_.between(1, rank + 1); i > 0; --i)
        s.sizes.push_back(dice_.between(1, 3));
      if (s.sizes.size() > dims.size()) dims.insert(dims.begin(), s.sizes.size() - dims.size(), 1);
      for (size_t i = 0; i < s.sizes.size(); ++i)
        dims[dims.size() - 1 - i] *= s.sizes[s.sizes.size() - 1 - i];
    } else if (rank == 0) {
      return add_function();
    } else if (!add_settings_of_axes(s, v, dims)) {
      return add_arithmetic();
    }
    int64_t elements = 1;
    for (const int64_t d : dims) elements *= d;
    if (elements > kMostElements || elements == 0) return;
    double most = bound(v) + 1;
    if (s.op == "multiply_arange") most *= 1 + s.numbers[1] * static_cast<double>(dims.back());
    if (s.op == "matmul") most = bound(s.in[0]) * bound(s.in[1]) * 17;
    statement(s, Shape(dims), most);
  }

  // The settings of moves of values that have axes; dims becomes the result's.
  bool add_settings_of_axes(Statement& s, int& v, Dims& dims) {
    const int rank = static_cast<int>(dims.size());
    const auto choose = [&](Dims::value_type& size) -> size_t {
      s.axes = {random_axis(v)};
      const size_t at = place(s.axes[0], rank);
      size = dims[at];
      return at;
    };
    int64_t size = 0;
    if (s.op == "tril" || s.op == "triu") {
      if (rank < 2) return false;
      s.sizes = {dice_.between(-2, 2)};
    } else if (s.op == "add_linspace" || s.op == "multiply_arange") {
      s.numbers = {dice_.uniform(-1, 1), s.op == "add_linspace" ? dice_.uniform(-1, 1) : 0.05};
    } else if (s.op == "slice") {
      for (int64_t& d : dims) {
        const int64_t step = dice_.pick(Dims{1, 1, 2, -1, -2, 3});
        const int64_t first = dice_.between(0, d - 1), last = dice_.between(first, d - 1);
        if (step > 0) {
          s.sizes.insert(s.sizes.end(), {first, last + 1, step});
        } else {
          s.sizes.insert(s.sizes.end(), {last, first - 1, step});
        }
        d = (last - first) / std::abs(step) + 1;
      }
    } else if (s.op == "squeeze") {
      Dims left;
      for (int a = 0; a < rank; ++a) {
        if (dims[static_cast<size_t>(a)] == 1 && dice_.chance(70)) {
          s.axes.push_back(dice_.chance(50) ? a : a - rank);
        } else {
          left.push_back(dims[static_cast<size_t>(a)]);
        }
      }
      dims = left;
    } else if (s.op == "flip") {
      for (int a = 0; a < rank; ++a) {
        if (dice_.chance(50)) s.axes.push_back(dice_.chance(50) ? a : a - rank);
      }
    } else if (s.op == "cumsum") {
      choose(size);
    } else if (s.op == "gather_by_argmin") {
      s.in.push_back(v);
      dims[choose(size)] = 1;
    } else if (s.op == "take_by_argmax") {
      const size_t at = choose(size);
      for (int other = 0; other < static_cast<int>(values_.size()); ++other) {
        const Shape y = shape(other);
        if (y.rank() == 0 || y.rank() > 3 || s.in.size() > 1) continue;
        const int axis = random_axis(other);
        if (y[axis] > size) continue;
        s.in.push_back(other);
        s.axes.push_back(axis);
        Dims indices = y.dims();
        indices.erase(indices.begin() + static_cast<std::ptrdiff_t>(place(axis, y.rank())));
        dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(at));
        dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(at), indices.begin(), indices.end());
      }
      if (s.in.size() < 2 || dims.size() > 5) return false;
    } else if (s.op == "roll") {
      choose(size);
      s.sizes = {dice_.between(-20, 20)};
    } else if (s.op == "diagonal") {
      if (rank < 2) return false;
      const int64_t columns = dims.back();
      dims.pop_back();
      dims.back() = std::min(dims.back(), columns);
    } else if (s.op == "split") {
      const size_t at = choose(size);
      Dims divisors;
      for (int64_t d = 1; d <= size; ++d) {
        if (size % d == 0) divisors.push_back(d);
      }
      const int64_t sections = dice_.pick(divisors);
      s.sizes = {sections, dice_.between(0, sections - 1)};
      dims[at] = size / sections;
    } else if (s.op == "stack" || s.op == "concat") {
      // Values of the same shape.
      for (int other = 0; other < static_cast<int>(values_.size()) && s.in.size() < 3; ++other) {
        if (other != v && shape(other) == shape(v)) s.in.push_back(other);
      }
      const auto parts = static_cast<int64_t>(s.in.size());
      if (s.op == "stack") {
        if (rank > 4) return false;
        s.axes = {random_axis(v, 1)};
        dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(place(s.axes[0], rank + 1)), parts);
      } else {
        s.axes = {static_cast<int>(dice_.between(0, rank - 1))};
        dims[static_cast<size_t>(s.axes[0])] *= parts;
      }
    } else if (s.op.starts_with("pad_")) {
      s.numbers = {dice_.uniform(-1, 1)};
      for (int64_t i = dice_.between(1, rank); i > 0; --i) {
        int64_t& d = dims[s.sizes.size() / 2];
        const int64_t most = s.op == "pad_reflect" ? d - 1 : 3;
        const int64_t before = dice_.between(0, most), after = dice_.between(0, most);
        s.sizes.insert(s.sizes.end(), {before, after});
        // Reflections of one axis do not see those of another, so the second is of what was padded.
        d += before + after;
      }
    } else if (s.op == "matmul") {
      return add_product(s, v, dims);
    } else if (s.op == "matrix_transpose") {
      if (rank < 2) return false;
      std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
    }
    return true;
  }

  // With a value whose sizes fit, else with the transpose of the value itself.
  bool add_product(Statement& s, int& v, Dims& dims) {
    s.in = {v = small(v)};
    const int rank = static_cast<int>(dims.size());
    for (int other = 0; other < static_cast<int>(values_.size()); ++other) {
      const Shape b = shape(other);
      if (b.rank() != 2 || rank < 1 || b[0] != dims.back() || dice_.chance(30)) continue;
      s.in.push_back(small(other));
      dims.back() = shape(s.in[1])[1];
      return true;
    }
    if (rank < 2) return false;
    Dims turned = dims;
    std::swap(turned[turned.size() - 1], turned[turned.size() - 2]);
    s.in.push_back(statement({"matrix_transpose", {v}}, Shape(turned), bound(v)));
    dims.back() = dims[dims.size() - 2];
    return true;
  }

  Dice dice_;
  Program program_;
  std::vector<Known> values_;
};

}  // namespace

nlohmann::ordered_json Program::description() const {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Statement& s : statements) {
    nlohmann::ordered_json one{{"op", s.op}, {"in", s.in}};
    if (!s.axes.empty()) one["axes"] = s.axes;
    if (s.keep_dims) one["keep_dims"] = true;
    if (!s.numbers.empty()) one["numbers"] = s.numbers;
    if (!s.sizes.empty()) one["sizes"] = s.sizes;
    all.push_back(std::move(one));
  }
  return all;
}

Program random_program(uint64_t seed, uint64_t number) { return Generator(seed, number).program(); }

}  // namespace lockstep::random_expressions
