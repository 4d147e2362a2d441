#include "lockstep/train/optimizer/averaged_solver.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/lowering.h"

namespace lockstep {
namespace {

class AveragedSolver final : public Solver {
 public:
  AveragedSolver(std::unique_ptr<Solver> solver, Network& network, double decay)
      : solver_(std::move(solver)), rest_(static_cast<float>(1 - decay)) {
    for (const auto& p : network.parameters()) {
      values_.push_back(p.value);
      averages_.push_back(Tensor::zeros(p.value.shape(), DType::f32, p.value.device()));
    }
  }

  void update(size_t index, const IndexRange& elements, const float* gradient_sum,
              const UpdateScalars& scalars) override {
    solver_->update(index, elements, gradient_sum, scalars);
    const float* const w = values_[index].data<float>() + elements.first;
    float* const a = averages_[index].data<float>() + elements.first;
    if (scalars.iteration == 1) {
      // 0 for -0 and for subnormals, as the formula below would make of them in the next iteration.
      for (int64_t i = 0; i < elements.count; ++i) a[i] = w[i] + 0.0F;
      return;
    }
    // In this form the average of a parameter that does not change stays as it is, so updates may
    // leave frozen parameters out.
    const float rest = rest_;
    for (int64_t i = 0; i < elements.count; ++i) a[i] = a[i] + rest * (w[i] - a[i]);
  }
  UpdateNumbers numbers(size_t index, const UpdateScalars& scalars) const override {
    return solver_->numbers(index, scalars);
  }
  std::vector<Tensor> state(size_t index) const override {
    std::vector<Tensor> arrays = solver_->state(index);
    arrays.push_back(averages_[index]);
    return arrays;
  }
  std::vector<std::string> state_names() const override {
    std::vector<std::string> names = solver_->state_names();
    names.emplace_back(kAverageState);
    return names;
  }

 private:
  const std::unique_ptr<Solver> solver_;
  const float rest_;
  std::vector<Tensor> values_, averages_;
};

}  // namespace

std::unique_ptr<Solver> make_averaged(std::unique_ptr<Solver> solver, Network& network,
                                      double decay) {
  if (!network.device().is_cpu()) {
    throw Unsupported("[training] average_decay is supported only on the CPU",
                      "set device = \"cpu\"");
  }
  return std::make_unique<AveragedSolver>(std::move(solver), network, decay);
}

std::vector<Tensor> averages_of(const Network& network, const Solver& solver) {
  const std::vector<std::string> names = solver.state_names();
  std::vector<Tensor> averages;
  if (names.empty() || names.back() != kAverageState) return averages;
  for (size_t p = 0; p < network.parameters().size(); ++p) {
    averages.push_back(solver.state(p).back());
  }
  return averages;
}

AveragesInPlace::AveragesInPlace(Network& network, const Solver& solver)
    : network_(network), averages_(averages_of(network, solver)) {
  exchange();
}

AveragesInPlace::~AveragesInPlace() { exchange(); }

void AveragesInPlace::exchange() {
  if (averages_.empty()) return;
  for (size_t p = 0; p < averages_.size(); ++p) {
    float* const value = network_.parameters()[p].value.data<float>();
    std::swap_ranges(value, value + averages_[p].shape().elements(), averages_[p].data<float>());
  }
  network_.packed().pack_all();
}

}  // namespace lockstep
