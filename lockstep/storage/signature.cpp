#include "lockstep/storage/signature.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::storage {
namespace {

std::string digest_by(const EVP_MD* kind, std::string_view bytes) {
  unsigned char result[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), result, &size, kind, nullptr) != 1) {
    throw InternalError("[cloud] OpenSSL computed no digest");
  }
  return {reinterpret_cast<const char*>(result), size};
}

std::string keyed_digest(std::string_view key, std::string_view bytes) {
  unsigned char result[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), result,
           &size) == nullptr) {
    throw InternalError("[cloud] OpenSSL computed no keyed digest");
  }
  return {reinterpret_cast<const char*>(result), size};
}

// Without blanks at both ends; several blanks become one.
std::string trimmed(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool blank = c == ' ' || c == '\t';
    if (blank && (result.empty() || result.back() == ' ')) continue;
    result += blank ? ' ' : c;
  }
  if (!result.empty() && result.back() == ' ') result.pop_back();
  return result;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string percent_encoded(std::string_view text, bool keep_slash) {
  constexpr const char* digits = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && keep_slash);
    if (plain) {
      result += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      result += {'%', digits[byte >> 4], digits[byte & 15]};
    }
  }
  return result;
}

std::string percent_decoded(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
    if (low >= 0) {
      result += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      result += text[i] == '+' ? ' ' : text[i];
    }
  }
  return result;
}

std::string encoded_query(const Pairs& query) {
  Pairs encoded;
  for (const auto& [name, value] : query) {
    encoded.emplace_back(percent_encoded(name, false), percent_encoded(value, false));
  }
  std::sort(encoded.begin(), encoded.end());
  std::string text;
  for (const auto& [name, value] : encoded) {
    text += (text.empty() ? "" : "&") + name + "=" + value;
  }
  return text;
}

std::string hexadecimal(std::string_view bytes) {
  constexpr const char* digits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += {digits[byte >> 4], digits[byte & 15]};
  }
  return text;
}

std::string sha256_bytes(std::string_view bytes) { return digest_by(EVP_sha256(), bytes); }
std::string sha256(std::string_view bytes) { return hexadecimal(digest_by(EVP_sha256(), bytes)); }
std::string md5(std::string_view bytes) { return digest_by(EVP_md5(), bytes); }

std::string base64(std::string_view bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

Pairs sign(const SignedRequest& request, const Credentials& credentials, const std::string& region,
           const std::string& service, std::time_t now) {
  std::tm parts{};
  gmtime_r(&now, &parts);
  char time[32];
  std::strftime(time, sizeof time, "%Y%m%dT%H%M%SZ", &parts);
  const std::string day(time, 8);
  Pairs made{{"x-amz-content-sha256", request.payload_digest}, {"x-amz-date", time}};
  if (!credentials.session_token.empty()) {
    made.emplace_back("x-amz-security-token", credentials.session_token);
  }
  Pairs all = request.headers;
  all.insert(all.end(), made.begin(), made.end());
  all.emplace_back("host", request.host);
  std::sort(all.begin(), all.end());
  std::string headers, names;
  for (const auto& [name, value] : all) {
    headers += name + ":" + trimmed(value) + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical = request.method + "\n" + percent_encoded(request.path, true) + "\n" +
                                encoded_query(request.query) + "\n" + headers + "\n" + names +
                                "\n" + request.payload_digest;
  const std::string scope = day + "/" + region + "/" + service + "/aws4_request";
  const std::string text =
      "AWS4-HMAC-SHA256\n" + std::string(time) + "\n" + scope + "\n" + sha256(canonical);
  std::string key = keyed_digest("AWS4" + credentials.secret_key, day);
  for (const std::string& part : {region, service, std::string("aws4_request")}) {
    key = keyed_digest(key, part);
  }
  made.emplace_back("authorization", "AWS4-HMAC-SHA256 Credential=" + credentials.access_key + "/" +
                                         scope + ", SignedHeaders=" + names +
                                         ", Signature=" + hexadecimal(keyed_digest(key, text)));
  return made;
}

}  // namespace lockstep::storage
