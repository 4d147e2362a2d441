// Functions that workers or jobs run: the compiler must refuse each line marked `state`, `pointer`,
// `constructor` or `name`, with the text about it, and no other line (sent_functions_test.py).
#include <functional>

#include "lockstep/parallel/pool/loops.h"
#include "lockstep/parallel/pool/pool.h"
#include "lockstep/parallel/pool/spmd.h"
#include "lockstep/parallel/pool/worker_value.h"
#include "lockstep/runs/batch/batch.h"

using namespace lockstep;

namespace {

// A template is instantiated once for each type, and its errors are reported once: each line has
// types of its own.
template <int line>
struct Value {
  int value = 0;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(value);
  }
};

template <int line>
struct Scale {
  double factor = 1;
  double operator()(int64_t i) const { return factor * static_cast<double>(i); }
  double operator()(Spmd& block) const { return factor * block.index(); }
  double operator()() const { return factor; }
  double operator()(double a, double b) const { return factor * (a + b); }
};

template <int line>
struct Plain {
  double operator()(int64_t i) const { return static_cast<double>(i); }
  double operator()(Spmd& block) const { return block.index(); }
  double operator()() const { return 1; }
  double operator()(double a, double b) const { return a + b; }
};

template <int line>
struct Made {
  explicit Made(int) {}
  double operator()(int64_t i) const { return static_cast<double>(i); }
};

template <int line>
Value<line> of_index(int64_t) {
  return {};
}
template <int line>
Value<line> of_block(Spmd&) {
  return {};
}
template <int line>
Value<line> of_nothing() {
  return {};
}
template <int line>
Value<line> of_two(Value<line> a, Value<line>) {
  return a;
}

struct Named {
  int operator()(int a) const { return a; }
};

}  // namespace

void functions(Pool& pool, int64_t n, double factor) {
  // clang-format off
  make_call(Scale<__LINE__>{2.5}, n);  // state
  make_call(&of_index<__LINE__>, n);  // pointer
  make_call(Plain<__LINE__>(), n);
  make_call<Named{}>(1);  // name
  make_call<&of_index<__LINE__>>(n);

  pool.submit(Scale<__LINE__>{2.5}, n);  // state
  pool.submit([factor](int64_t i) { return factor * static_cast<double>(i); }, n);  // state
  pool.submit([&](int64_t i) { return factor * static_cast<double>(i); }, n);  // state
  pool.submit([&](int64_t i) { return i; }, n);  // constructor
  pool.submit(std::function<double(int64_t)>(Plain<__LINE__>()), n);  // state
  pool.submit(Made<__LINE__>(1), n);  // constructor
  pool.submit(of_index<__LINE__>, n);  // pointer
  pool.submit(Plain<__LINE__>(), n);
  pool.submit<&of_index<__LINE__>>(n);
  pool.submit_with({}, Scale<__LINE__>{2.5}, n);  // state
  pool.submit_with({}, of_index<__LINE__>, n);  // pointer
  pool.submit_with({}, Plain<__LINE__>(), n);
  pool.submit_to(0, Scale<__LINE__>{2.5}, n);  // state
  pool.submit_to(0, of_index<__LINE__>, n);  // pointer
  pool.submit_to(0, Plain<__LINE__>(), n);
  pool.submit_on_all(Scale<__LINE__>{2.5}, n);  // state
  pool.submit_on_all(of_index<__LINE__>, n);  // pointer
  pool.submit_on_all(Plain<__LINE__>(), n);

  parallel_for(pool, n, Scale<__LINE__>{2.5});  // state
  parallel_for(pool, n, of_index<__LINE__>);  // pointer
  parallel_for(pool, n, Plain<__LINE__>());
  parallel_for_with({}, pool, n, Scale<__LINE__>{2.5});  // state
  parallel_for_with({}, pool, n, of_index<__LINE__>);  // pointer
  parallel_for_with({}, pool, n, Plain<__LINE__>());
  parallel_map(pool, n, Scale<__LINE__>{2.5});  // state
  parallel_map(pool, n, [factor](int64_t i) { return factor * static_cast<double>(i); });  // state
  parallel_map(pool, n, of_index<__LINE__>);  // pointer
  parallel_map(pool, n, Plain<__LINE__>());
  parallel_map_with({}, pool, n, Scale<__LINE__>{2.5});  // state
  parallel_map_with({}, pool, n, of_index<__LINE__>);  // pointer
  parallel_map_with({}, pool, n, Plain<__LINE__>());
  parallel_reduce(pool, n, Scale<__LINE__>{2.5}, Plain<__LINE__>());  // state
  parallel_reduce(pool, n, Plain<__LINE__>(), Scale<__LINE__>{2.5});  // state
  parallel_reduce(pool, n, of_index<__LINE__>, [](auto a, const auto&) { return a; });  // pointer
  parallel_reduce(pool, n, [](int64_t) { return Value<__LINE__>(); }, of_two<__LINE__>);  // pointer
  parallel_reduce(pool, n, Plain<__LINE__>(), std::plus<>());
  parallel_reduce_with({}, pool, n, Scale<__LINE__>{2.5}, Plain<__LINE__>());  // state
  parallel_reduce_with({}, pool, n, Plain<__LINE__>(), Scale<__LINE__>{2.5});  // state
  parallel_reduce_with({}, pool, n, of_index<__LINE__>, [](auto a, const auto&) { return a; });  // pointer
  parallel_reduce_with({}, pool, n, Plain<__LINE__>(), Plain<__LINE__>());

  spmd(pool, Scale<__LINE__>{2.5});  // state
  spmd(pool, [factor](Spmd& block) { return factor * block.index(); });  // state
  spmd(pool, of_block<__LINE__>);  // pointer
  spmd(pool, Plain<__LINE__>());
  spmd_with({}, pool, Scale<__LINE__>{2.5});  // state
  spmd_with({}, pool, of_block<__LINE__>);  // pointer
  spmd_with({}, pool, Plain<__LINE__>());

  make_on_workers(pool, Scale<__LINE__>{2.5});  // state
  make_on_workers(pool, of_nothing<__LINE__>);  // pointer
  make_on_workers(pool, Plain<__LINE__>());

  batch(Scale<__LINE__>{2.5}, n);  // state
  batch(of_index<__LINE__>, n);  // pointer
  batch(Plain<__LINE__>(), n);
  batch<&of_index<__LINE__>>(n);
  batch_with({}, Scale<__LINE__>{2.5}, n);  // state
  batch_with({}, of_index<__LINE__>, n);  // pointer
  batch_with({}, Plain<__LINE__>(), n);
  // clang-format on
}
