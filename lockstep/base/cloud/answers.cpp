#include "lockstep/base/cloud/answers.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "lockstep/base/cloud/network_wait.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::cloud {
namespace {

// Text of XML without references to characters.
std::string plain_text(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t end = text[i] == '&' ? text.find(';', i) : std::string::npos;
    if (end == std::string::npos || end - i > 10) {
      result += text[i];
      continue;
    }
    const std::string name = text.substr(i + 1, end - i - 1);
    unsigned code = 0;
    if (name == "amp") code = '&';
    if (name == "lt") code = '<';
    if (name == "gt") code = '>';
    if (name == "quot") code = '"';
    if (name == "apos") code = '\'';
    if (name.starts_with("#x")) {
      std::from_chars(name.data() + 2, name.data() + name.size(), code, 16);
    } else if (name.starts_with('#')) {
      std::from_chars(name.data() + 1, name.data() + name.size(), code);
    }
    if (code == 0 || code > 127) {
      result += text[i];
      continue;
    }
    result += static_cast<char>(code);
    i = end;
  }
  return result;
}

// All elements <name>, as they stand in the document.
std::vector<std::string> elements(const std::string& xml, const std::string& name) {
  const std::string open = "<" + name + ">", close = "</" + name + ">";
  std::vector<std::string> found;
  for (size_t at = xml.find(open); at != std::string::npos; at = xml.find(open, at)) {
    at += open.size();
    const size_t end = xml.find(close, at);
    if (end == std::string::npos) break;
    found.push_back(xml.substr(at, end - at));
    at = end;
  }
  return found;
}

// Tables of a reflected cyclic redundancy check, for eight bytes at a time.
template <class Word>
class Crc {
 public:
  explicit Crc(Word polynomial) {
    for (size_t i = 0; i < 256; ++i) {
      Word word = static_cast<Word>(i);
      for (int bit = 0; bit < 8; ++bit) word = (word >> 1) ^ (word & 1 ? polynomial : Word{0});
      tables_[0][i] = word;
    }
    for (size_t t = 1; t < 8; ++t) {
      for (size_t i = 0; i < 256; ++i) {
        const Word before = tables_[t - 1][i];
        tables_[t][i] = (before >> 8) ^ tables_[0][before & 0xff];
      }
    }
  }

  // Big-endian, as stores give it.
  std::string of(std::string_view bytes) const {
    Word crc = static_cast<Word>(~Word{0});
    size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) {
      uint64_t eight = crc;
      for (size_t i = 0; i < 8; ++i) eight ^= uint64_t{byte(bytes, at + i)} << (8 * i);
      crc = 0;
      for (size_t i = 0; i < 8; ++i) crc ^= tables_[7 - i][eight >> (8 * i) & 0xff];
    }
    for (; at < bytes.size(); ++at) crc = (crc >> 8) ^ tables_[0][(crc ^ byte(bytes, at)) & 0xff];
    crc = ~crc;
    std::string result;
    for (size_t i = sizeof(Word); i-- > 0;) result += static_cast<char>(crc >> (8 * i) & 0xff);
    return result;
  }

 private:
  static uint8_t byte(std::string_view bytes, size_t i) { return static_cast<uint8_t>(bytes[i]); }
  Word tables_[8][256];
};

}  // namespace

std::string damage_by_checksum(const HttpAnswer& answer) {
  static const Crc<uint64_t> crc64(0x9a6c9329ac4bc9b5);
  static const Crc<uint32_t> crc32c(0x82f63b78), crc32(0xedb88320);
  const auto differs = [&](const char* name, auto make) {
    const std::string told = answer.header(name);
    // Those of parts ("...-3") are no checksums of the contents.
    if (told.empty() || told.find('-') != std::string::npos) return false;
    return told != base64(make(answer.body));
  };
  if (answer.header("x-amz-checksum-type") == "COMPOSITE") return {};
  const bool damaged =
      differs("x-amz-checksum-sha256", sha256_bytes) ||
      differs("x-amz-checksum-crc64nvme", [](std::string_view bytes) { return crc64.of(bytes); }) ||
      differs("x-amz-checksum-crc32c", [](std::string_view bytes) { return crc32c.of(bytes); }) ||
      differs("x-amz-checksum-crc32", [](std::string_view bytes) { return crc32.of(bytes); });
  return damaged ? "the bytes received do not fit the object's checksum" : "";
}

std::string element(const std::string& xml, const std::string& name) {
  const std::vector<std::string> found = elements(xml, name);
  return found.empty() ? "" : plain_text(found[0]);
}

std::string unquoted(const std::string& etag) {
  std::string text = etag;
  std::erase(text, '"');
  return text;
}

std::string damage_in_listing(const HttpAnswer& answer) {
  if (answer.status != 200) return {};
  return answer.body.find("</ListBucketResult>") == std::string::npos ? "the listing is incomplete"
                                                                      : "";
}

Listing parsed_listing(const std::string& xml) {
  Listing listing;
  const bool encoded = element(xml, "EncodingType") == "url";
  const auto key = [&](const std::string& text) {
    return encoded ? percent_decoded(plain_text(text)) : plain_text(text);
  };
  for (const std::string& object : elements(xml, "Contents")) {
    ObjectInfo info;
    const std::vector<std::string> keys = elements(object, "Key");
    const std::string size = element(object, "Size");
    const auto end = std::from_chars(size.data(), size.data() + size.size(), info.size);
    if (keys.empty() || size.empty() || end.ec != std::errc()) {
      throw FileError("[s3] the store's listing has an object without key or size");
    }
    info.key = key(keys[0]);
    info.etag = unquoted(element(object, "ETag"));
    listing.objects.push_back(std::move(info));
  }
  for (const std::string& folder : elements(xml, "CommonPrefixes")) {
    const std::vector<std::string> prefixes = elements(folder, "Prefix");
    if (!prefixes.empty()) listing.folders.push_back(key(prefixes[0]));
  }
  if (element(xml, "IsTruncated") == "true") {
    listing.next = element(xml, "NextContinuationToken");
    if (listing.next.empty()) throw FileError("[s3] the store's listing ends before its last page");
  }
  return listing;
}

std::string code_of(const HttpAnswer& answer) {
  const std::string code = element(answer.body, "Code");
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return code.size() <= 64 && std::all_of(code.begin(), code.end(), letter) ? code : "";
}

std::string reason_of(const HttpAnswer& answer) {
  if (answer.status == 0) return answer.error;
  if (answer.status == 412) return changed_object;
  const std::string code = code_of(answer);
  if (code == "NoSuchBucket") return "there is no such bucket";
  if (answer.status == 404) return "there is no such object";
  std::string reason = answer.status == 403 ? "access is denied" : "the store refused";
  if (answer.status >= 300 && answer.status < 400) {
    reason = "the store redirects to another endpoint, which is not followed";
  }
  return reason + " (" + (code.empty() ? "" : code + ", ") + "status " +
         std::to_string(answer.status) + ")";
}

void refuse(const std::string& doing, const std::string& what, const HttpAnswer& answer) {
  const std::string message =
      "[s3] cannot " + doing + " " + printable(what) + ": " + reason_of(answer);
  if (answer.status == 412) throw DataError(message);
  if (answer.status == 0 && answer.error == stopped_request) throw Cancelled(message);
  throw FileError(message, answer.status == 403
                               ? "check the keys (AWS_ACCESS_KEY_ID, AWS_PROFILE) and their rights"
                               : "");
}

}  // namespace lockstep::cloud
