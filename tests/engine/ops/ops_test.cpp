// Every op on every device against the reference.
#include "lockstep/engine/ops/ops.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/loading.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {
namespace {

struct Parameter {
  Device device;
  SharedCase of_floats;
  DType type = DType::f32;  // of the inputs that take another one

  Case test() const { return type == DType::f32 ? *of_floats : in_narrow(type, *of_floats); }
};

std::vector<Parameter> parameters() {
  std::vector<Parameter> all;
  for (Device device : devices()) {
    const auto& table = kernels::table_for(device);
    for (const SharedCase& c : shared_cases(device)) {
      all.push_back({device, c});
      if (!takes_narrow(*c)) continue;
      for (const DType dtype : narrow_types(table)) all.push_back({device, c, dtype});
    }
  }
  return all;
}

std::string name_of_parameter(const testing::TestParamInfo<Parameter>& info) {
  const Case& c = *info.param.of_floats;
  const DType narrow = info.param.type;
  const DType type = narrow == DType::f32 ? c.inputs[0].dtype : narrow;
  return name_of_device(info.param.device) + "_" + std::string(c.op->type()) + "_" + c.name + "_" +
         std::string(lockstep::name_of(type));
}

class Ops : public testing::TestWithParam<Parameter> {};
void PrintTo(const Parameter& p, std::ostream* to) { *to << *p.of_floats; }

TEST_P(Ops, ForwardMatchesTheReference) { check_forward(GetParam().device, GetParam().test()); }

TEST_P(Ops, GradientsMatchTheReference) { check_gradients(GetParam().device, GetParam().test()); }

TEST_P(Ops, SecondDerivativesMatchTheReference) {
  const Case c = GetParam().test();
  if (is_narrow(c.inputs[0].dtype)) return;
  check_second_derivatives(GetParam().device, c);
}

TEST_P(Ops, GradientsOfTheReferenceMatchItsCentralDifferences) {
  check_reference(GetParam().test());
}

// Reports in every test run what could not be tested.
TEST(OpsInBf16, RunWhereTheProcessorHasInstructionsForIt) {
  const Tensor x = convert(Tensor::zeros({2, 3}, DType::f32), {{2, 3}, DType::bf16, nullptr});
  if (kernels::table_for({}).bf16) {
    EXPECT_EQ(ops::relu(x).dtype(), DType::bf16);
    EXPECT_THROW(ops::softmax(x), InvalidArgument);  // f32 only
    return;
  }
  EXPECT_THROW(ops::relu(x), Unsupported);
  GTEST_SKIP() << "no bf16 instructions: ops in bf16 were not run";
}

TEST(OpsOnGpus, RunWhereThereIsOne) {
  const auto reason = kernels::no_devices_reason();
  if (reason.text.empty()) return;
  const size_t tests = 2 * all_cases().size();
  std::printf("note: %zu tests of ops on a GPU were NOT run: %s\n", tests, reason.text.c_str());
  GTEST_SKIP() << tests << " tests of ops on a GPU were not run: " << reason.text;
}

INSTANTIATE_TEST_SUITE_P(All, Ops, testing::ValuesIn(parameters()), name_of_parameter);

}  // namespace
}  // namespace lockstep::optest
