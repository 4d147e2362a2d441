// The expression kernel: every opcode beside its exact value, and random programs beside a plain
// interpreter, in every instruction set and on the emulated GPU.
#include "lockstep/engine/kernels/elementwise/expression.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/cpu/elementwise/expression_loops.h"
#include "lockstep/engine/kernels/cuda/cuda.h"
#include "tests/engine/ops/only_target.h"

namespace lockstep::optest::expressions {
namespace {

using kernels::ExpressionProblem;
using kernels::Instruction;
using kernels::Kernel;
using kernels::Opcode;
using Floats = std::vector<float>;

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = NAN;

// Numbers that follow from a seed.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 1) {}
  uint64_t bits() {
    state_ = state_ * 6364136223846793005 + 1442695040888963407;
    return state_ >> 20;
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }
  float number() {
    constexpr float special[] = {0.0f, -0.0f, 1, -1, kInf, -kInf, kNan, 2.5f, -0.5f};
    if (below(12) == 0) return special[below(std::size(special))];
    return (static_cast<float>(below(1 << 20)) / (1 << 19) - 1) * (below(8) == 0 ? 30 : 2);
  }
  Floats numbers(int64_t count) {
    Floats all(static_cast<size_t>(count));
    for (float& x : all) x = number();
    return all;
  }

 private:
  uint64_t state_;
};

// Equal bits; which NaN is not promised.
bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b);
}
::testing::AssertionResult same(const Floats& a, const Floats& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << "other sizes";
  for (size_t i = 0; i < a.size(); ++i) {
    if (same(a[i], b[i])) continue;
    return ::testing::AssertionFailure()
           << "element " << i << " of " << a.size() << ": " << a[i] << ", not " << b[i];
  }
  return ::testing::AssertionSuccess();
}

// Runs the forward pass; memory that it may not read is filled with `fill`. over >= 0: the result
// overwrites this input.
Floats run(const Kernel& kernel, std::vector<Floats> inputs, float fill = kNan, int over = -1) {
  const kernels::Pass& pass = kernel.forward;
  std::vector<void*> reads, writes;
  for (Floats& x : inputs) {
    x.push_back(fill);
    reads.push_back(x.data());
  }
  const auto count = static_cast<size_t>(pass.writes[0].spec.shape.elements());
  Floats dst(count + 1, fill), scratch(pass.scratch_bytes / sizeof(float) + 1, fill);
  writes.push_back(over < 0 ? dst.data() : reads[static_cast<size_t>(over)]);
  pass.bind({.reads = reads, .writes = writes, .scratch = scratch.data()})({});
  EXPECT_TRUE(same(scratch.back(), fill) && same(dst.back(), fill)) << "writes too far";
  if (over >= 0) dst = inputs[static_cast<size_t>(over)];
  dst.resize(count);
  return dst;
}

Kernel on_cpu(const ExpressionProblem& p) { return kernels::table_for({}).expression(p); }

ExpressionProblem problem(const std::vector<Shape>& src, const Shape& dst,
                          std::vector<Instruction> program) {
  ExpressionProblem p{{}, dst, std::move(program)};
  for (const Shape& shape : src) p.src.push_back({shape, DType::f32, nullptr});
  return p;
}

// The exact values, in double. Steps of two roundings round in between.
double exact_negate(double a, double, double) { return -a; }
double exact_abs(double a, double, double) { return std::fabs(a); }
double exact_sign(double a, double, double) { return a == 0 || a != a ? a : std::copysign(1, a); }
double exact_reciprocal(double a, double, double) { return 1 / a; }
double exact_square(double a, double, double) { return a * a; }
double exact_sqrt(double a, double, double) { return std::sqrt(a); }
double exact_rsqrt(double a, double, double) { return 1 / std::sqrt(a); }
double exact_exp(double a, double, double) { return std::exp(a); }
double exact_expm1(double a, double, double) { return std::expm1(a); }
double exact_log(double a, double, double) { return std::log(a); }
double exact_log1p(double a, double, double) { return std::log1p(a); }
double exact_sin(double a, double, double) { return std::sin(a); }
double exact_cos(double a, double, double) { return std::cos(a); }
double exact_tanh(double a, double, double) { return std::tanh(a); }
double exact_erf(double a, double, double) { return std::erf(a); }
double exact_erfc(double a, double, double) { return std::erfc(a); }
double exact_sigmoid(double a, double, double) { return 1 / (1 + std::exp(-a)); }
double exact_softplus(double a, double, double) {
  return std::isinf(a) ? std::fmax(a, 0.0)
                       : std::fmax(a, 0.0) + std::log1p(std::exp(-std::fabs(a))) + (a - a);
}
double exact_floor(double a, double, double) { return std::floor(a); }
double exact_ceil(double a, double, double) { return std::ceil(a); }
double exact_round(double a, double, double) { return std::nearbyint(a); }
double exact_add(double a, double b, double) { return a + b; }
double exact_subtract(double a, double b, double) { return a - b; }
double exact_multiply(double a, double b, double) { return a * b; }
double exact_divide(double a, double b, double) { return a / b; }
double exact_pow(double a, double b, double) { return std::pow(a, b); }
double exact_maximum(double a, double b, double) { return a != a || b != b ? NAN : a > b ? a : b; }
double exact_minimum(double a, double b, double) { return a != a || b != b ? NAN : a < b ? a : b; }
double exact_equal(double a, double b, double) { return a == b; }
double exact_less(double a, double b, double) { return a < b; }
double exact_less_equal(double a, double b, double) { return a <= b; }
double exact_where(double a, double b, double c) { return a != 0 ? b : c; }
double exact_multiply_add(double a, double b, double c) { return double{float(a * b)} + c; }
double exact_log2(double a, double, double) { return std::log2(a); }
double exact_tan(double a, double, double) { return std::tan(a); }
double exact_constant(double, double, double) { return 0.3f; }

using Exact = double (*)(double, double, double);
#define LOCKSTEP_OPCODE(name, arity) exact_##name,
constexpr Exact kExact[] = {LOCKSTEP_OPCODES(LOCKSTEP_OPCODE)};
#undef LOCKSTEP_OPCODE

// Units in the last place.
double ulps(float found, double exact) {
  const auto nearest = static_cast<float>(exact);
  if (std::isnan(exact) != std::isnan(found)) return INFINITY;
  if (std::isnan(exact)) return 0;
  if (std::isinf(nearest) || std::isinf(found)) return nearest == found ? 0 : INFINITY;
  int exponent;
  std::frexp(exact, &exponent);
  exponent = exact == 0 ? -125 : std::max(exponent, -125);
  return std::fabs(double{found} - exact) / std::ldexp(1.0, exponent - 24);
}

std::vector<Opcode> all_opcodes() {
  std::vector<Opcode> all;
  for (int i = 0; i < kernels::kOpcodes; ++i) all.push_back(static_cast<Opcode>(i));
  return all;
}

TEST(Expression, OpcodesHaveNamesAndArities) {
  EXPECT_EQ(kernels::name_of(Opcode::negate), "negate");
  EXPECT_EQ(kernels::name_of(Opcode::less_equal), "less_equal");
  EXPECT_EQ(kernels::name_of(Opcode::constant), "constant");
  EXPECT_EQ(kernels::arity_of(Opcode::round), 1);
  EXPECT_EQ(kernels::arity_of(Opcode::add), 2);
  EXPECT_EQ(kernels::arity_of(Opcode::multiply_add), 3);
  EXPECT_EQ(kernels::arity_of(Opcode::constant), 0);
}

// Three arguments: all combinations of special numbers, then random ones.
std::vector<Floats> arguments() {
  const Floats special{0.0f,    -0.0f,  1,  -1,   0.5f,  -0.5f,  1.5f,  2.5f, -2.5f, 3,   1e-40f,
                       -1e-40f, 1e-20f, 88, -104, 1e10f, -3e38f, 3e38f, kInf, -kInf, kNan};
  std::vector<Floats> all(3);
  for (const float a : special) {
    for (const float b : special) {
      for (const float c : special) {
        all[0].push_back(a);
        all[1].push_back(b);
        all[2].push_back(c);
      }
    }
  }
  Numbers random(1);
  for (int i = 0; i < 20011; ++i) {
    for (Floats& x : all) x.push_back(random.number());
  }
  return all;
}

TEST(Expression, OpcodesAreRoundedOnceFromTheExactValue) {
  const std::vector<Floats> x = arguments();
  const auto count = static_cast<int64_t>(x[0].size());
  for (const Opcode opcode : all_opcodes()) {
    const int arity = kernels::arity_of(opcode);
    // Each argument as a run and as one number, which three loops read differently.
    for (int numbers = 0; numbers < 1 << arity; ++numbers) {
      SCOPED_TRACE(std::string(kernels::name_of(opcode)) + " " + std::to_string(numbers));
      for (const size_t at : {size_t{0}, size_t{4321}, x[0].size() - 5}) {
        std::vector<Shape> shapes;
        std::vector<Floats> values;
        for (int k = 0; k < arity; ++k) {
          const Floats& all = x[static_cast<size_t>(k)];
          const bool number = (numbers >> k & 1) != 0;
          shapes.push_back(number ? Shape{1} : Shape{count});
          values.push_back(number ? Floats{all[at]} : all);
        }
        const Floats y = run(on_cpu(problem(shapes, {count}, {{opcode, 0, 1, 2, 0.3f}})), values);
        // Of rsqrt both operations round.
        const double most = opcode == Opcode::rsqrt          ? 1.5
                            : kernels::is_elementary(opcode) ? 1
                                                             : 0.5;
        double worst = 0;
        std::string where;
        for (size_t i = 0; i < y.size(); ++i) {
          double in[3] = {};
          for (int k = 0; k < arity; ++k) {
            const Floats& v = values[static_cast<size_t>(k)];
            in[k] = double{v.size() == 1 ? v[0] : v[i]};
          }
          const double exact = kExact[static_cast<int>(opcode)](in[0], in[1], in[2]);
          double error = ulps(y[i], exact);
          if (error == 0 && !kernels::is_elementary(opcode) && exact == 0 &&
              !same(y[i], float(exact)))
            error = 1;
          if (error <= worst) continue;
          worst = error;
          where = std::to_string(in[0]) + " " + std::to_string(in[1]) + " " + std::to_string(in[2]);
        }
        EXPECT_LE(worst, most) << where;
        if (numbers == 0) break;
      }
    }
  }
}

// A program on inputs that are broadcast, or read by strides, in random ways.
struct Random {
  std::vector<Shape> src;
  Shape dst;
  std::vector<Instruction> program;
  std::vector<Floats> inputs;
  std::vector<kernels::InputStrides> strided;

  ExpressionProblem of() const {
    ExpressionProblem p = problem(src, dst, program);
    p.strided = strided;
    return p;
  }
};

// Strides, and how many elements they reach: axes in any order, with gaps, backwards, or repeated.
std::pair<kernels::InputStrides, int64_t> random_strides(Numbers& random, const Shape& dst) {
  const auto rank = static_cast<size_t>(dst.rank());
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = rank; i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  }
  if (random.below(2) == 0) std::sort(order.rbegin(), order.rend());
  kernels::InputStrides strided{random.below(4), std::vector<int64_t>(rank)};
  int64_t count = 1;
  for (const size_t axis : order) {
    const int64_t extent = std::max<int64_t>(dst[static_cast<int>(axis)], 1);
    const int64_t kind = random.below(8);
    if (kind == 0) continue;  // repeated
    const int64_t stride = count + (kind == 1 ? 3 : 0);
    strided.strides[axis] = kind == 2 ? -stride : stride;
    if (kind == 2) strided.offset += (extent - 1) * stride;
    count = stride * extent;
  }
  return {strided, count + strided.offset + random.below(3)};
}

Shape random_shape(Numbers& random, int64_t most) {
  constexpr int64_t extents[] = {1, 1, 2, 3, 5, 7, 16, 33, 127, 128, 300, 1023, 1024, 1025, 2500};
  for (;;) {
    std::vector<int64_t> dims;
    const int64_t rank = random.below(7);
    int64_t elements = 1;
    for (int64_t i = 0; i < rank; ++i) {
      dims.push_back(random.below(60) == 0 ? 0 : extents[random.below(std::size(extents))]);
      elements *= std::max<int64_t>(dims.back(), 1);  // other inputs may have the rest
    }
    const bool small = elements < most / 20 && random.below(3) > 0;  // fewer of them
    if (elements <= most && !small) return Shape(dims);
  }
}

Random random_program(uint64_t seed, bool with_elementary, int64_t most = 60000) {
  Numbers random(seed);
  Random r;
  r.dst = random_shape(random, most);
  const int64_t inputs = random.below(5) + (random.below(9) == 0 ? 10 : 0);
  for (int64_t i = 0; i < inputs; ++i) {
    std::vector<int64_t> dims = r.dst.dims();
    const bool whole = random.below(3) == 0;
    for (int64_t& d : dims) d = !whole && random.below(2) == 0 ? 1 : d;
    const int64_t missing = whole ? 0 : random.below(r.dst.rank() + 1);
    if (random.below(2) == 0) dims.erase(dims.begin(), dims.begin() + missing);
    r.src.emplace_back(dims);
    r.strided.emplace_back();
    if (r.dst.rank() > 0 && random.below(4) == 0) {
      const auto [strided, count] = random_strides(random, r.dst);
      r.strided.back() = strided;
      r.src.back() = Shape{count};
    }
    r.inputs.push_back(random.numbers(r.src.back().elements()));
  }
  const int64_t length = 1 + random.below(random.below(5) == 0 ? 60 : 12);
  while (static_cast<int64_t>(r.program.size()) < length) {
    const auto operands = inputs + static_cast<int64_t>(r.program.size());
    Instruction next{static_cast<Opcode>(random.below(kernels::kOpcodes))};
    if (operands == 0) next.opcode = Opcode::constant;
    if (!with_elementary && kernels::is_elementary(next.opcode)) continue;
    // Mostly operands of late.
    const auto operand = [&] {
      const int64_t back = random.below(2) == 0 ? random.below(std::clamp<int64_t>(operands, 1, 4))
                                                : random.below(std::max<int64_t>(operands, 1));
      return static_cast<uint8_t>(std::max<int64_t>(operands - 1 - back, 0));
    };
    next.a = operand();
    next.b = operand();
    next.c = operand();
    next.value = random.number();
    r.program.push_back(next);
  }
  return r;
}

float step(const Instruction& at, float a, float b, float c) {
  if (at.opcode == Opcode::constant) return at.value;
  if (at.opcode == Opcode::rsqrt) return 1 / std::sqrt(a);
  return static_cast<float>(kExact[static_cast<int>(at.opcode)](a, b, c));
}

// Element by element, each instruction rounded to float.
Floats interpreted(const Random& r) {
  const auto& dims = r.dst.dims();
  Floats result;
  for (int64_t e = 0; e < r.dst.elements(); ++e) {
    Floats operands;
    for (size_t k = 0; k < r.src.size(); ++k) {
      const auto& own = r.src[k].dims();
      const auto& strides = r.strided[k].strides;
      int64_t rest = e, offset = 0, stride = 1;
      for (size_t axis = 1; axis <= dims.size(); ++axis) {
        const int64_t index = rest % dims[dims.size() - axis];
        rest /= dims[dims.size() - axis];
        if (!strides.empty()) offset += index * strides[dims.size() - axis];
        if (!strides.empty() || axis > own.size()) continue;
        const int64_t extent = own[own.size() - axis];
        if (extent > 1) offset += index * stride;
        stride *= extent;
      }
      offset += r.strided[k].offset;
      operands.push_back(r.inputs[k][static_cast<size_t>(offset)]);
    }
    for (const Instruction& at : r.program) {
      const auto of = [&](int operand, int argument) {
        return argument < kernels::arity_of(at.opcode) ? operands[static_cast<size_t>(operand)] : 0;
      };
      operands.push_back(step(at, of(at.a, 0), of(at.b, 1), of(at.c, 2)));
    }
    result.push_back(operands.back());
  }
  return result;
}

TEST(Expression, RandomProgramsHaveTheBitsOfSingleSteps) {
  int large = 0;  // of several tiles
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Random r = random_program(seed, false);
    large += r.dst.elements() > 3000;
    SCOPED_TRACE("seed " + std::to_string(seed) + ", to " + r.dst.to_string());
    const Kernel kernel = on_cpu(r.of());
    const Floats y = run(kernel, r.inputs);
    ASSERT_TRUE(same(y, interpreted(r)));
    // What was in memory does not matter.
    ASSERT_TRUE(same(run(kernel, r.inputs, 3e38f), y));
    for (const int over : kernel.forward.in_place) {
      ASSERT_TRUE(same(run(kernel, r.inputs, kNan, over), y)) << "over " << over;
    }
  }
  EXPECT_GT(large, 60);
}

// Chains of opcodes that are one loop, with each choice of arguments that are one number.
TEST(Expression, ChainsHaveTheBitsOfSingleSteps) {
  std::vector<Floats> x = arguments();
  x.push_back(x[0]);
  std::reverse(x[3].begin(), x[3].end());
  const size_t count = x[0].size();
  int loops = 0;
  for (size_t k = kernels::kOpcodes; k < kernels::cpu::kChains.size(); ++k) {
    const kernels::cpu::OpcodeChain& chain = kernels::cpu::kChains[k];
    const auto all = static_cast<unsigned>(1 << chain.arguments) - 1;
    for (unsigned numbers = 0; numbers < all; ++numbers) {
      SCOPED_TRACE("chain " + std::to_string(k) + ", numbers " + std::to_string(numbers));
      const size_t one = 977 * (numbers + 1);  // where numbers are taken from
      const auto at = [&](int argument, size_t i) {
        return x[static_cast<size_t>(argument)][(numbers >> argument & 1) != 0 ? one : i];
      };
      Floats expected(count);
      for (size_t i = 0; i < count; ++i) {
        float result = at(0, i);
        int next = 1;
        for (int o = 0; o < chain.length; ++o) {
          const Instruction opcode{chain.opcodes[static_cast<size_t>(o)]};
          const bool two = kernels::arity_of(opcode.opcode) == 2;
          result = step(opcode, result, two ? at(next++, i) : 0, 0);
        }
        expected[i] = result;
      }
      const float* from[kernels::cpu::kMostArguments] = {};
      for (int a = 0; a < chain.arguments; ++a) {
        from[a] = x[static_cast<size_t>(a)].data() + ((numbers >> a & 1) != 0 ? one : 0);
      }
      for (int64_t t = hwy::SupportedTargets() & HWY_TARGETS; t != 0; t &= t - 1) {
        const Target only(t & -t);
        Floats y(count, kNan);
        kernels::cpu::expression_loops()[k][numbers](from, y.data(), static_cast<int64_t>(count));
        ASSERT_TRUE(same(y, expected)) << hwy::TargetName(t & -t);
      }
      ++loops;
    }
  }
  EXPECT_GT(loops, 100);
}

// Runs the instructions one by one, each as a program, through memory.
TEST(Expression, CutProgramsHaveTheSameBits) {
  for (uint64_t seed = 1000; seed < 1100; ++seed) {
    const Random r = random_program(seed, true);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", to " + r.dst.to_string());
    std::vector<Floats> operands = r.inputs;
    std::vector<Shape> shapes = r.src;
    std::vector<kernels::InputStrides> strided = r.strided;
    strided.resize(r.src.size() + r.program.size());
    for (const Instruction& at : r.program) {
      std::vector<Shape> src;
      std::vector<Floats> inputs;
      std::vector<kernels::InputStrides> inputs_strided;
      const uint8_t from[] = {at.a, at.b, at.c};
      for (int k = 0; k < kernels::arity_of(at.opcode); ++k) {
        src.push_back(shapes[from[k]]);
        inputs.push_back(operands[from[k]]);
        inputs_strided.push_back(strided[from[k]]);
      }
      ExpressionProblem alone = problem(src, r.dst, {{at.opcode, 0, 1, 2, at.value}});
      alone.strided = inputs_strided;
      operands.push_back(run(on_cpu(alone), inputs));
      shapes.push_back(r.dst);
    }
    ASSERT_TRUE(same(run(on_cpu(r.of()), r.inputs), operands.back()));
  }
}

TEST(Expression, EveryInstructionSetGivesTheSameBits) {
  const std::vector<Floats> x = arguments();
  const auto count = static_cast<int64_t>(x[0].size());
  for (const Opcode opcode : all_opcodes()) {
    std::vector<Shape> shapes(static_cast<size_t>(kernels::arity_of(opcode)), Shape{count});
    const Kernel kernel = on_cpu(problem(shapes, {count}, {{opcode, 0, 1, 2, 0.3f}}));
    const std::vector<Floats> inputs(x.begin(), x.begin() + kernels::arity_of(opcode));
    const Floats best = run(kernel, inputs);
    for (int64_t all = hwy::SupportedTargets() & HWY_TARGETS; all != 0; all &= all - 1) {
      const Target only(all & -all);
      EXPECT_TRUE(same(run(kernel, inputs), best))
          << kernels::name_of(opcode) << " with " << hwy::TargetName(all & -all);
    }
  }
  for (uint64_t seed = 2000; seed < 2020; ++seed) {
    const Random r = random_program(seed, true, 5000);
    const Floats best = run(on_cpu(r.of()), r.inputs);
    for (int64_t all = hwy::SupportedTargets() & HWY_TARGETS; all != 0; all &= all - 1) {
      const Target only(all & -all);
      EXPECT_TRUE(same(run(on_cpu(r.of()), r.inputs), best)) << seed;
    }
  }
}

TEST(Expression, TheGpusKernelHasTheCpusBits) {
  for (uint64_t seed = 3000; seed < 3060; ++seed) {
    const Random r = random_program(seed, true, 1500);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", to " + r.dst.to_string());
    ASSERT_TRUE(
        same(run(kernels::cuda::expression(r.of()), r.inputs), run(on_cpu(r.of()), r.inputs)));
  }
}

TEST(Expression, TheGpusOpcodesHaveTheCpusBits) {
  const std::vector<Floats> x = arguments();
  const auto count = static_cast<int64_t>(x[0].size());
  for (const Opcode opcode : all_opcodes()) {
    const int arity = kernels::arity_of(opcode);
    const ExpressionProblem p = problem(std::vector<Shape>(static_cast<size_t>(arity), {count}),
                                        {count}, {{opcode, 0, 1, 2, 0.3f}});
    const std::vector<Floats> inputs(x.begin(), x.begin() + arity);
    EXPECT_TRUE(same(run(kernels::cuda::expression(p), inputs), run(on_cpu(p), inputs)))
        << kernels::name_of(opcode);
  }
}

// Shards are computed together on this promise.
TEST(Expression, RowsAreApart) {
  const std::vector<Instruction> program{
      {Opcode::subtract, 0, 1}, {Opcode::tanh, 3}, {Opcode::multiply_add, 4, 2, 0}};
  Numbers random(4);
  for (const int64_t rows : {1, 2, 33}) {
    const Kernel whole = on_cpu(problem({{rows, 70}, {70}, {rows, 1}}, {rows, 70}, program));
    EXPECT_TRUE(whole.rows_apart);
    EXPECT_TRUE(whole.backward.empty());
    EXPECT_EQ(whole.forward.in_place, std::vector<int>{0});
    const Floats x = random.numbers(rows * 70), m = random.numbers(70), s = random.numbers(rows);
    const Floats all = run(whole, {x, m, s});
    const Kernel one = on_cpu(problem({{1, 70}, {70}, {1, 1}}, {1, 70}, program));
    for (int64_t r = 0; r < rows; ++r) {
      const Floats row(x.begin() + r * 70, x.begin() + (r + 1) * 70);
      const Floats expected(all.begin() + r * 70, all.begin() + (r + 1) * 70);
      EXPECT_TRUE(same(run(one, {row, m, {s[static_cast<size_t>(r)]}}), expected));
    }
  }
  EXPECT_FALSE(on_cpu(problem({{}}, {}, {{Opcode::exp}})).rows_apart);
  // A slice of each row; rows backwards; a slice that ends in the next row; all in the first row.
  for (const auto& [strides, apart] : {std::pair{kernels::InputStrides{2, {10, 3}}, true},
                                       {{30, {-10, 1}}, false},
                                       {{7, {9, 1}}, false},
                                       {{0, {1, 1}}, false}}) {
    ExpressionProblem p = problem({{4, 10}}, {4, 3}, {{Opcode::exp}});
    p.strided = {strides};
    EXPECT_EQ(on_cpu(p).rows_apart, apart) << strides.offset;
  }
}

void expect_refusal(const ExpressionProblem& p, const std::string& part) {
  for (const auto make : {on_cpu, kernels::cuda::expression}) {
    try {
      make(p);
      ADD_FAILURE() << "accepted, without: " << part;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("[expression] "), std::string::npos);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

TEST(Expression, RefusesWhatItCannotCompute) {
  expect_refusal(problem({{2}}, {2}, {}), "empty");
  expect_refusal(problem({{2}}, {2}, {{Opcode::add, 0, 1}}),
                 "instruction 0, add, refers to operand 1, which is not computed yet");
  expect_refusal(problem({{2}}, {2}, {{static_cast<Opcode>(200)}}), "unknown opcode");
  expect_refusal(problem({{3}}, {2}, {{Opcode::exp}}), "input 0 of 3 f32 cannot be broadcast to 2");
  expect_refusal(problem({{1, 2}}, {2}, {{Opcode::exp}}), "input 0 of 1x2 f32");
  ExpressionProblem outside = problem({{6}}, {2, 3}, {{Opcode::exp}});
  outside.strided = {{1, {3, 1}}};
  expect_refusal(outside, "input 0 of 6 f32 has no elements for all positions of 2x3 f32");
  outside.strided = {{0, {-3, 1}}};
  expect_refusal(outside, "input 0 of 6 f32 has no elements");
  outside.strided = {{0, {1}}};
  expect_refusal(outside, "input 0 of 6 f32 has no elements");
  ExpressionProblem narrow = problem({{2}}, {2}, {{Opcode::exp}});
  narrow.src[0].dtype = DType::bf16;
  expect_refusal(narrow, "input 0 of 2 bf16");
  const std::vector<Instruction> longest(kernels::kMostInstructions, {Opcode::exp});
  EXPECT_NO_THROW(on_cpu(problem({{2}}, {2}, longest)));
  std::vector<Instruction> longer = longest;
  longer.push_back({Opcode::exp});
  expect_refusal(problem({{2}}, {2}, longer), "97 instructions on 1 inputs; at most 96 on 16");
  expect_refusal(problem(std::vector<Shape>(17, {2}), {2}, {{Opcode::exp}}), "on 17 inputs");
}

}  // namespace
}  // namespace lockstep::optest::expressions
