// Environment variables.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// Functions are thread-safe while the environment does not change.

// The value of a variable of this process; "" if it is not set.
std::string variable(const char* name);

// The variables of this process whose names begin with `prefix`, by name and value.
std::vector<std::pair<std::string, std::string>> variables_with(std::string_view prefix);

// Name and value of "NAME=VALUE". Without "=" the value is "".
std::pair<std::string, std::string> parse_variable(const std::string& text);

// Secrets in variables. Both functions judge by the words of the name (any case) and by the shape
// of the value: tokens with known beginnings, private keys, URLs that carry a password or a
// signature. A name that says where a secret lies, such as AWS_SHARED_CREDENTIALS_FILE, holds none.

// Whether a variable is a credential, such as AWS_SECRET_ACCESS_KEY or GITHUB_PAT: it is refused
// where others may read it.
bool holds_credential(const std::string& name, const std::string& value);

// Whether a variable may be one. Says so of more names than holds_credential(), such as all with
// KEY: it is not stored where that costs little.
bool may_hold_secret(const std::string& name, const std::string& value);

}  // namespace lockstep
