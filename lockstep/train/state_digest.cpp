#include "lockstep/train/state_digest.h"

namespace lockstep {

namespace {

void add(Digester& digester, const Tensor& tensor) {
  const Tensor host = tensor.to({});
  digester.bytes(host.raw(), host.bytes());
}

}  // namespace

Digest learnable_digest(const Network& network, const Solver& solver, size_t index) {
  Digester digester;
  add(digester, network.learnables()[index].value);
  for (const auto& array : solver.state(index)) add(digester, array);
  return digester.finish();
}

Digest state_digest(const Network& network, const std::vector<Digest>& learnables,
                    int64_t iteration) {
  Digester digester;
  digester.add(static_cast<uint64_t>(iteration));
  for (const auto& d : learnables) digester.add(d);
  for (const auto& state : network.state()) add(digester, state.value);
  return digester.finish();
}

Digest state_digest(const Network& network, const Solver& solver, int64_t iteration) {
  std::vector<Digest> learnables;
  for (size_t p = 0; p < network.learnables().size(); ++p) {
    learnables.push_back(learnable_digest(network, solver, p));
  }
  return state_digest(network, learnables, iteration);
}

}  // namespace lockstep
