package writers

import (
	"bytes"
	"context"

	"toolledger/internal/schema"
)

// ReservationOf is Reservation for a caller who still knows what the call was, with the fields that it was reserved with.
// Where the row is gone by now, the reservation is made of these, so that Finalize records an effect that happened all the
// same: settled late, as a new row that debits the running period. Where the row is there, it decides, and c must be the
// same action. What c says of lease, wait, retry and a verified attempt means nothing here.
// One read. Errors: ErrInvalid, ErrMissingTenant, ErrKeyConflict (the attempt was reserved for another action), ErrUnavailable.
func (s Session) ReservationOf(ctx context.Context, c Call, rowID string, attempt int) (*Reservation, error) {
	const op = "reservation"
	r, err := s.newRequest(op, c)
	if err != nil {
		return nil, err
	}
	if err := schema.CheckID("row_id", rowID, maxRowID); err != nil {
		return nil, invalidID(op, err)
	}
	if attempt < 1 {
		return nil, invalid(op, "attempt", "must be at least 1")
	}
	found, err := s.t.l.readRow(ctx, r.key)
	if err != nil {
		return nil, failure(ctx, op, err)
	}
	if found != nil && (found.RowID == rowID || found.SettledFrom == rowID) {
		if !bytes.Equal(found.IntentHash, r.intent.Hash[:]) || !r.sameOriginal(found) {
			return nil, r.conflict(found)
		}
	}
	now := s.t.l.now()
	row := r.newRow(nil, now)
	if found != nil && found.RowID == rowID {
		row = found
	} else {
		row.Deadline = now // nobody knows the deadline that it had; it has passed
	}
	row.RowID, row.Attempt = rowID, int64(attempt)
	return s.hold(c.Key, row), nil
}
