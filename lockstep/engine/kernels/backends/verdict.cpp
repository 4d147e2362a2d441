#include "lockstep/engine/kernels/backends/verdict.h"

#include <algorithm>

namespace lockstep::kernels {

std::string_view to_string(TestState state) {
  switch (state) {
    case TestState::passed:
      return "passed";
    case TestState::not_tested:
      return "not tested";
    case TestState::failed:
      return "failed";
  }
  return "";
}

const KernelVerdict* Verdict::find(std::string_view kernel, std::string_view type) const {
  const auto found = std::find_if(kernels.begin(), kernels.end(), [&](const KernelVerdict& k) {
    return k.kernel == kernel && k.type == type;
  });
  return found == kernels.end() ? nullptr : &*found;
}

bool Verdict::passed(std::string_view kernel, std::string_view type) const {
  const KernelVerdict* const found = find(kernel, type);
  return found && found->state == TestState::passed;
}

TestState Verdict::state() const {
  TestState worst = kernels.empty() || !reason.empty() ? TestState::not_tested : TestState::passed;
  for (const KernelVerdict& k : kernels) worst = std::max(worst, k.state);
  return worst;
}

Digest Verdict::digest() const {
  Digester digester;
  for (const KernelVerdict& k : kernels) {
    digester.add(k.kernel);
    digester.add(k.type);
    digester.add(to_string(k.state));
  }
  return digester.finish();
}

std::string Verdict::for_fingerprint() const {
  std::string without;
  for (const KernelVerdict& k : kernels) {
    if (k.state == TestState::passed) continue;
    without += (without.empty() ? "without " : ", ") + k.kernel + " " + k.type;
  }
  return (without.empty() ? "all passed" : without) + ", " + digest().to_string();
}

std::string Verdict::summary() const {
  if (kernels.empty()) return "not tested: " + (reason.empty() ? "no test has run" : reason);
  const auto good = std::count_if(kernels.begin(), kernels.end(), [](const KernelVerdict& k) {
    return k.state == TestState::passed;
  });
  const std::string all = std::to_string(kernels.size());
  std::string text = static_cast<size_t>(good) == kernels.size()
                         ? all + " kernels passed"
                         : std::to_string(good) + " of " + all + " kernels passed";
  for (const KernelVerdict& k : kernels) {
    if (k.state == TestState::passed) continue;
    text += "; " + k.kernel + " " + k.type + (k.state == TestState::failed ? " failed: " : ": ") +
            k.seen;
  }
  if (!reason.empty()) text += "; " + reason;
  return text;
}

}  // namespace lockstep::kernels
