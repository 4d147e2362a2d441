// Recurrent layers.
#include "lockstep/engine/kernels/recurrent/recurrent.h"
#include "lockstep/engine/kernels/self_test/case_list.h"

namespace lockstep::kernels::selftest {
namespace {

struct RecurrentSizes {
  int64_t rows, steps, channels, hidden;
  bool large = false;

  std::string to_string() const {
    return std::to_string(rows) + "x" + std::to_string(steps) + "x" + std::to_string(channels) +
           ", " + std::to_string(hidden) + " units";
  }
  // 0 to `steps`, in any order, one of them `steps`.
  HostBytes lengths() const {
    std::vector<int32_t> all;
    for (int64_t i = 0; i < rows; ++i) {
      all.push_back(static_cast<int32_t>(steps - i * 7 % (steps + 1)));
    }
    return bytes_of(all);
  }
};

}  // namespace

std::vector<TestCase> recurrent_cases() {
  std::vector<TestCase> cases;
  using enum RecurrentCell;
  for (const RecurrentSizes& s :
       {RecurrentSizes{1, 1, 1, 1}, RecurrentSizes{5, 4, 3, 7}, RecurrentSizes{17, 9, 12, 33},
        RecurrentSizes{3, 2, 300, 70}, RecurrentSizes{64, 24, 32, 128, true}}) {
    for (const auto& [cell, name] :
         {std::pair{lstm, "lstm"}, std::pair{gru, "gru"}, std::pair{rnn, "rnn"}}) {
      for (const bool other : {false, true}) {
        add_case(
            cases, "recurrent", "f32", s.to_string() + ", " + name + (other ? ", reverse" : ""),
            false,
            [s, cell = cell, other](const Specs& spec) {
              return RecurrentProblem{.x = spec({s.rows, s.steps, s.channels}),
                                      .hidden = s.hidden,
                                      .cell = cell,
                                      .reverse = other,
                                      .reset_after = other,
                                      .relu = other};
            },
            {.error = kSums},
            [s] {
              return Values{{{Operand::Kind::input, RecurrentOperands::lengths}, s.lengths()}};
            },
            s.large);
      }
    }
  }
  return cases;
}

}  // namespace lockstep::kernels::selftest
