// Keys for a store, from the places where the tools of AWS look for them.
#pragma once

#include <memory>
#include <string>

#include "lockstep/base/cloud/signature.h"

namespace lockstep::cloud {

// Settings of the profile that AWS_PROFILE names (else "default"), from the files of the variables
// AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE (else ~/.aws/config and ~/.aws/credentials); ""
// for a setting that is missing. Values of the credentials file come first.
std::string profile_setting(const std::string& name);

// Keys, renewed before they expire. The places, in order: AWS_ACCESS_KEY_ID with
// AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; the profile (keys, then `credential_process`); the
// container's address (AWS_CONTAINER_CREDENTIALS_FULL_URI or _RELATIVE_URI); the instance's role
// (IMDSv2, unless AWS_EC2_METADATA_DISABLED is true). LOCKSTEP_S3_ANONYMOUS=1 uses none.
// Thread-safe.
class CredentialSource {
 public:
  CredentialSource();
  ~CredentialSource();

  // Throws DataError if no place has keys, naming the places, and if one has invalid ones.
  Credentials get();
  // Reads keys anew at the next call: the store has refused these.
  void renew(const Credentials& refused);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::cloud
