#include "lockstep/engine/ops/expression.h"

#include <algorithm>
#include <cmath>

namespace lockstep::ops {
namespace {

using kernels::Opcode;

enum class Known : uint8_t { zero, other_number, nothing };

Known result_of(const kernels::Instruction& at, Known a, Known b, Known c) {
  const bool zeros = a == Known::zero && b == Known::zero;
  switch (at.opcode) {
    case Opcode::constant:
      if (!std::isfinite(at.value)) return Known::nothing;
      return at.value == 0 ? Known::zero : Known::other_number;
    case Opcode::negate:
    case Opcode::abs:
    case Opcode::sign:
    case Opcode::square:
    case Opcode::sqrt:
    case Opcode::expm1:
    case Opcode::log1p:
    case Opcode::sin:
    case Opcode::tan:
    case Opcode::tanh:
    case Opcode::erf:
    case Opcode::floor:
    case Opcode::ceil:
    case Opcode::round:
      return a == Known::zero ? Known::zero : Known::nothing;
    case Opcode::add:
    case Opcode::subtract:
    case Opcode::maximum:
    case Opcode::minimum:
    case Opcode::less:
      return zeros ? Known::zero : Known::nothing;
    case Opcode::multiply: {
      const bool product =
          (a == Known::zero && b != Known::nothing) || (b == Known::zero && a != Known::nothing);
      return product ? Known::zero : Known::nothing;
    }
    case Opcode::divide:
      return a == Known::zero && b == Known::other_number ? Known::zero : Known::nothing;
    case Opcode::multiply_add:
      return zeros && c == Known::zero ? Known::zero : Known::nothing;
    case Opcode::where:
      return a == Known::zero ? c : Known::nothing;
    default:
      return Known::nothing;
  }
}

}  // namespace

bool keeps_zeros(std::span<const kernels::Instruction> program, size_t inputs) {
  std::vector<Known> operands(inputs, Known::zero);
  for (const kernels::Instruction& at : program) {
    const int arity = kernels::arity_of(at.opcode);
    operands.push_back(result_of(at, arity > 0 ? operands[at.a] : Known::nothing,
                                 arity > 1 ? operands[at.b] : Known::nothing,
                                 arity > 2 ? operands[at.c] : Known::nothing));
  }
  return operands.back() == Known::zero;
}

kernels::Kernel compile_expression(const kernels::Table& table, std::span<const TensorSpec> in,
                                   const Shape& dst, std::vector<kernels::Instruction> program,
                                   std::vector<kernels::InputStrides> strided) {
  const auto of_dst = [&](const TensorSpec& spec) { return spec.shape == dst; };
  const auto chosen =
      std::find_if(in.begin(), in.end(), [](const TensorSpec& spec) { return !spec.row_major(); });
  const size_t row_major_bytes = static_cast<size_t>(dst.elements()) * sizeof(float);
  const bool in_layout = strided.empty() && chosen != in.end() && chosen->dtype == DType::f32 &&
                         std::all_of(in.begin(), in.end(), of_dst) &&
                         (chosen->bytes() == row_major_bytes || keeps_zeros(program, in.size()));
  kernels::ExpressionProblem problem{{}, dst, std::move(program), std::move(strided)};
  for (const TensorSpec& spec : in) problem.src.push_back(in_layout ? *chosen : spec.plain());
  kernels::Kernel kernel = kernels::compile(table, problem);
  // A broadcast input may hold rows along another axis, which the kernel cannot know.
  for (size_t i = 0; i < in.size(); ++i) {
    kernel.rows_apart =
        kernel.rows_apart && (problem.is_strided(i) || of_dst(in[i]) || in[i].shape.rank() == 0);
  }
  return kernel;
}

}  // namespace lockstep::ops
