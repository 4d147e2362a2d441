#!/usr/bin/env python3
"""Tests of whose keys sign requests: profiles, roles, containers, beside botocore where Python has it.

usage: s3_roles_test.py PATH_OF_LOCKSTEP [unittest options]

The token service (STS) and the store are on loopback and check signatures themselves.
"""

import json
import os
import re
import subprocess
import sys
import time
import unittest
import urllib.parse

import support
from fake_s3 import Store, sha256, signature, start_server
from s3_support import JOB, S3Test

try:
    import botocore  # noqa: F401
    HAS_BOTOCORE = True
except ImportError:
    HAS_BOTOCORE = False

ROLE = "arn:aws:iam::123456789012:role/"
BOTOCORE = """
import sys, botocore.session
try:
    session = botocore.session.Session()
    session.create_client("s3")
    keys = session.get_credentials()
    print(keys.get_frozen_credentials().access_key if keys else "none")
except Exception as error:
    print("refused", type(error).__name__)
"""


class TokenService:
    """AssumeRole and AssumeRoleWithWebIdentity: checks signatures, gives each role its own keys."""

    def __init__(self, store):
        self.store = store            # whose keys may ask, and which learns the keys of roles
        self.requests = []            # the forms that were sent
        self.seconds = 3600           # until given keys expire
        self.fault = lambda: None     # (status, code) of a refusal, or None
        self.clock_shift = 0
        self.server = start_server(0, self.serve)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, h, status, text):
        h.send_response_only(status)
        h.send_header("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + self.clock_shift)))
        h.send_header("Content-Type", "text/xml")
        h.send_header("Content-Length", str(len(text)))
        h.end_headers()
        h.wfile.write(text.encode())

    def refuse(self, h, status, code):
        self.answer(h, status, f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>no</Message>"
                               "</Error></ErrorResponse>")

    def signer(self, h, body):
        match = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/sts/aws4_request, "
                             r"SignedHeaders=([^,]+), Signature=([0-9a-f]{64})", h.headers.get("Authorization", ""))
        if not match or match[1] not in self.store.keys:
            return None
        secret, token = self.store.keys[match[1]]
        lower = {k.lower(): v for k, v in h.headers.items()}
        right = signature(secret, "POST", "/", [], lower, match[4].split(";"), sha256(body), match[3],
                          h.headers["x-amz-date"], "sts")
        return match[1] if right == match[5] and h.headers.get("x-amz-security-token") == token else None

    def serve(self, h):
        body = h.rfile.read(int(h.headers.get("Content-Length") or 0))
        form = dict(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True))
        self.requests.append(form)
        refused = self.fault()
        if refused:
            return self.refuse(h, *refused)
        if self.clock_shift and len(self.requests) == 1:
            return self.refuse(h, 403, "SignatureDoesNotMatch")
        action = form["Action"]
        if action == "AssumeRole":
            form["signer"] = self.signer(h, body)
            if form["signer"] is None:
                return self.refuse(h, 403, "SignatureDoesNotMatch")
        elif h.headers.get("Authorization") or form["WebIdentityToken"] != "let me in":
            return self.refuse(h, 400, "InvalidIdentityToken")
        name = form["RoleArn"].rpartition("/")[2]
        access = f"ASIA{name.upper()}{sum(r['RoleArn'] == form['RoleArn'] for r in self.requests)}"
        self.store.keys[access] = (f"secret of {access}", f"token of {access}")
        expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.seconds))
        return self.answer(h, 200, f"<{action}Response><{action}Result><Credentials><AccessKeyId>{access}</AccessKeyId>"
                                   f"<SecretAccessKey>secret of {access}</SecretAccessKey><SessionToken>token of {access}"
                                   f"</SessionToken><Expiration>{expires}</Expiration></Credentials></{action}Result>"
                                   f"</{action}Response>")


class TokenServiceTest(S3Test):
    """A store, a token service, a machine with keys; the store tells whose keys signed its requests."""

    def setUp(self):
        support.CommandTest.setUp(self)
        self.store = Store()
        self.addCleanup(self.store.close)
        self.store.objects["data-1", "kept"] = b"x"
        self.store.keys = {f"AKIA{name}": (f"secret of AKIA{name}", None)
                           for name in ("ENVIRONMENT", "DEFAULT", "MINE", "OTHER", "CONTAINER", "INSTANCE")}
        self.sts = TokenService(self.store)
        self.addCleanup(self.sts.close)
        self.machine = start_server(0, self.serve_machine)
        self.addCleanup(self.machine.server_close)
        self.addCleanup(self.machine.shutdown)
        (self.folder / ".aws").mkdir()
        (self.folder / "token").write_text("let me in")
        (self.folder / "one").mkdir()
        (self.folder / "one/file.txt").write_text("x")

    def serve_machine(self, h):
        """A container's address and an instance's metadata."""
        name = "CONTAINER" if h.path == "/container" else "INSTANCE"
        keys = {"AccessKeyId": f"AKIA{name}", "SecretAccessKey": f"secret of AKIA{name}", "Code": "Success",
                "Expiration": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600)), "Token": None,
                "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z"}
        text = json.dumps(keys)
        if h.path == "/latest/api/token":
            text = "metadata-token"
        elif h.path.endswith("security-credentials/"):
            text = "machine"
        h.rfile.read(int(h.headers.get("Content-Length") or 0))
        h.send_response_only(200)
        h.send_header("Content-Length", str(len(text)))
        h.end_headers()
        h.wfile.write(text.encode())

    def environment(self, **more):
        machine = f"http://127.0.0.1:{self.machine.server_port}"
        return {"HOME": str(self.folder), "AWS_ENDPOINT_URL_S3": self.store.url, "AWS_ENDPOINT_URL_STS": self.sts.url,
                "AWS_EC2_METADATA_SERVICE_ENDPOINT": machine, "AWS_EC2_METADATA_DISABLED": "false",
                "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1", "LOCKSTEP_S3_RETRY_SECONDS": "0.3",
                "XDG_CACHE_HOME": str(self.folder / "cache"),
                **{name: value.replace("MACHINE", machine) for name, value in more.items()}}

    def command(self, *arguments, **more):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "BOTO"))}
        return subprocess.run(arguments, cwd=self.folder, capture_output=True, text=True, timeout=120,
                              env={**environment, **self.environment(**more)})

    def files(self, config, credentials):
        (self.folder / ".aws/config").write_text(config)
        (self.folder / ".aws/credentials").write_text(credentials)

    def signers(self):
        found = set()
        for headers in self.store.headers:
            lower = {name.lower(): value for name, value in headers.items()}
            given = re.search("Credential=([^/]+)/", lower.get("authorization", ""))
            found.add(given[1] if given else "none")
        return found

    def case(self, expected, config="", credentials="", botocore=True, **more):
        """Expected: an access key, or the pattern of an error, for which nothing may reach the store. `botocore`: what
        it does; True: the same, False: it signs as somebody else, or not at all."""
        self.files(config, credentials)
        self.store.headers.clear()
        self.sts.requests.clear()
        with self.subTest(config=config, credentials=credentials, **more):
            done = self.command(support.COMMAND, "upload", "one", "s3://data-1/there", **more)
            if re.fullmatch("(AKIA|ASIA)[A-Z0-9]+", expected):
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(self.signers(), {expected})
            else:
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertRegex(done.stderr, expected)
                self.assertEqual(self.signers(), set())
            self.assertNotRegex(done.stderr + done.stdout, "secret of A|token of A|let me in")
            if not HAS_BOTOCORE or botocore is not True:
                return done
            self.sts.requests.clear()
            known = self.command(sys.executable, "-c", BOTOCORE, **more)
            told = known.stdout.strip()
            if expected.startswith(("AKIA", "ASIA")):
                self.assertEqual(told, expected, known.stderr)
            else:
                self.assertRegex(told, "refused|none")
            return done

    KEYS = ("[default]\naws_access_key_id = AKIADEFAULT\naws_secret_access_key = secret of AKIADEFAULT\n"
            "[mine]\naws_access_key_id = AKIAMINE\naws_secret_access_key = secret of AKIAMINE\n")


class Identities(TokenServiceTest):
    """One small upload for each case."""

    def test_the_order_of_places(self):
        env = {"AWS_ACCESS_KEY_ID": "AKIAENVIRONMENT", "AWS_SECRET_ACCESS_KEY": "secret of AKIAENVIRONMENT"}
        web = {"AWS_WEB_IDENTITY_TOKEN_FILE": "token", "AWS_ROLE_ARN": ROLE + "pod"}
        container = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "MACHINE/container"}
        role = f"[profile role]\nrole_arn = {ROLE}lent\nsource_profile = mine\n"
        self.case("AKIAENVIRONMENT", role, self.KEYS, AWS_PROFILE="role", **env, **web, **container)
        self.case("ASIALENT1", role, self.KEYS, AWS_PROFILE="role", **web, **container)
        self.case("ASIAPOD1", role, self.KEYS, AWS_PROFILE="mine", **web, **container)
        self.case("ASIAPOD1", role, self.KEYS, **web)
        self.case("AKIAMINE", role, self.KEYS, AWS_PROFILE="mine", **container)
        self.case("AKIADEFAULT", role, self.KEYS, **container)
        self.case("AKIAOTHER", "[profile other]\naws_access_key_id = AKIAOTHER\naws_secret_access_key : "
                  "secret of AKIAOTHER\n", self.KEYS, AWS_PROFILE="other", **container)
        self.case("AKIACONTAINER", "[default]\nregion = us-east-1\n", **container)
        self.case("AKIAINSTANCE", "[profile here]\nregion = us-east-1\n", AWS_PROFILE="here")
        # AWS_DEFAULT_PROFILE comes before AWS_PROFILE.
        self.case("AKIADEFAULT", "", self.KEYS, AWS_DEFAULT_PROFILE="default", AWS_PROFILE="mine")
        # The credentials file comes before the configuration.
        self.case("AKIAMINE", "[profile mine]\naws_access_key_id = AKIAOTHER\naws_secret_access_key = x\n", self.KEYS,
                  AWS_PROFILE="mine")
        self.case("no keys found: neither AWS_ACCESS_KEY_ID, nor the profile `here`", "[profile here]\nregion = us-east-1\n",
                  AWS_PROFILE="here", AWS_EC2_METADATA_DISABLED="true")

    def test_roles_of_profiles(self):
        def role(**settings):
            return "[profile role]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items())

        lent = ROLE + "lent"
        done = self.case("ASIALENT1", role(role_arn=lent, source_profile="mine", external_id="x y&z=",
                                           role_session_name="me", duration_seconds="1200"), self.KEYS, AWS_PROFILE="role")
        self.files(role(role_arn=lent, source_profile="mine", external_id="x y&z=", role_session_name="me",
                        duration_seconds="1200"), self.KEYS)
        self.sts.requests.clear()
        done = self.command(support.COMMAND, "upload", "one", "s3://data-1/there", AWS_PROFILE="role")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.sts.requests, [{
            "Action": "AssumeRole", "Version": "2011-06-15", "RoleArn": lent, "RoleSessionName": "me",
            "ExternalId": "x y&z=", "DurationSeconds": "1200", "signer": "AKIAMINE"}])
        for kind, more in {"Environment": {}, "Ec2InstanceMetadata": {},
                           "EcsContainer": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "MACHINE/container"}}.items():
            if kind == "Environment":  # these keys themselves come first
                self.case("AKIAENVIRONMENT", role(role_arn=lent, credential_source=kind), AWS_PROFILE="role",
                          AWS_ACCESS_KEY_ID="AKIAENVIRONMENT", AWS_SECRET_ACCESS_KEY="secret of AKIAENVIRONMENT")
                continue
            self.case("ASIALENT1", role(role_arn=lent, credential_source=kind), AWS_PROFILE="role", **more)
        self.case("credential_source Environment, but there are no keys", role(role_arn=lent, credential_source="Environment"),
                  AWS_PROFILE="role")
        # A chain of roles, a profile that lends to itself, a web identity as source.
        chain = role(role_arn=lent, source_profile="first") + f"[profile first]\nrole_arn = {ROLE}first\nsource_profile=mine\n"
        self.case("ASIALENT1", chain, self.KEYS, AWS_PROFILE="role")
        self.assertIn("ASIAFIRST1", self.store.keys)
        self.case("ASIALENT1", role(role_arn=lent, source_profile="role", aws_access_key_id="AKIAOTHER",
                                    aws_secret_access_key="secret of AKIAOTHER"), AWS_PROFILE="role")
        pod = f"[profile pod]\nrole_arn = {ROLE}pod\nweb_identity_token_file = {self.folder}/token\n"
        self.case("ASIALENT1", role(role_arn=lent, source_profile="pod") + pod, AWS_PROFILE="role")
        self.case("ASIAPOD1", pod, AWS_PROFILE="pod")
        # Roles in the credentials file, indented settings, quoted names.
        self.case("ASIALENT1", "", self.KEYS + f"[role]\nrole_arn = {lent}\nsource_profile = mine\n", AWS_PROFILE="role")
        self.case("ASIALENT1", f'[profile "my role"]\n   role_arn = {lent}\n   source_profile = mine\n', self.KEYS,
                  AWS_PROFILE="my role")

    def test_what_is_not_supported_is_refused_by_name(self):
        keys = "aws_access_key_id = AKIAOTHER\naws_secret_access_key = secret of AKIAOTHER\n"
        lent = f"[profile x]\nrole_arn = {ROLE}lent\nsource_profile = mine\n"
        sso = "sso_account_id = 1\nsso_role_name = r\nsso_start_url = https://x\nsso_region = us-east-1\n"
        for text, pattern in {
                "[profile x]\n" + sso: r"`x` asks for keys by single sign-on \(sso_account_id, sso_role_name\)",
                "[profile x]\n" + sso + keys: "single sign-on",
                "[profile x]\nsso_session = s\n": r"single sign-on \(sso_session\)",
                "[profile x]\ncredential_process = touch made\n": r"a program \(credential_process\)",
                "[profile x]\ncredential_process = touch made\n" + keys: "credential_process",
                "[profile x]\nlogin_session = arn\n": "aws login",
                lent + "mfa_serial = arn:aws:iam::1:mfa/me\n": "mfa_serial"}.items():
            self.case(pattern, text, self.KEYS, botocore=False, AWS_PROFILE="x")
            source = text.replace("[profile x]", "[profile y]") + f"[profile x]\nrole_arn = {ROLE}lent\nsource_profile = y\n"
            self.case(pattern.replace("`x`", "`y`"), source, self.KEYS, botocore=False, AWS_PROFILE="x")
        self.assertFalse((self.folder / "made").exists())
        self.case("AWS_CREDENTIAL_FILE names a file of boto 2", botocore=False, AWS_CREDENTIAL_FILE="old")

    def test_what_is_incomplete_or_misspelled_is_never_signed_as_another(self):
        self.case("AWS_PROFILE names the profile `mien`, which does not exist.*\n.*did you mean `mine`", "", self.KEYS,
                  AWS_PROFILE="mien")
        self.case("AWS_PROFILE names the profile `mien`", "", self.KEYS, AWS_PROFILE="mien",
                  AWS_ACCESS_KEY_ID="AKIAENVIRONMENT", AWS_SECRET_ACCESS_KEY="secret of AKIAENVIRONMENT")
        self.case(r"`mine`, which does not exist.*\n.*must be \[profile mine\]", "[mine]\nregion = us-east-1\n",
                  AWS_PROFILE="mine")
        half = "[half]\naws_access_key_id = AKIAOTHER\n"
        self.case("`half` has only one of aws_access_key_id and aws_secret_access_key in the credentials file", "",
                  half, AWS_PROFILE="half")
        self.case("`half` has only one of", "[profile half]\naws_secret_access_key = secret of AKIAOTHER\n", half,
                  AWS_PROFILE="half")
        self.case("`half` has only one of", "", "[half]\naws_secret_access_key = x\n", botocore=False, AWS_PROFILE="half")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            self.case("only one of AWS_ACCESS_KEY_ID and", "", self.KEYS, botocore=name == "AWS_ACCESS_KEY_ID",
                      **{name: "AKIAENVIRONMENT"})
        role = f"[profile role]\nrole_arn = {ROLE}lent\n"
        self.case("neither source_profile nor credential_source", role, self.KEYS, AWS_PROFILE="role")
        self.case("both source_profile and credential_source", role + "source_profile = mine\ncredential_source = "
                  "Environment\n", self.KEYS, AWS_PROFILE="role")
        self.case("names the source_profile `mien`, which does not exist.*\n.*`mine`", role + "source_profile = mien\n",
                  self.KEYS, AWS_PROFILE="role")
        self.case("credential_source `Ec2Instance`, which does not exist", role + "credential_source = Ec2Instance\n",
                  AWS_PROFILE="role")
        self.case("`nothing`, the source_profile of the profile `role`, has no keys", role + "source_profile = nothing\n"
                  "[profile nothing]\nregion = us-east-1\n", AWS_PROFILE="role")
        self.case("the profiles form a cycle", role + f"source_profile = b\n[profile b]\nrole_arn = {ROLE}b\nsource_profile = role\n",
                  AWS_PROFILE="role")
        self.case("the profiles form a cycle", role + "source_profile = role\n", AWS_PROFILE="role")
        self.case("source_profile, but no role_arn", "[profile x]\nsource_profile = mine\n", self.KEYS, botocore=False,
                  AWS_PROFILE="x")
        self.case("unknown setting rolearn.*\n.*did you mean `role_arn`", "[profile x]\nrolearn = mine\n", botocore=False,
                  AWS_PROFILE="x")
        self.case("unknown setting aws_acces_key_id", "[default]\naws_acces_key_id = mine\n", botocore=False)
        self.case("AWS_SHARED_CREDENTIALS_FILE names nowhere, which does not exist", botocore=False,
                  AWS_SHARED_CREDENTIALS_FILE="nowhere")
        self.case("AWS_ROLE_ARN is set, but AWS_WEB_IDENTITY_TOKEN_FILE is not", botocore=False, AWS_ROLE_ARN=ROLE + "x")
        self.case("names the token of a web identity, but no role", AWS_WEB_IDENTITY_TOKEN_FILE="token")
        self.case("cannot open|no such file|No such file", AWS_WEB_IDENTITY_TOKEN_FILE="nowhere", AWS_ROLE_ARN=ROLE + "x")
        # Files as configparser reads them.
        self.case("credentials, line 2: neither a section nor NAME = VALUE", "", "[default]\naws_access_key_id\n")
        self.case("credentials, line 1: a setting stands before", "", "aws_access_key_id = x\n")
        self.case("line 3: a second value for aws_access_key_id", "", "[default]\naws_access_key_id = x\n"
                  "AWS_ACCESS_KEY_ID = y\n")
        self.case("a key has several lines", "", "[default]\naws_access_key_id = AKIADEFAULT\n  aws_secret_access_key = x\n"
                  "aws_secret_access_key = y\n", botocore=False)
        self.case("two sections for the profile `x`", "[profile x]\nregion = us-east-1\n[profile 'x']\n", botocore=False,
                  AWS_PROFILE="x")
        self.case("CREDENTIALS_FULL_URI is not an address for keys", AWS_CONTAINER_CREDENTIALS_FULL_URI="http://10.0.0.1/k")
        self.case("CREDENTIALS_FULL_URI is not an address for keys",
                  AWS_CONTAINER_CREDENTIALS_FULL_URI="http://localhost:x@10.0.0.1/k")

    def test_a_token_service_that_refuses_or_fails(self):
        role = f"[profile role]\nrole_arn = {ROLE}lent\nsource_profile = mine\n"
        self.sts.fault = lambda: (403, "AccessDenied")
        self.case(r"the role arn:aws:iam::123456789012:role/lent \(the profile `role`\) cannot be assumed at "
                  r"http://127.0.0.1:\d+: access is denied \(AccessDenied, status 403\)", role, self.KEYS, AWS_PROFILE="role")
        faults = [(503, "ServiceUnavailable"), (400, "Throttling"), None]
        self.sts.fault = lambda: faults.pop(0)
        self.case("ASIALENT3", role, self.KEYS, botocore=False, AWS_PROFILE="role")
        self.sts.fault = lambda: None
        self.sts.clock_shift = -7200
        self.case("ASIALENT2", role, self.KEYS, botocore=False, AWS_PROFILE="role")

    def test_addresses_of_the_token_service(self):
        other = "http://127.0.0.1:9"
        role = f"role_arn = {ROLE}lent\nsource_profile = mine\n"
        services = f"[services own]\nsts =\n  endpoint_url = {self.sts.url}\ns3 =\n  endpoint_url = {self.store.url}\n"
        for text, more in {
                f"[profile role]\n{role}": {"AWS_ENDPOINT_URL": other},
                f"[profile role]\n{role}services = own\nendpoint_url = {other}\n{services}":
                    {"AWS_ENDPOINT_URL_S3": "", "AWS_ENDPOINT_URL_STS": ""}}.items():
            self.files(text, self.KEYS)
            environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
            wanted = {**self.environment(AWS_PROFILE="role"), **more}
            done = subprocess.run([support.COMMAND, "upload", "one", "s3://data-1/there"], cwd=self.folder, text=True,
                                  capture_output=True, timeout=120,
                                  env={**environment, **{k: v for k, v in wanted.items() if v}})
            self.assertEqual(done.returncode, 0, done.stderr)


class Renewal(TokenServiceTest):
    def trained_with(self, text, **more):
        """Trains with a role whose keys end in the middle, in three ways."""
        self.store.put_folder("data-1", "digits/", self.shared / "digits")
        self.write(JOB.replace('"digits"', '"s3://data-1/digits"'))
        self.files(text, self.KEYS)
        return self.command(support.COMMAND, "train", "job.toml", "--quiet", "--out", "runs/there", LOCKSTEP_S3_CACHE_GB="0",
                            **more)

    def test_keys_of_roles_are_renewed_while_training(self):
        self.write(JOB)
        local = self.command(support.COMMAND, "train", "job.toml", "--quiet", "--out", "runs/here")
        self.assertEqual(local.returncode, 0, local.stderr)
        role = f"[profile role]\nrole_arn = {ROLE}lent\nsource_profile = mine\n"

        def fault(method, path):  # the first keys end early
            if len([1 for m, p in self.store.log if ".png" in p]) > 40:
                self.store.expired.add("ASIALENT1")
                self.store.expired.add("ASIAPOD1")

        self.store.fault = fault
        for text, more in ((role, {"AWS_PROFILE": "role"}),
                           ("", {"AWS_WEB_IDENTITY_TOKEN_FILE": "token", "AWS_ROLE_ARN": ROLE + "pod"})):
            self.sts.requests.clear()
            self.store.log.clear()
            self.store.headers.clear()
            done = self.trained_with(text, **more)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((self.folder / "runs/there/receipt.jsonl").read_bytes(),
                             (self.folder / "runs/here/receipt.jsonl").read_bytes())
            self.assertEqual(len(self.sts.requests), 2)
            self.assertEqual(len(self.signers()), 2)
            subprocess.run(["rm", "-r", self.folder / "runs/there"], check=True)

    def test_keys_are_renewed_before_they_expire(self):
        self.sts.seconds = 301  # renewed 300 seconds before
        self.store.fault = lambda method, path: time.sleep(0.1) if ".png" in path else None
        done = self.trained_with(f"[profile role]\nrole_arn = {ROLE}lent\nsource_profile = mine\n", AWS_PROFILE="role")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(len(self.sts.requests), 1)
        self.assertGreater(len(self.signers()), 1)


if __name__ == "__main__":
    unittest.main()
