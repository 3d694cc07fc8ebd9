package schema

// Format is the version of the item shapes below, stored in every item.
const Format = 1

// Attribute names. Expressions alias every one of them as "#" + name, whether DynamoDB reserves the word or not.
const (
	PK             = "pk"
	SK             = "sk"
	AFormat        = "format"
	AVersion       = "version" // counts writes of one item; raised in the expression, never by the client
	ACreatedAt     = "createdAt"
	AUpdatedAt     = "updatedAt"
	AExpiresAt     = "expiresAt"  // epoch seconds: the table's TTL attribute
	AReservedAt    = "reservedAt" // of the running attempt; only from the second on
	ARowID         = "rowId"
	AHolder        = "holder"
	AAttempt       = "attempt"
	AState         = "state"
	ATool          = "tool"
	AIntentHash    = "intentHash"
	AArgHashes     = "argHashes"
	ASession       = "session"
	AScope         = "scope"
	AIdempotent    = "idempotent"
	AVerifier      = "verifier" // the tool had a Verify when it reserved
	AHorizon       = "horizon"  // milliseconds
	AKeep          = "keep"     // milliseconds; only where a call overrides the ledger's
	ACursor        = "cursor"
	AExpectCursor  = "expectCursor"
	ATrace         = "trace"
	ALookup        = "lookup"
	AReserved      = "reservedTokens"
	ACharged       = "chargedTokens"
	AShortfall     = "shortfall"
	ADebits        = "debits" // map of "<period>/<shard>" to tokens
	AResultJSON    = "resultJson"
	AResultRef     = "resultRef" // map of ref, sha256, bytes
	AFailure       = "failure"
	AUnverified    = "unverified"
	ASuspects      = "suspects" // set of "<rowId>/<attempt>"
	AApplied       = "appliedAttempt"
	AContention    = "contention"
	ADeadline      = "deadline" // epoch milliseconds; pending rows only
	ALastDeadline  = "lastDeadline"
	APendingBucket = "pendingBucket"
	ASweepAt       = "sweepAt" // epoch milliseconds
	AHeld          = "held"
	ASettledBy     = "settledBy"
	ASettledFrom   = "settledFrom"
	ABy            = "by"
	AWhy           = "why"
	ACompensates   = "compensates" // "<scope>:<key>" of the call that this one undoes
	ARefundOrig    = "refundOriginal"
	ACompensatedBy = "compensatedBy"
	ACompensatedIn = "compensatedIn" // session of that key; only where the call that is undone belongs to the tenant
	ACompensatedAt = "compensatedAt"
	AErasing       = "erasing"
	AQuotaID       = "quotaId"
	AGranted       = "granted"
	ARemaining     = "remaining"
	AExtra         = "extra" // the part of granted that grants added to the plan's share
	AShard         = "shard"
	APlanVersion   = "planVersion"
	ASuspended     = "suspended"
	AObsID         = "obsId"
	ADuplicates    = "duplicates"
	AInFlight      = "inFlight"
	AKeyConflicts  = "keyConflicts"
	AQuotaDenials  = "quotaDenials"
	AGiveUps       = "contentionGiveUps"
	ATokens        = "tokens"
	APeriod        = "period"
	AShards        = "shards"
	AOverdraft     = "overdraft"
	AOwner         = "owner"
	ACheckpoint    = "checkpoint"
	AFinished      = "finished"
	AParent        = "parent"
)

// PendingIndex is the sparse index of pending rows by deadline.
const PendingIndex = "PendingByDeadline"

// Buckets is the number of partitions that tenant-wide rows of one tenant, and pending rows of all, are spread over.
const Buckets = 16
