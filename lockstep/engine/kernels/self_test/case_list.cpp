#include "lockstep/engine/kernels/self_test/case_list.h"

#include "lockstep/engine/kernels/interface/choice.h"

namespace lockstep::kernels::selftest {

void add_made(std::vector<TestCase>& to, const std::string& kernel, const std::string& type,
              const std::string& what, bool in_layout, const KernelMaker& maker,
              const Bounds& bounds, const std::function<Values()>& given, bool large) {
  to.push_back({kernel, type, what + (in_layout ? ", layout of convolutions" : ""), large,
                [=](Bench& bench) {
                  const DType dtype = numbers_of(type);
                  const ThreadChoice choice({.deterministic = true, .tf32 = type == "tf32"});
                  KernelPair pair;
                  pair.cpu = maker(table_for({}), [](const Shape& s) { return plain_spec(s); });
                  pair.device = maker(bench.table(), [&](const Shape& s) {
                    return in_layout ? layout_of_convolutions(bench, s, dtype)
                                     : plain_spec(s, dtype);
                  });
                  pair.numbers = dtype;
                  if (given) pair.given = given();
                  pair.bounds = bounds;
                  return check_kernel(bench, pair);
                }});
}

}  // namespace lockstep::kernels::selftest
