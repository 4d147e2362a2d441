#include "lockstep/engine/kernels/cpu/elementwise/expression_loops.h"

#include <utility>

#include "lockstep/engine/kernels/elementwise/expression_functions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/engine/kernels/cpu/elementwise/expression_loops.cpp"
#include <hwy/foreach_target.h>  // compiles what follows once for each instruction set
#include <hwy/highway.h>

#ifndef LOCKSTEP_EXPRESSION_LOOPS_ONCE
#define LOCKSTEP_EXPRESSION_LOOPS_ONCE
namespace lockstep::kernels::cpu {

// A chain as one function.
template <class... Opcodes>
struct Chained;
template <class F>
struct Chained<F> {
  template <class... Arguments>
  static LOCKSTEP_INLINE float of(Arguments... arguments) {
    return F::of(arguments...);
  }
};
template <class F, class G, class... Others>
struct Chained<F, G, Others...> {
  // Takes as many arguments as F has, and passes its result on with the others.
  template <class... Arguments>
  static LOCKSTEP_INLINE float of(float a, Arguments... arguments) {
    if constexpr (requires { F::of(a); }) {
      return Chained<G, Others...>::of(F::of(a), arguments...);
    } else {
      return with_two(a, arguments...);
    }
  }
  template <class... Arguments>
  static LOCKSTEP_INLINE float with_two(float a, float b, Arguments... arguments) {
    return Chained<G, Others...>::of(F::of(a, b), arguments...);
  }
};

template <class F>
constexpr size_t kArguments = requires {
  F::of(0.0f);
}
? 1 : requires { F::of(0.0f, 0.0f); }
? 2 : 3;
// Those of a chain.
template <class... Opcodes>
constexpr size_t arguments_of = (kArguments<Opcodes> + ...) - (sizeof...(Opcodes) - 1);

}  // namespace lockstep::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// The compiler vectorizes this loop. `numbers`: the mask of arguments that are one number.
template <class F, unsigned numbers, size_t... k>
HWY_INLINE void loop_of(const float* const* from, float* y, int64_t n, std::index_sequence<k...>) {
  const float* const at[] = {from[k]...};
  const float one[] = {(numbers >> k & 1 ? *from[k] : 0.0f)...};
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = F::of((numbers >> k & 1 ? one[k] : at[k][i])...);
}

template <class F, size_t arguments, unsigned numbers>
void loop(const float* const* from, float* y, int64_t n) {
  loop_of<F, numbers>(from, y, n, std::make_index_sequence<arguments>());
}

template <class F, size_t arguments, size_t... numbers>
constexpr LoopsOfChain loops_for(std::index_sequence<numbers...>) {
  return {loop<F, arguments, static_cast<unsigned>(numbers)>...};
}

template <size_t arguments, class... Opcodes>
constexpr LoopsOfChain loops_of() {
  if constexpr (arguments == 0) {
    return {};
  } else {
    constexpr size_t masks = (size_t{1} << arguments) - 1;
    return loops_for<Chained<Opcodes...>, arguments>(std::make_index_sequence<masks>());
  }
}

const ExpressionLoops& loops() {
  static constexpr ExpressionLoops all = [] {
    ExpressionLoops made{};
    size_t i = 0;
#define LOCKSTEP_OPCODE(name, arity) made[i++] = loops_of<arity, opcodes::name>();
    LOCKSTEP_OPCODES(LOCKSTEP_OPCODE)
#undef LOCKSTEP_OPCODE
    using namespace opcodes;
#define LOCKSTEP_CHAIN(...) made[i++] = loops_of<arguments_of<__VA_ARGS__>, __VA_ARGS__>();
    LOCKSTEP_CHAINS(LOCKSTEP_CHAIN)
#undef LOCKSTEP_CHAIN
    return made;
  }();
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
