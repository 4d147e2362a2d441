#include "lockstep/engine/kernels/self_test/self_test.h"

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/self_test/cases.h"

namespace lockstep::kernels {
namespace {

using selftest::TestCase;

// Free memory below which an error of the device may come from the lack of it.
constexpr size_t kLittle = size_t{256} << 20;
// Raised when equal results of cases lead to other verdicts than before.
constexpr int kRules = 2;
constexpr const char* kRefusesAll = "it refuses every problem; ";

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// Whether an error may say that the device has no room or is taken, and nothing about its kernels.
bool is_shortage(const Error& error, DeviceMemory& memory) {
  const std::string text = error.what();
  for (const char* const sign :
       {"out of memory", "ALLOC_FAILED", "busy or unavailable", "Timed out waiting"}) {
    if (contains(text, sign)) return true;
  }
  try {
    const DeviceMemoryFigures figures = memory.figures();
    return figures.total > 0 && figures.free < kLittle;
  } catch (const Error&) {
    return false;
  }
}

bool still_works(DeviceMemory& memory) {
  try {
    memory.synchronize(nullptr);
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool named(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::vector<SelfTestCase> self_test_cases(const Table& table) {
  std::vector<SelfTestCase> cases;
  for (const TestCase& c : selftest::all_cases(table)) {
    cases.push_back({c.kernel, c.type, c.what, c.large});
  }
  return cases;
}

std::string self_test_version() {
  Table all = table_for({});
  all.bf16 = all.f16 = all.tf32 = true;
  Digester digester;
  digester.add("rules " + std::to_string(kRules));
  for (const SelfTestCase& c : self_test_cases(all)) digester.add(c.name());
  return digester.finish().to_string();
}

bool run_self_test(const Table& table, DeviceMemory& memory, const SelfTestOptions& options) {
  const ArithmeticMode mode;  // of trainings
  const TimeLimit limit(options.seconds);
  const std::vector<TestCase> cases = selftest::all_cases(table);
  selftest::Bench bench(table, memory);
  for (size_t i = options.first; i < cases.size() && !limit.reached(); ++i) {
    const TestCase& c = cases[i];
    if (named(options.skip, c.kernel + " " + c.type)) continue;
    if (!options.only.empty() && !named(options.only, c.kernel)) continue;
    if (c.large && !options.large) continue;
    if (i % options.every != 0) continue;
    if (options.begin) options.begin(i);
    fail_point("self-test", static_cast<int64_t>(i));
    SelfTestResult result{.number = i};
    bool works = true;
    try {
      result.seen = c.run(bench);
      if (!result.seen.empty()) result.state = TestState::failed;
    } catch (const selftest::NoRoom& error) {
      result = {i, TestState::not_tested, error.what()};
    } catch (const Unsupported& error) {
      // The kernel itself refuses this problem wherever it is asked for.
      result.seen = error.what();
    } catch (const Error& error) {
      result = {i, is_shortage(error, memory) ? TestState::not_tested : TestState::failed,
                error.what()};
      works = still_works(memory);
    }
    if (!result.seen.empty()) result.seen = c.what + ": " + result.seen;
    if (options.end) options.end(result);
    if (!works) return false;
    if (options.until_failure && result.state == TestState::failed) return true;
  }
  return true;
}

Verdict verdict_of(const std::vector<SelfTestCase>& cases,
                   const std::vector<SelfTestResult>& results) {
  Verdict verdict;
  std::map<std::pair<std::string, std::string>, size_t> indices;
  std::vector<const SelfTestResult*> of(cases.size(), nullptr);
  std::vector<int> computed;          // cases of each kernel that it has not refused
  std::vector<std::string> refusals;  // the first of each kernel
  for (const SelfTestResult& r : results) {
    if (r.number < of.size()) of[r.number] = &r;
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto [index, added] =
        indices.try_emplace({cases[i].kernel, cases[i].type}, verdict.kernels.size());
    if (added) {
      verdict.kernels.push_back({.kernel = cases[i].kernel, .type = cases[i].type});
      computed.push_back(0);
      refusals.emplace_back();
    }
    KernelVerdict& k = verdict.kernels[index->second];
    if (!of[i] && cases[i].large) continue;
    const TestState state = of[i] ? of[i]->state : TestState::not_tested;
    if (of[i]) ++k.cases;
    if (state == TestState::passed) {
      std::string& refusal = refusals[index->second];
      if (of[i]->seen.empty()) {
        ++computed[index->second];
      } else if (refusal.empty()) {
        refusal = of[i]->seen;
      }
    }
    if (state <= k.state) continue;
    k.state = state;
    k.seen = of[i] ? of[i]->seen : "the time was over";
  }
  for (size_t n = 0; n < verdict.kernels.size(); ++n) {
    KernelVerdict& k = verdict.kernels[n];
    if (k.state != TestState::passed || computed[n] > 0 || refusals[n].empty()) continue;
    k.state = TestState::not_tested;
    k.seen = kRefusesAll + refusals[n];
  }
  return verdict;
}

bool refuses_all(const KernelVerdict& kernel) {
  return kernel.state == TestState::not_tested && kernel.seen.starts_with(kRefusesAll);
}

}  // namespace lockstep::kernels
