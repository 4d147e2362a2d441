// Keys for a store, from the sources where the tools of AWS look for them.
#pragma once

#include <memory>

#include "lockstep/storage/signature.h"

namespace lockstep::storage {

// Keys, renewed before they expire. LOCKSTEP_S3_ANONYMOUS=1 uses none. Otherwise the first of these
// sources that is set counts, in the order of botocore; one that is set but cannot give keys is an
// error, so that requests are never signed as anyone else:
//
//   1. AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY and AWS_SECURITY_TOKEN or AWS_SESSION_TOKEN
//   2. the profile's role_arn, assumed with the keys of source_profile or credential_source
//   3. the role of a web identity: AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN, or those of the
//      profile
//   4. the profile's keys, in the credentials file, then in the configuration
//   5. the container's address (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI)
//   6. the instance's role (IMDSv2, unless AWS_EC2_METADATA_DISABLED is true)
//
// What else botocore knows is refused by name, where botocore would use it: single sign-on,
// `aws login`, credential_process, mfa_serial, the files of boto 2. Thread-safe.
class CredentialSource {
 public:
  CredentialSource();
  ~CredentialSource();

  // Throws DataError if no source has keys, naming the sources, or one has invalid ones,
  // InvalidArgument for a profile or setting that does not exist, Unsupported for what is refused
  // by name, and Cancelled after a stop request.
  Credentials get();
  // Reads keys again at the next call: the store has refused these.
  void renew(const Credentials& refused);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::storage
