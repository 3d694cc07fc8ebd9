"""Tool calls that take effect once, over the ledger's HTTP door. Standard library only."""

import http.client
import json
import random
import time
import urllib.error
import urllib.request


# What a finalize says of a call is what reserve said, but for these: how this one reserve goes about it.
_RESERVE_ONLY = ("lease_seconds", "wait_seconds", "retry", "verified_absent")


class Problem(Exception):
    """The ledger decided (RFC 9457): nothing is ambiguous. Branch on code."""

    def __init__(self, document, retry_after):
        super().__init__(f"{document['code']}: {document['detail']}")
        self.code, self.document, self.retry_after = document["code"], document, retry_after


class SurelyNot(Exception):
    """Raise it from act where the effect certainly did not happen: the tokens are given back."""


class Ledger:
    """One session. Authenticate by headers; toolledger dev takes {"X-Tenant-Id": ...}."""

    def __init__(self, base, headers, session, timeout=30, tries=8):
        self.base, self.session, self.timeout, self.tries = base, session, timeout, tries
        self.headers = {"Content-Type": "application/json", **headers}

    def post(self, operation, **fields):
        """Sends one operation, the same bytes on every try: a repeat is a replay. Raises Problem, or what the network raised."""
        body = json.dumps({"session": self.session, **fields}).encode()
        for last in [False] * (self.tries - 1) + [True]:
            try:
                return self._send(operation, body)
            except Problem as problem:
                if problem.document["status"] < 500 or last:
                    raise
                time.sleep(problem.retry_after or 1)
            except (OSError, http.client.HTTPException, ValueError):
                if last:
                    raise  # not known: call again with the same key
                time.sleep(random.random() * 0.5)

    def _send(self, operation, body):
        request = urllib.request.Request(f"{self.base}/v1/{operation}", body, self.headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                document = json.load(error)
                if "code" not in document:
                    raise ValueError("not the ledger's answer but that of something in between") from None
                raise Problem(document, float(error.headers.get("Retry-After") or 0)) from None

    def once(self, key, tool, args, act, find, tokens=0, patience=300, **more):
        """Makes the effect once and returns its result, whoever made it.

        act(effect_key, timeout) makes the effect, within timeout seconds. Any exception but SurelyNot leaves the call
        pending, for a later once with the same key. find() looks for the effect in the outside world and returns its result,
        or None. more are further fields of reserve, such as lease_seconds, scope or compensates.
        """
        call = {"key": key, "tool": tool, "args": args, "tokens": tokens, **more}
        until = time.monotonic() + patience
        while True:
            try:
                held = self.post("reserve", **call)
            except Problem as problem:
                if problem.code not in ("in_progress", "outcome_unknown"):
                    raise  # a key conflict, no quota, ...: for whoever planned the call
                effect = find()
                if effect is not None:
                    return self._finalize(call, problem.document, effect)
                if problem.code == "outcome_unknown":  # nothing can land any more, and we looked
                    call["verified_absent"] = {name: problem.document[name] for name in ("row_id", "attempt", "deadline")}
                elif time.monotonic() + problem.retry_after > until:
                    raise
                else:
                    time.sleep(problem.retry_after)
                continue
            if held["outcome"] != "reserved":
                return held["result"]
            try:
                effect = act(held["effect_key"], held["lease_seconds"] * 0.8)
            except SurelyNot as no:
                name = {field: call[field] for field in ("key", "scope") if field in call}
                self.post("release", **name, row_id=held["row_id"], attempt=held["attempt"], reason=str(no))
                raise
            return self._finalize(call, held, effect)

    def _finalize(self, call, attempt, effect):
        # All of it: scope names the row, and a ledger that has forgotten the call meanwhile knows nothing of it.
        what = {name: value for name, value in call.items() if name not in _RESERVE_ONLY}
        return self.post("finalize", **what, row_id=attempt["row_id"], attempt=attempt["attempt"], result=effect)["result"]
