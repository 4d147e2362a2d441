#include "lockstep/base/os/variable.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace lockstep {
namespace {

// Variables whose values are paths.
constexpr std::string_view endings_of_paths[] = {
    "_FILE", "_PATH", "_DIR", "_DIRECTORY", "_FOLDER", "_APPLICATION_CREDENTIALS"};

// Anywhere in the name of a credential.
constexpr std::string_view credential_parts[] = {
    "SECRET",     "PASSWORD",    "PASSWD",   "PASSPHRASE",       "PASSCODE",    "CREDENTIAL",
    "ACCESS_KEY", "PRIVATE_KEY", "API_KEY",  "APIKEY",           "ACCOUNT_KEY", "SIGNING_KEY",
    "AUTH_KEY",   "AUTHKEY",     "AUTH_TOK", "CONNECTION_STRING"};
// Between the underscores of a name: not TOKENIZERS_PARALLELISM, nor PATH.
constexpr std::string_view credential_words[] = {"TOKEN", "TOKENS", "PAT",  "PATS",    "JWT",
                                                 "CRED",  "CREDS",  "PSK",  "BEARER",  "NETRC",
                                                 "PASS",  "PGPASS", "PSWD", "APITOKEN"};
// In names that may be those of credentials.
constexpr std::string_view doubtful_parts[] = {"KEY",  "TOKEN",  "PASS",    "_PWD",    "PWD_",
                                               "AUTH", "COOKIE", "PRIVATE", "WEBHOOK", "SIGNATURE"};
constexpr std::string_view doubtful_words[] = {"SAS", "DSN", "PIN", "OTP", "TOTP", "HMAC", "SALT"};

// Beginnings of tokens, each followed by at least 16 characters of one.
constexpr std::string_view token_beginnings[] = {
    "ghp_",  "gho_",  "ghu_",  "ghs_",    "ghr_",      "github_pat_", "glpat-",  "hf_",  "sk-",
    "xoxb-", "xoxp-", "xoxa-", "xoxs-",   "xapp-",     "npm_",        "pypi-",   "AIza", "ya29.",
    "AKIA",  "ASIA",  "SG.",   "dop_v1_", "dckr_pat_", "sk_live_",    "rk_live_"};

// In the query of a URL that stands for a key.
constexpr std::string_view secret_fields[] = {
    "&SIG=", "&SIGNATURE=", "-SIGNATURE=", "TOKEN=", "&KEY=", "_KEY=", "PASSWORD=", "SECRET="};

std::string in_capitals(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

template <class List>
bool has_part(const std::string& name, const List& parts) {
  return std::any_of(std::begin(parts), std::end(parts),
                     [&](std::string_view part) { return name.find(part) != std::string::npos; });
}

template <class List>
bool has_word(const std::string& name, const List& words) {
  return std::any_of(std::begin(words), std::end(words), [&](std::string_view word) {
    return ("_" + name + "_").find("_" + std::string(word) + "_") != std::string::npos;
  });
}

bool names_path(const std::string& name) {
  return std::any_of(std::begin(endings_of_paths), std::end(endings_of_paths),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

bool is_token(std::string_view value) {
  const auto is_of_token = [](unsigned char c) {
    return c < 128 && (std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.');
  };
  constexpr size_t least = 16;
  // A JSON Web Token: three parts, the first of which is JSON in base64.
  if (value.starts_with("eyJ") && std::count(value.begin(), value.end(), '.') == 2 &&
      std::all_of(value.begin(), value.end(), is_of_token)) {
    return true;
  }
  return std::any_of(
      std::begin(token_beginnings), std::end(token_beginnings), [&](std::string_view beginning) {
        return value.starts_with(beginning) && value.size() >= beginning.size() + least &&
               std::all_of(value.begin(), value.end(), is_of_token);
      });
}

// Of a URL: a user's name with a password, or a signature that stands for a key.
bool carries_password(std::string_view value) {
  const size_t scheme = value.find("://");
  if (scheme == std::string_view::npos) return false;
  const std::string_view rest = value.substr(scheme + 3);
  const std::string_view host = rest.substr(0, rest.find_first_of("/?#"));
  const size_t at = host.rfind('@');
  if (at != std::string_view::npos && host.substr(0, at).find(':') != std::string_view::npos) {
    return true;
  }
  const size_t query = rest.find('?');
  if (query == std::string_view::npos) return false;
  const std::string fields = "&" + in_capitals(std::string(rest.substr(query + 1)));
  return has_part(fields, secret_fields);
}

bool is_secret(std::string_view value) {
  return is_token(value) || carries_password(value) ||
         (value.find("-----BEGIN ") != std::string_view::npos &&
          value.find("PRIVATE KEY") != std::string_view::npos);
}

}  // namespace

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

std::vector<std::pair<std::string, std::string>> variables_with(std::string_view prefix) {
  std::vector<std::pair<std::string, std::string>> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with(prefix) && text.find('=') != std::string_view::npos) {
      all.push_back(parse_variable(*entry));
    }
  }
  return all;
}

std::pair<std::string, std::string> parse_variable(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return {text, ""};
  return {text.substr(0, equals), text.substr(equals + 1)};
}

bool holds_credential(const std::string& name, const std::string& value) {
  if (is_secret(value)) return true;
  const std::string capitals = in_capitals(name);
  if (names_path(capitals)) return false;
  return has_part(capitals, credential_parts) || has_word(capitals, credential_words);
}

bool may_hold_secret(const std::string& name, const std::string& value) {
  if (holds_credential(name, value)) return true;
  // A URL with a user, whose name may be a token.
  const size_t scheme = value.find("://");
  if (scheme != std::string::npos && value.find('@', scheme) != std::string::npos) return true;
  const std::string capitals = in_capitals(name);
  if (names_path(capitals)) return false;
  return has_part(capitals, doubtful_parts) || has_word(capitals, doubtful_words);
}

}  // namespace lockstep
