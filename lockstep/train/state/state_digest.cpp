#include "lockstep/train/state/state_digest.h"

namespace lockstep {

namespace {

void add(Digester& digester, const Tensor& tensor) {
  const Tensor host = tensor.to({});
  digester.bytes(host.raw(), host.bytes());
}

}  // namespace

Digest parameter_digest(const Network& network, const Solver& solver, size_t index) {
  Digester digester;
  add(digester, network.parameters()[index].value);
  for (const auto& array : solver.state(index)) add(digester, array);
  return digester.finish();
}

Digest state_digest(const Network& network, const std::vector<Digest>& parameters,
                    int64_t iteration, const std::function<const void*(size_t k)>& state) {
  Digester digester;
  digester.add(static_cast<uint64_t>(iteration));
  for (const auto& d : parameters) digester.add(d);
  for (size_t k = 0; k < network.state().size(); ++k) {
    digester.bytes(state(k), network.state()[k].value.bytes());
  }
  for (const RowState& s : network.row_states()) digester.bytes(s.value.raw(), s.value.bytes());
  return digester.finish();
}

Digest state_digest(const Network& network, const std::vector<Digest>& parameters,
                    int64_t iteration) {
  Tensor host;  // keeps the copy from a device alive
  return state_digest(network, parameters, iteration, [&](size_t k) -> const void* {
    host = network.state()[k].value.to({});
    return host.raw();
  });
}

Digest state_digest(const Network& network, const Solver& solver, int64_t iteration) {
  std::vector<Digest> parameters;
  for (size_t p = 0; p < network.parameters().size(); ++p) {
    parameters.push_back(parameter_digest(network, solver, p));
  }
  return state_digest(network, parameters, iteration);
}

}  // namespace lockstep
