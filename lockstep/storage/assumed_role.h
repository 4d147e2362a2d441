// Roles that AWS's token service (STS) lends.
#pragma once

#include <string>

#include "lockstep/storage/profiles.h"
#include "lockstep/storage/signature.h"

namespace lockstep::storage {

struct Role {
  std::string arn;
  std::string session_name = {};  // "": made up
  std::string external_id = {};
  std::string duration_seconds = {};  // "": STS decides
  std::string where = {};             // what asks for the role, for messages
};

// Temporary keys of a role. Ask STS at its address for the profile (Profiles::endpoint), a few
// times if it does not answer. Throw DataError, naming the role and the reason, and Cancelled after
// a stop request. Thread-safe.
Credentials assume_role(const Profiles& profiles, const Role& role, const Credentials& source);
// By the token of a container, read from a file each time, because it is renewed there.
Credentials assume_role_by_token(const Profiles& profiles, const Role& role,
                                 const std::string& token_file);

// Seconds since 1970 of "2026-11-27T06:05:23Z", also with fractions and a zone; 0 if it is not a
// time.
std::time_t parsed_time(const std::string& text);

}  // namespace lockstep::storage
