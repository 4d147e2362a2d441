// Ops whose kernels are mostly this project's: elementwise ops, normalization, shapes, losses.
#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/engine/kernels/attention/attention.h"
#include "lockstep/engine/kernels/elementwise/activation.h"
#include "lockstep/engine/kernels/elementwise/addition.h"
#include "lockstep/engine/kernels/elementwise/clipped_relu.h"
#include "lockstep/engine/kernels/elementwise/dropout.h"
#include "lockstep/engine/kernels/elementwise/expression.h"
#include "lockstep/engine/kernels/elementwise/multiplication.h"
#include "lockstep/engine/kernels/elementwise/random_uniform.h"
#include "lockstep/engine/kernels/elementwise/relu.h"
#include "lockstep/engine/kernels/images/normalize_images.h"
#include "lockstep/engine/kernels/losses/cross_entropy.h"
#include "lockstep/engine/kernels/losses/ctc.h"
#include "lockstep/engine/kernels/losses/mean_squared_error.h"
#include "lockstep/engine/kernels/losses/one_hot.h"
#include "lockstep/engine/kernels/losses/softmax.h"
#include "lockstep/engine/kernels/normalization/batch_normalization.h"
#include "lockstep/engine/kernels/normalization/group_normalization.h"
#include "lockstep/engine/kernels/reductions/reduce.h"
#include "lockstep/engine/kernels/reductions/sum.h"
#include "lockstep/engine/kernels/self_test/case_list.h"
#include "lockstep/engine/kernels/shapes/concatenation.h"
#include "lockstep/engine/kernels/shapes/reshape.h"
#include "lockstep/engine/kernels/shapes/strided_copy.h"

namespace lockstep::kernels::selftest {
namespace {

using Kind = Operand::Kind;

constexpr Bounds kExact{};
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(),
                kInfinity = std::numeric_limits<float>::infinity();

struct Sized {
  Shape shape;
  bool large = false;
};

const std::vector<Sized>& shapes() {
  static const std::vector<Sized> all{
      {{1}},           {{5, 3}},   {{2, 3, 5, 7}},    {{3, 33, 9, 4}},
      {{4, 16, 6, 6}}, {{300, 3}}, {{2, 3, 2, 5, 4}}, {{64, 16, 32, 32}, true}};
  return all;
}

std::vector<float> normal(const Shape& shape, uint64_t key) {
  return normal_numbers(static_cast<size_t>(shape.elements()), key);
}

Values special_numbers(const Shape& shape) {
  std::vector<float> x = normal(shape, 1);
  const float special[] = {0.0f, -0.0f, kNaN, kInfinity, -kInfinity, 0.75f};
  for (size_t i = 0; i < x.size() && i < std::size(special); ++i) x[i] = special[i];
  // Representable in every type.
  return {{{Kind::input, 0}, bytes_of(rounded_to(rounded_to(x, DType::bf16), DType::f16))}};
}

// Adds a case for each type, and each layout that the shape can have.
void add_each(std::vector<TestCase>& to, const Table& table, const std::string& kernel,
              const Sized& sized, const std::string& what, const KernelMaker& maker,
              const Bounds& bounds, const std::function<Values()>& given, bool layouts) {
  for (const std::string& type : types_of(table, kernel)) {
    for (const bool in_layout : {false, true}) {
      if (in_layout && !(layouts && has_layouts(sized.shape))) continue;
      const Bounds own = bounds.error == 0 || type == "f32" ? bounds : bounds_of(type);
      add_made(to, kernel, type, sized.shape.to_string() + (what.empty() ? "" : ", " + what),
               in_layout, maker, own, given, sized.large);
    }
  }
}

template <class MakeProblem>
void add(std::vector<TestCase>& to, const Table& table, const std::string& kernel,
         const Sized& sized, const std::string& what, MakeProblem problem, const Bounds& bounds,
         const std::function<Values()>& given = {}, bool layouts = true) {
  add_each(to, table, kernel, sized, what, kernel_for(std::move(problem)), bounds, given, layouts);
}

void add_elementwise(std::vector<TestCase>& to, const Table& table) {
  for (const Sized& s : shapes()) {
    const Shape& shape = s.shape;
    add(
        to, table, "relu", s, "", [shape](const Specs& spec) { return ReluProblem{spec(shape)}; },
        kExact, [shape] { return special_numbers(shape); });
    add(
        to, table, "clipped_relu", s, "",
        [shape](const Specs& spec) {
          return ClippedReluProblem{spec(shape), 0.75};
        },
        kExact, [shape] { return special_numbers(shape); });
    for (const size_t terms : {2u, 3u, 9u}) {
      if (s.large && terms > 2) continue;
      const std::string what = std::to_string(terms) + " terms";
      // A sum of more than two numbers may be rounded in between.
      const Bounds bounds = terms == 2 ? kExact : Bounds{.error = kSums};
      add(
          to, table, "addition", s, what,
          [shape, terms](const Specs& spec) {
            return AdditionProblem{std::vector<TensorSpec>(terms, spec(shape))};
          },
          bounds);
      add(
          to, table, "multiplication", s, what,
          [shape, terms](const Specs& spec) {
            return MultiplicationProblem{std::vector<TensorSpec>(terms, spec(shape))};
          },
          kExact);
    }
    for (const double probability : {0.0, 0.5}) {
      add(
          to, table, "dropout", s, "probability " + std::to_string(probability).substr(0, 3),
          [shape, probability](const Specs& spec) {
            return DropoutProblem{spec(shape), probability, 77};
          },
          kExact);
    }
  }
  for (const Shape& shape : std::vector<Shape>{{5, 3}, {3, 33, 9, 4}, {16, 1000}}) {
    add(
        to, table, "random_uniform", {shape}, "",
        [shape](const Specs&) {
          return RandomUniformProblem{shape, 77};
        },
        kExact, {}, false);
  }
  using enum ActivationKind;
  for (const auto& [kind, name] :
       {std::pair{leaky_relu, "leaky_relu"}, std::pair{elu, "elu"}, std::pair{gelu, "gelu"},
        std::pair{gelu_tanh, "gelu_tanh"}, std::pair{swish, "swish"}, std::pair{tanh, "tanh"},
        std::pair{sigmoid, "sigmoid"}, std::pair{softplus, "softplus"}}) {
    for (const Sized& s : {Sized{{5, 3}}, Sized{{3, 33, 9, 4}}, Sized{{16, 16, 32, 32}, true}}) {
      add(
          to, table, "activation", s, name,
          [shape = s.shape, kind = kind](const Specs& spec) {
            return ActivationProblem{spec(shape), kind, 0.25};
          },
          {.error = kSums}, [shape = s.shape] { return special_numbers(shape); });
    }
  }
}

// Each opcode, and programs on inputs that are broadcast. Only elementary functions differ from the
// CPU's.
void add_expressions(std::vector<TestCase>& to, const Table& table) {
  const auto add_program = [&](const Sized& s, const std::string& what, std::vector<Shape> src,
                               const std::vector<Instruction>& program, const Bounds& bounds) {
    add(
        to, table, "expression", s, what,
        [s, src, program](const Specs& spec) {
          ExpressionProblem p{{}, s.shape, program};
          for (const Shape& shape : src) p.src.push_back(spec(shape));
          return p;
        },
        bounds, [shape = src[0]] { return special_numbers(shape); }, false);
  };
  // Of the second input: rows backwards, every second channel, and a row of pixels for all.
  const auto add_by_strides = [&](const Sized& s) {
    const Shape d = s.shape;
    add(
        to, table, "expression", s, "by strides",
        [d](const Specs& spec) {
          const int64_t image = d[2] * d[3], row = 2 * d[1] * image;
          ExpressionProblem p{{spec(d), spec(Shape{d[0], 2 * d[1], d[2], d[3]})},
                              d,
                              {{Opcode::subtract, 0, 1}, {Opcode::multiply, 2, 1}}};
          p.strided = {{}, {(d[0] - 1) * row, {-row, 2 * image, 0, 1}}};
          return p;
        },
        kExact, [d] { return special_numbers(d); }, false);
  };
  for (int i = 0; i < kOpcodes; ++i) {
    const auto opcode = static_cast<Opcode>(i);
    const auto arguments = static_cast<size_t>(std::max(arity_of(opcode), 1));
    add_program({{33, 5}}, std::string(name_of(opcode)), std::vector<Shape>(arguments, {33, 5}),
                {{opcode, 0, 1, 2, 0.75f}},
                is_elementary(opcode) ? Bounds{.error = kSums} : kExact);
  }
  using enum Opcode;
  const std::vector<Instruction> program{
      {subtract, 0, 1}, {multiply, 4, 2}, {constant}, {maximum, 5, 6}, {multiply_add, 7, 3, 0}};
  for (const Sized& s : {Sized{{2, 3, 5, 7}}, Sized{{1, 1, 1, 1}}, Sized{{3, 33, 9, 4}},
                         Sized{{64, 16, 32, 32}, true}}) {
    const Shape& d = s.shape;
    add_program(s, "per channel, column and observation",
                {d, {d[1], 1, 1}, {d[3]}, {d[0], 1, 1, 1}}, program, kExact);
    add_by_strides(s);
  }
}

// Numbers of alternating sign away from zero, so that rounding changes no sign after
// normalization.
Values far_from_zero(const Shape& shape, bool training) {
  std::vector<float> x = normal(shape, 1);
  for (size_t i = 0; i < x.size(); ++i) {
    const float size = 1 + 0.25f * std::tanh(x[i]);
    x[i] = (i * 2654435761u >> 7) % 2 == 0 ? size : -size;
  }
  x = rounded_to(rounded_to(x, DType::bf16), DType::f16);
  const auto channels = static_cast<size_t>(shape[1]);
  std::vector<float> scale(channels), shift(channels), mean(channels), variance(channels);
  const std::vector<float> noise = normal_numbers(4 * channels, 3);
  for (size_t c = 0; c < channels; ++c) {
    scale[c] = 1 + 0.1f * std::tanh(noise[c]);
    shift[c] = 0.1f * std::tanh(noise[c + channels]);
    mean[c] = 0.1f * std::tanh(noise[c + 2 * channels]);
    variance[c] = 1 + 0.5f * std::tanh(noise[c + 3 * channels]);
  }
  Values given{{{Kind::input, 0}, bytes_of(x)},
               {{Kind::input, 1}, bytes_of(scale)},
               {{Kind::input, 2}, bytes_of(shift)}};
  if (training) return given;
  given[{Kind::input, 3}] = bytes_of(mean);
  given[{Kind::input, 4}] = bytes_of(variance);
  return given;
}

void add_normalization(std::vector<TestCase>& to, const Table& table) {
  for (const Sized& s : {Sized{{30, 5}}, Sized{{300, 3}}, Sized{{4, 3, 5, 7}}, Sized{{3, 33, 9, 4}},
                         Sized{{4, 16, 8, 8}}, Sized{{3, 5, 2, 7, 4}},
                         Sized{{32, 64, 16, 16}, true}, Sized{{64, 16, 32, 32}, true}}) {
    for (const bool training : {true, false}) {
      for (const bool relu : {true, false}) {
        add(
            to, table, "batch_normalization", s,
            std::string(training ? "training" : "prediction") + (relu ? ", ReLU" : ""),
            [shape = s.shape, training, relu](const Specs& spec) {
              return BatchNormalizationProblem{spec(shape), 1e-5, relu, training};
            },
            {.error = 3e-5},
            [shape = s.shape, training] { return far_from_zero(shape, training); });
      }
    }
  }
  for (const auto& [s, groups] :
       {std::pair{Sized{{7, 5}}, 1}, std::pair{Sized{{6, 70}}, 7},
        std::pair{Sized{{3, 33, 9, 4}}, 11}, std::pair{Sized{{2, 16, 8, 8}}, 4},
        std::pair{Sized{{2, 6, 3, 4, 5}}, 3}, std::pair{Sized{{16, 64, 16, 16}, true}, 8}}) {
    add(to, table, "group_normalization", s, std::to_string(groups) + " groups",
        [shape = s.shape, groups = groups](const Specs& spec) {
          return GroupNormalizationProblem{spec(shape), groups};
        },
        {.error = 3e-5});
  }
}

void add_shapes(std::vector<TestCase>& to, const Table& table) {
  for (const auto& [s, result] : {std::pair{Sized{{2, 3, 5, 7}}, Shape{2, 105}},
                                  std::pair{Sized{{2, 3, 5, 7}}, Shape{2, 5, 7, 3}},
                                  std::pair{Sized{{4, 16, 4, 4}}, Shape{4, 256}}}) {
    add(
        to, table, "reshape", s, "to " + result.to_string(),
        [shape = s.shape, result = result](const Specs& spec) {
          return ReshapeProblem{spec(shape), result};
        },
        kExact);
  }
  const struct {
    std::vector<Shape> src;
    int axis;
  } rows[] = {{{{2, 3, 5, 7}, {2, 1, 5, 7}, {2, 40, 5, 7}}, 1},
              {{{2, 3, 5, 7}, {1, 3, 5, 7}}, 0},
              {{{2, 3, 5, 7}, {2, 3, 5, 1}}, 3},
              {{{4, 16, 6, 6}, {4, 16, 6, 6}}, 1},
              {{{4, 3}, {4, 300}}, 1},
              {{{2, 3, 2, 5, 4}, {2, 4, 2, 5, 4}}, 1}};
  for (const auto& row : rows) {
    add(
        to, table, "concatenation", {row.src[0]}, "axis " + std::to_string(row.axis),
        [src = row.src, axis = row.axis](const Specs& spec) {
          ConcatenationProblem p{{}, axis};
          for (const Shape& shape : src) p.src.push_back(spec(shape));
          return p;
        },
        kExact);
  }
  for (const int64_t n : {1, 7, 257, 1023, 5000, 300001}) {
    add(
        to, table, "sum", {Shape{n}, n > 10000}, "",
        [n](const Specs& spec) {
          return SumProblem{spec({n}), 0.1};
        },
        kExact);
  }
}

// In the CPU's order, so with its bits.
void add_reductions(std::vector<TestCase>& to, const Table& table) {
  const std::vector<std::pair<Sized, std::vector<int>>> rows{
      {Sized{{1}}, {0}},           {Sized{{300, 3}}, {0}},
      {Sized{{5, 300}}, {1}},      {Sized{{2, 3, 5, 7}}, {}},
      {Sized{{2, 3, 5, 7}}, {1}},  {Sized{{3, 33, 9, 4}}, {0, 2, 3}},
      {Sized{{2, 9001}}, {1}},     {Sized{{64, 16, 32, 32}, true}, {0, 2, 3}},
      {Sized{{300001}, true}, {0}}};
  using enum Reduction;
  for (const auto& [src, axes] : rows) {
    for (const auto& [kind, name] :
         {std::pair{sum, "sum"}, std::pair{product, "product"}, std::pair{maximum, "maximum"},
          std::pair{minimum, "minimum"}}) {
      if (src.large && kind != sum) continue;
      std::string what = name;
      for (const int axis : axes) what += " " + std::to_string(axis);
      add(
          to, table, "reduce", src, what,
          [shape = src.shape, axes = axes, kind = kind](const Specs& spec) {
            return ReduceProblem{spec(shape), axes, kind, 0.1};
          },
          kExact, {}, false);
      if (src.large) continue;
      add(
          to, table, "reduce", src, what + " of an expression",
          [shape = src.shape, axes = axes, kind = kind](const Specs& spec) {
            const std::vector<Instruction> program{{Opcode::square, 0}, {Opcode::subtract, 1, 0}};
            return ReduceProblem{spec(shape), axes, kind, 0.1, {{spec(shape)}, shape, program}};
          },
          kExact, {}, false);
    }
  }
}

// Transposes, slices backward and with steps, repetition, and the reverse of the first two.
void add_strided_copies(std::vector<TestCase>& to, const Table& table) {
  const std::vector<std::pair<std::string, StridedCopyProblem>> rows{
      {"transpose", {{}, Shape{7, 5, 3}, 0, {1, 7, 35}}},
      {"slice", {{}, Shape{2, 3, 4}, 34, {35, -7, 2}}},
      {"repetition", {{}, Shape{4, 3, 5, 9}, 0, {0, 35, 7, 0}}}};
  for (const auto& [name, problem] : rows) {
    add(
        to, table, "strided_copy", {Shape{3, 5, 7}}, name,
        [problem = problem](const Specs&) {
          StridedCopyProblem p = problem;
          p.src = {Shape{3, 5, 7}, DType::f32, nullptr};
          return p;
        },
        kExact, {}, false);
  }
  add(
      to, table, "strided_copy", {Shape{2, 3, 4}}, "into zeros",
      [](const Specs&) {
        return StridedCopyProblem{
            {Shape{2, 3, 4}, DType::f32, nullptr}, Shape{3, 5, 7}, 34, {35, -7, 2}, true};
      },
      kExact, {}, false);
}

Values labels_for(const Shape& shape) {
  std::vector<int32_t> labels;
  for (int64_t n = 0; n < shape[0]; ++n) {
    labels.push_back(static_cast<int32_t>((n * 7 + shape[1] - 1) % shape[1]));
  }
  return {{{Kind::input, 1}, bytes_of(labels)}};
}

// For scores that are probabilities.
HostBytes probabilities(const Shape& shape) {
  std::vector<float> x = normal(shape, 1);
  for (float& v : x) v = std::abs(v) + 0.01f;
  return bytes_of(x);
}

void add_losses(std::vector<TestCase>& to, const Table& table) {
  for (const Shape& shape : std::vector<Shape>{{1}, {5}, {3, 33}}) {
    std::vector<int32_t> labels;
    for (int64_t i = 0; i < shape.elements(); ++i) labels.push_back(static_cast<int32_t>(i % 7));
    add(
        to, table, "one_hot", {shape}, "",
        [shape](const Specs&) {
          return OneHotProblem{{shape, DType::i32, nullptr}, 7};
        },
        kExact,
        [labels] {
          return Values{{{Kind::input, 0}, bytes_of(labels)}};
        },
        false);
  }
  for (const Shape& shape :
       std::vector<Shape>{{1, 1}, {5, 3}, {3, 33}, {16, 10}, {4, 256}, {3, 1000}}) {
    for (const float factor : {1.0f, 50.0f}) {
      std::vector<float> x = normal(shape, 1);
      for (float& v : x) v *= factor;
      add(
          to, table, "softmax", {shape}, factor > 1 ? "large scores" : "",
          [shape](const Specs& spec) { return SoftmaxProblem{spec(shape)}; }, {.error = kSums},
          [x] {
            return Values{{{Kind::input, 0}, bytes_of(x)}};
          });
    }
    for (const bool from_logits : {true, false}) {
      for (const bool shares : {false, true}) {
        Values given = shares ? Values{} : labels_for(shape);
        if (!from_logits) given[{Kind::input, 0}] = probabilities(shape);
        if (shares) given[{Kind::input, 1}] = probabilities(shape);
        add(
            to, table, "cross_entropy", {shape},
            std::string(from_logits ? "scores" : "probabilities") + (shares ? ", shares" : ""),
            [shape, from_logits, shares](const Specs& spec) {
              return CrossEntropyProblem{spec(shape), from_logits, shares};
            },
            {.error = kSums}, [given] { return given; });
      }
    }
  }
  for (const Shape& shape : std::vector<Shape>{{5, 3}, {2, 3, 5, 7}, {16, 1, 32, 32}}) {
    add(
        to, table, "mean_squared_error", {shape}, "",
        [shape](const Specs& spec) { return MeanSquaredErrorProblem{spec(shape)}; },
        {.error = kSums}, {}, false);
  }
}

void add_attention(std::vector<TestCase>& to, const Table& table) {
  const struct {
    int64_t n, queries, keys, heads, size, value_size;
    bool lengths = false, causal = false, large = false;
    double dropout = 0;
    bool from_end = false;
  } rows[] = {{1, 1, 1, 1, 1, 1},
              {3, 5, 7, 2, 3, 4, true},
              {3, 140, 140, 1, 5, 9, true, true},
              {2, 40, 300, 2, 8, 130, false, false, false, 0.3},
              {2, 33, 33, 3, 64, 64, true, true, false, 0.5},
              {4, 7, 130, 2, 8, 8, true, true, false, 0, true},
              {4, 256, 256, 6, 64, 64, true, true, true}};
  for (const auto& row : rows) {
    std::vector<int32_t> lengths, of_queries;
    for (int64_t i = 0; i < row.n; ++i) {
      lengths.push_back(static_cast<int32_t>(row.keys * i / 2));
      of_queries.push_back(static_cast<int32_t>(row.queries - i));
    }
    Values given;
    if (row.lengths) given[{Kind::input, 3}] = bytes_of(lengths);
    if (row.from_end) given[{Kind::input, 4}] = bytes_of(of_queries);
    add(
        to, table, "attention", {Shape{row.n, row.queries, row.heads * row.size}, row.large},
        std::to_string(row.keys) + " keys, " + std::to_string(row.heads) + " heads" +
            (row.causal ? ", causal" : "") + (row.from_end ? " from the end" : "") +
            (row.dropout > 0 ? ", dropout" : ""),
        [row](const Specs& spec) {
          return AttentionProblem{spec({row.n, row.queries, row.heads * row.size}),
                                  spec({row.n, row.keys, row.heads * row.size}),
                                  spec({row.n, row.keys, row.heads * row.value_size}),
                                  row.heads,
                                  row.causal,
                                  row.from_end,
                                  0.5,
                                  row.dropout,
                                  77,
                                  row.lengths,
                                  row.from_end};
        },
        {.error = kSums}, [given] { return given; }, false);
  }
}

// Some labels have no alignment, and one of them no class.
void add_ctc(std::vector<TestCase>& to, const Table& table) {
  for (const Sized& s : {Sized{{1, 1, 2}}, Sized{{5, 9, 4}}, Sized{{16, 100, 30}, true}}) {
    const int64_t n = s.shape[0], most = 4;
    std::vector<int32_t> lengths, labels, label_lengths;
    for (int64_t i = 0; i < n; ++i) {
      lengths.push_back(static_cast<int32_t>(s.shape[1] - i % 3 * 3));
      label_lengths.push_back(static_cast<int32_t>(i % (most + 1)));
      for (int64_t l = 0; l < most; ++l) {
        labels.push_back(static_cast<int32_t>(1 + (i * l) % (s.shape[2] - (i == 3 ? 0 : 1))));
      }
    }
    const Values given{{{Kind::input, 1}, bytes_of(lengths)},
                       {{Kind::input, 2}, bytes_of(labels)},
                       {{Kind::input, 3}, bytes_of(label_lengths)}};
    add(
        to, table, "ctc", s, "",
        [shape = s.shape, most](const Specs& spec) {
          return CtcProblem{spec(shape), most, 0};
        },
        {.error = kSums}, [given] { return given; }, false);
  }
}

void add_images(std::vector<TestCase>& to, const Table& table) {
  for (const Sized& s : {Sized{{2, 3, 5, 7}}, Sized{{3, 1, 4, 6}}, Sized{{2, 3, 4, 5, 6}},
                         Sized{{5, 17}}, Sized{{64, 3, 32, 32}, true}}) {
    add(
        to, table, "normalize_images", s, "floats",
        [shape = s.shape](const Specs& spec) { return NormalizeImagesProblem{spec(shape)}; },
        kExact, {}, false);
    std::vector<uint8_t> pixels;
    for (int64_t i = 0; i < s.shape.elements(); ++i) pixels.push_back(static_cast<uint8_t>(i * 37));
    add(
        to, table, "normalize_images", s, "bytes",
        [shape = s.shape](const Specs&) {
          return NormalizeImagesProblem{plain_spec(shape, DType::u8)};
        },
        kExact,
        [pixels] {
          return Values{{{Kind::input, 0}, bytes_of(pixels)}};
        },
        false);
  }
}

}  // namespace

std::vector<TestCase> op_cases(const Table& table) {
  std::vector<TestCase> cases;
  add_elementwise(cases, table);
  add_expressions(cases, table);
  add_normalization(cases, table);
  add_shapes(cases, table);
  add_reductions(cases, table);
  add_strided_copies(cases, table);
  add_losses(cases, table);
  add_attention(cases, table);
  add_ctc(cases, table);
  add_images(cases, table);
  return cases;
}

}  // namespace lockstep::kernels::selftest
