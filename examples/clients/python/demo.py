"""Opens things at a small outside world, each once: demo.py LEDGER WORLD COUNT [KEY TO DIE AFTER]"""

import json
import os
import sys
import urllib.parse
import urllib.request

from ledger_client import Ledger, SurelyNot

ledger_url, world, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
die_after = sys.argv[4] if len(sys.argv) > 4 else ""
ledger = Ledger(ledger_url, {"X-Tenant-Id": "acme"}, "python-demo")


def open_thing(key):
    def act(effect_key, timeout):
        body = json.dumps({"tool": "open_thing", "args": {"name": key}, "ref": key}).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": effect_key}
        try:
            with urllib.request.urlopen(urllib.request.Request(world + "/effects", body, headers), timeout=timeout) as answer:
                made = json.load(answer)
        except urllib.error.HTTPError as error:
            if 400 <= error.code < 500:
                raise SurelyNot(f"the world answered {error.code}") from None
            raise
        if key == die_after:
            os._exit(9)
        return made["id"]

    def find():
        with urllib.request.urlopen(world + "/effects?ref=" + urllib.parse.quote(key), timeout=10) as answer:
            effects = json.load(answer)["effects"]
        return effects[0]["id"] if effects else None

    return ledger.once(key, "open_thing", {"name": key}, act, find, tokens=5, lease_seconds=1, horizon_seconds=1)


for n in range(count):
    key = f"thing-{n}"
    print(key, open_thing(key), flush=True)
