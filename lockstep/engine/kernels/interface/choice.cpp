#include "lockstep/engine/kernels/interface/choice.h"

#include <utility>

#include "lockstep/engine/device/devices.h"

namespace lockstep::kernels {
namespace {

thread_local std::optional<Choice> own;

}  // namespace

Choice choice() { return own.value_or(Choice{.deterministic = lockstep::deterministic()}); }

ThreadChoice::ThreadChoice(const Choice& choice)
    : before_(std::exchange(own, std::optional(choice))) {}

ThreadChoice::~ThreadChoice() { own = before_; }

}  // namespace lockstep::kernels
