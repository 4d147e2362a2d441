// Functions that other processes of the same executable can run on request. A request contains an
// index into a table that is identical in every process of one build, a hash of the function's
// type, and the arguments as bytes, but no address.
#pragma once

#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "lockstep/parallel/messages/serialize.h"

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
using PackedFunction = Bytes (*)(std::span<const std::byte>);
// Only before main().
FunctionId add_function(AnyFunction thunk, PackedFunction packed, const std::type_info& type);
// Throw InvalidArgument for an id that this executable does not have.
AnyFunction find_function(const FunctionId& id);
PackedFunction find_packed(const FunctionId& id);

template <class T>
inline constexpr bool can_be_sent =
    std::is_void_v<T> || (cereal::traits::is_output_serializable<T, OutputArchive>::value &&
                          cereal::traits::is_input_serializable<T, InputArchive>::value);

// The result of run() as bytes; empty for void.
template <class R>
Bytes pack(R (*run)(std::span<const std::byte>), std::span<const std::byte> bytes) {
  if constexpr (std::is_void_v<R>) {
    run(bytes);
    return {};
  } else if constexpr (can_be_sent<R>) {
    return encode(run(bytes));
  } else {
    return {};  // unreachable: Pool::submit() rejects such functions
  }
}

template <class R, class... A>
std::tuple<std::decay_t<A>...> arguments_of(R (*)(A...));

// Runs `F` on encoded arguments.
template <auto F, class R>
struct Thunk {
  using Arguments = decltype(arguments_of(F));
  static R run(std::span<const std::byte> bytes) { return std::apply(F, decode<Arguments>(bytes)); }
  static Bytes packed(std::span<const std::byte> bytes) { return pack<R>(&run, bytes); }
  // Every call refers to the id, so that every process of the executable has it in its table.
  static inline const FunctionId id =
      add_function(reinterpret_cast<AnyFunction>(&run), &packed, typeid(Thunk<F, R>));
};

// The type in which an argument is sent: C strings as std::string.
template <class A>
using Sent = std::conditional_t<std::is_convertible_v<std::decay_t<A>, const char*>, std::string,
                                std::decay_t<A>>;

// An empty function object, such as a lambda that captures nothing. Its type defines it completely.
template <class F>
inline constexpr bool is_stateless_v = std::is_empty_v<F>&& std::is_default_constructible_v<F>;

// The function object of a type, in the process that runs it. Nothing else makes one from a type,
// so the compiler rejects every function that would lose what it holds.
template <class F>
F function_of_type() {
  constexpr bool pointer = std::is_pointer_v<F> || std::is_member_pointer_v<F>;
  if constexpr (is_stateless_v<F>) {
    return F{};
  } else {
    static_assert(!pointer,
                  "lockstep: a pointer to a function cannot be sent to workers. Wrap the function: "
                  "[](int64_t i) { return function(i); }, or name it where the caller has a form "
                  "for that: submit<&function>(arguments...)");
    static_assert(pointer || std::is_empty_v<F>,
                  "lockstep: a function that is sent to workers cannot have captures or data "
                  "members, because only its type is sent. Pass these values as arguments after "
                  "the function, and give the function parameters for them");
    static_assert(pointer || !std::is_empty_v<F>,
                  "lockstep: a function that is sent to workers is made there by its default "
                  "constructor. Give it one; a lambda needs [] without a capture default");
    __builtin_unreachable();
  }
}

// Runs an F on encoded arguments of these types.
template <class F, class... A>
struct ObjectThunk {
  using R = std::invoke_result_t<F, A...>;
  static R run(std::span<const std::byte> bytes) {
    return std::apply(function_of_type<F>(), decode<std::tuple<A...>>(bytes));
  }
  static Bytes packed(std::span<const std::byte> bytes) { return pack<R>(&run, bytes); }
  static inline const FunctionId id =
      add_function(reinterpret_cast<AnyFunction>(&run), &packed, typeid(ObjectThunk<F, A...>));
};

}  // namespace detail

// A call that can be sent: a function with its arguments. A value; thread-safe.
template <class R>
class Call {
 public:
  Call() = default;
  Call(FunctionId function, Bytes arguments)
      : function_(function), arguments_(std::move(arguments)) {}

  // Runs the call in this process. Throws InvalidArgument for a function of another executable,
  // DataError for invalid arguments, and what the function throws.
  R operator()() const {
    return reinterpret_cast<R (*)(std::span<const std::byte>)>(detail::find_function(function_))(
        arguments_);
  }

  const FunctionId& function() const { return function_; }
  const Bytes& arguments() const { return arguments_; }

  template <class Archive>
  void serialize(Archive& archive) {
    archive(function_, arguments_);
  }

 private:
  FunctionId function_;
  Bytes arguments_;
};

// The call F(arguments...) of a function that is known at compile time; thread-safe:
//   Call<int> sum = make_call<&add>(1, 2);
template <auto F, class... A>
auto make_call(const A&... arguments) {
  static_assert(std::is_pointer_v<decltype(F)>,
                "lockstep: a function is named by its address: submit<&function>(arguments...); "
                "pass lambdas and function objects as the first argument instead");
  using Arguments = decltype(detail::arguments_of(F));
  static_assert(std::tuple_size_v<Arguments> == sizeof...(A),
                "lockstep: wrong number of arguments");
  using R = decltype(std::apply(F, std::declval<Arguments>()));
  return Call<R>(detail::Thunk<F, R>::id, encode(Arguments(arguments...)));
}

// The same for a function object without state: make_call([](int a, int b) { return a + b; }, 1,
// 2).
template <class F, class... A>
auto make_call(F, const A&... arguments) {
  static_assert((detail::can_be_sent<detail::Sent<A>> && ...),
                "lockstep: an argument cannot be sent: its type needs serialize()");
  using Thunk = detail::ObjectThunk<F, detail::Sent<A>...>;
  return Call<typename Thunk::R>(Thunk::id, encode(std::tuple<detail::Sent<A>...>(arguments...)));
}

}  // namespace lockstep
