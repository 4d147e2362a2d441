#include "lockstep/base/os/variable.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace lockstep {
namespace {

using Pair = std::pair<std::string, std::string>;

TEST(Variable, ValueOfThisProcess) {
  ASSERT_EQ(::setenv("LOCKSTEP_VARIABLE_TEST_A", "1=2", 1), 0);
  EXPECT_EQ(variable("LOCKSTEP_VARIABLE_TEST_A"), "1=2");
  EXPECT_EQ(variable("LOCKSTEP_VARIABLE_TEST_B"), "");
  EXPECT_EQ(variables_with("LOCKSTEP_VARIABLE_TEST_"),
            (std::vector<Pair>{{"LOCKSTEP_VARIABLE_TEST_A", "1=2"}}));
  EXPECT_GT(variables_with("").size(), 1U);
  ASSERT_EQ(::unsetenv("LOCKSTEP_VARIABLE_TEST_A"), 0);
}

TEST(Variable, NameAndValueOfAText) {
  EXPECT_EQ(parse_variable("A=b=c"), Pair("A", "b=c"));
  EXPECT_EQ(parse_variable("A="), Pair("A", ""));
  EXPECT_EQ(parse_variable("A"), Pair("A", ""));
}

TEST(Variable, CredentialsByNameAndValue) {
  for (const char* name :
       {"AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "HF_TOKEN", "GITHUB_PAT",
        "gh_pat", "PGPASSWORD", "MYSQL_PASS", "OPENAI_API_KEY", "MY_APIKEY", "CI_JOB_JWT",
        "DB_CREDS", "WIFI_PSK", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT_KEY"}) {
    EXPECT_TRUE(holds_credential(name, "x")) << name;
    EXPECT_TRUE(may_hold_secret(name, "x")) << name;
  }
  // Left out of files, yet not refused.
  for (const char* name :
       {"MYSQL_PWD", "SSH_AUTH_SOCK", "SENTRY_DSN", "SLACK_WEBHOOK_URL", "AZURE_SAS", "XAUTHORITY",
        "DEPLOY_KEY", "LOCKSTEP_HIDDEN_KEY", "TOKENIZERS_PARALLELISM"}) {
    EXPECT_FALSE(holds_credential(name, "x")) << name;
    EXPECT_TRUE(may_hold_secret(name, "x")) << name;
  }
  for (const char* name :
       {"PATH", "PWD", "OLDPWD", "HOME", "COMPAT", "XDG_SESSION_ID", "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE", "SAS_HOME_DIR", "GOOGLE_APPLICATION_CREDENTIALS",
        "LOCKSTEP_KEY_FOLDER", "LOCKSTEP_PORTS", "AWS_PROFILE"}) {
    EXPECT_FALSE(may_hold_secret(name, "/a/path")) << name;
  }
  for (const char* value :
       {"ghp_16C7e42F292c6912E7710c838347Ae178B4a", "github_pat_11ABCDEFG0123456789_abc",
        "glpat-abcdefghij0123456789", "AKIAIOSFODNN7EXAMPLE", "https://me:pw@host/path",
        "postgres://u:p@db:5432/x", "https://b.s3.amazonaws.com/k?X-Amz-Signature=ab&x=1",
        "https://a.blob.core.windows.net/c?sv=2020&sig=ab", "-----BEGIN RSA PRIVATE KEY-----\nMI",
        "eyJhbGciOiJub25lIn0.eyJhIjoxfQ.c2ln"}) {
    EXPECT_TRUE(holds_credential("PLAIN", value)) << value;
    EXPECT_TRUE(holds_credential("IN_A_FILE", value)) << value;
  }
  for (const char* value : {"", "ghp_", "sk-learn", "http://proxy:3128", "https://host/a?x=1@2:3",
                            "a.b.c", "10.0.0.1:80", "/usr/bin:/bin"}) {
    EXPECT_FALSE(holds_credential("PLAIN", value)) << value;
  }
  EXPECT_TRUE(may_hold_secret("PLAIN", "https://token@host/path"));
}

}  // namespace
}  // namespace lockstep
