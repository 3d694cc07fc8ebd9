// Tool calls that take effect once, over the ledger's HTTP door. No dependency but fetch.

/** The members of a problem document (RFC 9457) that a caller acts on. */
export interface ProblemDocument {
  status: number;
  code: string;
  detail: string;
  row_id?: string;
  attempt?: number;
  deadline?: string;
  resets_at?: string;
  differs?: string[];
}

/** What an operation answers when it went well. */
export interface Answer {
  outcome: "applied" | "replayed" | "reserved" | "settled_late" | "released" | "extended";
  key: string;
  state: "pending" | "applied" | "failed";
  row_id?: string;
  attempt?: number;
  effect_key?: string;
  lease_seconds?: number;
  result?: unknown;
}

/** The ledger decided: nothing is ambiguous. Branch on code. */
export class Problem extends Error {
  readonly code: string;
  readonly document: ProblemDocument;
  readonly retryAfter: number; // seconds; 0 means that repeating does not help

  constructor(document: ProblemDocument, retryAfter: number) {
    super(`${document.code}: ${document.detail}`);
    this.code = document.code;
    this.document = document;
    this.retryAfter = retryAfter;
  }
}

/** Throw it from act where the effect certainly did not happen: the tokens are given back. */
export class SurelyNot extends Error {}

/** How to make one effect. */
export interface Effect<R> {
  /** Makes the effect within the given time. What it throws, but for SurelyNot, leaves the call pending for a later once. */
  act(effectKey: string, timeoutSeconds: number): Promise<R>;
  /** Looks for the effect in the outside world. */
  find(): Promise<R | undefined>;
}

/** The fields of reserve beside session, key, tool and args. */
export interface CallOptions {
  scope?: "session" | "tenant";
  tokens?: number;
  lease_seconds?: number;
  horizon_seconds?: number;
  cursor?: string;
  expect_cursor?: string;
  lookup?: string;
  idempotent?: boolean;
  compensates?: string | { key: string; scope?: "session" | "tenant" };
  refund_original?: boolean;
  trace?: string;
}

const sleep = (seconds: number) => new Promise<void>((done) => setTimeout(done, seconds * 1000));

/** One session. Authenticate by headers; toolledger dev takes {"X-Tenant-Id": ...}. */
export class Ledger {
  private readonly base: string;
  private readonly headers: Record<string, string>;
  private readonly session: string;
  private readonly tries: number;

  constructor(base: string, headers: Record<string, string>, session: string, tries = 8) {
    this.base = base;
    this.headers = { "Content-Type": "application/json", ...headers };
    this.session = session;
    this.tries = tries;
  }

  /** Sends one operation, the same bytes on every try: a repeat is a replay. Throws Problem, or what the network threw. */
  async post(operation: string, fields: object): Promise<Answer> {
    const body = JSON.stringify({ session: this.session, ...fields });
    for (let n = 1; ; n++) {
      try {
        return await this.send(operation, body);
      } catch (e) {
        const decided = e instanceof Problem && e.document.status < 500;
        if (decided || n >= this.tries) throw e; // after the last try it is not known: call again with the same key
        await sleep(e instanceof Problem ? e.retryAfter || 1 : Math.random() * 0.5);
      }
    }
  }

  private async send(operation: string, body: string): Promise<Answer> {
    const signal = AbortSignal.timeout(30_000);
    const response = await fetch(`${this.base}/v1/${operation}`, { method: "POST", headers: this.headers, body, signal });
    const document = (await response.json()) as Answer | ProblemDocument;
    if (response.ok && "outcome" in document) return document;
    if (!("code" in document)) throw new Error("not the ledger's answer but that of something in between");
    throw new Problem(document, Number(response.headers.get("Retry-After") ?? 0));
  }

  /** Makes the effect once and returns its result, whoever made it. */
  async once<R>(key: string, tool: string, args: object, effect: Effect<R>, options: CallOptions = {}, patience = 300): Promise<R> {
    const call: Record<string, unknown> = { key, tool, args, ...options };
    const until = Date.now() + patience * 1000;
    for (;;) {
      let held: Answer;
      try {
        held = await this.post("reserve", call);
      } catch (e) {
        if (!(e instanceof Problem) || (e.code !== "in_progress" && e.code !== "outcome_unknown")) throw e;
        const found = await effect.find();
        if (found !== undefined) return await this.finalize(call, e.document, found);
        if (e.code === "outcome_unknown") {
          const { row_id, attempt, deadline } = e.document; // nothing can land any more, and we looked
          call.verified_absent = { row_id, attempt, deadline };
        } else if (Date.now() + e.retryAfter * 1000 > until) {
          throw e;
        } else {
          await sleep(e.retryAfter);
        }
        continue;
      }
      if (held.outcome !== "reserved") return held.result as R;
      let made: R;
      try {
        made = await effect.act(held.effect_key!, held.lease_seconds! * 0.8);
      } catch (e) {
        if (e instanceof SurelyNot) {
          await this.post("release", { key, scope: options.scope, row_id: held.row_id, attempt: held.attempt, reason: e.message });
        }
        throw e;
      }
      return await this.finalize(call, held, made);
    }
  }

  private async finalize<R>(call: Record<string, unknown>, of: { row_id?: string; attempt?: number }, result: R): Promise<R> {
    // All of the call but how this one reserve went about it: scope names the row, and a ledger that has forgotten the call
    // meanwhile knows nothing of it.
    const { lease_seconds: _lease, verified_absent: _absent, ...what } = call;
    return (await this.post("finalize", { ...what, row_id: of.row_id, attempt: of.attempt, result })).result as R;
  }
}
