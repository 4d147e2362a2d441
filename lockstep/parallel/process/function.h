// Functions that other processes of the same executable can be asked to run. What travels is an
// index into a table that every process of one build has alike, a hash of the function's type, and
// the arguments as bytes: never an address.
#pragma once

#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "lockstep/parallel/process/serialize.h"

namespace lockstep {

struct FunctionId {
  uint32_t index = 0;
  uint64_t signature = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(index, signature);
  }
};

namespace detail {

using AnyFunction = void (*)();
// Before main() alone.
FunctionId add_function(AnyFunction thunk, const std::type_info& type);
// Throws InvalidArgument for an id that this executable has not.
AnyFunction find_function(const FunctionId& id);

template <class R, class... A>
std::tuple<std::decay_t<A>...> arguments_of(R (*)(A...));

// What runs `F` on encoded arguments.
template <auto F, class R>
struct Thunk {
  using Arguments = decltype(arguments_of(F));
  static R run(std::span<const std::byte> bytes) { return std::apply(F, decode<Arguments>(bytes)); }
  // Named where a call is made, so that every process of the executable has it in its table.
  static inline const FunctionId id =
      add_function(reinterpret_cast<AnyFunction>(&run), typeid(Thunk<F, R>));
};

}  // namespace detail

// A call that can be sent: a function with its arguments. A value; thread-safe.
template <class R>
class Call {
 public:
  Call() = default;
  Call(FunctionId function, Bytes arguments)
      : function_(function), arguments_(std::move(arguments)) {}

  // Runs it here. Throws InvalidArgument for a function of another executable, DataError for
  // arguments that are none, and what the function throws.
  R operator()() const {
    return reinterpret_cast<R (*)(std::span<const std::byte>)>(detail::find_function(function_))(
        arguments_);
  }

  template <class Archive>
  void serialize(Archive& archive) {
    archive(function_, arguments_);
  }

 private:
  FunctionId function_;
  Bytes arguments_;
};

// The call F(arguments...), for a function that is known at compile time; thread-safe:
//   Call<int> sum = make_call<&add>(1, 2);
template <auto F, class... A>
auto make_call(const A&... arguments) {
  using Arguments = decltype(detail::arguments_of(F));
  static_assert(std::tuple_size_v<Arguments> == sizeof...(A), "another number of arguments");
  using R = decltype(std::apply(F, std::declval<Arguments>()));
  return Call<R>(detail::Thunk<F, R>::id, encode(Arguments(arguments...)));
}

}  // namespace lockstep
