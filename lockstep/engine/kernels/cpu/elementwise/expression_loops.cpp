#include "lockstep/engine/kernels/cpu/elementwise/expression_loops.h"

#include "lockstep/engine/kernels/elementwise/expression_functions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/engine/kernels/cpu/elementwise/expression_loops.cpp"
#include <hwy/foreach_target.h>  // compiles what follows once for each instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// The compiler vectorizes these loops. `numbers`: the mask of arguments that are one number.
template <class F, unsigned numbers>
void loop_1(const float* a, const float*, const float*, float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = F::of(a[i]);
}

template <class F, unsigned numbers>
void loop_2(const float* a, const float* b, const float*, float* y, int64_t n) {
  const float one_a = numbers & 1 ? *a : 0, one_b = numbers & 2 ? *b : 0;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i)
    y[i] = F::of(numbers & 1 ? one_a : a[i], numbers & 2 ? one_b : b[i]);
}

template <class F, unsigned numbers>
void loop_3(const float* a, const float* b, const float* c, float* y, int64_t n) {
  const float one_a = numbers & 1 ? *a : 0, one_b = numbers & 2 ? *b : 0,
              one_c = numbers & 4 ? *c : 0;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    y[i] =
        F::of(numbers & 1 ? one_a : a[i], numbers & 2 ? one_b : b[i], numbers & 4 ? one_c : c[i]);
  }
}

template <class F, int arity>
constexpr LoopsOfOpcode loops_of() {
  if constexpr (arity == 1) {
    return {loop_1<F, 0>};
  } else if constexpr (arity == 2) {
    return {loop_2<F, 0>, loop_2<F, 1>, loop_2<F, 2>};
  } else if constexpr (arity == 3) {
    return {loop_3<F, 0>, loop_3<F, 1>, loop_3<F, 2>, loop_3<F, 3>,
            loop_3<F, 4>, loop_3<F, 5>, loop_3<F, 6>};
  } else {
    return {};
  }
}

const ExpressionLoops& loops() {
#define LOCKSTEP_OPCODE(name, arity) loops_of<opcodes::name, arity>(),
  static constexpr ExpressionLoops all{LOCKSTEP_OPCODES(LOCKSTEP_OPCODE)};
#undef LOCKSTEP_OPCODE
  return all;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(loops);

const ExpressionLoops& expression_loops() { return HWY_DYNAMIC_DISPATCH(loops)(); }

}  // namespace lockstep::kernels::cpu
#endif
