"""A small S3 store in memory for tests, which checks signatures by itself and causes faults on request."""

import base64
import calendar
import hashlib
import hmac
import http.server
import random
import re
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def keyed(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature(secret, method, path, query, headers, names, payload, region, stamp, service="s3"):
    """Signature Version 4, written from its description, for comparison."""
    quoted = sorted((urllib.parse.quote(k, safe="-._~"), urllib.parse.quote(v, safe="-._~")) for k, v in query)
    canonical = "\n".join([
        method, urllib.parse.quote(path, safe="/-._~"), "&".join(f"{k}={v}" for k, v in quoted),
        "".join(f"{n}:{' '.join(headers.get(n, '').split())}\n" for n in names), ";".join(names), payload])
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{sha256(canonical.encode())}"
    key = keyed(("AWS4" + secret).encode(), stamp[:8])
    for part in (region, service, "aws4_request"):
        key = keyed(key, part)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def start_server(port, serve):
    """Serves HTTP on loopback: serve(handler) answers a request. Port 0: a free one."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_):
            pass

        def do_GET(self):
            serve(self)

        do_PUT = do_HEAD = do_DELETE = do_POST = do_GET

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_):
            pass

    server = Server(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


class Store:
    """The contents and the behavior of a server. `fault(handler, path)` returns the name of a fault or None."""

    def __init__(self):
        self.objects = {}     # (bucket, key) -> bytes
        self.uploads = {}     # upload id -> (bucket, key, {number: bytes})
        self.tags = {}        # (bucket, key) -> ETag, if it is not an MD5 of the contents
        self.checksums = {}   # (bucket, key) -> headers with checksums
        self.types = {}       # (bucket, key) -> content type
        self.keys = {"AKIDEXAMPLE": ("very-secret-key", None)}  # access key -> (secret, session token)
        self.expired = set()  # access keys
        self.region = "us-east-1"
        self.anonymous = False
        self.clock_shift = 0
        self.ceph = False     # compares ETags of conditional writes with their quotes, as Ceph 16 does
        self.page = 1000      # keys of one page of a listing
        self.fault = lambda method, path: None
        self.log = []         # (method, path with query)
        self.headers = []     # of all requests
        self.lock = threading.Lock()
        self.start(0)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def start(self, port):
        self.server = start_server(port, self.serve)

    def start_again(self, seconds):
        """Ends the server and its connections, and starts another one at its port after some seconds."""
        port, self.fault = self.server.server_port, lambda method, path: "cut"
        self.close()
        time.sleep(seconds)
        self.fault = lambda method, path: None
        self.start(port)

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def environment(self, **others):
        """For a command that uses the store; without the keys that this process may have."""
        return {"AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
                "AWS_SECRET_ACCESS_KEY": "very-secret-key", "AWS_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true", **others}

    def put_folder(self, bucket, prefix, folder):
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                self.objects[bucket, prefix + file.relative_to(folder).as_posix()] = file.read_bytes()

    def etag(self, name):
        return f'"{self.tags.get(name) or hashlib.md5(self.objects[name]).hexdigest()}"'

    def put(self, name, data, tag=None):
        """Replaces an object, whole."""
        self.objects[name] = data
        self.checksums.pop(name, None)
        self.tags.pop(name, None)
        if tag:
            self.tags[name] = tag

    # Answers.

    def answer(self, h, status, body=b"", **headers):
        h.send_response_only(status)
        h.send_header("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + self.clock_shift)))
        h.send_header("Content-Length", headers.pop("length", str(len(body))))
        for name, value in headers.items():
            h.send_header(name.replace("_", "-"), value)
        h.end_headers()
        if h.command != "HEAD":
            h.wfile.write(body)

    def refuse(self, h, status, code, **headers):
        more = f"<Region>{self.region}</Region>" if code == "AuthorizationHeaderMalformed" else ""
        if more and h.command == "HEAD":
            headers["x-amz-bucket-region"] = self.region
        self.answer(h, status, f"<Error><Code>{code}</Code><Message>no</Message>{more}</Error>".encode(), **headers)

    def is_refused(self, h, path, query, body):
        given = h.headers.get("Authorization")
        if given is None:
            return False if self.anonymous else self.refuse(h, 403, "AccessDenied") or True
        match = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, "
                             r"SignedHeaders=([^,]+), Signature=([0-9a-f]{64})", given)
        access, _, region, names, signed = match.groups()
        stamp = h.headers["x-amz-date"]
        if access in self.expired:
            return self.refuse(h, 400, "ExpiredToken") or True
        if access not in self.keys:
            return self.refuse(h, 403, "InvalidAccessKeyId") or True
        secret, token = self.keys[access]
        if region != self.region:
            return self.refuse(h, 400, "AuthorizationHeaderMalformed") or True
        age = time.time() + self.clock_shift - calendar.timegm(time.strptime(stamp, "%Y%m%dT%H%M%SZ"))
        if abs(age) > 900:
            return self.refuse(h, 403, "RequestTimeTooSkewed") or True
        payload = h.headers["x-amz-content-sha256"]
        lower = {k.lower(): v for k, v in h.headers.items()}
        right = signature(secret, h.command, path, query, lower, names.split(";"), payload, region, stamp)
        if right != signed or payload != sha256(body) or h.headers.get("x-amz-security-token") != token:
            return self.refuse(h, 403, "SignatureDoesNotMatch") or True
        return False

    def serve(self, h):
        body = h.rfile.read(int(h.headers.get("Content-Length") or 0))
        raw, _, text = h.path.partition("?")
        path = urllib.parse.unquote(raw)
        query = urllib.parse.parse_qsl(text, keep_blank_values=True)
        with self.lock:
            self.log.append((h.command, h.path))
            self.headers.append(dict(h.headers.items()))
            fault = self.fault(h.command, h.path)
        if fault == "slow down":
            return self.refuse(h, 503, "SlowDown", Retry_After="0.1")
        if fault == "error":
            return self.refuse(h, 500, "InternalError")
        if fault == "cut":
            h.close_connection = True
            return None
        if fault == "redirect":
            return self.refuse(h, 307, "TemporaryRedirect", Location="http://127.0.0.1:9/elsewhere")
        if self.is_refused(h, path, query, body):
            return None
        host = h.headers.get("Host", "").partition(":")[0]
        if host.endswith(".localhost"):  # virtual style
            path = f"/{host[:-len('.localhost')]}{path}"
        bucket, _, key = path[1:].partition("/")
        if key == "" and h.command == "GET":
            return self.list(h, bucket, dict(query))
        names = dict(query)
        if "uploads" in names or "uploadId" in names:
            return self.upload(h, (bucket, key), names, body, fault)
        return self.object(h, bucket, key, body, fault)

    def list(self, h, bucket, query):
        prefix, token = query.get("prefix", ""), query.get("continuation-token", "")
        keys = sorted((k for b, k in list(self.objects) if b == bucket and k.startswith(prefix)),
                      key=lambda k: k.encode())
        if not any(b == bucket for b, _ in list(self.objects)):
            return self.refuse(h, 404, "NoSuchBucket")
        shown, folders = [], set()
        for key in keys:
            rest = key[len(prefix):]
            if query.get("delimiter") and "/" in rest:
                folders.add(prefix + rest[:rest.index("/") + 1])
            elif key > token:
                shown.append(key)
        most = min(int(query.get("max-keys", "1000")), self.page)
        more = len(shown) > most
        shown = shown[:most]

        def entry(key):
            data = self.objects[bucket, key]
            return (f"<Contents><Key>{escape(urllib.parse.quote(key))}</Key>"
                    f"<ETag>{escape(self.etag((bucket, key)), {chr(34): '&quot;'})}</ETag>"
                    f"<Size>{len(data)}</Size></Contents>")

        text = ("<ListBucketResult><EncodingType>url</EncodingType>" + "".join(map(entry, shown)) +
                "".join(f"<CommonPrefixes><Prefix>{urllib.parse.quote(f)}</Prefix></CommonPrefixes>"
                        for f in sorted(folders)) +
                f"<IsTruncated>{str(more).lower()}</IsTruncated>" +
                (f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if more else "") +
                "</ListBucketResult>")
        return self.answer(h, 200, text.encode())

    def object(self, h, bucket, key, body, fault):
        name = bucket, key
        if h.command == "DELETE":
            self.objects.pop(name, None)
            return self.answer(h, 204)
        if h.command == "PUT":
            source = h.headers.get("x-amz-copy-source")
            if source:
                other, _, other_key = urllib.parse.unquote(source)[1:].partition("/")
                body = self.objects[other, other_key]
            if self.is_damaged(h, body):
                return self.refuse(h, 400, "BadDigest")
            tag = self.etag(name) if name in self.objects else None
            wanted, there = h.headers.get("If-Match"), tag
            if self.ceph and tag:
                there = tag.strip('"')
            if wanted not in (None, there) or h.headers.get("If-None-Match") == "*" and tag:
                return self.refuse(h, 412, "PreconditionFailed")
            self.put(name, body)
            self.types[name] = h.headers.get("Content-Type")
            told = h.headers.get("x-amz-checksum-sha256")
            if told:
                self.checksums[name] = {"x-amz-checksum-sha256": told}
            if fault == "lost":  # the answer alone
                h.close_connection = True
                return None
            if fault == "other etag":
                return self.answer(h, 200, ETag=f'"{hashlib.md5(body + b"x").hexdigest()}"')
            if fault == "encrypted":
                return self.answer(h, 200, ETag=f'"{hashlib.md5(body + b"x").hexdigest()}"',
                                   x_amz_server_side_encryption="aws:kms")
            return self.answer(h, 200, b"<CopyObjectResult/>" if source else b"", ETag=self.etag(name))
        data = self.objects.get(name)
        if data is None:
            return self.refuse(h, 404, "NoSuchKey")
        etag = self.etag(name)
        if h.headers.get("If-Match", etag) != etag:
            return self.refuse(h, 412, "PreconditionFailed")
        whole, status = data, 200
        given = re.fullmatch(r"bytes=(\d+)-(\d+)", h.headers.get("Range", ""))
        if given:
            data, status = whole[int(given[1]):int(given[2]) + 1], 206
        if fault == "damage" and data:
            at = random.Random(len(data)).randrange(len(data))
            data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]
        if fault == "truncate" and data:
            h.close_connection = True
            return self.answer(h, status, data[:len(data) // 2], length=str(len(data)), ETag=etag)
        if fault == "short" and data:  # with a length that fits
            return self.answer(h, status, data[:len(data) // 2], ETag=etag)
        more = self.checksums.get(name, {}) if h.headers.get("x-amz-checksum-mode") == "ENABLED" else {}
        return self.answer(h, status, data, ETag=etag, **more)

    def is_damaged(self, h, body):
        told, checksum = h.headers.get("Content-MD5"), h.headers.get("x-amz-checksum-sha256")
        return (told and base64.b64decode(told) != hashlib.md5(body).digest() or
                checksum and base64.b64decode(checksum) != hashlib.sha256(body).digest())

    def upload(self, h, name, query, body, fault):
        """The requests of an object in parts."""
        if h.command == "POST" and "uploads" in query:
            number = f"upload-{len(self.log)}+/="
            self.uploads[number] = (name, {})
            self.types[name] = h.headers.get("Content-Type")
            return self.answer(h, 200, f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId>"
                                       "</InitiateMultipartUploadResult>".encode())
        there = self.uploads.get(query["uploadId"])
        if there is None or there[0] != name:
            return self.refuse(h, 404, "NoSuchUpload")
        parts = there[1]
        if h.command == "DELETE":
            del self.uploads[query["uploadId"]]
            return self.answer(h, 204)
        if h.command == "PUT":
            if self.is_damaged(h, body):
                return self.refuse(h, 400, "BadDigest")
            parts[int(query["partNumber"])] = body
            more = b"x" if fault == "other etag" else b""
            return self.answer(h, 200, ETag=f'"{hashlib.md5(body + more).hexdigest()}"')
        told = re.findall(rb'<PartNumber>(\d+)</PartNumber><ETag>"(\w+)"</ETag>', body)
        right = [(str(n).encode(), hashlib.md5(parts[n]).hexdigest().encode()) for n in sorted(parts)]
        if told != right or not told:
            return self.refuse(h, 400, "InvalidPart")
        if fault == "late":  # told after the status
            return self.answer(h, 200, b"<Error><Code>InternalError</Code></Error>")
        joined = hashlib.md5(b"".join(hashlib.md5(parts[n]).digest() for n in sorted(parts))).hexdigest()
        self.put(name, b"".join(parts[n] for n in sorted(parts)), f"{joined}-{len(parts)}")
        del self.uploads[query["uploadId"]]
        if fault == "lost":
            h.close_connection = True
            return None
        tag = '"' + "0" * 32 + f'-{len(parts)}"' if fault == "other joined etag" else self.etag(name)
        return self.answer(h, 200, f"<CompleteMultipartUploadResult><ETag>{escape(tag, {chr(34): '&quot;'})}</ETag>"
                                   "</CompleteMultipartUploadResult>".encode())
