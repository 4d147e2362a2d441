// Checks of what users give for configurations of other systems.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {

// Throws InvalidArgument unless the text consists of letters, digits and `others`, with `option` as
// its name in the message. So no text can become another field.
inline const std::string& checked_word(const std::string& option, const std::string& text,
                                       const char* others) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::strchr(others, c) != nullptr;
  });
  if (text.empty()) throw InvalidArgument("[cluster] " + option + " is needed");
  if (!plain || text.find('\0') != std::string::npos) {
    throw InvalidArgument("[cluster] " + option + " cannot be \"" + text + "\"",
                          "letters, digits and " + std::string(others) + " are allowed");
  }
  return text;
}

}  // namespace lockstep
