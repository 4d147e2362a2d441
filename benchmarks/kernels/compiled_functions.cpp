// Loss and gradient of ops on tensors, one by one and as a CompiledFunction: milliseconds in one
// thread, medians.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "benchmarks/kernels/turns.h"
#include "lockstep/lockstep.h"

using namespace lockstep;

namespace {

// Three ops and a sum.
template <ops::Operand T>
std::vector<T> likelihood(const std::vector<T>& x) {
  return {ops::sum(ops::softplus(x[0]) - x[0] * x[1], {1})};
}

// Thirteen ops and a sum.
template <ops::Operand T>
std::vector<T> robust(const std::vector<T>& x) {
  const T d = x[0] - x[1], size = ops::abs(d);
  const T huber = ops::where(ops::less(size, 1.0), ops::square(d) * 0.5, size - 0.5);
  return {ops::sum(huber * ops::exp(-0.1 * ops::square(x[0])) + 0.01 * size, {1})};
}

template <class Loss>
double milliseconds(const Loss& loss, const std::vector<Tensor>& arguments, int turns) {
  std::vector<double> seconds;
  for (int i = 0; i < turns; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    Tape tape;
    tape.watch(arguments[0]);
    tape.gradient(ops::mean(loss(arguments)[0]), {arguments[0]});
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + turns / 2, seconds.end());
  return 1e3 * seconds[static_cast<size_t>(turns) / 2];
}

template <class OnTensors>
void print(const char* name, OnTensors on_tensors, const CompiledFunction& compiled, int turns) {
  for (const auto& [n, m] : {std::pair{8, 10}, {64, 784}, {256, 1024}, {512, 8192}}) {
    const Tensor a = ops::random_normal(Tensor::zeros({n, m}), 1, {});
    const Tensor b = ops::random_uniform(a, 2, {});
    const double one = milliseconds(on_tensors, {a, b}, turns);
    const double other = milliseconds(compiled, {a, b}, turns);
    std::printf("%-10s %3d x %4d %9.4f %9.4f %6.2f\n", name, n, m, one, other, one / other);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return benchmarks::run_with_turns(argc, argv, "compiled_functions", 41, [](int turns) {
    std::puts("                           ops  compiled  ratio");
    print("likelihood", likelihood<Tensor>, CompiledFunction(likelihood<Value>), turns);
    print("robust", robust<Tensor>, CompiledFunction(robust<Value>), turns);
  });
}
