// Answers of an S3 store.
#pragma once

#include <string>
#include <vector>

#include "lockstep/storage/http.h"
#include "lockstep/storage/object_store.h"

namespace lockstep::storage {

// The reason for an object that is no longer the listed one.
inline constexpr const char* changed_object = "the object has changed since it was listed";

// One page of a listing.
struct Listing {
  std::vector<ObjectInfo> objects;
  std::vector<std::string> folders;
  std::string next;  // token of the next page; "" for the last one
};

// Throws FileError for anything but a listing.
Listing parsed_listing(const std::string& xml);
// What is wrong with a listing with status 200; "" if nothing.
std::string damage_in_listing(const HttpAnswer& answer);

// What is wrong with the contents of a whole object, by the checksum in the answer (SHA-256, or
// CRC-64/NVME, CRC-32C, CRC-32); "" if nothing, or if there is none.
std::string damage_by_checksum(const HttpAnswer& answer);

// Whether the ETag in an answer is the MD5 of the contents of an object, or of a part: not of
// objects in parts, nor of encrypted ones.
bool has_md5(const HttpAnswer& answer);
// What is wrong with the answer to a request that wrote bytes with this MD5 (16 bytes): its ETag is
// that of others; "" if nothing.
std::string damage_in_written(const HttpAnswer& answer, const std::string& md5);

// The text of the first element <name> in a document; "" if there is none.
std::string element(const std::string& xml, const std::string& name);
// The error code in the answer's document, if it looks like one; else "".
std::string code_of(const HttpAnswer& answer);
// Why an answer is a refusal. Of the store's text, it contains the code alone.
std::string reason_of(const HttpAnswer& answer);
// Throws FileError (DataError for a changed object, Cancelled after a stop request): "[s3] cannot
// read s3://...: ...".
[[noreturn]] void refuse(const std::string& doing, const std::string& what,
                         const HttpAnswer& answer);

std::string unquoted(const std::string& etag);

}  // namespace lockstep::storage
