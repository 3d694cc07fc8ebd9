// Opens things at a small outside world, each once: demo.ts LEDGER WORLD COUNT [KEY TO DIE AFTER]
import { Ledger, SurelyNot } from "./ledgerClient.ts";

const [ledgerURL, world, count, dieAfter] = process.argv.slice(2);
if (ledgerURL === undefined || world === undefined) throw new Error("usage: demo.ts LEDGER WORLD COUNT [KEY TO DIE AFTER]");
const ledger = new Ledger(ledgerURL, { "X-Tenant-Id": "acme" }, "typescript-demo");

for (let n = 0; n < Number(count); n++) {
  const key = `thing-${n}`;
  const id = await ledger.once<number>(
    key,
    "open_thing",
    { name: key },
    {
      async act(effectKey, timeoutSeconds) {
        const response = await fetch(`${world}/effects`, {
          method: "POST",
          headers: { "Content-Type": "application/json", "Idempotency-Key": effectKey },
          body: JSON.stringify({ tool: "open_thing", args: { name: key }, ref: key }),
          signal: AbortSignal.timeout(Math.floor(timeoutSeconds * 1000)),
        });
        if (response.status >= 400 && response.status < 500) throw new SurelyNot(`the world answered ${response.status}`);
        const made = (await response.json()) as { id: number };
        if (key === dieAfter) process.exit(9);
        return made.id;
      },
      async find() {
        const response = await fetch(`${world}/effects?ref=${encodeURIComponent(key)}`);
        const { effects } = (await response.json()) as { effects: { id: number }[] };
        return effects[0]?.id;
      },
    },
    { tokens: 5, lease_seconds: 1, horizon_seconds: 1 },
  );
  console.log(key, id);
}
