#include "lockstep/storage/answers.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "lockstep/base/crc.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/storage/network_wait.h"

namespace lockstep::storage {
namespace {

constexpr size_t longest_key = 1024;  // bytes, by S3's rules

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

// Big-endian, as stores give it.
template <class Word>
std::string checksum_bytes(const Crc<Word>& crc, std::string_view bytes) {
  const Word checksum = crc.of(bytes);
  std::string result;
  for (size_t i = sizeof(Word); i-- > 0;) result += static_cast<char>(checksum >> (8 * i) & 0xff);
  return result;
}

}  // namespace

std::string damage_by_checksum(const HttpAnswer& answer) {
  static const Crc<uint64_t> crc64(0x9a6c9329ac4bc9b5);
  static const Crc<uint32_t> crc32c(polynomial_crc32c), crc32(0xedb88320);
  const auto differs = [&](const char* name, auto make) {
    const std::string told = answer.header(name);
    // Those of parts ("...-3") are not checksums of the contents.
    if (told.empty() || told.find('-') != std::string::npos) return false;
    return told != base64(make(answer.body));
  };
  if (answer.header("x-amz-checksum-type") == "COMPOSITE") return {};
  const bool damaged =
      differs("x-amz-checksum-sha256", sha256_bytes) ||
      differs("x-amz-checksum-crc64nvme",
              [](std::string_view bytes) { return checksum_bytes(crc64, bytes); }) ||
      differs("x-amz-checksum-crc32c",
              [](std::string_view bytes) { return checksum_bytes(crc32c, bytes); }) ||
      differs("x-amz-checksum-crc32",
              [](std::string_view bytes) { return checksum_bytes(crc32, bytes); });
  return damaged ? "the bytes received do not fit the object's checksum" : "";
}

bool has_md5(const HttpAnswer& answer) {
  const std::string etag = unquoted(answer.header("etag"));
  const std::string kind = answer.header("x-amz-server-side-encryption");
  const bool encrypted = kind.starts_with("aws:kms") ||
                         !answer.header("x-amz-server-side-encryption-customer-algorithm").empty();
  return !encrypted && etag.size() == 32 &&
         etag.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string damage_in_written(const HttpAnswer& answer, const std::string& md5) {
  if (answer.status != 200 || !has_md5(answer)) return {};
  const std::string etag = unquoted(answer.header("etag")), sent = hexadecimal(md5);
  if (etag == sent) return {};
  return "the store's ETag is the MD5 of other bytes (" + etag + ") than those that were sent (" +
         sent + ")";
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
    if (keys.empty() || size.empty() || end.ec != std::errc() ||
        end.ptr != size.data() + size.size()) {
      throw FileError("[s3] the store's listing has an object without key or size");
    }
    info.key = key(keys[0]);
    if (info.key.empty() || info.key.size() > longest_key) {
      throw FileError("[s3] the store's listing has a key of " + std::to_string(info.key.size()) +
                      " bytes; keys have 1 to " + std::to_string(longest_key));
    }
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

}  // namespace lockstep::storage
